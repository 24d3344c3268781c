"""The certification lane's fault selectors, and that they mean nothing without `--fake-faults`."""

import asyncio
from datetime import timedelta

import pytest

from bigfleet_azure.backends.base import Assignment, Condition
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.faults import Fault, fault_of, fault_offers
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.domain.secret import Secret
from tests.backends.harness import work
from tests.support.clock import VirtualClock

BLOB = Secret(b"x")
DEADLINE_SECONDS = 2.0
"""The fault lane's transition deadline (contract section 17)."""


class Lane:
    def __init__(self, *, faults: bool = True) -> None:
        self.clock = VirtualClock()
        self.backend = SimulatedBackend(SimulationOptions(faults=faults), self.clock)

    async def bound(self, cluster: str) -> Assignment:
        host = (await self.clock.run(self.backend.create(work("vm", "op-a-1")))).ref
        return work(
            "vm", "op-a-2", created_by="op-a-1", host=host, cluster=cluster, grace_seconds=30
        )


@pytest.fixture
def lane() -> Lane:
    return Lane()


@pytest.mark.behaviour(62)
async def test_fault_error_fails_configure_for_good(lane: Lane) -> None:
    asked = await lane.bound("fault-error")
    with pytest.raises(BackendError, match="configure of vm") as caught:
        await lane.clock.run(lane.backend.configure(asked, BLOB))
    assert caught.value.kind not in RETRYABLE
    assert (await lane.backend.inspect("vm", asked.host)).cluster == ""


@pytest.mark.behaviour(63)
async def test_fault_timeout_blocks_configure_until_it_is_cut_off(lane: Lane) -> None:
    asked = await lane.bound("fault-timeout")
    task = asyncio.ensure_future(lane.backend.configure(asked, BLOB))
    await lane.clock.advance(24 * 3600)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await lane.backend.inspect("vm", asked.host)).condition is Condition.RUNNING


@pytest.mark.behaviour(64)
async def test_fault_slow_ok_joins_although_the_call_was_cut_off_at_its_deadline(
    lane: Lane,
) -> None:
    asked = await lane.bound("fault-slow-ok")
    task = asyncio.ensure_future(lane.backend.configure(asked, BLOB))
    await lane.clock.advance(DEADLINE_SECONDS)
    assert not task.done()
    task.cancel()
    assert (await lane.backend.inspect("vm", asked.host)).cluster == ""
    await lane.clock.advance(DEADLINE_SECONDS)
    assert (await lane.backend.inspect("vm", asked.host)).cluster == "fault-slow-ok"


async def test_how_late_a_slow_join_is_can_be_set() -> None:
    lane = Lane()
    lane.backend = SimulatedBackend(
        SimulationOptions(faults=True, slow_ok_delay=timedelta(seconds=90)), lane.clock
    )
    asked = await lane.bound("fault-slow-ok")
    begun = lane.clock.now()
    await lane.clock.run(lane.backend.configure(asked, BLOB))
    assert lane.clock.now() - begun == pytest.approx(90)


@pytest.mark.behaviour(62, 66)
async def test_fault_drain_error_binds_and_then_fails_drain_for_good(lane: Lane) -> None:
    asked = await lane.bound("fault-drain-error")
    await lane.clock.run(lane.backend.configure(asked, BLOB))
    await lane.clock.run(lane.backend.wait_ready(asked))
    with pytest.raises(BackendError, match="drain of vm") as caught:
        await lane.clock.run(lane.backend.drain(asked))
    assert caught.value.kind not in RETRYABLE


@pytest.mark.behaviour(76)
async def test_fault_readiness_block_takes_the_blob_and_is_never_ready(lane: Lane) -> None:
    asked = await lane.bound("fault-readiness-block")
    await lane.clock.run(lane.backend.configure(asked, BLOB))
    ready = asyncio.ensure_future(lane.backend.wait_ready(asked))
    await lane.clock.advance(600)
    assert not ready.done()
    ready.cancel()


@pytest.mark.behaviour(62)
async def test_creates_of_the_fault_offer_fail_for_good_and_make_nothing(lane: Lane) -> None:
    (offer,) = fault_offers("eastus-1")
    with pytest.raises(BackendError, match="create of faultcreate-0") as caught:
        await lane.clock.run(lane.backend.create(work("faultcreate-0", "op-a-1", offer=offer)))
    assert caught.value.kind not in RETRYABLE
    assert list(await lane.backend.inventory()) == []


def test_the_fault_offer_is_eight_slots_with_the_ids_and_the_label_of_the_lane() -> None:
    (offer,) = fault_offers("eastus-1")
    backend = SimulatedBackend(SimulationOptions(), VirtualClock())
    offering = Offering(
        number=1, prefix=offer.fixed_prefix, offer=offer, facts=backend.facts(offer)
    )
    ids = [offering.machine_id(index) for index in range(offer.count)]
    assert ids == [f"faultcreate-{number}" for number in range(8)]
    assert offer.labels == {"conformance.fault/create": "error"}


@pytest.mark.parametrize("fault", Fault)
async def test_without_the_option_a_selector_is_an_ordinary_name(fault: Fault) -> None:
    lane = Lane(faults=False)
    asked = await lane.bound(fault)
    begun = lane.clock.now()
    await lane.clock.run(lane.backend.configure(asked, BLOB))
    await lane.clock.run(lane.backend.wait_ready(asked))
    await lane.clock.run(lane.backend.drain(asked))
    (offer,) = fault_offers("eastus-1")
    await lane.clock.run(lane.backend.create(work("faultcreate-0", "op-a-1", offer=offer)))
    assert lane.clock.now() - begun < 0.5


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        ("fault-error", Fault.ERROR),
        ("fault-error-7f3a", Fault.ERROR),
        ("fault-errors", None),
        ("my-fault-error", None),
        ("", None),
    ],
)
def test_a_selector_is_the_whole_cluster_id_or_its_first_part(
    cluster: str, fault: Fault | None
) -> None:
    assert fault_of(cluster) is fault
