"""Operations that fail, machines in FAILED, and how their capacity comes back."""

import asyncio

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind, RefusalReason
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind
from tests.support.rig import Rig, acked, at_once, never, refused, refusing, state_name

pytestmark = pytest.mark.looptime

DEFINITE = sorted({*FailureKind} - RETRYABLE - {FailureKind.DEADLINE})


async def before(rig: Rig, kind: Kind, machine: str) -> None:
    """Bring an unused slot to where `kind` starts."""
    match kind:
        case Kind.CREATE:
            pass
        case Kind.CONFIGURE | Kind.DELETE:
            await rig.idle(machine)
        case Kind.DRAIN:
            await rig.configured(machine, metadata={"k": "v"})


async def failed(rig: Rig, kind: Kind, machine: str, text: str = "bad image") -> pb.Machine:
    await before(rig, kind, machine)
    rig.backend.steps[kind] = refusing(FailureKind.INVALID, text)
    acked(await rig.call(kind)(machine))
    return await rig.reaches(machine, "FAILED", within=10)


@pytest.mark.behaviour(62, 10)
@pytest.mark.parametrize("reason", DEFINITE)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_definite_refusal_fails_the_machine_soon_and_says_why(
    kind: Kind, reason: FailureKind
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)
        settled = rig.machine(machine)
        rig.backend.steps[kind] = refusing(reason, "PolicyViolation: no")
        acked(await rig.call(kind)(machine))
        found = await rig.reaches(machine, "FAILED", within=1)
        assert found.last_error == f"{kind} failed: PolicyViolation: no"
        assert found.host == settled.host
        assert found.HasField("host") == (kind is not Kind.CREATE)
        bound = settled.cluster or ("blue" if kind is Kind.CONFIGURE else "")
        assert found.cluster == bound
        await asyncio.sleep(300)
        assert rig.machine(machine) == found
        assert next(m for m in rig.list().machines if m.id == machine) == found
        assert next(iter(rig.list(8).machines)) == found


@pytest.mark.behaviour(65, 14)
@pytest.mark.parametrize("kind", list(Kind))
async def test_every_mutation_of_a_failed_machine_is_refused_and_changes_nothing(
    kind: Kind,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        found = await failed(rig, Kind.DRAIN, machine)
        revision = rig.list().revision
        assert refused(await rig.call(kind)(machine)).reason is RefusalReason.ILLEGAL_STATE
        assert rig.machine(machine) == found
        assert rig.list().revision == revision


@pytest.mark.behaviour(63)
@pytest.mark.parametrize(
    ("kind", "seconds"),
    [(Kind.CREATE, 480), (Kind.CONFIGURE, 480), (Kind.DRAIN, 900), (Kind.DELETE, 480)],
)
async def test_a_spent_deadline_fails_the_machine_and_says_so(kind: Kind, seconds: int) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)
        rig.backend.steps[kind] = never
        acked(await rig.call(kind)(machine))
        await asyncio.sleep(seconds - 1)
        assert rig.state(machine) == TRANSITIONS[kind].via.name
        await asyncio.sleep(2)
        found = rig.machine(machine)
        assert state_name(found) == "FAILED"
        assert found.last_error == f"{kind} deadline exceeded after {seconds}s"


@pytest.mark.behaviour(63)
async def test_the_deadline_text_tells_the_last_trouble() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.QUOTA, "QuotaExceeded: 10 of 10")
        acked(await rig.create(machine))
        found = await rig.reaches(machine, "FAILED", within=500)
        assert "deadline" in found.last_error
        assert "QuotaExceeded: 10 of 10" in found.last_error


@pytest.mark.behaviour(76, 63)
async def test_a_node_that_never_is_ready_fails_at_the_configure_deadline() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        rig.backend.ready = never
        acked(await rig.configure(machine))
        await asyncio.sleep(479)
        assert rig.state(machine) == "CONFIGURING"
        assert rig.backend.count("wait_ready") == 1
        await asyncio.sleep(2)
        assert rig.state(machine) == "FAILED"
        assert "deadline" in rig.machine(machine).last_error


@pytest.mark.behaviour(76)
async def test_a_machine_is_configured_when_its_node_is_ready_and_not_before() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        ready = asyncio.Event()

        async def wait(_: Assignment) -> None:
            await ready.wait()

        rig.backend.ready = wait
        acked(await rig.configure(machine))
        await asyncio.sleep(200)
        assert rig.backend.blobs == [b"join me"]
        assert rig.state(machine) == "CONFIGURING"
        ready.set()
        await rig.reaches(machine, "CONFIGURED", within=1)


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("reason", [FailureKind.INVALID, FailureKind.TRANSIENT])
async def test_a_drain_without_grace_on_a_failing_substrate_ends(reason: FailureKind) -> None:
    async with Rig("--transition-timeout", "8s") as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.backend.steps[Kind.DRAIN] = refusing(reason)
        acked(await rig.drain(machine, 0))
        found = await rig.reaches(machine, "FAILED", within=10)
        assert found.last_error


@pytest.mark.behaviour(64)
async def test_what_a_create_made_after_its_deadline_is_removed_and_the_state_stays() -> None:
    async with Rig("--transition-timeout", "2s", "--failed-dwell", "0") as rig:
        machine = rig.ids()[0]

        async def late(work: Assignment) -> None:
            try:
                await asyncio.sleep(4)
            except asyncio.CancelledError:
                from tests.support.rig import ScriptedHost

                rig.backend.hosts[work.machine_id] = ScriptedHost(work.operation_id)
                raise

        rig.backend.steps[Kind.CREATE] = late
        acked(await rig.create(machine))
        found = await rig.reaches(machine, "FAILED", within=3)
        await asyncio.sleep(60)
        assert rig.machine(machine) == found
        assert rig.backend.hosts == {}
        assert [debt.machine_id for debt in rig.backend.reclaimed] == [machine]


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("kind", [Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE])
async def test_a_late_success_of_another_kind_changes_nothing(kind: Kind) -> None:
    async with Rig("--transition-timeout", "2s", "--failed-dwell", "0") as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)

        async def late(_: Assignment) -> None:
            await asyncio.shield(asyncio.sleep(4))

        rig.backend.steps[kind] = late
        acked(await rig.call(kind)(machine))
        found = await rig.reaches(machine, "FAILED", within=3)
        await asyncio.sleep(60)
        assert rig.machine(machine) == found


@pytest.mark.behaviour(68, 60)
@pytest.mark.parametrize("kind", list(Kind))
async def test_failed_capacity_returns_under_a_new_id_and_the_total_stays(kind: Kind) -> None:
    async with Rig() as rig:
        ids = rig.ids()
        machine = ids[0]
        await failed(rig, kind, machine)
        rig.backend.steps = dict.fromkeys(Kind, at_once)
        await asyncio.sleep(1)
        revision = rig.list().revision
        await asyncio.sleep(598)
        assert rig.state(machine) == "FAILED"
        await asyncio.sleep(30)
        assert rig.get(machine) is None
        assert rig.ids() == sorted([*ids[1:], f"{machine}-r1"])
        assert rig.list().revision != revision
        assert machine not in rig.backend.hosts
        assert refused(await rig.create(machine)).reason is RefusalReason.UNKNOWN_MACHINE
        again = await rig.idle(f"{machine}-r1")
        assert again.last_error == ""
        assert again.cluster == ""
        assert dict(again.shard_metadata) == {}


@pytest.mark.behaviour(68)
async def test_failed_capacity_fails_and_returns_again_and_again() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for generation in range(1, 13):
            await failed(rig, Kind.CREATE, rig.ids()[0])
            await asyncio.sleep(1)
            rig.list()
            await asyncio.sleep(700)
            assert rig.ids()[0] == f"{machine}-r{generation}"
            assert len(rig.ids()) == 4


@pytest.mark.behaviour(68)
async def test_a_failed_machine_no_list_has_carried_stays_however_long_it_dwelt() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await failed(rig, Kind.CREATE, machine)
        await asyncio.sleep(5 * 3600)
        assert rig.state(machine) == "FAILED"
        rig.list()
        await asyncio.sleep(1)
        assert rig.get(machine) is None


@pytest.mark.behaviour(68)
async def test_a_dwell_of_zero_keeps_failed_machines_for_ever() -> None:
    async with Rig("--failed-dwell", "0") as rig:
        machine = rig.ids()[0]
        await failed(rig, Kind.CREATE, machine)
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(100 * 3600)
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(68)
async def test_the_dwell_goes_on_over_a_restart_and_a_list_must_carry_the_machine_again() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await failed(rig, Kind.CREATE, machine)
    await asyncio.sleep(1)
    rig.list()
    await asyncio.sleep(500)
    async with await rig.restarted() as again:
        await asyncio.sleep(200)
        assert again.state(machine) == "FAILED"
        again.list()
        await asyncio.sleep(1)
        assert again.get(machine) is None
        assert len(again.ids()) == 4
    async with await again.restarted() as third:
        assert third.ids()[0] == f"{machine}-r1"
        third.backend.steps[Kind.CREATE] = at_once
        await third.idle(f"{machine}-r1")


@pytest.mark.behaviour(68)
async def test_the_id_stays_until_the_substrate_is_cleared() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        closed = True

        async def reclaiming(_: object) -> None:
            if closed:
                raise BackendError(FailureKind.TRANSIENT, "NicReservedForAnotherVm")

        rig.backend.reclaiming = reclaiming
        await failed(rig, Kind.CONFIGURE, machine)
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(3600)
        assert rig.state(machine) == "FAILED"
        closed = False
        await asyncio.sleep(700)
        assert rig.get(machine) is None


@pytest.mark.behaviour(65, 68)
async def test_calls_on_a_failed_machine_do_not_pile_up_work() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await failed(rig, Kind.CONFIGURE, machine)
        await asyncio.sleep(1)
        tasks = len(asyncio.all_tasks())
        for sequence in range(1, 20):
            refused(await rig.drain(machine, token=Token("s", 1, sequence)))
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == tasks
        rig.list()
        await asyncio.sleep(700)
        assert len(rig.backend.reclaimed) == 1
        assert rig.get(machine) is None


@pytest.mark.behaviour(55, 64)
async def test_a_debt_alone_moves_no_revision() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]

        async def reclaiming(_: object) -> None:
            raise BackendError(FailureKind.TRANSIENT, "still reserved")

        rig.backend.reclaiming = reclaiming
        await failed(rig, Kind.CONFIGURE, machine)
        await asyncio.sleep(1)
        revision = rig.list().revision
        await asyncio.sleep(3600)
        assert rig.store.debts
        assert rig.list().revision == revision


@pytest.mark.behaviour(62)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_bug_in_the_backend_does_not_lose_the_operation(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)
        calls = 0

        async def buggy(_: Assignment) -> None:
            nonlocal calls
            calls += 1
            if calls < 4:
                raise ValueError("join me")

        rig.backend.steps[kind] = buggy
        acked(await rig.call(kind)(machine))
        await rig.reaches(machine, TRANSITIONS[kind].target.name, within=60)
        assert calls == 4
        assert "bug in the backend" in caplog.text


@pytest.mark.behaviour(63, 69)
async def test_a_backend_bug_until_the_deadline_tells_its_kind_but_not_its_text() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)

        async def buggy(_: Assignment) -> None:
            raise ValueError("join me: secret")

        rig.backend.steps[Kind.CONFIGURE] = buggy
        acked(await rig.configure(machine))
        found = await rig.reaches(machine, "FAILED", within=500)
        assert "ValueError" in found.last_error
        assert "secret" not in found.last_error


@pytest.mark.behaviour(62)
async def test_a_timeout_error_of_the_backend_itself_is_not_taken_for_the_deadline() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        calls = 0

        async def slow_socket(_: Assignment) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise TimeoutError

        rig.backend.steps[Kind.CREATE] = slow_socket
        acked(await rig.create(machine))
        await rig.reaches(machine, "IDLE", within=10)
