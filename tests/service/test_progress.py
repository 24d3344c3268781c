"""What a backend notes about its work and its hosts, and gets back with every later call."""

import asyncio
from dataclasses import replace

import pytest

from bigfleet_azure.backends.base import Assignment, Condition, Progress
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.store.base import StoreError
from tests.support.rig import Rig, Step, acked, at_once, in_turn, never, offer, refusing

pytestmark = pytest.mark.looptime

NOTED = Progress(attempt=2, url="https://management/operations/7", begun=1_790_000_001.5)

GOALS = dict(zip(Kind, ("IDLE", "CONFIGURED", "IDLE", "SPECULATIVE"), strict=True))


def parts_of(rig: Rig, machine: str) -> str:
    record = rig.parts.inventory.record(machine)
    assert record is not None
    return record.parts


def noting(then: Step) -> Step:
    """Note progress, then do as `then` says."""

    async def step(work: Assignment) -> None:
        await work.note(NOTED)
        await then(work)

    return step


@pytest.mark.behaviour(78, 80)
@pytest.mark.parametrize("kind", list(Kind))
async def test_what_was_noted_comes_back_after_a_restart_and_is_forgotten_at_the_end(
    kind: Kind,
) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    for step, goal in GOALS.items():
        if step is kind:
            break
        acked(await rig.call(step)(machine))
        await rig.reaches(machine, goal)
    rig.backend.steps[kind] = noting(never)
    acked(await rig.call(kind)(machine))
    await asyncio.sleep(1)
    assert rig.backend.work[-1].progress == Progress()
    rig.backend.steps[kind] = at_once
    async with await rig.restarted() as again:
        await again.reaches(machine, GOALS[kind])
        resumed = next(w for w in again.backend.work if w.resumed)
        assert resumed.progress == NOTED
        record = again.parts.inventory.record(machine)
        assert record is not None
        assert record.operation is None


@pytest.mark.behaviour(76, 80)
async def test_what_was_noted_while_a_node_was_waited_for_comes_back_too() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await rig.idle(machine)
    rig.backend.ready = noting(never)
    acked(await rig.configure(machine))
    await asyncio.sleep(1)
    rig.backend.ready = at_once
    async with await rig.restarted() as again:
        await again.reaches(machine, "CONFIGURED")
        assert again.backend.work[-1].progress == NOTED
        assert again.backend.count("configure") == 1


@pytest.mark.behaviour(67)
async def test_a_retry_knows_what_the_try_before_it_noted() -> None:
    async with Rig() as rig:
        rig.backend.steps[Kind.CREATE] = in_turn(
            noting(refusing(FailureKind.TRANSIENT)), refusing(FailureKind.TRANSIENT), at_once
        )
        await rig.idle(rig.ids()[0])
        assert [w.progress for w in rig.backend.work] == [Progress(), NOTED, NOTED]


@pytest.mark.behaviour(82)
async def test_nothing_goes_on_before_a_note_is_durable() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        noted = asyncio.Event()

        async def step(work: Assignment) -> None:
            rig.store.failure = StoreError("disk full")
            await work.note(NOTED)
            noted.set()

        rig.backend.steps[Kind.CREATE] = step
        acked(await rig.create(machine))
        await asyncio.sleep(30)
        assert not noted.is_set()
        rig.store.failure = None
        await rig.reaches(machine, "IDLE", within=5)


@pytest.mark.behaviour(55)
async def test_a_note_is_no_change_that_a_caller_can_see() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = noting(never)
        acked(await rig.create(machine))
        revision = rig.list().revision
        await asyncio.sleep(1)
        assert rig.store.records[next(iter(rig.store.records))].operation is not None
        assert rig.list().revision == revision
        assert rig.list(since_revision=revision).machines == []


async def test_a_late_note_of_an_operation_that_ended_changes_nothing() -> None:
    async with Rig("--create-timeout", "10s") as rig:
        machine = rig.ids()[0]
        kept: list[Assignment] = []

        async def step(work: Assignment) -> None:
            kept.append(work)
            await never(work)

        rig.backend.steps[Kind.CREATE] = step
        acked(await rig.create(machine))
        await rig.reaches(machine, "FAILED")
        before = list(rig.store.commits)
        await kept[0].note(NOTED)
        assert [c for c in rig.store.commits if c not in before and c.records] == []
        assert rig.state(machine) == "FAILED"


@pytest.mark.behaviour(63)
async def test_a_backend_is_told_the_deadline_that_counts_also_after_a_queue() -> None:
    flags = ("--create-concurrency", "1", "--create-timeout", "60s")
    async with Rig(*flags, offers=[offer(2)]) as rig:
        first, second = rig.ids()
        rig.backend.steps[Kind.CREATE] = in_turn(never, at_once)
        begun = rig.clock.now()
        acked(await rig.create(first))
        await asyncio.sleep(10)
        acked(await rig.create(second))
        await rig.reaches(second, "IDLE", within=120)
        deadlines = {w.machine_id: w.deadline - begun for w in rig.backend.work}
        assert deadlines[first] == pytest.approx(60)
        assert deadlines[second] == pytest.approx(60 + 60, abs=0.1)


@pytest.mark.behaviour(79)
async def test_the_parts_of_a_host_stay_with_its_machine_as_long_as_the_host_does() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await rig.configured(machine)
    assert parts_of(rig, machine) == "disk-1 nic-1"
    async with await rig.restarted() as again:
        assert parts_of(again, machine) == "disk-1 nic-1"
        acked(await again.drain(machine))
        await again.reaches(machine, "IDLE")
        acked(await again.delete(machine))
        await again.reaches(machine, "SPECULATIVE")
        given = {w.operation_id: w.parts for w in again.backend.work}
        assert list(given.values()) == ["", "disk-1 nic-1", "disk-1 nic-1", "disk-1 nic-1"]
        assert parts_of(again, machine) == ""


@pytest.mark.behaviour(62, 68)
@pytest.mark.parametrize("kind", [Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE])
async def test_a_failed_machine_keeps_its_parts_until_they_are_owed(kind: Kind) -> None:
    async with Rig("--failed-dwell", "1m") as rig:
        machine = rig.ids()[0]
        await (rig.configured(machine) if kind is Kind.DRAIN else rig.idle(machine))
        rig.backend.steps[kind] = refusing(FailureKind.INVALID)
        acked(await rig.call(kind)(machine))
        await rig.reaches(machine, "FAILED")
        assert parts_of(rig, machine) == "disk-1 nic-1"
        rig.list()
        await rig.reaches(f"{machine}-r1", "SPECULATIVE", within=120)
        assert [debt.parts for debt in rig.backend.reclaimed] == ["disk-1 nic-1"]
        assert parts_of(rig, f"{machine}-r1") == ""


@pytest.mark.behaviour(64)
async def test_a_create_that_succeeds_too_late_is_owed_with_its_parts() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]

        async def step(work: Assignment) -> None:
            record = rig.parts.inventory.record(machine)
            assert record is not None
            rig.parts.inventory.publish(
                replace(rig.store.commits[-1], records=(replace(record, operation=None),))
            )

        rig.backend.steps[Kind.CREATE] = step
        acked(await rig.create(machine))
        await asyncio.sleep(1)
        assert [debt.parts for debt in rig.backend.reclaimed] == ["disk-1 nic-1"]


@pytest.mark.behaviour(78)
async def test_a_create_found_done_at_a_restart_brings_its_parts() -> None:
    rig = Rig("--create-timeout", "30s")
    await rig.__aenter__()
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = in_turn(never)
    acked(await rig.create(machine))
    await asyncio.sleep(1)
    work = rig.backend.work[-1]
    rig.backend.steps[Kind.CREATE] = at_once
    host = await rig.backend.create(work)
    again = await rig.restarted()
    await asyncio.sleep(60)
    async with again:
        await again.reaches(machine, "IDLE", within=30)
        assert parts_of(again, machine) == host.parts
        assert again.backend.hosts[machine].condition is Condition.RUNNING


@pytest.mark.behaviour(71)
async def test_the_parts_of_a_lost_idle_host_are_owed_and_leave_the_record() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        rig.backend.hosts[machine].condition = Condition.STOPPED
        await rig.parts.reconciler.reconcile()
        rig.list()
        await rig.reaches(machine, "SPECULATIVE", within=10)
        await asyncio.sleep(5)
        assert [debt.parts for debt in rig.backend.reclaimed] == ["disk-1 nic-1"]
        assert parts_of(rig, machine) == ""
