"""Which call is taken in which state, and what all others get (contract sections 3 and 6)."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.errors import FailureKind, Refusal, RefusalReason
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.limits import MAX_METADATA_BYTES
from bigfleet_azure.service.provider import Ack
from tests.support.rig import Rig, acked, never, refused, refusing, state_name
from tests.support.virtual import in_virtual_time

looptime = pytest.mark.looptime

STATES = [
    "SPECULATIVE",
    "CREATING",
    "IDLE",
    "CONFIGURING",
    "CONFIGURED",
    "DRAINING",
    "DELETING",
    "FAILED",
]
# Contract section 2, and the repeats of section 5 that these set-ups have on record.
LEGAL = {
    ("SPECULATIVE", Kind.CREATE): "CREATING",
    ("IDLE", Kind.CONFIGURE): "CONFIGURING",
    ("CONFIGURED", Kind.DRAIN): "DRAINING",
    ("IDLE", Kind.DELETE): "DELETING",
}
REPEATS = {
    ("CREATING", Kind.CREATE),
    ("IDLE", Kind.CREATE),
    ("CONFIGURING", Kind.CONFIGURE),
    ("CONFIGURED", Kind.CONFIGURE),
    ("DRAINING", Kind.DRAIN),
    ("DELETING", Kind.DELETE),
}


async def put(rig: Rig, machine: str, state: str) -> None:
    """Bring a fresh slot into `state` on the shortest way, and keep it there."""
    match state:
        case "SPECULATIVE":
            return
        case "CREATING":
            rig.backend.steps[Kind.CREATE] = never
            acked(await rig.create(machine))
        case "IDLE":
            await rig.idle(machine)
        case "CONFIGURING":
            await rig.idle(machine)
            rig.backend.ready = never
            acked(await rig.configure(machine, metadata={"k": "v"}))
        case "CONFIGURED":
            await rig.configured(machine, metadata={"k": "v"})
        case "DRAINING":
            await rig.configured(machine, metadata={"k": "v"})
            rig.backend.steps[Kind.DRAIN] = never
            acked(await rig.drain(machine))
        case "DELETING":
            await rig.idle(machine)
            rig.backend.steps[Kind.DELETE] = never
            acked(await rig.delete(machine))
        case "FAILED":
            rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
            acked(await rig.create(machine))
            await rig.reaches(machine, "FAILED", within=5)
    await asyncio.sleep(1)
    assert rig.state(machine) == state


@looptime
@pytest.mark.behaviour(14, 18)
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("state", STATES)
async def test_each_call_in_each_state(state: str, kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await put(rig, machine, state)
        before, work = rig.list(), len(rig.backend.work)
        answer = await rig.call(kind)(machine)
        if (state, kind) in LEGAL:
            shown = pb.Machine.FromString(acked(answer).machine)
            assert state_name(shown) == LEGAL[state, kind]
            return
        if (state, kind) in REPEATS:
            assert isinstance(answer, Ack)
        else:
            assert refused(answer).reason is RefusalReason.ILLEGAL_STATE
            assert state in refused(answer).message
        await asyncio.sleep(5)
        assert rig.list() == before
        assert len(rig.backend.work) == work


@looptime
@pytest.mark.behaviour(16)
@pytest.mark.parametrize("kind", list(Kind))
async def test_an_unknown_machine_is_not_found_and_not_made(kind: Kind) -> None:
    async with Rig() as rig:
        prefix = rig.ids()[0][:-3]
        before = rig.list()
        for unknown in ("x", f"{prefix}004", f"{prefix}0", f"{prefix}0000", f"{prefix}000-r1"):
            assert refused(await rig.call(kind)(unknown)).reason is RefusalReason.UNKNOWN_MACHINE
            assert rig.get(unknown) is None
        assert rig.list() == before


@looptime
@pytest.mark.behaviour(16)
@pytest.mark.parametrize(
    "machine", ["-", "--", "\x00", "a b", "offering 1", "é-000", "٣-٣", "-000"]
)
async def test_odd_ids_are_unknown_and_harmless(machine: str) -> None:
    async with Rig() as rig:
        assert rig.get(machine) is None
        assert refused(await rig.create(machine)).reason is RefusalReason.UNKNOWN_MACHINE
        await rig.parts.catalogue.apply(rig.offers)
        assert len(rig.ids()) == 4


@looptime
@pytest.mark.behaviour(16, 30)
@pytest.mark.parametrize("kind", list(Kind))
async def test_names_that_are_empty_or_too_long_are_invalid_and_leave_no_mark(kind: Kind) -> None:
    async with Rig() as rig:
        token = Token("s", 5, 5)
        for machine, shard in (("", "s"), ("m" * 254, "s"), ("é" * 127, "s"), ("m", "s" * 254)):
            answer = await rig.call(kind)(machine, token=Token(shard, 5, 5))
            assert refused(answer).reason is RefusalReason.INVALID
            assert len(rig.parts.inventory.marks) == 0
        longest = await rig.call(kind)("m" * 253, token=token)
        assert refused(longest).reason is RefusalReason.UNKNOWN_MACHINE
        assert len(rig.parts.inventory.marks) == 1


@looptime
@pytest.mark.behaviour(19)
@pytest.mark.parametrize("grace", [-1, -(2**63)])
async def test_a_negative_grace_is_invalid_and_leaves_the_machine_bound(grace: int) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        before = await rig.configured(machine)
        assert refused(await rig.drain(machine, grace)).reason is RefusalReason.INVALID
        await asyncio.sleep(5)
        assert rig.machine(machine) == before


@looptime
@pytest.mark.behaviour(20)
async def test_metadata_is_echoed_in_full_up_to_the_limit_and_refused_above_it() -> None:
    async with Rig() as rig:
        first, second = rig.ids()[:2]
        overhead = len("k") + 2 + 4 + 5
        fits = {"k": "x" * (MAX_METADATA_BYTES - overhead)}
        bound = await rig.configured(first, metadata=fits)
        assert dict(bound.shard_metadata) == fits
        idle = await rig.idle(second)
        for entries in (
            {"k": "x" * MAX_METADATA_BYTES},
            {f"key-{n}": "x" * 1024 for n in range(512)},
            {f"key-{n}": "x" * 8192 for n in range(256)},
        ):
            answer = await rig.configure(second, metadata=entries)
            assert refused(answer).reason is RefusalReason.INVALID
            assert rig.machine(second) == idle


@looptime
@pytest.mark.behaviour(21)
async def test_a_blob_up_to_the_backend_s_limit_is_delivered_and_a_larger_one_refused() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        idle = await rig.idle(machine)
        big = bytes(rig.backend.max_blob_bytes + 1)
        assert refused(await rig.configure(machine, blob=big)).reason is RefusalReason.INVALID
        assert rig.machine(machine) == idle
        acked(await rig.configure(machine, blob=bytes(3 * 2**20)))
        await rig.reaches(machine, "CONFIGURED")
        assert rig.backend.blobs == [bytes(3 * 2**20)]


@looptime
@pytest.mark.behaviour(14)
@pytest.mark.parametrize("cluster", ["", "c" * 254])
async def test_a_cluster_that_is_empty_or_too_long_is_invalid_after_the_fence(
    cluster: str,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        idle = await rig.idle(machine)
        token = Token("s", 1, 1)
        answer = await rig.configure(machine, cluster, token=token)
        assert refused(answer).reason is RefusalReason.INVALID
        assert rig.machine(machine) == idle
        again = await rig.configure(machine, "blue", token=token)
        assert refused(again).reason is RefusalReason.STALE_TOKEN


STEPS = st.lists(
    st.tuples(
        st.sampled_from([*Kind, "reads", "wait", "fail", "restart"]),
        st.integers(0, 5),
        st.sampled_from(["blue", "green", ""]),
        st.integers(-2, 2),
    ),
    max_size=30,
)


@pytest.mark.behaviour(22)
@settings(max_examples=150)
@given(STEPS)
def test_failed_precondition_never_comes_without_a_stale_token(
    steps: list[tuple[Kind | str, int, str, int]],
) -> None:
    in_virtual_time(_walk(steps))


async def _walk(steps: list[tuple[Kind | str, int, str, int]]) -> None:
    rig = Rig("--transition-timeout", "5s")
    await rig.__aenter__()
    ids = [*rig.ids(), "nobody", ""]
    sequence = 0
    for step, which, cluster, grace in steps:
        machine = ids[which]
        sequence += 1
        token = Token("s", 1, sequence) if grace else Token("", 0, 0)
        match step:
            case Kind.CONFIGURE:
                answer = await rig.configure(machine, cluster, token=token)
            case Kind.DRAIN:
                answer = await rig.drain(machine, grace, token)
            case Kind.CREATE | Kind.DELETE:
                answer = await rig.call(Kind(step))(machine, token=token)
            case "fail":
                rig.backend.steps[list(Kind)[which % 4]] = refusing(FailureKind.INVALID)
                continue
            case "restart":
                rig = await rig.restarted("--transition-timeout", "5s")
                await rig.__aenter__()
                continue
            case "wait":
                await asyncio.sleep(which)
                continue
            case _:
                rig.list()
                continue
        if isinstance(answer, Refusal):
            assert answer.reason is not RefusalReason.STALE_TOKEN, answer
        else:
            assert state_name(pb.Machine.FromString(answer.machine)) != "FAILED"
    await rig.stop()
