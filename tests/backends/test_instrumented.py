"""Substrate calls are counted and timed under the names that dashboards know."""

import asyncio

import pytest

from bigfleet_azure.backends.instrumented import InstrumentedBackend
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.telemetry.metrics import Metrics
from tests.backends.harness import work
from tests.support.clock import VirtualClock


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.simulated = SimulatedBackend(SimulationOptions(), self.clock)
        self.backend = InstrumentedBackend(self.simulated, self.metrics)

    def calls(self, op: str, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "bigfleet_azure_api_calls_total", {"op": op, "outcome": outcome}
        )

    def timed(self, op: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "bigfleet_azure_api_duration_seconds_count", {"op": op}
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.behaviour(90)
async def test_each_kind_of_call_is_counted_and_timed_under_its_name(bench: Bench) -> None:
    backend, run = bench.backend, bench.clock.run
    host = (await run(backend.create(work("vm", "op-a-1")))).ref
    bound = work("vm", "op-a-2", created_by="op-a-1", host=host, cluster="c", grace_seconds=9)
    await run(backend.configure(bound, Secret(b"x")))
    await run(backend.wait_ready(bound))
    await run(backend.drain(bound))
    await backend.inspect("vm", host)
    await backend.inventory()
    await run(backend.delete(bound))
    owed = Debt(number=1, slot=1, machine_id="vm", operation=1, host=host, reason="", since=0)
    await run(backend.reclaim(owed, "op-a-1"))
    expected = {
        "CreateVM": 1,
        "Configure": 1,
        "Drain": 1,
        "GetVM": 1,
        "ListVMs": 1,
        "DeleteVM": 2,
    }
    for op, count in expected.items():
        assert bench.calls(op, "success") == count
        assert bench.calls(op, "error") == 0
        assert bench.timed(op) == count


async def test_a_failed_call_is_an_error_and_its_failure_passes(bench: Bench) -> None:
    with pytest.raises(BackendError):
        await bench.backend.configure(work("vm", "op-a-2", cluster="c"), Secret(b"x"))
    assert bench.calls("Configure", "error") == 1
    assert bench.calls("Configure", "success") == 0
    assert bench.timed("Configure") == 1


async def test_a_call_cut_off_at_its_deadline_is_an_error(bench: Bench) -> None:
    task = asyncio.ensure_future(bench.backend.create(work("vm", "op-a-1")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.calls("CreateVM", "error") == 1


def test_a_series_exists_before_the_first_call(bench: Bench) -> None:
    assert bench.calls("DeleteVM", "error") == 0
    assert bench.timed("ListVMs") == 0


def test_it_stands_for_the_backend_it_wraps(bench: Bench) -> None:
    assert bench.backend.name == bench.simulated.name
    assert bench.backend.max_blob_bytes == bench.simulated.max_blob_bytes
