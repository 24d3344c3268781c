"""How the simulated region behaves under each of its options."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.backends.simulated.vm import Place
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.secret import Secret
from tests.backends.harness import offer, work
from tests.support.clock import VirtualClock

SPOT = offer(CapacityType.SPOT)


def region(clock: VirtualClock, **options: Any) -> SimulatedBackend:
    return SimulatedBackend(SimulationOptions(**options), clock)


def name(number: int) -> str:
    return f"vm-{number:03d}"


async def outcomes(
    backend: SimulatedBackend, clock: VirtualClock, numbers: Sequence[int], **fields: Any
) -> dict[str, str]:
    """Machine to what became of its Create: "ok", or the kind of the failure."""
    found = {}
    for number in numbers:
        try:
            await clock.run(backend.create(work(name(number), f"op-a-{number}", **fields)))
            found[name(number)] = "ok"
        except BackendError as error:
            found[name(number)] = error.kind
    return found


async def test_by_default_a_whole_life_takes_well_under_half_a_second_and_nothing_fails() -> None:
    clock = VirtualClock()
    backend = region(clock)
    for number in range(50):
        begun = clock.now()
        vm = name(number)
        host = (await clock.run(backend.create(work(vm, "op-a-1", offer=SPOT)))).ref
        bound = work(vm, "op-a-2", created_by="op-a-1", host=host, cluster="c", grace_seconds=600)
        await clock.run(backend.configure(bound, Secret(b"x")))
        await clock.run(backend.wait_ready(bound))
        await clock.run(backend.drain(bound))
        await clock.run(backend.delete(bound))
        assert clock.now() - begun < 0.5


async def test_every_step_takes_the_latency_give_or_take_a_quarter() -> None:
    clock = VirtualClock()
    backend = region(clock, latency=timedelta(seconds=60))
    times = []
    for number in range(20):
        begun = clock.now()
        await clock.run(backend.create(work(name(number), f"op-a-{number}")))
        times.append(clock.now() - begun)
    assert all(45 <= taken <= 75 for taken in times)
    assert max(times) - min(times) > 10


async def test_a_drain_never_waits_longer_than_the_grace() -> None:
    clock = VirtualClock()
    backend = region(clock, latency=timedelta(seconds=60))
    host = (await clock.run(backend.create(work("vm", "op-a-1")))).ref
    bound = work("vm", "op-a-2", created_by="op-a-1", host=host, cluster="c", grace_seconds=10)
    await clock.run(backend.configure(bound, Secret(b"x")))
    begun = clock.now()
    await clock.run(backend.drain(bound))
    assert clock.now() - begun == pytest.approx(10)


@pytest.mark.behaviour(67)
async def test_a_full_quota_refuses_until_a_machine_is_gone() -> None:
    clock = VirtualClock()
    backend = region(clock, quota=2)
    assert list((await outcomes(backend, clock, [1, 2, 3])).values()) == ["ok", "ok", "quota"]
    with pytest.raises(BackendError, match=r"QuotaExceeded.*limit 2, in use 2") as caught:
        await backend.create(work(name(3), "op-a-3"))
    assert caught.value.kind in RETRYABLE
    await clock.run(backend.delete(work(name(1), "op-a-9", created_by="op-a-1")))
    assert list((await outcomes(backend, clock, [3])).values()) == ["ok"]


async def test_quota_is_counted_per_size_zone_and_capacity_type() -> None:
    clock = VirtualClock()
    backend = region(clock, quota=1)
    assert list((await outcomes(backend, clock, [1])).values()) == ["ok"]
    assert list((await outcomes(backend, clock, [2], offer=SPOT)).values()) == ["ok"]
    assert list((await outcomes(backend, clock, [3])).values()) == ["quota"]


async def test_an_evicted_machine_holds_its_quota_until_it_is_deleted() -> None:
    clock = VirtualClock()
    backend = region(clock, quota=1)
    await outcomes(backend, clock, [1], offer=SPOT)
    backend.region.evict(name(1))
    assert list((await outcomes(backend, clock, [2], offer=SPOT)).values()) == ["quota"]


async def test_only_spot_machines_can_be_evicted() -> None:
    clock = VirtualClock()
    backend = region(clock)
    await outcomes(backend, clock, [1])
    with pytest.raises(ValueError, match="no spot VM"):
        backend.region.evict(name(1))


@pytest.mark.behaviour(67)
async def test_a_place_without_capacity_refuses_until_capacity_returns() -> None:
    clock = VirtualClock()
    backend = region(clock)
    place = Place("Standard_D4s_v5", "eastus-1", "on_demand")
    backend.region.limit_capacity(place, 0)
    with pytest.raises(BackendError, match=r"ZonalAllocationFailed.*Standard_D4s_v5") as caught:
        await backend.create(work("vm", "op-a-1"))
    assert caught.value.kind is FailureKind.OUT_OF_CAPACITY
    backend.region.limit_capacity(place, None)
    await clock.run(backend.create(work("vm", "op-a-1")))


@pytest.mark.behaviour(62)
async def test_the_asked_share_of_creates_fails_for_good_and_leaves_a_failed_machine() -> None:
    clock = VirtualClock()
    backend = region(clock, fail_rate=0.3)
    found = await outcomes(backend, clock, range(200))
    failed = [vm for vm, outcome in found.items() if outcome == "invalid"]
    assert set(found.values()) == {"ok", "invalid"}
    assert 40 <= len(failed) <= 80
    assert (await backend.inspect(failed[0], "")).condition is Condition.FAILED
    with pytest.raises(BackendError, match="OSProvisioningClientError") as caught:
        await clock.run(backend.create(work(failed[0], f"op-a-{int(failed[0][3:])}")))
    assert caught.value.kind not in RETRYABLE


@pytest.mark.behaviour(67)
async def test_the_asked_share_of_calls_is_throttled_and_a_repeat_passes_in_time() -> None:
    clock = VirtualClock()
    backend = region(clock, throttle=0.5)
    refusals = []
    for number in range(100):
        while True:
            try:
                await clock.run(backend.create(work(name(number), f"op-a-{number}")))
                break
            except BackendError as error:
                refusals.append((error.kind, error.retry_after))
    assert set(refusals) == {(FailureKind.THROTTLED, timedelta(seconds=1))}
    assert 60 <= len(refusals) <= 150
    assert len(backend.region.machines()) == 100


async def test_reads_are_throttled_too() -> None:
    backend = region(VirtualClock(), throttle=0.5)
    answers = []
    for _ in range(100):
        try:
            await backend.inventory()
            await backend.inspect("vm", "")
        except BackendError as error:
            answers.append(error.kind)
    assert 30 <= answers.count(FailureKind.THROTTLED) <= 95


@pytest.mark.behaviour(70)
async def test_spot_machines_are_evicted_at_the_asked_hourly_rate_and_others_never() -> None:
    clock = VirtualClock()
    backend = region(clock, seed=1, evict_rate=0.5)
    await outcomes(backend, clock, range(200), offer=SPOT)
    await outcomes(backend, clock, range(200, 250))
    assert {found.condition for found in await backend.inventory()} == {Condition.RUNNING}
    await clock.advance(3600)
    seen = await backend.inventory()
    evicted = [found.machine_id for found in seen if found.condition is Condition.EVICTED]
    # 1 - exp(-0.5) of 200 is 79.
    assert 60 <= len(evicted) <= 98
    assert max(evicted) < name(200)


async def test_chance_follows_from_the_seed_whatever_the_order_of_calls() -> None:
    async def fates(seed: int, numbers: Sequence[int]) -> dict[str, tuple[str, Condition]]:
        clock = VirtualClock()
        backend = region(clock, seed=seed, fail_rate=0.3, evict_rate=0.5)
        found = await outcomes(backend, clock, numbers, offer=SPOT)
        await clock.advance(3600)
        seen = {vm.machine_id: vm.condition for vm in await backend.inventory()}
        return {vm: (found[vm], seen[vm]) for vm in found}

    forward = await fates(1, range(60))
    assert await fates(1, range(59, -1, -1)) == forward
    assert await fates(2, range(60)) != forward


async def test_the_next_life_of_a_name_has_its_own_luck() -> None:
    clock = VirtualClock()
    backend = region(clock, fail_rate=0.5)
    found = set()
    for life in range(20):
        try:
            await clock.run(backend.create(work("vm", f"op-a-{life}")))
            found.add("ok")
        except BackendError as error:
            found.add(error.kind)
        await clock.run(backend.delete(work("vm", "op-a-99", created_by=f"op-a-{life}")))
    assert found == {"ok", "invalid"}


async def test_a_call_costs_the_same_however_many_machines_there_are() -> None:
    clock = VirtualClock()
    backend = region(clock, evict_rate=0.01)
    looked_at = 0

    class Counting(dict[str, Any]):
        def values(self) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().values()

    backend.region._machines = Counting()
    await outcomes(backend, clock, range(50), offer=SPOT)
    await backend.inspect(name(1), "")
    await clock.run(backend.delete(work(name(1), "op-a-99", created_by="op-a-1")))
    assert looked_at == 0


async def test_listing_many_machines_lets_others_have_their_turn() -> None:
    clock = VirtualClock()
    backend = region(clock, latency=timedelta(0))
    for number in range(3000):
        await backend.create(work(f"vm-{number}", "op-a-1"))
    listing = asyncio.ensure_future(backend.inventory())
    turns = 0
    while not listing.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 3
    assert len(await listing) == 3000


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("latency", timedelta(seconds=-1), "latency is -1s"),
        ("slow_ok_delay", timedelta(seconds=-1), "slow_ok_delay is -1s"),
        ("quota", -1, "quota is -1"),
        ("evict_rate", -0.1, "evict_rate is -0.1"),
        ("evict_rate", float("nan"), "evict_rate is nan"),
        ("fail_rate", 1.1, "fail_rate is 1.1"),
        ("throttle", -1, "throttle is -1"),
    ],
)
def test_options_out_of_range_are_refused_by_name(option: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SimulationOptions(**{option: value})


async def test_nothing_of_the_blob_is_kept(tmp_path: Path) -> None:
    clock = VirtualClock()
    backend = SimulatedBackend(SimulationOptions(), clock, tmp_path / "region")
    await backend.start()
    await clock.run(backend.create(work("vm", "op-a-1")))
    bound = work("vm", "op-a-2", created_by="op-a-1", cluster="c")
    await clock.run(backend.configure(bound, Secret(b"planted-secret")))
    await backend.close()
    assert b"planted-secret" not in (tmp_path / "region").read_bytes()
