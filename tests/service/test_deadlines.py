"""How long an operation may take, what counts towards it, and what a restart makes of it."""

import asyncio

import pytest

from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind
from tests.support.rig import Rig, ScriptedHost, acked, after, at_once, never, refusing, state_name

pytestmark = pytest.mark.looptime


async def before(rig: Rig, kind: Kind, machine: str) -> None:
    match kind:
        case Kind.CREATE:
            pass
        case Kind.CONFIGURE | Kind.DELETE:
            await rig.idle(machine)
        case Kind.DRAIN:
            await rig.configured(machine)


async def begun(rig: Rig, kind: Kind, machine: str) -> str:
    """Accept `kind` on a machine that is where it starts; returns the operation id."""
    return acked(await rig.call(kind)(machine)).operation_id


@pytest.mark.behaviour(63)
@pytest.mark.parametrize(
    ("flags", "grace", "seconds"),
    [
        ([], 0, 900),
        ([], 599, 900),
        ([], 601, 901),
        ([], 3600, 3900),
        ([], 24 * 3600, 24 * 3600 + 300),
        ([], 2**63 - 1, 24 * 3600 + 300),
        (["--drain-timeout", "2h"], 3600, 7200),
        (["--transition-timeout", "2s"], 0, 2),
        (["--transition-timeout", "2s"], 600, 2),
    ],
)
async def test_a_drain_may_take_its_grace_and_some_more(
    flags: list[str], grace: int, seconds: int
) -> None:
    async with Rig(*flags) as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.backend.steps[Kind.DRAIN] = never
        acked(await rig.drain(machine, grace))
        await asyncio.sleep(seconds - 0.5)
        assert rig.state(machine) == "DRAINING"
        assert rig.backend.work[-1].grace_seconds == min(grace, 24 * 3600)
        await asyncio.sleep(1)
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(63)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_transition_timeout_is_exact_for_every_kind(kind: Kind) -> None:
    async with Rig("--transition-timeout", "2s") as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)
        rig.backend.steps[kind] = never
        await begun(rig, kind, machine)
        await asyncio.sleep(1.9)
        assert rig.state(machine) == TRANSITIONS[kind].via.name
        await asyncio.sleep(0.2)
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(63)
@pytest.mark.parametrize("kind", list(Kind))
async def test_each_kind_has_a_deadline_of_its_own(kind: Kind) -> None:
    async with Rig(f"--{kind}-timeout", "1000s") as rig:
        machine = rig.ids()[0]
        await before(rig, kind, machine)
        rig.backend.steps[kind] = never
        await begun(rig, kind, machine)
        await asyncio.sleep(999)
        assert rig.state(machine) == TRANSITIONS[kind].via.name
        await asyncio.sleep(2)
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(63)
async def test_time_spent_in_the_queue_does_not_count() -> None:
    async with Rig("--create-concurrency", "1", "--create-timeout", "60s") as rig:
        rig.backend.steps[Kind.CREATE] = after(50)
        for machine in rig.ids():
            acked(await rig.create(machine))
        await asyncio.sleep(201)
        assert {rig.state(machine) for machine in rig.ids()} == {"IDLE"}


@pytest.mark.behaviour(63, 80)
async def test_time_spent_in_the_queue_does_not_count_over_a_restart_either() -> None:
    flags = ["--create-concurrency", "1", "--create-timeout", "60s"]
    rig = Rig(*flags)
    await rig.__aenter__()
    ids = rig.ids()
    rig.backend.steps[Kind.CREATE] = after(50)
    for machine in ids:
        acked(await rig.create(machine))
    await asyncio.sleep(95)
    async with await rig.restarted(*flags) as again:
        await asyncio.sleep(300)
        assert [again.state(machine) for machine in ids[2:]] == ["IDLE", "IDLE"]


@pytest.mark.behaviour(63)
async def test_a_full_pool_of_one_kind_does_not_hold_up_another() -> None:
    async with Rig("--delete-concurrency", "1") as rig:
        first, second, third = rig.ids()[:3]
        await rig.idle(first)
        await rig.idle(second)
        rig.backend.steps[Kind.DELETE] = never
        acked(await rig.delete(first))
        acked(await rig.delete(second))
        await rig.idle(third)
        assert rig.backend.count("delete") == 1


@pytest.mark.behaviour(78, 80)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_goal_reached_while_the_daemon_was_down_counts_also_after_the_deadline(
    kind: Kind,
) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await before(rig, kind, machine)
    if kind is Kind.CONFIGURE:
        rig.backend.ready = never
    else:
        rig.backend.steps[kind] = never
    operation = await begun(rig, kind, machine)
    await asyncio.sleep(1)
    await rig.stop()
    hosts = rig.backend.hosts
    match kind:
        case Kind.CREATE:
            hosts[machine] = ScriptedHost(operation)
        case Kind.CONFIGURE:
            rig.backend.ready = at_once
        case Kind.DRAIN:
            hosts[machine].cluster = ""
        case Kind.DELETE:
            hosts.clear()
    calls = len(rig.backend.calls)
    await asyncio.sleep(10_000)
    async with await rig.restarted() as again:
        found = await again.reaches(machine, TRANSITIONS[kind].target.name, within=5)
        assert found.last_error == ""
        assert found.HasField("host") == (kind is not Kind.DELETE)
        asked = [method for method, _ in again.backend.calls[calls:]]
        assert asked == ["wait_ready" if kind is Kind.CONFIGURE else "inspect"]


@pytest.mark.behaviour(78, 63)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_goal_missed_while_the_daemon_was_down_fails_without_new_work(
    kind: Kind,
) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await before(rig, kind, machine)
    rig.backend.ready = rig.backend.steps[kind] = never
    await begun(rig, kind, machine)
    await asyncio.sleep(1)
    await rig.stop()
    begun_calls = {m: rig.backend.count(m) for m in ("create", "configure", "drain", "delete")}
    await asyncio.sleep(10_000)
    async with await rig.restarted() as again:
        await asyncio.sleep(60)
        found = again.machine(machine)
        assert state_name(found) == "FAILED"
        assert "deadline" in found.last_error
        assert {method: again.backend.count(method) for method in begun_calls} == begun_calls


@pytest.mark.behaviour(78)
async def test_a_foreign_host_is_not_taken_for_the_goal_of_a_late_create() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = never
    await begun(rig, Kind.CREATE, machine)
    await rig.stop()
    rig.backend.hosts[machine] = ScriptedHost("op-of-somebody-else")
    await asyncio.sleep(10_000)
    async with await rig.restarted() as again:
        await again.reaches(machine, "FAILED", within=60)


@pytest.mark.behaviour(80)
@pytest.mark.parametrize("kind", list(Kind))
async def test_an_operation_resumes_with_the_time_it_has_left(kind: Kind) -> None:
    rig = Rig("--transition-timeout", "100s")
    await rig.__aenter__()
    machine = rig.ids()[0]
    await before(rig, kind, machine)
    rig.backend.steps[kind] = never
    await begun(rig, kind, machine)
    await asyncio.sleep(40)
    await rig.stop()
    await asyncio.sleep(40)
    async with await rig.restarted("--transition-timeout", "100s") as again:
        await asyncio.sleep(19)
        assert again.state(machine) == TRANSITIONS[kind].via.name
        assert again.backend.work[-1].resumed
        assert len({work.operation_id for work in again.backend.work[-2:]}) == 1
        await asyncio.sleep(2)
        assert again.state(machine) == "FAILED"


@pytest.mark.behaviour(67)
async def test_waiting_for_throttling_ends_at_the_deadline_and_not_at_the_named_time() -> None:
    async with Rig("--create-timeout", "30s") as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.THROTTLED, "429", retry_after=900)
        acked(await rig.create(machine))
        await asyncio.sleep(31)
        assert rig.state(machine) == "FAILED"
        assert "429" in rig.machine(machine).last_error


@pytest.mark.behaviour(78)
async def test_a_look_at_the_substrate_that_fails_is_no_success() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = never
    await begun(rig, Kind.CREATE, machine)
    await rig.stop()
    await asyncio.sleep(10_000)

    async def inspecting(_: str) -> None:
        raise BackendError(FailureKind.THROTTLED, "429")

    rig.backend.inspecting = inspecting
    async with await rig.restarted() as again:
        await again.reaches(machine, "FAILED", within=60)


@pytest.mark.behaviour(78)
@pytest.mark.parametrize("error", [ValueError("a bug"), None], ids=["bug", "hangs"])
async def test_a_look_at_the_substrate_that_breaks_or_hangs_still_ends(
    error: Exception | None,
) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = never
    await begun(rig, Kind.CREATE, machine)
    await rig.stop()
    await asyncio.sleep(10_000)

    async def inspecting(_: str) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    rig.backend.inspecting = inspecting
    async with await rig.restarted() as again:
        await again.reaches(machine, "FAILED", within=60)
