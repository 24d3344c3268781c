"""What the contract suite needs beside the Backend protocol: time, losses and a restart.

A new backend joins the suite by offering a harness of its own to the fixture in `conftest`.
"""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bigfleet_azure.backends.base import Assignment, Backend
from bigfleet_azure.backends.instrumented import InstrumentedBackend
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.telemetry.metrics import Metrics
from tests.support.clock import VirtualClock

Result = TypeVar("Result")


def offer(capacity: CapacityType = CapacityType.ON_DEMAND, size: str = "Standard_D4s_v5") -> Offer:
    return Offer(
        vm_size=size,
        zone="eastus-1",
        capacity_type=capacity,
        count=8,
        resources={"cpu": "1", "memory": "2Gi"},
    )


def work(machine: str, operation: str, **fields: Any) -> Assignment:
    given: dict[str, Any] = {"offer": offer(), **fields}
    return Assignment(machine_id=machine, operation_id=operation, **given)


class Harness(Protocol):
    """One substrate and the backend on it."""

    backend: Backend

    async def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """The result of `call`, with as much time passed as it needs."""

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""

    async def restart(self) -> None:
        """A new process: `backend` is another object on the same substrate."""

    def lose(self, machine: str, how: str) -> None:
        """Cause a loss of a VM from outside: evicted, stopped, failed or removed."""


class SimulatedHarness:
    """The simulated region under virtual time."""

    def __init__(self, path: Path, *, instrumented: bool) -> None:
        self.clock = VirtualClock()
        self._path = path
        self._instrumented = instrumented
        self._make()

    def _make(self) -> None:
        self.simulated = SimulatedBackend(SimulationOptions(), self.clock, self._path)
        self.backend: Backend = (
            InstrumentedBackend(self.simulated, Metrics()) if self._instrumented else self.simulated
        )

    async def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return await self.clock.run(call)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def restart(self) -> None:
        await self.backend.close()
        self._make()
        await self.backend.start()

    def lose(self, machine: str, how: str) -> None:
        region = self.simulated.region
        causes = {
            "evicted": region.evict,
            "stopped": region.stop,
            "failed": region.fail,
            "removed": region.remove,
        }
        causes[how](machine)
