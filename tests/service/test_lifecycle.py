"""The life of one machine as its callers see it (contract sections 2, 3 and 5)."""

import asyncio

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.provider import Ack
from tests.support.rig import Rig, acked, after, never, offer, refused, state_name

pytestmark = pytest.mark.looptime

# Written out from contract section 2, and not taken from the code under test.
STEPS = {
    Kind.CREATE: ("SPECULATIVE", "CREATING", "IDLE"),
    Kind.CONFIGURE: ("IDLE", "CONFIGURING", "CONFIGURED"),
    Kind.DRAIN: ("CONFIGURED", "DRAINING", "IDLE"),
    Kind.DELETE: ("IDLE", "DELETING", "SPECULATIVE"),
}
ROUND = (Kind.CREATE, Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE)
WITH_HOST = {"IDLE", "CONFIGURING", "CONFIGURED", "DRAINING", "DELETING"}
BOUND = {"CONFIGURING", "CONFIGURED", "DRAINING"}
METADATA = {"a": "1", "b": ""}


async def ask(rig: Rig, kind: Kind, machine: str) -> Ack:
    if kind is Kind.CONFIGURE:
        return acked(await rig.configure(machine, "blue", METADATA))
    return acked(await rig.call(kind)(machine))


def shown(ack: Ack) -> pb.Machine:
    return pb.Machine.FromString(ack.machine)


def assert_carries_what_its_state_needs(machine: pb.Machine) -> None:
    state = state_name(machine)
    assert machine.HasField("host") == (state in WITH_HOST)
    assert bool(machine.cluster) == (state in BOUND)
    assert dict(machine.shard_metadata) == (METADATA if state in BOUND else {})
    assert machine.last_error == ""


def watched(rig: Rig, machine: str) -> list[str]:
    """The states the machine goes through from now on, as Get shows each publication."""
    seen = [rig.state(machine)]
    publish = rig.parts.inventory.publish

    def published(changes: object) -> None:
        publish(changes)  # type: ignore[arg-type]
        assert_carries_what_its_state_needs(rig.machine(machine))
        if rig.state(machine) != seen[-1]:
            seen.append(rig.state(machine))

    rig.parts.inventory.publish = published  # type: ignore[method-assign]
    return seen


@pytest.mark.behaviour(7, 10, 11)
@pytest.mark.parametrize("kind", ROUND)
async def test_each_kind_is_acknowledged_on_its_way_and_settles_at_its_goal(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for earlier in ROUND[: ROUND.index(kind)]:
            await ask(rig, earlier, machine)
            await rig.reaches(machine, STEPS[earlier][2])
        rig.backend.steps[kind] = after(3)
        seen = watched(rig, machine)
        ack = await ask(rig, kind, machine)
        assert ack.operation_id
        assert state_name(shown(ack)) == STEPS[kind][1]
        assert_carries_what_its_state_needs(shown(ack))
        assert shown(ack) == rig.machine(machine)
        await asyncio.sleep(2.9)
        assert seen == list(STEPS[kind][:2])
        await asyncio.sleep(0.2)
        assert seen == list(STEPS[kind])
        assert [m for m in rig.list().machines if m.id == machine] == [rig.machine(machine)]


@pytest.mark.behaviour(6, 8, 10, 11, 38)
async def test_four_full_rounds_leave_nothing_behind_and_skip_nothing() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        seen, operations = watched(rig, machine), set()
        for _ in range(4):
            for kind in ROUND:
                operations.add((await ask(rig, kind, machine)).operation_id)
                settled = await rig.reaches(machine, STEPS[kind][2])
                assert_carries_what_its_state_needs(settled)
        steps = [state for kind in ROUND for state in STEPS[kind][1:]]
        assert seen == ["SPECULATIVE", *4 * steps]
        assert len(operations) == 16


@pytest.mark.behaviour(6, 38)
async def test_four_bindings_of_one_host_leave_nothing_behind_at_idle() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        empty = await rig.idle(machine)
        configures = set()
        for _ in range(4):
            configures.add((await ask(rig, Kind.CONFIGURE, machine)).operation_id)
            await rig.reaches(machine, "CONFIGURED")
            await ask(rig, Kind.DRAIN, machine)
            assert await rig.reaches(machine, "IDLE") == empty
        assert len(configures) == 4


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("kind", ROUND)
async def test_the_acknowledgement_does_not_wait_for_the_substrate(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for earlier in ROUND[: ROUND.index(kind)]:
            await ask(rig, earlier, machine)
            await rig.reaches(machine, STEPS[earlier][2])
        rig.backend.steps[kind] = never
        started = asyncio.get_running_loop().time()
        await ask(rig, kind, machine)
        assert asyncio.get_running_loop().time() == started
        assert rig.state(machine) == STEPS[kind][1]


@pytest.mark.behaviour(11)
async def test_a_host_that_exists_is_not_shown_before_its_create_is_done() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]

        async def made_but_not_done(_: object) -> None:
            from tests.support.rig import ScriptedHost

            rig.backend.hosts[machine] = ScriptedHost("op")
            await asyncio.Event().wait()

        rig.backend.steps[Kind.CREATE] = made_but_not_done
        acked(await rig.create(machine))
        await asyncio.sleep(10)
        assert rig.backend.hosts
        assert not rig.machine(machine).HasField("host")


@pytest.mark.behaviour(12, 55)
async def test_a_quiet_fleet_does_not_move() -> None:
    async with Rig() as rig:
        first, second = rig.ids()[:2]
        await rig.configured(first)
        await rig.idle(second)
        await asyncio.sleep(1)
        before = rig.list()
        for _ in range(20):
            await rig.parts.reconciler.reconcile()
            rig.parts.blocks.expire()
            await rig.parts.janitor.forget_marks()
            rig.parts.refresh_metrics()
            await rig.parts.catalogue.apply(rig.offers)
            await asyncio.sleep(60)
            assert rig.list(since_revision=before.revision).machines == []
        assert rig.list() == before


@pytest.mark.behaviour(13)
async def test_cycles_of_create_and_delete_conserve_the_fleet() -> None:
    async with Rig(offers=[offer(8)]) as rig:
        ids = rig.ids()

        async def cycle(machine: str) -> None:
            for _ in range(5):
                await rig.idle(machine)
                acked(await rig.delete(machine))
                await rig.reaches(machine, "SPECULATIVE")
                assert rig.ids() == ids

        await asyncio.gather(*(cycle(machine) for machine in ids))
        assert rig.ids() == ids
        assert rig.backend.hosts == {}


@pytest.mark.behaviour(48)
async def test_the_host_provider_is_the_same_over_a_machine_s_life() -> None:
    async with Rig("--provider", "azure-west") as rig:
        machine = rig.ids()[0]
        providers = set()
        for kind in ROUND[:3]:
            await ask(rig, kind, machine)
            providers.add((await rig.reaches(machine, STEPS[kind][2])).host.provider)
        assert providers == {"azure-west"}


@pytest.mark.behaviour(35, 36)
@pytest.mark.parametrize("kind", ROUND)
async def test_many_equal_calls_at_once_are_one_operation(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for earlier in ROUND[: ROUND.index(kind)]:
            await ask(rig, earlier, machine)
            await rig.reaches(machine, STEPS[earlier][2])
        rig.backend.steps[kind] = after(1)
        acks = await asyncio.gather(*(ask(rig, kind, machine) for _ in range(16)))
        assert len({ack.operation_id for ack in acks}) == 1
        assert {state_name(shown(ack)) for ack in acks} == {STEPS[kind][1]}
        for ack in acks:
            assert_carries_what_its_state_needs(shown(ack))
        await rig.reaches(machine, STEPS[kind][2])
        assert rig.backend.count(str(kind), machine) == 1


@pytest.mark.behaviour(17, 35)
@pytest.mark.parametrize("kind", [*ROUND])
async def test_a_repeat_at_the_goal_is_the_first_operation_again(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        first = ""
        for earlier in ROUND[: ROUND.index(kind) + 1]:
            first = (await ask(rig, earlier, machine)).operation_id
            await rig.reaches(machine, STEPS[earlier][2])
        answer, calls = rig.list(), len(rig.backend.calls)
        again = await ask(rig, kind, machine)
        assert again.operation_id == first
        assert shown(again) == rig.machine(machine)
        await asyncio.sleep(60)
        assert rig.list() == answer
        assert len(rig.backend.calls) == calls


@pytest.mark.behaviour(17)
async def test_create_is_still_repeated_after_the_host_was_bound_and_freed() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        first = (await ask(rig, Kind.CREATE, machine)).operation_id
        await rig.reaches(machine, "IDLE")
        await ask(rig, Kind.CONFIGURE, machine)
        await rig.reaches(machine, "CONFIGURED")
        drain = (await ask(rig, Kind.DRAIN, machine)).operation_id
        await rig.reaches(machine, "IDLE")
        assert (await ask(rig, Kind.CREATE, machine)).operation_id == first
        assert (await ask(rig, Kind.DRAIN, machine)).operation_id == drain


@pytest.mark.behaviour(18)
async def test_a_drain_of_an_earlier_life_of_the_slot_is_not_repeated_in_a_new_one() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for kind in ROUND:
            await ask(rig, kind, machine)
            await rig.reaches(machine, STEPS[kind][2])
        await rig.idle(machine)
        refused(await rig.drain(machine))
        assert rig.state(machine) == "IDLE"


@pytest.mark.behaviour(37)
@pytest.mark.parametrize("drain_first", [False, True])
async def test_a_configure_and_a_drain_racing_end_in_one_well_defined_state(
    drain_first: bool,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, metadata=METADATA)
        rig.backend.steps = dict.fromkeys(Kind, after(1))
        calls = [rig.drain(machine), rig.configure(machine, "blue", METADATA)]
        answers = await asyncio.gather(*(calls if drain_first else calls[::-1]))
        assert isinstance(answers[0 if drain_first else 1], Ack)
        await asyncio.sleep(60)
        settled = rig.machine(machine)
        assert state_name(settled) == "IDLE"
        assert_carries_what_its_state_needs(settled)


@pytest.mark.behaviour(39, 38)
async def test_many_machines_walk_side_by_side_without_touching_one_another() -> None:
    async with Rig(offers=[offer(24)]) as rig:
        ids, operations = rig.ids(), []

        async def walk(machine: str, number: int) -> None:
            rounds = 1 + number % 3
            for _ in range(rounds):
                operations.append((acked(await rig.create(machine))).operation_id)
                await rig.reaches(machine, "IDLE")
                bind = rig.configure(machine, f"c{number}", {"n": str(number)})
                operations.append(acked(await bind).operation_id)
                bound = await rig.reaches(machine, "CONFIGURED")
                assert bound.cluster == f"c{number}"
                assert dict(bound.shard_metadata) == {"n": str(number)}
                await asyncio.sleep(number % 5)
                operations.append(acked(await rig.drain(machine)).operation_id)
                await rig.reaches(machine, "IDLE")
                operations.append(acked(await rig.delete(machine)).operation_id)
                await rig.reaches(machine, "SPECULATIVE")

        await asyncio.gather(*(walk(machine, n) for n, machine in enumerate(ids)))
        assert len(set(operations)) == len(operations) == 4 * 48
        assert {rig.state(machine) for machine in ids} == {"SPECULATIVE"}


@pytest.mark.behaviour(40)
@pytest.mark.parametrize("settled", [False, True])
async def test_a_configure_for_another_cluster_is_refused_and_not_waved_through(
    settled: bool,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        rig.backend.ready = never if not settled else rig.backend.ready
        first = acked(await rig.configure(machine, "blue", METADATA)).operation_id
        await asyncio.sleep(1)
        before = rig.machine(machine)
        refusal = refused(await rig.configure(machine, "green"))
        assert refusal.reason == "other_cluster"
        assert "blue" in refusal.message
        assert rig.machine(machine) == before
        assert acked(await rig.configure(machine, "blue")).operation_id == first


@pytest.mark.behaviour(38)
async def test_operation_ids_of_a_lost_store_are_never_given_out_again() -> None:
    from tests.support.rig import RetainingStore

    seen = []
    for incarnation in ("0123abcd", "89abcdef"):
        store = RetainingStore()
        snapshot = store.open

        def reopened(incarnation: str = incarnation, snapshot=snapshot) -> object:
            from dataclasses import replace

            return replace(snapshot(), incarnation=incarnation)

        store.open = reopened  # type: ignore[assignment, method-assign]
        async with Rig(store=store) as rig:
            seen.append(acked(await rig.create(rig.ids()[0], Token("s", 1, 1))).operation_id)
    assert len(set(seen)) == 2
