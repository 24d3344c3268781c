"""Capacity that cannot be had: held operations, probes, and slots left out of List."""

import asyncio

import pytest

from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.blocks import PROBE_EVERY_SECONDS, TIME_TO_LIVE_SECONDS
from tests.support.rig import Rig, Step, acked, at_once, in_turn, offer, refusing

pytestmark = pytest.mark.looptime

BLOCKING = [FailureKind.QUOTA, FailureKind.OUT_OF_CAPACITY]
OTHER = offer(2, vm_size="Standard_F8s_v2")


def changed(rig: Rig, cursor: bytes) -> list[str]:
    return sorted(machine.id for machine in rig.list(since_revision=cursor).machines)


def after_a_while(then: Step) -> Step:
    """`then`, half a second after it was asked."""

    async def step(work: Assignment) -> None:
        await asyncio.sleep(0.5)
        await then(work)

    return step


async def blocked(rig: Rig, kind: FailureKind = FailureKind.QUOTA) -> str:
    """Block the first offering by a Create that is refused; returns its machine."""
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = refusing(kind, "no room")
    acked(await rig.create(machine))
    await asyncio.sleep(1)
    return machine


@pytest.mark.behaviour(67)
@pytest.mark.parametrize(
    "kind", [*BLOCKING, FailureKind.THROTTLED, FailureKind.TRANSIENT, FailureKind.UNKNOWN]
)
async def test_trouble_that_may_pass_holds_the_state_and_ends_in_success(
    kind: FailureKind,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = in_turn(*[refusing(kind)] * 4, at_once)
        acked(await rig.create(machine))
        await asyncio.sleep(2)
        assert rig.state(machine) == "CREATING"
        await rig.reaches(machine, "IDLE", within=400)
        assert rig.machine(machine).last_error == ""
        assert rig.backend.count("create") == 5


@pytest.mark.behaviour(67)
@pytest.mark.parametrize("kind", list(Kind))
async def test_every_kind_waits_out_throttling(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.backend.steps[kind] = in_turn(*[refusing(FailureKind.THROTTLED)] * 3, at_once)
        goals = {"create": "IDLE", "configure": "CONFIGURED", "drain": "IDLE"}
        for step in Kind:
            acked(await rig.call(step)(machine))
            await rig.reaches(machine, goals.get(step, "SPECULATIVE"), within=400)
        assert rig.backend.count(kind) == 4


@pytest.mark.behaviour(67)
async def test_the_substrate_is_not_asked_again_before_the_time_it_named() -> None:
    async with Rig() as rig:
        rig.backend.steps[Kind.CREATE] = in_turn(
            refusing(FailureKind.THROTTLED, retry_after=90), at_once
        )
        acked(await rig.create(rig.ids()[0]))
        await asyncio.sleep(89.9)
        assert rig.backend.count("create") == 1
        await asyncio.sleep(10)
        assert rig.backend.count("create") == 2


@pytest.mark.behaviour(67)
@pytest.mark.parametrize("kind", BLOCKING)
async def test_one_probe_per_offering_goes_through_a_block_each_half_minute(
    kind: FailureKind,
) -> None:
    async with Rig(offers=[offer(8)]) as rig:
        machines = rig.ids()
        rig.backend.steps[Kind.CREATE] = after_a_while(refusing(kind))
        for machine in machines:
            acked(await rig.create(machine))
        await asyncio.sleep(1)
        before = rig.backend.count("create")
        assert before == 8
        await asyncio.sleep(4 * PROBE_EVERY_SECONDS + 1)
        assert rig.backend.count("create") == before + 4
        assert {rig.state(machine) for machine in machines} == {"CREATING"}


@pytest.mark.behaviour(67)
async def test_an_operation_accepted_under_a_block_waits_for_its_turn_too() -> None:
    async with Rig(offers=[offer(8)]) as rig:
        await blocked(rig)
        for machine in [f"{rig.ids()[0][:-3]}{index:03d}" for index in range(1, 8)]:
            acked(await rig.create(machine))
        await asyncio.sleep(1)
        assert rig.backend.count("create") == 1
        await asyncio.sleep(PROBE_EVERY_SECONDS)
        assert rig.backend.count("create") == 2


@pytest.mark.behaviour(67)
async def test_a_success_lifts_the_block_for_everybody_at_once() -> None:
    async with Rig(offers=[offer(4)]) as rig:
        machines = rig.ids()
        rig.backend.steps[Kind.CREATE] = in_turn(
            *[after_a_while(refusing(FailureKind.QUOTA))] * 4, at_once
        )
        for machine in machines:
            acked(await rig.create(machine))
        await asyncio.sleep(PROBE_EVERY_SECONDS - 1)
        assert {rig.state(machine) for machine in machines} == {"CREATING"}
        await asyncio.sleep(2)
        assert {rig.state(machine) for machine in machines} == {"IDLE"}


@pytest.mark.behaviour(67)
async def test_a_delete_gives_room_and_lifts_the_block() -> None:
    async with Rig() as rig:
        used = rig.ids()[-1]
        await rig.idle(used)
        waiting = await blocked(rig)
        rig.backend.steps[Kind.CREATE] = at_once
        acked(await rig.delete(used))
        await rig.reaches(waiting, "IDLE", within=5)


@pytest.mark.behaviour(67)
async def test_one_blocked_offering_does_not_hold_up_another() -> None:
    async with Rig(offers=[offer(2), OTHER]) as rig:
        other = next(i for i in rig.ids() if "f8s" in i)
        await blocked(rig)
        rig.backend.steps[Kind.CREATE] = at_once
        acked(await rig.create(other))
        await rig.reaches(other, "IDLE", within=1)


@pytest.mark.behaviour(67, 60)
@pytest.mark.parametrize("kind", BLOCKING)
async def test_unused_slots_of_a_blocked_offering_leave_list_and_only_list(
    kind: FailureKind,
) -> None:
    async with Rig(offers=[offer(4), OTHER]) as rig:
        ids, revision = rig.ids(), rig.list().revision
        others = [i for i in ids if "f8s" in i]
        used = next(i for i in ids if "d4s" in i)
        machine = await blocked(rig, kind)
        assert machine == used
        assert rig.ids() == sorted([machine, *others])
        assert rig.list().revision != revision
        hidden = [i for i in ids if i not in rig.ids()]
        assert len(hidden) == 3
        assert all(rig.state(i) == "SPECULATIVE" for i in hidden)
        assert not set(hidden) & {m.id for m in rig.list(1).machines}
        assert not set(hidden) & {m.id for m in rig.list(max_results=100).machines}
        acked(await rig.create(hidden[0]))
        assert hidden[0] in rig.ids()


@pytest.mark.behaviour(67)
async def test_machines_in_use_are_never_withheld() -> None:
    async with Rig(offers=[offer(6)]) as rig:
        machines = rig.ids()
        await rig.configured(machines[5])
        await rig.idle(machines[4])
        acked(await rig.configure(machines[4]))
        await rig.reaches(machines[4], "CONFIGURED")
        acked(await rig.drain(machines[4]))
        await rig.reaches(machines[4], "IDLE")
        await blocked(rig)
        assert rig.ids() == [machines[0], machines[4], machines[5]]
        await asyncio.sleep(8 * 60)
        assert rig.ids() == [machines[0], machines[4], machines[5]]
        assert rig.state(machines[0]) == "FAILED"


@pytest.mark.behaviour(67, 56)
async def test_slots_that_return_are_changed_for_a_delta_client() -> None:
    async with Rig(offers=[offer(4), OTHER]) as rig:
        ids = [i for i in rig.ids() if "d4s" in i]
        await rig.idle(ids[3])
        acked(await rig.delete(ids[3]))
        await rig.reaches(ids[3], "SPECULATIVE")
        machine = await blocked(rig)
        cursor = rig.list().revision
        rig.backend.steps[Kind.CREATE] = at_once
        await rig.reaches(machine, "IDLE", within=60)
        await asyncio.sleep(1)
        assert changed(rig, cursor) == ids
        assert set(ids) < set(rig.ids())
        assert changed(rig, rig.list().revision) == []


@pytest.mark.behaviour(67)
@pytest.mark.parametrize("kind", BLOCKING)
async def test_a_block_nobody_probes_ends_by_itself(kind: FailureKind) -> None:
    async with Rig("--create-timeout", "1m") as rig:
        ids = rig.ids()
        machine = await blocked(rig, kind)
        await rig.reaches(machine, "FAILED", within=90)
        rest = TIME_TO_LIVE_SECONDS[kind] - 60
        await asyncio.sleep(rest - 60)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert not set(ids[1:]) & set(rig.ids())
        await asyncio.sleep(121)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert set(ids[1:]) <= set(rig.ids())


@pytest.mark.behaviour(67, 74)
async def test_what_a_process_withheld_returns_with_the_next_one_as_changed() -> None:
    async with Rig() as rig:
        ids = rig.ids()
        await blocked(rig)
        assert len(rig.ids()) == 1
        cursor = rig.list().revision
        rig.backend.steps[Kind.CREATE] = at_once
        async with await rig.restarted() as again:
            assert again.ids() == ids
            assert set(changed(again, cursor)) >= set(ids[1:])


@pytest.mark.behaviour(67, 68)
async def test_failed_capacity_returns_hidden_while_blocked_and_shown_after() -> None:
    async with Rig("--create-timeout", "1m", "--failed-dwell", "1m") as rig:
        count = len(rig.ids())
        machine = await blocked(rig)
        await rig.reaches(machine, "FAILED", within=90)
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(61)
        assert rig.ids() == []
        assert rig.state(f"{machine}-r1") == "SPECULATIVE"
        await asyncio.sleep(600)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert len(rig.ids()) == count
        assert f"{machine}-r1" in rig.ids()


@pytest.mark.behaviour(67, 74)
async def test_a_reload_during_a_block_keeps_it_and_one_while_it_lifts_does_not_bring_it_back() -> (
    None
):
    async with Rig() as rig:
        ids = rig.ids()
        machine = await blocked(rig)
        rig.backend.price = 0.7
        await rig.parts.catalogue.apply(rig.offers)
        assert rig.ids() == [machine]
        rig.backend.steps[Kind.CREATE] = at_once
        rig.store.gate.clear()
        rig.parts.blocks.lift(rig.offers[0])
        await asyncio.sleep(0)
        rig.backend.price = 0.8
        applying = asyncio.create_task(rig.parts.catalogue.apply(rig.offers))
        await asyncio.sleep(1)
        rig.store.gate.set()
        await applying
        await asyncio.sleep(1)
        assert rig.ids() == ids
        assert {m.price_per_hour for m in rig.list().machines} == {0.8}


@pytest.mark.behaviour(67, 74)
async def test_a_block_of_an_offering_that_is_gone_ends_without_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig("--create-timeout", "1m", "--failed-dwell", "1m") as rig:
        machine = await blocked(rig)
        await rig.reaches(machine, "FAILED", within=90)
        await rig.parts.catalogue.apply([])
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(120)
        await rig.parts.catalogue.apply([])
        await asyncio.sleep(600)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.behaviour(55)
async def test_blocking_an_offering_that_has_no_unused_slot_changes_no_revision() -> None:
    async with Rig(offers=[offer(2)]) as rig:
        used, waiting = rig.ids()
        await rig.idle(used)
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.QUOTA)
        acked(await rig.create(waiting))
        revision = rig.list().revision
        await asyncio.sleep(10)
        assert rig.list().revision == revision
