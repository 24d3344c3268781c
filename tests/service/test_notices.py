"""Notices of evictions: what a shard sees of them, how soon, and what they cost."""

import asyncio

import pytest

from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.lifecycle import CapacityType, Kind
from bigfleet_azure.service.notices import (
    A_MACHINE,
    A_MACHINE_SECONDS,
    LONGEST_SECONDS,
    NOTICE_SECONDS,
    WARNED_PROBABILITY,
    Answer,
    Notice,
)
from tests.support.rig import EPOCH, Rig, acked, offer, state_name

pytestmark = pytest.mark.looptime

SPOT = offer(5, vm_size="Standard_F8s_v2", capacity_type=CapacityType.SPOT)
PLAIN = offer(2)
USUAL = 0.125


async def tell(
    rig: Rig,
    machine: str,
    *,
    own: bool = True,
    event: str = "Preempt",
    event_id: str = "e-1",
    left: float | None = None,
) -> Answer:
    before = 0.0 if left is None else rig.clock.now() + left
    notice = Notice(
        machine_id=machine, event_type=event, event_id=event_id, not_before=before, own=own
    )
    return await rig.parts.notices.take(notice)


def spot(rig: Rig) -> list[str]:
    return [name for name in rig.ids() if "spot" in name]


def count(rig: Rig, name: str, **labels: str) -> float:
    return rig.metrics.registry.get_sample_value(f"bigfleet_azure_{name}", labels) or 0.0


async def lists(rig: Rig, machine: str, seconds: int, every: float = 1.0) -> list[str]:
    """The states that a shard sees the machine in, each once."""
    seen: list[str] = []
    for _ in range(int(seconds / every)):
        await asyncio.sleep(every)
        for one in rig.list().machines:
            if one.id == machine and state_name(one) not in seen[-1:]:
                seen.append(state_name(one))
    return seen


@pytest.mark.behaviour(52, 70)
async def test_a_bound_machine_is_drained_in_the_time_that_is_left_and_walks_where_shards_follow():
    async with Rig("--failed-dwell=1m", offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        drained: list[Assignment] = []

        async def slowly(work: Assignment) -> None:
            drained.append(work)
            await asyncio.sleep(10)

        rig.backend.steps[Kind.DRAIN] = slowly
        assert await tell(rig, machine, left=25) is Answer.TAKEN
        assert rig.state(machine) == "DRAINING"
        assert await lists(rig, machine, 8) == ["DRAINING"]
        (work,) = drained
        assert (work.machine_id, work.cluster, work.grace_seconds) == (machine, "blue", 25)
        assert await lists(rig, machine, 60) == ["DRAINING", "FAILED"]
        # Its capacity is back under another id, and what was left of it is removed.
        await asyncio.sleep(90)
        rig.list()
        await asyncio.sleep(60)
        assert machine not in rig.ids()
        assert len(rig.ids()) == 5
        assert {debt.machine_id for debt in rig.backend.reclaimed} == {machine}
        assert count(rig, "spot_evictions_total") == 1
        assert count(rig, "notices_total", outcome="taken") == 1


@pytest.mark.behaviour(70)
async def test_what_a_lost_machine_failed_of_names_the_notice():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        await tell(rig, machine, event_id="A1B2", left=5)
        await lists(rig, machine, 20)
        assert "evicted" in rig.machine(machine).last_error
        assert "Preempt A1B2" in rig.machine(machine).last_error


async def test_a_drain_that_takes_longer_than_the_notice_ends_with_it():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)

        async def for_ever(_: Assignment) -> None:
            await asyncio.sleep(3600)

        rig.backend.steps[Kind.DRAIN] = for_ever
        await tell(rig, machine, left=20)
        assert await lists(rig, machine, 19) == ["DRAINING"]
        assert await lists(rig, machine, 5) == ["DRAINING", "FAILED"]


@pytest.mark.parametrize(
    ("left", "grace"),
    [(None, NOTICE_SECONDS), (-5, 0), (3600 * 24 * 365, LONGEST_SECONDS)],
    ids=["not-said", "past", "far-ahead"],
)
async def test_a_time_that_cannot_be_is_not_believed(left: float | None, grace: float):
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        await tell(rig, machine, left=left)
        operation = next(
            record.operation
            for record in rig.parts.inventory.records()
            if record.id == machine and record.operation
        )
        assert operation.grace_seconds == grace
        assert await lists(rig, machine, int(grace) + 10) == ["DRAINING", "FAILED"]


@pytest.mark.behaviour(71)
async def test_an_idle_machine_is_given_back_and_its_host_removed_before_it_is_used_again():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.idle(machine)
        assert await tell(rig, machine, left=25) is Answer.TAKEN
        assert rig.state(machine) == "DELETING"
        assert await lists(rig, machine, 5) == ["DELETING", "SPECULATIVE"]
        assert [debt.machine_id for debt in rig.backend.reclaimed] == [machine]
        await rig.idle(machine)


async def test_a_walk_that_was_begun_goes_on_draining_after_a_restart():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        began = asyncio.Event()

        async def hanging(_: Assignment) -> None:
            began.set()
            await asyncio.sleep(3600)

        rig.backend.steps[Kind.DRAIN] = hanging
        await tell(rig, machine, left=60)
        await began.wait()
        drains = rig.backend.count("drain")
        async with await rig.restarted() as again:
            assert again.state(machine) == "DRAINING"
            await asyncio.sleep(1)
            assert again.backend.count("drain") == drains + 1
            assert await lists(again, machine, 55) == ["DRAINING"]
            assert await lists(again, machine, 10) == ["DRAINING", "FAILED"]


async def test_a_caller_that_drains_a_machine_on_its_walk_hears_that_it_is_being_drained():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        await tell(rig, machine, left=25)
        assert acked(await rig.drain(machine, 600)).operation_id
        assert rig.backend.count("drain") <= 1


@pytest.mark.behaviour(52)
async def test_the_shared_token_raises_a_probability_and_ends_nothing():
    async with Rig(offers=[SPOT, PLAIN]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        cursor = rig.list().revision
        assert await tell(rig, machine, own=False) is Answer.TAKEN
        assert rig.machine(machine).interruption_probability == WARNED_PROBABILITY
        moved = rig.list(since_revision=cursor).machines
        assert [one.id for one in moved] == [machine]
        assert moved[0].interruption_probability == WARNED_PROBABILITY
        await asyncio.sleep(120)
        assert rig.state(machine) == "CONFIGURED"
        assert rig.backend.count("drain") == 0
        # Others are as they were.
        others = [one for one in rig.list().machines if one.id != machine]
        assert {one.interruption_probability for one in others} == {USUAL, 0.0}


@pytest.mark.behaviour(52)
async def test_what_a_notice_raised_is_remembered_and_falls_back_once_the_slot_is_used_anew():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.idle(machine)
        await tell(rig, machine, own=False)
        async with await rig.restarted() as again:
            assert again.machine(machine).interruption_probability == WARNED_PROBABILITY
            acked(await again.delete(machine))
            await again.reaches(machine, "SPECULATIVE")
            assert again.machine(machine).interruption_probability == USUAL
            await again.idle(machine)
            assert again.machine(machine).interruption_probability == USUAL


@pytest.mark.behaviour(52)
async def test_on_demand_is_never_above_nothing_by_the_shared_token():
    async with Rig(offers=[PLAIN]) as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        assert await tell(rig, machine, own=False) is Answer.IGNORED
        assert rig.machine(machine).interruption_probability == 0
        assert rig.state(machine) == "CONFIGURED"


@pytest.mark.parametrize("own", [True, False])
async def test_a_slot_without_a_host_cannot_be_evicted(own: bool):
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        before = rig.list()
        assert await tell(rig, machine, own=own) is Answer.IGNORED
        assert await tell(rig, "no-such-machine", own=own) is Answer.IGNORED
        assert rig.list() == before


@pytest.mark.parametrize("kind", [Kind.CREATE, Kind.CONFIGURE])
async def test_a_machine_that_is_being_set_up_says_it_again_and_is_lost_once_it_is_there(
    kind: Kind,
):
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        gate = asyncio.Event()

        async def held(_: Assignment) -> None:
            await gate.wait()

        if kind is Kind.CONFIGURE:
            await rig.idle(machine)
        rig.backend.steps[kind] = held
        call = rig.create if kind is Kind.CREATE else rig.configure
        acked(await call(machine))
        await asyncio.sleep(1)
        assert await tell(rig, machine, left=25) is Answer.TOO_EARLY
        assert rig.machine(machine).interruption_probability == WARNED_PROBABILITY
        gate.set()
        await asyncio.sleep(1)
        assert await tell(rig, machine, left=23) is Answer.TAKEN
        assert rig.state(machine) in ("DELETING", "DRAINING")


async def test_an_operation_that_a_notice_met_in_flight_ends_as_it_would_have():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        gate = asyncio.Event()

        async def held(_: Assignment) -> None:
            await gate.wait()

        rig.backend.steps[Kind.CREATE] = held
        acked(await rig.create(machine))
        await tell(rig, machine, own=False)
        gate.set()
        idle = await rig.reaches(machine, "IDLE")
        assert idle.interruption_probability == WARNED_PROBABILITY


@pytest.mark.behaviour(75)
@pytest.mark.parametrize("own", [True, False])
async def test_repeated_notices_write_nothing_and_ask_nothing(own: bool):
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        await tell(rig, machine, own=own, left=25)
        await asyncio.sleep(0.1)
        commits, calls = len(rig.store.commits), len(rig.backend.calls)
        for again in range(A_MACHINE - 1):
            # A sender that knows no id of the event, and one that does.
            answer = await tell(rig, machine, own=own, event_id="e-1" if again % 2 else "")
            assert answer in (Answer.DUPLICATE, Answer.TAKEN)
        assert (len(rig.store.commits), len(rig.backend.calls)) == (commits, calls)


async def test_a_machine_that_talks_too_much_is_told_to_wait_and_others_are_heard():
    async with Rig(offers=[SPOT]) as rig:
        first, second = spot(rig)[:2]
        for machine in (first, second):
            await rig.idle(machine)
        answers = [
            await tell(rig, first, own=False, event="Freeze", event_id=f"e-{n}")
            for n in range(A_MACHINE + 5)
        ]
        assert answers.count(Answer.TOO_MANY) == 5
        assert await tell(rig, second, left=25) is Answer.TAKEN
        await asyncio.sleep(A_MACHINE_SECONDS)
        assert await tell(rig, first, left=25) is Answer.TAKEN


@pytest.mark.parametrize(
    ("event", "label"),
    [
        ("Reboot", "Reboot"),
        ("redeploy", "Redeploy"),
        ("FREEZE", "Freeze"),
        ("Terminate", "Terminate"),
        ("Meteor", "other"),
    ],
)
async def test_other_events_are_counted_and_change_nothing(event: str, label: str):
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        before = rig.list()
        assert await tell(rig, machine, event=event) is Answer.IGNORED
        assert rig.list() == before
        assert count(rig, "scheduled_events_total", type=label) == 1


async def test_the_type_of_an_event_is_known_in_any_case():
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)
        assert await tell(rig, machine, event="pReEmPt") is Answer.TAKEN
        assert rig.state(machine) == "DRAINING"


@pytest.mark.behaviour(75)
async def test_five_hundred_notices_at_once_ask_the_substrate_for_nothing_but_their_drains():
    many = offer(500, vm_size="Standard_F8s_v2", capacity_type=CapacityType.SPOT)
    async with Rig(offers=[many]) as rig:
        names = spot(rig)
        await asyncio.gather(*(rig.configured(name) for name in names))

        async def slowly(_: Assignment) -> None:
            await asyncio.sleep(10)

        rig.backend.steps[Kind.DRAIN] = slowly
        calls = len(rig.backend.calls)
        answers = await asyncio.gather(*(tell(rig, name, left=30) for name in names))
        assert set(answers) == {Answer.TAKEN}
        assert {state_name(one) for one in rig.list().machines} == {"DRAINING"}
        await asyncio.sleep(5)
        made = [method for method, _ in rig.backend.calls[calls:]]
        assert sorted(made) == ["drain"] * 500


async def test_a_notice_that_comes_while_its_machine_changes_hands_is_not_lost():
    """Its Drain was just accepted: the machine is on its way out anyway."""
    async with Rig(offers=[SPOT]) as rig:
        machine = spot(rig)[0]
        await rig.configured(machine)

        async def slowly(_: Assignment) -> None:
            await asyncio.sleep(5)

        rig.backend.steps[Kind.DRAIN] = slowly
        acked(await rig.drain(machine, 60))
        assert await tell(rig, machine, left=25) is Answer.TAKEN
        assert rig.machine(machine).interruption_probability == WARNED_PROBABILITY
        await rig.reaches(machine, "IDLE")
        assert rig.clock.now() > EPOCH
