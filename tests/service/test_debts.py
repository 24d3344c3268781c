"""Leftovers in the substrate: owed until it says that they are gone."""

import asyncio
from itertools import pairwise

import pytest

from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.janitor import FIRST_RETRY_SECONDS, STUBBORN_ATTEMPTS
from bigfleet_azure.store.base import StoreError
from tests.support.rig import Rig, acked, refusing

pytestmark = pytest.mark.looptime


class Reclaim:
    """Refuses until told otherwise, and remembers when it was asked about whom."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, float]] = []

    async def __call__(self, debt: Debt) -> None:
        self.asked.append((debt.machine_id, asyncio.get_running_loop().time()))
        if self.error is not None:
            raise self.error

    def times(self, machine: str) -> list[float]:
        return [at for asked, at in self.asked if asked == machine]


RESERVED = BackendError(FailureKind.TRANSIENT, "NicReservedForAnotherVm: 180 s")


async def owing(rig: Rig, machine: str) -> None:
    """Let a Create of `machine` fail, which leaves a debt."""
    rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
    acked(await rig.create(machine))
    await rig.reaches(machine, "FAILED", within=10)


@pytest.mark.behaviour(64)
async def test_a_debt_is_tried_again_on_a_clock_of_its_own_ever_more_slowly() -> None:
    async with Rig() as rig:
        rig.backend.reclaiming = reclaim = Reclaim(RESERVED)
        first, second = rig.ids()[:2]
        await owing(rig, first)
        await asyncio.sleep(33)
        await owing(rig, second)
        await asyncio.sleep(40)
        early = reclaim.times(first)
        waits = [b - a for a, b in pairwise(early)]
        assert waits == pytest.approx([FIRST_RETRY_SECONDS * 2**n for n in range(len(waits))])
        assert len(waits) == 3
        assert reclaim.times(second)[1] - reclaim.times(second)[0] == FIRST_RETRY_SECONDS


@pytest.mark.behaviour(64)
async def test_the_substrate_s_own_waiting_time_is_honoured() -> None:
    from datetime import timedelta

    async with Rig() as rig:
        error = BackendError(FailureKind.THROTTLED, "429", retry_after=timedelta(seconds=77))
        rig.backend.reclaiming = reclaim = Reclaim(error)
        machine = rig.ids()[0]
        await owing(rig, machine)
        await asyncio.sleep(76)
        assert len(reclaim.times(machine)) == 1
        await asyncio.sleep(10)
        assert len(reclaim.times(machine)) == 2


async def test_a_stubborn_debt_is_a_condition_until_it_is_paid() -> None:
    async with Rig() as rig:
        rig.backend.reclaiming = reclaim = Reclaim(RESERVED)
        machine = rig.ids()[0]
        await owing(rig, machine)
        await asyncio.sleep(60)
        assert rig.conditions.standing() == []
        await asyncio.sleep(FIRST_RETRY_SECONDS * 2**STUBBORN_ATTEMPTS)
        (condition,) = rig.conditions.standing()
        assert condition.name == "debts"
        assert machine in condition.message
        assert "NicReservedForAnotherVm" in condition.message
        reclaim.error = None
        await asyncio.sleep(600)
        assert rig.conditions.standing() == []
        assert rig.store.debts == {}


async def test_a_debt_and_its_clock_survive_a_restart() -> None:
    rig = Rig()
    await rig.__aenter__()
    rig.backend.reclaiming = reclaim = Reclaim(RESERVED)
    machine = rig.ids()[0]
    await owing(rig, machine)
    await asyncio.sleep(80)
    before = len(reclaim.asked)
    async with await rig.restarted():
        await asyncio.sleep(1)
        assert len(reclaim.asked) == before
        reclaim.error = None
        await asyncio.sleep(200)
        assert rig.store.debts == {}
        assert len(reclaim.asked) == before + 1


@pytest.mark.parametrize("error", [ValueError("a bug"), TimeoutError()])
async def test_a_bug_in_the_backend_does_not_lose_a_debt(error: Exception) -> None:
    async with Rig() as rig:
        rig.backend.reclaiming = reclaim = Reclaim(error)
        await owing(rig, rig.ids()[0])
        await asyncio.sleep(60)
        reclaim.error = None
        await asyncio.sleep(600)
        assert rig.store.debts == {}


async def test_a_debt_whose_payment_cannot_be_written_is_paid_again() -> None:
    async with Rig() as rig:
        rig.backend.reclaiming = reclaim = Reclaim(RESERVED)
        await owing(rig, rig.ids()[0])
        reclaim.error = None
        rig.store.failure = StoreError("disk full")
        await asyncio.sleep(300)
        assert rig.store.debts
        rig.store.failure = None
        await asyncio.sleep(1200)
        assert rig.store.debts == {}


async def test_debts_of_one_machine_do_not_end_those_of_another() -> None:
    async with Rig() as rig:
        first, second = rig.ids()[:2]

        async def only_second(debt: Debt) -> None:
            if debt.machine_id == first:
                raise RESERVED

        rig.backend.reclaiming = only_second
        await owing(rig, first)
        await owing(rig, second)
        await asyncio.sleep(60)
        assert [debt.machine_id for debt in rig.store.debts.values()] == [first]
