"""Client-side token buckets, against the double's buckets in virtual time."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from bigfleet_azure.backends.azure.bucket import Bucket, Lane
from bigfleet_azure.backends.azure.charges import CHARGES, GRAPH, OF_ONE, SIZES, Size
from bigfleet_azure.backends.azure.throttle import Throttle
from bigfleet_azure.telemetry.metrics import Metrics
from tests.support.arm.buckets import Buckets
from tests.support.arm.graph import Graph
from tests.support.arm.routes import OUTSIDE_ARM, ROUTES
from tests.support.arm.wire import Refusal
from tests.support.rig import EPOCH, LoopClock

looptime = pytest.mark.looptime

SUBSCRIPTION, PRINCIPAL = "sub", "me"
KINDS = {"GET": "reads", "DELETE": "deletes"}
BY_NAME = {route.name: route for route in ROUTES}


@dataclass
class Azure:
    """Azure's side of the buckets, and a way to it that takes time.

    Attributes:
        latency: shortest and longest time of each way.
        refused: calls that were answered 429.
    """

    small_reads: bool = False
    latency: tuple[float, float] = (0.02, 0.2)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buckets = Buckets(LoopClock().now, small_reads=self.small_reads)
        self._random = random.Random(7)

    def charge(self, call: str, resource: str) -> dict[str, str]:
        route = BY_NAME[call]
        kind = KINDS.get(route.method, "writes")
        headers = self.buckets.charge_arm(kind, SUBSCRIPTION, PRINCIPAL)
        if route.policy is not None:
            headers |= self.buckets.charge_compute(route.policy, SUBSCRIPTION, resource)
        if route.network:
            self.buckets.charge_network(route.method != "GET", SUBSCRIPTION)
        return headers

    async def answer(self, call: str, resource: str) -> tuple[int, Mapping[str, str]]:
        await asyncio.sleep(self._random.uniform(*self.latency))
        try:
            status, headers = 200, self.charge(call, resource)
        except Refusal as refusal:
            self.refused.append(call)
            status, headers = refusal.answer.status, dict(refusal.answer.headers)
        await asyncio.sleep(self._random.uniform(*self.latency))
        return status, headers


@dataclass
class Caller:
    """Makes calls as the daemon does: at their turn, learning from every answer."""

    azure: Azure
    throttle: Throttle = field(default_factory=lambda: Throttle(LoopClock()))
    order: list[str] = field(default_factory=list)

    async def call(self, call: str, resource: str = "", **how: bool) -> int:
        async with self.throttle.turn(call, resource, **how):
            self.order.append(resource)
            status, headers = await self.azure.answer(call, resource)
            self.throttle.learn(call, status, headers, resource)
        return status

    async def many(self, call: str, count: int) -> float:
        """As many calls at once, each on a resource of its own; seconds until the last answer."""
        start = now()
        await asyncio.gather(*(self.call(call, f"r-{n}") for n in range(count)))
        return now() - start


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken_in(throttle: Throttle, call: str, seconds: float, resource: str = "") -> int:
    """How many turns are had one after the other within the time."""
    count = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                async with throttle.turn(call, resource):
                    count += 1
    except TimeoutError:
        return count


def told(call: str, header: str, value: str | int, status: int = 200) -> Throttle:
    """A throttle that has seen one answer."""
    throttle = Throttle(LoopClock())
    throttle.learn(call, status, {header: str(value)})
    return throttle


def test_every_call_is_charged_to_the_buckets_that_azure_charges() -> None:
    never_called = {"provider.register"}
    assert set(CHARGES) == {route.name for route in ROUTES} - OUTSIDE_ARM - never_called
    for name, buckets in CHARGES.items():
        route = BY_NAME[name]
        kind = KINDS.get(route.method, "writes")
        expected = {route.bucket} if route.bucket else {kind, f"global-{kind}"}
        if route.policy is not None:
            expected |= {route.policy, f"{route.policy}Resource"} & {*SIZES, *OF_ONE}
        if route.network:
            expected.add("NetworkReads" if route.method == "GET" else "NetworkWrites")
        assert set(buckets) == expected, name


@looptime
async def test_no_bucket_is_taken_to_be_larger_or_to_fill_faster_than_azures() -> None:
    azure = Azure(small_reads=True)
    for name, size in SIZES.items():
        if name in GRAPH:  # which counts by itself, in windows of 5 seconds
            assert (size.tokens, size.a_second * 5) == (Graph.quota, Graph.quota)
            continue
        theirs = azure.buckets._find(name, SUBSCRIPTION)
        assert (size.tokens, size.a_second) == pytest.approx((theirs.size, theirs.refill)), name
    for name, size in OF_ONE.items():
        theirs = azure.buckets._find(name.removesuffix("Resource"), SUBSCRIPTION, "vm")
        assert (size.tokens, size.a_second) == pytest.approx((theirs.size, theirs.refill)), name


@looptime
@pytest.mark.parametrize("latency", [(0, 0.001), (0.02, 0.2), (0.5, 8)])
async def test_a_burst_of_a_thousand_creates_is_never_refused_and_loses_no_time(
    latency: tuple[float, float],
) -> None:
    caller = Caller(Azure(latency=latency))
    took = await caller.many("vm.put", 1000)
    assert caller.azure.refused == []
    # 200 at once and 10 a second after is the best there is.
    assert 80 <= took <= 80 + 1 + 2 * latency[1]


@looptime
async def test_calls_that_reach_azure_late_all_at_once_find_their_tokens() -> None:
    """Azure's bucket was full meanwhile, and what it would have regained was lost."""
    azure = Azure(latency=(0, 0))
    caller = Caller(azure)

    async def held_up(call: str, resource: str) -> tuple[int, Mapping[str, str]]:
        await asyncio.sleep(max(0.0, 30 - now()))
        return await Azure.answer(azure, call, resource)

    azure.answer = held_up  # type: ignore[method-assign]
    await caller.many("vm.put", 600)
    assert azure.refused == []


@looptime
@pytest.mark.parametrize("small", [True, False])
async def test_the_size_of_the_bucket_for_lists_is_found_out_without_a_refusal(small: bool) -> None:
    caller = Caller(Azure(small_reads=small))
    count = 0
    try:
        async with asyncio.timeout(600):
            while True:
                await caller.call("vm.list")
                count += 1
    except TimeoutError:
        pass
    assert caller.azure.refused == []
    size, refill = (90, 30) if small else (900, 300)
    possible = min(size + refill * 10, 600 / 0.22)
    assert possible * 0.93 <= count <= possible * 1.02


@looptime
async def test_lists_in_parallel_from_the_start_stay_within_the_smaller_size() -> None:
    caller = Caller(Azure(small_reads=True))
    await caller.many("vm.list", 150)
    assert caller.azure.refused == []


@looptime
@pytest.mark.parametrize(
    ("call", "bucket", "drain", "left"),
    [
        ("vm.put", "global-writes", 147, 3),
        ("vm.put", "PutVM", 7, 500 / 60 - 7),
        ("vm.get", "global-reads", 370, 5),
        ("vm.list", "HighCostGet", 4, 1),
    ],
)
async def test_a_bucket_that_others_drain_is_not_emptied_by_us(
    call: str, bucket: str, drain: float, left: float
) -> None:
    caller = Caller(Azure(latency=(0.01, 0.05)))
    caller.azure.buckets.drain(bucket, drain)
    caller.azure.buckets._find(bucket, SUBSCRIPTION).take(0.0)
    caller.azure.buckets._find(bucket, SUBSCRIPTION)._tokens = 30
    done = 0

    async def worker(number: int) -> None:
        nonlocal done
        for turn in range(1000):
            await caller.call(call, f"{number}-{turn}")
            done += 1

    workers = [asyncio.create_task(worker(n)) for n in range(4)]
    await asyncio.sleep(120)
    for each in workers:
        each.cancel()
    assert caller.azure.refused == []
    assert done >= 0.7 * left * 120, "what others leave is had"


@looptime
async def test_one_vm_is_written_to_no_faster_than_its_own_bucket_fills() -> None:
    throttle = Throttle(LoopClock())
    assert await taken_in(throttle, "extension.put", 59, "vm-1") == 12 + 3
    assert await taken_in(throttle, "extension.put", 1, "vm-2") == 12


@looptime
async def test_a_vm_has_one_bucket_however_it_is_named() -> None:
    throttle = Throttle(LoopClock())
    path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/VM-1"
    for each in (path, path.lower() + "/extensions", "vm-1") * 12:
        async with throttle.turn("vm.get", each):
            pass
    assert await taken_in(throttle, "vm.get", 4, "vm-1") == 0


@looptime
async def test_a_vm_that_must_wait_holds_up_no_other() -> None:
    caller = Caller(Azure())
    slow = [asyncio.create_task(caller.call("vm.start", "vm-1")) for _ in range(40)]
    await asyncio.sleep(1)
    start = now()
    await caller.call("vm.start", "vm-2")
    assert now() - start < 1
    assert sum(task.done() for task in slow) == 12
    for task in slow:
        task.cancel()


@looptime
async def test_buckets_of_single_vms_are_forgotten_once_full() -> None:
    throttle = Throttle(LoopClock())
    for number in range(1000):
        async with throttle.turn("vm.put", f"vm-{number}"):
            pass
        await asyncio.sleep(1)
    # A token of one VM is back after 15 seconds.
    assert len(throttle._own) < 40
    async with throttle.turn("vm.put", "vm-1"):
        await asyncio.sleep(100)
        async with throttle.turn("vm.put", "vm-2"):
            assert ("PutVMResource", "vm-1") in throttle._own, "it is in use"


@looptime
async def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    caller = Caller(Azure())
    await caller.many("tags.patch", 600)
    assert caller.order == [f"r-{n}" for n in range(600)]


@looptime
async def test_an_urgent_turn_goes_before_all_that_wait() -> None:
    caller = Caller(Azure())
    rest = [asyncio.create_task(caller.call("tags.patch", f"r-{n}")) for n in range(400)]
    await asyncio.sleep(1)
    start = now()
    await caller.call("tags.patch", "first", urgent=True)
    assert now() - start < 1
    assert not all(task.done() for task in rest)
    await asyncio.gather(*rest)


@looptime
async def test_a_storm_of_polls_leaves_reads_to_all_else() -> None:
    caller = Caller(Azure())
    polls = [asyncio.create_task(caller.call("compute.operation", f"op-{n}")) for n in range(2000)]
    await asyncio.sleep(2)
    start = now()
    await asyncio.gather(*(caller.call("vm.get", f"vm-{n}") for n in range(45)))
    assert now() - start < 1, "as many as are reserved, without a wait"
    assert not all(task.done() for task in polls)
    await asyncio.gather(*polls)
    assert caller.azure.refused == []
    assert now() < 2000 / 25


@looptime
async def test_whoever_comes_while_only_polls_wait_is_served_at_once() -> None:
    throttle = Throttle(LoopClock())
    throttle.learn("vm.get", 200, {"x-ms-ratelimit-remaining-subscription-reads": "20"})
    poll = asyncio.create_task(taken_in(throttle, "compute.operation", 1000, "op"))
    await asyncio.sleep(0)
    start = now()
    async with throttle.turn("vm.get", "vm"):
        assert now() == start
    poll.cancel()


@looptime
async def test_thousands_that_wait_are_woken_one_by_one() -> None:
    throttle = Throttle(LoopClock())
    running = 0

    async def one(number: int) -> None:
        nonlocal running
        async with throttle.turn("tags.patch", str(number)):
            running += 1

    tasks = [asyncio.create_task(one(number)) for number in range(3000)]
    await asyncio.sleep(0.05)
    before = running
    assert before == 195, "all but the margin"
    for second in range(1, 11):
        await asyncio.sleep(1)
        assert running == pytest.approx(before + 10 * second, abs=1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@looptime
async def test_waits_that_are_cancelled_lose_no_token_and_hold_up_nobody() -> None:
    throttle = Throttle(LoopClock())
    assert await taken_in(throttle, "tags.patch", 0.01) == 195
    given_up = [asyncio.create_task(taken_in(throttle, "tags.patch", 1000)) for _ in range(50)]
    await asyncio.sleep(0.02)
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    # Nothing was lost: as much is there as if nobody had waited.
    await asyncio.sleep(10)
    assert await taken_in(throttle, "tags.patch", 0.01) == pytest.approx(100, abs=1)


@looptime
async def test_a_turn_cancelled_at_a_later_bucket_gives_back_the_tokens_of_earlier_ones() -> None:
    throttle = Throttle(LoopClock())
    throttle.close("tags.patch", 30)
    for _ in range(12):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), throttle.turn("vm.put", "vm-1"):
                pytest.fail("writes are closed")
    await asyncio.sleep(30)
    assert await taken_in(throttle, "vm.put", 1.5, "vm-1") == 12


class WatchedClock(LoopClock):
    """Tells when a sleep has ended, before whoever slept goes on."""

    def __init__(self) -> None:
        self.woke = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self.woke.set()


@looptime
async def test_a_wait_given_up_at_the_moment_its_token_comes_leaves_it_to_the_next() -> None:
    clock = WatchedClock()
    bucket = Bucket(clock, Size(tokens=1, a_second=0.1))
    await bucket.take(Lane.ORDINARY)
    bucket.over()
    first = asyncio.create_task(bucket.take(Lane.ORDINARY))
    second = asyncio.create_task(bucket.take(Lane.ORDINARY))
    await clock.woke.wait()
    assert not first.done()
    first.cancel()
    async with asyncio.timeout(60):
        await second
    assert now() == pytest.approx(10, abs=0.01)
    assert first.cancelled()


@looptime
@pytest.mark.parametrize(
    ("call", "header", "value"),
    [
        ("vm.put", "x-ms-ratelimit-remaining-subscription-writes", "7"),
        ("vm.put", "X-Ms-RateLimit-Remaining-Subscription-Global-Writes", "77"),
        ("vm.delete", "x-ms-ratelimit-remaining-subscription-deletes", "7"),
        ("vm.get", "x-ms-ratelimit-remaining-subscription-global-reads", "94"),
        ("vm.put", "x-ms-ratelimit-remaining-resource", "Microsoft.Compute/PutVM3Min;39"),
        (
            "vm.put",
            "x-ms-ratelimit-remaining-resource",
            "Microsoft.Compute/PutVM30Min;1199,Microsoft.Compute/PutVM3Min;39",
        ),
        (
            "vm.put",
            "x-ms-ratelimit-remaining-resource",
            "Microsoft.Compute/PutVMSubscriptionMaximum;39;Microsoft.Compute/PutVMResource;11",
        ),
    ],
)
async def test_a_bucket_is_never_fuller_than_azure_says(call: str, header: str, value: str) -> None:
    throttle = told(call, header, value)
    assert 1 <= await taken_in(throttle, call, 0.005) <= 7
    assert throttle.headroom(call) < 0.05


@looptime
@pytest.mark.parametrize("value", ["", "x", "Microsoft.Compute/PutVM", ";;,", "-1", "1e3"])
async def test_headers_that_say_nothing_change_nothing(value: str) -> None:
    throttle = told("vm.put", "x-ms-ratelimit-remaining-resource", value)
    throttle.learn("vm.put", 200, {"x-ms-ratelimit-remaining-subscription-writes": value})
    assert throttle.headroom("vm.put") == 1


@looptime
async def test_what_is_left_for_one_vm_is_believed_for_that_one() -> None:
    throttle = Throttle(LoopClock())
    async with throttle.turn("vm.put", "vm-1"):
        header = "Microsoft.Compute/PutVMSubscriptionMaximum;1499,Microsoft.Compute/PutVMResource;2"
        throttle.learn("vm.put", 200, {"x-ms-ratelimit-remaining-resource": header}, "vm-1")
    assert await taken_in(throttle, "vm.put", 1, "vm-1") == 2
    assert await taken_in(throttle, "vm.put", 1, "vm-2") == 12


@looptime
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17),
        ({"retry-after": format_datetime(datetime.fromtimestamp(EPOCH + 40, UTC), True)}, 40),
        ({}, 60),
    ],
)
async def test_a_refusal_closes_the_calls_bucket_until_azure_wants_to_be_asked_again(
    headers: dict[str, str], seconds: float
) -> None:
    metrics = Metrics()
    throttle = Throttle(LoopClock(), metrics)
    throttle.learn("vm.put", 429, headers)
    start = now()
    async with throttle.turn("vm.delete", "vm"):
        assert now() == start, "another bucket"
    async with throttle.turn("vm.put", "vm"):
        assert now() - start == pytest.approx(seconds, abs=1.1)
    sample = {"bucket": "PutVM"}
    value = metrics.registry.get_sample_value("bigfleet_azure_arm_throttled_total", sample)
    assert value == 1


@looptime
async def test_a_refusal_that_shows_which_bucket_is_empty_closes_that_one() -> None:
    throttle = Throttle(LoopClock())
    async with throttle.turn("vm.put", "vm-1"):
        header = "Microsoft.Compute/PutVMSubscriptionMaximum;1400,Microsoft.Compute/PutVMResource;0"
        headers = {"x-ms-ratelimit-remaining-resource": header, "Retry-After": "20"}
        throttle.learn("vm.put", 429, headers, "vm-1")
    start = now()
    async with throttle.turn("vm.put", "vm-2"):
        assert now() == start
    async with throttle.turn("vm.put", "vm-1"):
        assert now() - start == pytest.approx(20, abs=0.1)
    gateway = {"x-ms-ratelimit-remaining-subscription-writes": "0", "Retry-After": "9"}
    throttle.learn("vm.put", 429, gateway)
    start = now()
    async with throttle.turn("tags.patch"):
        assert now() - start == pytest.approx(9, abs=0.1), "the front door's writes are closed"


@looptime
async def test_networks_refusals_close_nothing_until_the_caller_says_so() -> None:
    throttle = Throttle(LoopClock())
    throttle.learn("nic.delete", 429, {"Retry-After": "12"})
    start = now()
    async with throttle.turn("nic.delete", "nic"):
        assert now() == start
    throttle.close("nic.delete", 12)
    async with throttle.turn("nic.delete", "nic"):
        assert now() - start == pytest.approx(12, abs=0.1)


@looptime
async def test_a_closed_bucket_lets_those_who_wait_through_one_by_one() -> None:
    caller = Caller(Azure())
    caller.throttle.close("vm.put", 10)
    assert caller.throttle.headroom("vm.put") == 0
    took = await caller.many("vm.put", 50)
    assert took == pytest.approx(10 + 50 * 60 / 500, rel=0.1)


@looptime
async def test_headroom_and_waiting_calls_are_shown_by_bucket() -> None:
    metrics = Metrics()
    throttle = Throttle(LoopClock(), metrics)

    def shown(name: str, bucket: str) -> float | None:
        return metrics.registry.get_sample_value(f"bigfleet_azure_{name}", {"bucket": bucket})

    assert shown("arm_bucket_headroom_ratio", "writes") == 1
    await taken_in(throttle, "tags.patch", 0.01)
    assert shown("arm_bucket_headroom_ratio", "writes") == pytest.approx(0, abs=0.01)
    assert shown("arm_bucket_headroom_ratio", "reads") == 1
    waiting = [asyncio.create_task(taken_in(throttle, "tags.patch", 9)) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert shown("arm_calls_waiting", "writes") == 3
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert shown("arm_calls_waiting", "writes") == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left running"
