"""What the contract suite needs beside the Backend protocol: time, losses and a restart.

A new backend joins the suite by offering a harness of its own to the fixture in `conftest`.
"""

from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.base import Assignment, Backend
from bigfleet_azure.backends.instrumented import InstrumentedBackend
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.telemetry.metrics import Metrics
from tests.support.arm.double import ArmDouble
from tests.support.arm.truth.holding import Truth
from tests.support.azure import KEY, azure_options, until
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

    @property
    def patient(self) -> bool:
        """Whether a Create waits for a deletion under way, and is not refused for it."""

    @property
    def lost_while_created(self) -> Collection[str]:
        """Losses that show while a machine is made."""

    @property
    def lost_while_watched(self) -> Collection[str]:
        """Losses that show while its node is waited for."""

    async def begun(self) -> None:
        """Let what was just called reach the substrate."""

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

    patient = False
    lost_while_created = ("stopped", "failed", "removed")
    lost_while_watched = ("evicted", "stopped", "failed", "removed")

    async def begun(self) -> None:
        await self.pass_time(0.001)

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


class AzureHarness:
    """The Azure backend over the ARM double, some hundred times faster than life."""

    patient = True
    lost_while_created = ("removed",)
    lost_while_watched = ("evicted", "stopped", "removed")

    async def begun(self) -> None:
        """Until a write is under way."""
        await until(lambda: any(vm.operation for vm in self.arm.vms()))

    def __init__(self) -> None:
        self.arm = ArmDouble(speed=500)
        self.backend: Backend

    async def start(self) -> None:
        await self.arm.start()
        self.arm.operations.retry_after.none()
        await self._make()

    async def _make(self) -> None:
        from bigfleet_azure.backends.azure.backend import AzureBackend

        self.backend = AzureBackend(
            azure_options(
                self.arm,
                profile=VmProfile(
                    subnet_id=self.arm.cloud.subnet_id,
                    ssh_public_key=KEY,
                    eviction_policy="Deallocate",
                ),
            ),
            clock=self.arm.clock,
            metrics=Metrics(),
            report=lambda name, trouble: None,
        )
        await self.backend.start()

    async def close(self) -> None:
        """Nothing of what the double saw may be untrue to Azure's descriptions."""
        await self.backend.close()
        await self.arm.stop()
        Truth().assert_held(self.arm.exchanges)

    async def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return await call

    async def pass_time(self, seconds: float) -> None:
        await self.arm.clock.sleep(seconds)

    async def restart(self) -> None:
        await self.backend.close()
        await self._make()

    def lose(self, machine: str, how: str) -> None:
        match how:
            case "evicted":
                self.arm.evict(machine)
            case "stopped":
                self.arm.shut_down(machine)
            case "failed":
                self.arm.vm(machine).state = "Failed"
            case "removed":
                self.arm.vanish(machine)
