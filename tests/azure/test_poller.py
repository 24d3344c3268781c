"""Waiting for many operations with few calls, in virtual time."""

import asyncio
import random
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.poller import LIST_ABOVE, Over, Poller, Reading
from tests.support.rig import LoopClock

pytestmark = pytest.mark.looptime

PAGE = 50


class Azure:
    """Operations that end by themselves.

    Attributes:
        asked: VM and moment of each question about an operation.
        listed: moments at which lists began.
        pages: calls that the lists took.
        list_page_seconds: how long a page takes: what a throttle lets through.
        first_wait: Retry-After of an operation's first answer.
    """

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}
        self.failures: dict[str, Failure] = {}
        self.asked: list[tuple[str, float]] = []
        self.listed: list[float] = []
        self.pages = 0
        self.list_page_seconds = 0.02
        self.list_trouble: Failure | None = None
        self.ask_trouble: list[Failure] = []
        self.first_wait: float | None = None
        self.born: dict[str, float] = {}
        self.clock = LoopClock()
        self.poller = Poller(self.clock, ask=self.ask, list_all=self.list_all)

    def begin(self, vm: str, seconds: float, failure: Failure | None = None) -> None:
        self.born[vm] = now()
        self.ends[vm] = now() + seconds
        if failure is not None:
            self.failures[vm] = failure

    async def wait(self, vm: str, retry_after: float | None = None) -> float:
        """Wait for the operation's end; how many seconds after it that was noticed."""
        await self.poller.wait(
            kind="vm.create",
            vm=vm,
            url=f"/operations/{vm}",
            retry_after=None if retry_after is None else timedelta(seconds=retry_after),
            over=over,
        )
        return now() - self.ends[vm]

    async def ask(self, vm: str, url: str) -> Reading:
        assert url == f"/operations/{vm}"
        first = all(known != vm for known, _ in self.asked)
        self.asked.append((vm, now()))
        await asyncio.sleep(0.05)
        if self.ask_trouble:
            raise ArmError(self.ask_trouble.pop())
        done = now() >= self.ends[vm]
        wait = self.first_wait if first and self.first_wait else None
        return Reading(
            done=done,
            failure=self.failures.get(vm) if done else None,
            retry_after=None if wait is None else timedelta(seconds=wait),
            body={},
        )

    async def list_all(self) -> Mapping[str, dict[str, Any]]:
        begun = now()
        self.listed.append(begun)
        count = max(1, -(-len(self.ends) // PAGE))
        self.pages += count
        await asyncio.sleep(count * self.list_page_seconds)
        if self.list_trouble is not None:
            raise ArmError(self.list_trouble)
        return {
            vm.lower(): {"name": vm, "state": self.state(vm, begun)}
            for vm, born in self.born.items()
            if born <= begun
        }

    def state(self, vm: str, at: float) -> str:
        if at < self.ends[vm]:
            return "creating"
        return "failed" if vm in self.failures else "succeeded"


def over(shown: Any) -> Over:
    if shown is None:
        return Over.ASK
    return {"creating": Over.RUNNING, "succeeded": Over.DONE}.get(shown["state"], Over.ASK)


def now() -> float:
    return asyncio.get_running_loop().time()


def refusal(code: str, status: int = 200) -> Failure:
    return Failure(call="compute.operation", status=status, code=code)


async def test_a_lone_operation_is_noticed_within_the_pause_between_two_questions():
    late = []
    for number in range(200):
        azure = Azure()
        azure.begin("m", 60 + number / 20)
        late.append(await azure.wait("m"))
        pauses = [b - a for (_, a), (_, b) in pairwise(azure.asked)]
        assert min(pauses) >= 5
        assert azure.listed == []
    late.sort()
    assert late[len(late) // 2] <= 3
    assert late[-1] <= 7


async def test_retry_after_of_the_accepted_request_and_of_a_poll_is_honoured():
    azure = Azure()
    azure.first_wait = 35
    begun = now()
    azure.begin("m", 20)
    await azure.wait("m", retry_after=10)
    moments = [at - begun for _, at in azure.asked]
    assert moments[0] >= 10
    assert moments[1] >= moments[0] + 35


async def test_a_slow_operation_is_asked_about_less_often_after_three_times_the_usual_time():
    azure = Azure()
    azure.begin("m", 500)
    await azure.wait("m")
    late = [at for _, at in azure.asked if at > 3 * 67 + 20]
    pauses = [b - a for a, b in pairwise(late)]
    assert min(pauses) >= 10
    assert max(pauses) <= 16


async def test_a_failed_operation_is_raised_with_its_own_error():
    azure = Azure()
    azure.begin("m", 40, refusal("AllocationFailed"))
    with pytest.raises(ArmError) as caught:
        await azure.wait("m")
    assert caught.value.failure.code == "AllocationFailed"


async def test_trouble_with_the_question_never_loses_the_operation():
    azure = Azure()
    azure.ask_trouble = [refusal("TooManyRequests", 429), refusal("ConnectionError", 0)]
    azure.begin("m", 30)
    assert await azure.wait("m") < 30


async def test_an_address_that_is_forgotten_is_told_to_who_waits():
    azure = Azure()
    azure.ask_trouble = [refusal("NotFound", 404)]
    azure.begin("m", 30)
    with pytest.raises(ArmError):
        await azure.wait("m")


async def burst(azure: Azure, count: int, spread: float = 0.3) -> list[float]:
    """Begin so many over 80 s, and wait for all."""
    dice = random.Random(7)

    async def one(number: int) -> float:
        await asyncio.sleep(max(0.0, (number - 200) / 10))
        vm = f"m-{number}"
        azure.begin(vm, 67 * (1 + spread * dice.uniform(-1, 1)), azure.failures.get(vm))
        try:
            return await azure.wait(vm, retry_after=10)
        except ArmError:
            return now() - azure.ends[vm]

    return sorted(await asyncio.gather(*(one(number) for number in range(count))))


async def test_many_operations_are_looked_up_in_lists_at_less_than_a_call_for_each():
    azure = Azure()
    azure.first_wait = 35
    late = await burst(azure, 1000)
    assert late[990] <= 7
    assert late[-1] <= 12
    assert azure.pages + len(azure.asked) <= 1000
    assert min(b - a for a, b in pairwise(azure.listed)) >= 5 - 0.01


async def test_lists_that_take_long_lose_nothing():
    azure = Azure()
    azure.list_page_seconds = 2.0
    late = await burst(azure, 600)
    assert len(late) == 600
    assert len(azure.asked) < 600


async def test_an_operation_accepted_after_a_list_began_is_not_judged_by_it():
    azure = Azure()
    azure.list_page_seconds = 10.0
    for number in range(LIST_ABOVE + 1):
        azure.begin(f"m-{number}", 300)
    waits = [asyncio.ensure_future(azure.wait(vm)) for vm in azure.ends]
    await asyncio.sleep(6)
    assert len(azure.listed) == 1
    azure.begin("late", 100)
    await azure.poller.wait(
        kind="vm.delete",
        vm="late",
        url="/operations/late",
        retry_after=None,
        over=lambda shown: Over.DONE if shown is None or over(shown) is Over.DONE else Over.RUNNING,
    )
    assert now() >= azure.ends["late"], "that list is older than the VM"
    await asyncio.gather(*waits)


async def test_a_failure_that_a_list_shows_is_asked_about_and_raised():
    azure = Azure()
    azure.failures["m-17"] = refusal("ZonalAllocationFailed")
    late = await burst(azure, 300)
    assert len(late) == 300
    assert [vm for vm, _ in azure.asked].count("m-17") >= 1


async def test_without_lists_addresses_are_asked_and_stay_below_what_arm_gives_back():
    azure = Azure()
    azure.list_trouble = refusal("InternalServerError", 500)
    late = await burst(azure, 500)
    assert len(late) == 500
    moments = sorted(at for _, at in azure.asked)
    assert all(moments[n + 150] - moments[n] >= 9 for n in range(len(moments) - 150))


async def test_few_operations_are_asked_about_one_by_one_again():
    azure = Azure()
    await burst(azure, LIST_ABOVE + 40)
    lists = len(azure.listed)
    assert lists > 0
    azure.begin("lone", 60)
    await asyncio.sleep(200)
    azure.begin("later", 60)
    await azure.wait("later")
    assert len(azure.listed) == lists


async def test_a_cancelled_wait_is_forgotten():
    azure = Azure()
    azure.begin("m", 1000)
    waiting = asyncio.ensure_future(azure.wait("m"))
    await asyncio.sleep(30)
    waiting.cancel()
    asked = len(azure.asked)
    await asyncio.sleep(300)
    assert len(azure.asked) == asked
