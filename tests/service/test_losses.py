"""Hosts that the substrate lost, and how a shard gets to hear of it (contract section 12)."""

import asyncio
from collections.abc import Callable

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.errors import BackendError, FailureKind
from tests.support.rig import Rig, acked, offer, refused, state_name

pytestmark = pytest.mark.looptime


def served(rig: Rig, machine_id: str) -> str:
    """The state a full List shows; "" when it does not carry the machine."""
    return next((state_name(m) for m in rig.list().machines if m.id == machine_id), "")


async def lost(rig: Rig, machine_id: str, condition: Condition) -> None:
    if condition is Condition.GONE:
        del rig.backend.hosts[machine_id]
    else:
        rig.backend.hosts[machine_id].condition = condition
    await rig.parts.reconciler.reconcile()


GONE_FOR_GOOD = [Condition.GONE, Condition.EVICTED, Condition.STOPPED]


@pytest.mark.behaviour(70, 72)
@pytest.mark.parametrize("condition", GONE_FOR_GOOD)
async def test_a_lost_bound_machine_drains_then_fails_each_shown_by_a_list_before_the_next(
    condition: Condition,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, metadata={"k": "v"})
        assert served(rig, machine) == "CONFIGURED"
        await lost(rig, machine, condition)
        await asyncio.sleep(3600)
        assert rig.state(machine) == "DRAINING"
        draining = rig.machine(machine)
        assert (draining.cluster, dict(draining.shard_metadata)) == ("blue", {"k": "v"})
        assert draining.host.ref
        assert not draining.last_error
        assert served(rig, machine) == "DRAINING"
        await asyncio.sleep(1)
        failed = rig.machine(machine)
        assert state_name(failed) == "FAILED"
        assert str(condition) in failed.last_error
        assert failed.cluster == "blue"


@pytest.mark.behaviour(71, 72)
@pytest.mark.parametrize("condition", [*GONE_FOR_GOOD, Condition.FAILED])
async def test_a_lost_idle_machine_is_deleted_then_an_unused_slot_again(
    condition: Condition,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        rig.list()
        await lost(rig, machine, condition)
        await asyncio.sleep(3600)
        assert rig.state(machine) == "DELETING"
        assert rig.machine(machine).host.ref
        assert served(rig, machine) == "DELETING"
        await asyncio.sleep(1)
        empty = rig.machine(machine)
        assert state_name(empty) == "SPECULATIVE"
        assert not empty.HasField("host")
        assert not empty.last_error
        assert machine not in rig.backend.hosts


@pytest.mark.behaviour(70)
async def test_what_a_lost_machine_left_behind_is_removed() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        await lost(rig, machine, Condition.EVICTED)
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(60)
        assert [debt.machine_id for debt in rig.backend.reclaimed] == [machine]
        assert machine not in rig.backend.hosts


@pytest.mark.behaviour(72)
async def test_a_bound_machine_whose_last_update_failed_is_left_alone() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        revision = rig.list().revision
        await lost(rig, machine, Condition.FAILED)
        await asyncio.sleep(60)
        assert rig.state(machine) == "CONFIGURED"
        assert rig.list().revision == revision


@pytest.mark.behaviour(70, 71)
@pytest.mark.parametrize("first", ["CONFIGURED", "IDLE"])
async def test_a_walk_goes_on_after_a_restart_and_is_still_served_first(first: str) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await (rig.configured(machine) if first == "CONFIGURED" else rig.idle(machine))
    await lost(rig, machine, Condition.GONE)
    via, goal = ("DRAINING", "FAILED") if first == "CONFIGURED" else ("DELETING", "SPECULATIVE")
    async with await rig.restarted() as again:
        await asyncio.sleep(600)
        assert again.state(machine) == via
        again.list()
        await asyncio.sleep(1)
        assert again.state(machine) == goal


@pytest.mark.behaviour(70)
async def test_a_new_price_does_not_stand_for_having_been_served() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        await lost(rig, machine, Condition.GONE)
        rig.backend.price = 0.3
        await rig.parts.catalogue.apply(rig.offers)
        await asyncio.sleep(600)
        assert rig.state(machine) == "DRAINING"
        rig.list()
        await asyncio.sleep(1)
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(70)
@pytest.mark.parametrize(
    "partly",
    [
        pytest.param(lambda rig, cursor: rig.list(5, 3), id="filtered by other states"),
        pytest.param(lambda rig, cursor: rig.list(since_revision=cursor), id="newer cursor"),
        pytest.param(lambda rig, cursor: rig.list(max_results=1), id="page without it"),
    ],
)
async def test_only_an_answer_that_carried_the_machine_counts_as_served(
    partly: Callable[[Rig, bytes], object],
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        await lost(rig, machine, Condition.GONE)
        await asyncio.sleep(1)
        cursor = _cursor_without_serving(rig)
        partly(rig, cursor)
        await asyncio.sleep(60)
        assert rig.state(machine) == "DRAINING"
        assert served(rig, machine) == "DRAINING"
        await asyncio.sleep(1)
        assert rig.state(machine) == "FAILED"


def _cursor_without_serving(rig: Rig) -> bytes:
    return rig.list(2).revision  # only CREATING machines, of which there are none


@pytest.mark.behaviour(70)
async def test_drain_of_a_machine_on_its_way_out_repeats_without_touching_the_substrate() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        await lost(rig, machine, Condition.GONE)
        first, second = acked(await rig.drain(machine)), acked(await rig.drain(machine))
        assert first.operation_id == second.operation_id
        assert rig.backend.count("drain") == 0
        refused(await rig.delete(machine))
        assert rig.state(machine) == "DRAINING"


async def test_a_machine_missing_from_the_list_but_present_stays() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.backend.unlisted.add(machine)
        revision = rig.list().revision
        await rig.parts.reconciler.reconcile()
        await asyncio.sleep(60)
        assert rig.backend.count("inspect", machine) == 1
        assert rig.state(machine) == "CONFIGURED"
        assert rig.list().revision == revision


async def test_a_list_that_lost_most_hosts_removes_nothing_until_it_stays_so() -> None:
    async with Rig(offers=[offer(24)]) as rig:
        machines = rig.ids()[:20]
        await asyncio.gather(*(rig.idle(machine) for machine in machines))
        rig.backend.hosts.clear()
        for _ in range(3):
            await rig.parts.reconciler.reconcile()
            assert rig.backend.count("inspect") == 0
            assert [c.name for c in rig.conditions.standing()] == ["substrate-list-shrunk"]
        assert {rig.state(machine) for machine in machines} == {"IDLE"}
        await rig.parts.reconciler.reconcile()
        assert rig.backend.count("inspect") == 20
        assert {rig.state(machine) for machine in machines} == {"DELETING"}


async def test_a_list_that_is_whole_again_clears_the_suspicion() -> None:
    async with Rig(offers=[offer(24)]) as rig:
        machines = rig.ids()[:20]
        await asyncio.gather(*(rig.idle(machine) for machine in machines))
        rig.backend.unlisted.update(machines)
        await rig.parts.reconciler.reconcile()
        rig.backend.unlisted.clear()
        await rig.parts.reconciler.reconcile()
        assert rig.conditions.standing() == []


async def test_a_substrate_that_cannot_be_listed_changes_nothing_and_is_a_condition() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.backend.hosts.clear()
        rig.backend.listing = BackendError(FailureKind.THROTTLED, "slow down")
        await rig.parts.reconciler.reconcile()
        assert rig.state(machine) == "CONFIGURED"
        (condition,) = rig.conditions.standing()
        assert condition.name == "substrate-inventory"
        assert "slow down" in condition.message
        rig.backend.listing = None
        await rig.parts.reconciler.reconcile()
        assert rig.conditions.standing() == []
        assert rig.state(machine) == "DRAINING"


async def test_machines_with_an_operation_in_flight_are_not_taken_for_lost() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        gate = asyncio.Event()

        async def wait(_: object) -> None:
            await gate.wait()

        rig.backend.ready = wait
        acked(await rig.configure(machine))
        await asyncio.sleep(1)
        rig.backend.unlisted.add(machine)
        await rig.parts.reconciler.reconcile()
        assert rig.backend.count("inspect") == 0
        gate.set()
        await rig.reaches(machine, "CONFIGURED")


async def test_a_machine_that_moved_while_it_was_inspected_is_not_walked() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.backend.hosts[machine].condition = Condition.STOPPED
        rig.store.gate.clear()
        draining = asyncio.create_task(rig.drain(machine))
        await asyncio.sleep(0)
        reconciling = asyncio.create_task(rig.parts.reconciler.reconcile())
        await asyncio.sleep(1)
        rig.store.gate.set()
        number = acked(await draining).operation_id
        await reconciling
        await rig.reaches(machine, "IDLE")
        assert acked(await rig.drain(machine)).operation_id == number


async def test_an_idle_slot_lost_and_made_again_never_loses_its_new_host_to_the_old_debt() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        await lost(rig, machine, Condition.GONE)
        await asyncio.sleep(1)
        rig.list()
        await rig.reaches(machine, "SPECULATIVE", within=60)
        await rig.idle(machine)
        await asyncio.sleep(3600)
        assert rig.state(machine) == "IDLE"
        assert machine in rig.backend.hosts
