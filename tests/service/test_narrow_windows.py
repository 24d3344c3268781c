"""Faults that need two things to happen within a narrow window: each once lost something."""

import asyncio
from dataclasses import replace

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.marks import MAX_UNKNOWN_AGE_SECONDS
from bigfleet_azure.store.base import StoreError
from tests.support.rig import (
    EPOCH,
    Rig,
    acked,
    after,
    at_once,
    in_turn,
    offer,
    refused,
    refusing,
)

pytestmark = pytest.mark.looptime

FULL = StoreError("the disk is full")
STALE = "stale_token"


class SteppingClock:
    """A wall clock that somebody sets, beside a loop that counts on.

    Attributes:
        step: seconds by which the wall clock was set forward.
    """

    pace = 1.0

    def __init__(self) -> None:
        self.step = 0.0

    def now(self) -> float:
        return EPOCH + self.step + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)


def with_stepping_clock(rig: Rig) -> SteppingClock:
    clock = SteppingClock()
    rig.clock = clock  # type: ignore[assignment]
    return clock


@pytest.mark.behaviour(63, 82)
async def test_a_place_is_given_back_when_the_deadline_passes_before_taking_it_is_written() -> None:
    async with Rig("--create-concurrency", "1", "--create-timeout", "60s") as rig:
        rig.backend.steps[Kind.CREATE] = after(50)
        first, second, third = rig.ids()[:3]
        for machine in (first, second, third):
            acked(await rig.create(machine))
        await asyncio.sleep(45)
        rig.store.failure = FULL
        await asyncio.sleep(70)
        rig.store.failure = None
        await rig.reaches(first, "IDLE", within=60)
        await rig.reaches(third, "IDLE", within=600)


@pytest.mark.behaviour(28, 79)
async def test_a_mark_that_moves_while_its_old_value_is_being_forgotten_is_kept() -> None:
    async with Rig() as rig:
        refused(await rig.create("nobody", Token("s", 3, 3)))
        await asyncio.sleep(MAX_UNKNOWN_AGE_SECONDS + 10)
        rig.store.gate.clear()
        moving = asyncio.create_task(rig.create("nobody", Token("s", 5, 5)))
        await asyncio.sleep(1)
        forgetting = asyncio.create_task(rig.parts.janitor.forget_marks())
        await asyncio.sleep(1)
        rig.store.gate.set()
        assert refused(await moving).reason == "unknown_machine"
        await forgetting
        assert refused(await rig.create("nobody", Token("s", 4, 4))).reason == STALE


@pytest.mark.behaviour(28, 68, 74)
async def test_a_mark_left_while_a_slot_was_not_offered_outlives_the_retirement_of_its_id() -> None:
    async with Rig() as rig:
        machine = rig.ids()[3]
        acked(await rig.create(machine, Token("s", 5, 5)))
        await rig.reaches(machine, "IDLE")
        acked(await rig.delete(machine, Token("s", 5, 6)))
        await rig.reaches(machine, "SPECULATIVE")
        await rig.parts.catalogue.apply([offer(2)])
        assert refused(await rig.create(machine, Token("s", 9, 9))).reason == "unknown_machine"
        await rig.parts.catalogue.apply([offer(4)])
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
        acked(await rig.create(machine))
        await rig.reaches(machine, "FAILED")
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(700)
        assert rig.get(machine) is None
        assert refused(await rig.delete(machine, Token("s", 7, 7))).reason == STALE


@pytest.mark.behaviour(63, 67)
async def test_a_clock_set_forward_does_not_spend_the_deadline_of_an_operation_under_way() -> None:
    rig = Rig("--create-concurrency", "1", "--create-timeout", "300s")
    clock = with_stepping_clock(rig)
    async with rig:
        rig.backend.steps[Kind.CREATE] = in_turn(
            refusing(FailureKind.THROTTLED, retry_after=20), after(50), at_once
        )
        first, second = rig.ids()[:2]
        acked(await rig.create(first))
        await asyncio.sleep(1)
        acked(await rig.create(second))
        await asyncio.sleep(1)
        clock.step = 3600
        await rig.reaches(second, "IDLE", within=100)
        await rig.reaches(first, "IDLE", within=100)


@pytest.mark.behaviour(63, 78)
async def test_a_clock_set_back_does_not_lengthen_the_deadline_of_a_resumed_operation() -> None:
    rig = Rig("--create-timeout", "60s")
    await rig.__aenter__()
    machine = rig.ids()[0]

    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    rig.backend.steps[Kind.CREATE] = hang
    acked(await rig.create(machine))
    again = await rig.restarted("--create-timeout", "60s")
    with_stepping_clock(again).step = -3600
    async with again:
        await again.reaches(machine, "FAILED", within=90)


@pytest.mark.behaviour(67)
async def test_a_clock_set_back_does_not_keep_a_blocked_offering_from_being_probed() -> None:
    rig = Rig()
    clock = with_stepping_clock(rig)
    async with rig:
        rig.backend.steps[Kind.CREATE] = in_turn(refusing(FailureKind.OUT_OF_CAPACITY), at_once)
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        await asyncio.sleep(1)
        clock.step = -3600
        await rig.reaches(machine, "IDLE", within=120)


@pytest.mark.behaviour(68)
async def test_a_clock_set_back_does_not_lengthen_the_dwell_of_a_failed_machine() -> None:
    rig = Rig()
    clock = with_stepping_clock(rig)
    async with rig:
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        await rig.reaches(machine, "FAILED")
        await asyncio.sleep(1)
        clock.step = -36000
        rig.list()
        await asyncio.sleep(700)
        assert rig.get(machine) is None


@pytest.mark.behaviour(70)
@pytest.mark.parametrize("bound", [True, False])
async def test_a_list_answered_at_the_moment_a_machine_is_found_lost_counts_as_serving_it(
    bound: bool,
) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await (rig.configured(machine) if bound else rig.idle(machine))
        cursors = [rig.list().revision]
        publish = rig.parts.inventory.publish

        def published(changes: ChangeSet) -> None:
            publish(changes)
            cursors.append(rig.list(since_revision=cursors[-1]).revision)

        rig.parts.inventory.publish = published  # type: ignore[method-assign]
        del rig.backend.hosts[machine]
        await rig.parts.reconciler.reconcile()
        await rig.reaches(machine, "FAILED" if bound else "SPECULATIVE", within=60)
        if bound:
            await asyncio.sleep(700)
            assert rig.get(machine) is None


@pytest.mark.behaviour(68, 70, 80)
async def test_a_shard_that_follows_changes_only_sees_lost_machines_go_on_after_a_restart() -> None:
    rig = Rig()
    await rig.__aenter__()
    lost, failed, idle = rig.ids()[:3]
    await rig.configured(lost)
    await rig.idle(idle)
    rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
    acked(await rig.create(failed))
    await rig.reaches(failed, "FAILED")
    del rig.backend.hosts[lost]
    del rig.backend.hosts[idle]
    await rig.parts.reconciler.reconcile()
    cursor = rig.list().revision
    async with await rig.restarted() as again:
        for _ in range(80):
            await asyncio.sleep(10)
            cursor = again.list(since_revision=cursor).revision
        assert again.state(idle) == "SPECULATIVE"
        assert again.get(failed) is None
        assert again.get(lost) is None


@pytest.mark.behaviour(59)
async def test_a_cursor_given_out_after_the_backup_that_was_restored_is_no_cursor() -> None:
    rig = Rig()
    await rig.__aenter__()
    await rig.idle(rig.ids()[0])
    cursor = rig.list().revision
    again = await rig.restarted()
    opened = rig.store.open()
    restored = replace(opened, head=opened.head + 1000, restored=1)
    again.store.open = lambda: restored  # type: ignore[method-assign]
    async with again:
        assert len(again.list(since_revision=cursor).machines) == 4
        assert not again.list(since_revision=again.list().revision).machines
