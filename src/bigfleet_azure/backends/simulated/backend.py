"""The Backend protocol on a simulated region: waits, ownership and translation of errors.

How VMs behave is the region's business (`region`); what goes wrong on request is `faults`'.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bigfleet_azure.backends.base import Assignment, Condition, Host, Observation, Refreshed
from bigfleet_azure.backends.simulated import sizes
from bigfleet_azure.backends.simulated.faults import Fault, create_fails, fault_of, injected
from bigfleet_azure.backends.simulated.ledger import LedgerError
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.backends.simulated.region import Region, RegionError
from bigfleet_azure.backends.simulated.vm import NEVER, Binding, Health, Place, VirtualMachine
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.kit.clock import Clock

HOST_PREFIX = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/simulated"
    "/providers/Microsoft.Compute/virtualMachines/"
)
"""What stands before the VM's name in a host reference: the form of an ARM id."""

_MAX_BLOB_BYTES = 192 * 1024
"""Azure takes scripts of up to 256 KiB in base64, 192 KiB of content (azure-facts, VM section)."""

_POLL_SECONDS = 1.0
"""Longest wait before a VM is looked at again: it may have been lost in the meantime."""

_PAGE = 1000
"""VMs listed before others get their turn on the loop."""

_KINDS = {
    "Conflict": FailureKind.CONFLICT,
    "QuotaExceeded": FailureKind.QUOTA,
    "TooManyRequests": FailureKind.THROTTLED,
    "ZonalAllocationFailed": FailureKind.OUT_OF_CAPACITY,
}

_CONDITIONS = {
    Health.CREATING: Condition.CREATING,
    Health.RUNNING: Condition.RUNNING,
    Health.STOPPED: Condition.STOPPED,
    Health.EVICTED: Condition.EVICTED,
    Health.FAILED: Condition.FAILED,
    Health.DELETING: Condition.FAILED,
}

_DETAILS = {
    Health.CREATING: "provisioning state Creating",
    Health.RUNNING: "",
    Health.STOPPED: "power state VM stopped",
    Health.EVICTED: "the spot VM was evicted and deallocated",
    Health.FAILED: "provisioning state Failed",
    Health.DELETING: "provisioning state Deleting",
}


def facts(offer: Offer) -> Facts:
    """What is published about `offer`, from the table of sizes.

    Raises:
        BackendError: INVALID, when no such size can exist.
    """
    try:
        return sizes.facts(offer)
    except ValueError as error:
        raise BackendError(FailureKind.INVALID, str(error), code="InvalidParameter") from error


class SimulatedBackend:
    """A backend without Azure.

    Args:
        options: how the region behaves.
        clock: time and waiting.
        path: file that keeps the VMs over restarts; None for VMs that end with the process.

    Attributes:
        region: the region itself, for tests and demonstrations that cause losses.
    """

    def __init__(self, options: SimulationOptions, clock: Clock, path: Path | None = None) -> None:
        self.name = "simulated"
        self.max_blob_bytes = _MAX_BLOB_BYTES
        self.rebuilds = False
        self.region = Region(options, clock, path)
        self._options = options
        self._clock = clock

    async def start(self) -> None:
        """Read the ledger.

        Raises:
            BackendError: it is damaged or cannot be read; the text says what to do.
        """
        try:
            await self.region.open()
        except (LedgerError, OSError) as error:
            raise BackendError(FailureKind.INVALID, str(error), code="Ledger") from error

    async def close(self) -> None:
        """Close the ledger."""
        self.region.close()

    def facts(self, offer: Offer) -> Facts:
        """What is published about `offer`, from the table of sizes."""
        return facts(offer)

    def offered(self, offers: Sequence[Offer]) -> None:
        """Nothing is known of any but what the table says."""

    def recall(self, kept: str) -> None:
        """Nothing is ever kept."""

    async def refresh(self) -> Refreshed:
        """Prices and rates are the table's, and stay."""
        return Refreshed()

    def unpriced(self) -> Sequence[str]:
        """None: the table's are as good as its machines."""
        return ()

    def watch_facts(self, changed: Callable[[], None]) -> None:
        """They never change."""

    async def create(self, work: Assignment) -> Host:
        """Make the VM of this operation exist and wait until it is provisioned."""
        if self._options.faults and create_fails(work.offer):
            raise injected(f"create of {work.machine_id}")
        with _translated():
            self.region.admit(f"create {work.machine_id} {work.operation_id}")
            vm = self.region.find(work.machine_id)
            if vm is None:
                vm = self.region.create(work.machine_id, work.operation_id, _place(work.offer))
        if vm.operation != work.operation_id:
            raise _occupied(vm)
        while self._running(vm) is Health.CREATING:
            await self._pause(vm.provisioned_at)
        return Host(ref=HOST_PREFIX + vm.name)

    async def configure(self, work: Assignment, blob: Secret) -> None:
        """Give the VM its bootstrap blob; the content is neither looked at nor kept."""
        fault = fault_of(work.cluster) if self._options.faults else None
        if fault is Fault.ERROR:
            raise injected(f"configure of {work.machine_id}")
        if fault is Fault.TIMEOUT:
            await asyncio.get_running_loop().create_future()
        with _translated():
            self.region.admit(f"configure {work.machine_id} {work.operation_id}")
            vm = self._own(work)
            binding = vm.binding(self._clock.now())
            if binding is None:
                binding = self.region.deliver(
                    vm,
                    work.operation_id,
                    work.cluster,
                    delay=self._options.slow_ok_delay if fault is Fault.SLOW_OK else None,
                    joins=fault is not Fault.READINESS_BLOCK,
                )
        if binding.operation != work.operation_id:
            raise BackendError(
                FailureKind.CONFLICT,
                f"{vm.name} is bound to cluster {binding.cluster!r} by {binding.operation}",
                code="Conflict",
            )
        await self._until(vm, binding, binding.handed_at)

    async def wait_ready(self, work: Assignment) -> None:
        """Wait until the node of this very binding is Ready."""
        with _translated():
            vm = self._own(work)
        binding = vm.binding(self._clock.now())
        if binding is None or binding.operation != work.operation_id:
            raise BackendError(
                FailureKind.GONE, f"{vm.name} does not hold the bootstrap of {work.operation_id}"
            )
        await self._until(vm, binding, binding.ready_at)

    async def drain(self, work: Assignment) -> None:
        """Take the VM out of its cluster."""
        if self._options.faults and fault_of(work.cluster) is Fault.DRAIN_ERROR:
            raise injected(f"drain of {work.machine_id}")
        with _translated():
            self.region.admit(f"drain {work.machine_id} {work.operation_id}")
            vm = self._own(work)
            binding = vm.binding(self._clock.now())
            if binding is None:
                return
            self.region.release(vm, binding, work.grace_seconds)
        await self._until(vm, binding, binding.leaves_at)

    async def delete(self, work: Assignment) -> None:
        """Make the VM of this machine's Create not exist."""
        await self._delete(work.machine_id, work.created_by, work.host, work.operation_id)

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        """Make the VM of that operation not exist."""
        await self._delete(debt.machine_id, operation_id, debt.host, f"debt {debt.number}")

    async def inspect(self, machine_id: str, host: str) -> Observation:
        """Look at one VM."""
        with _translated():
            self.region.admit_read()
            vm = self.region.find(host.removeprefix(HOST_PREFIX) or machine_id)
        if vm is None:
            return Observation(
                machine_id=machine_id,
                host=host,
                condition=Condition.GONE,
                detail=f"ResourceNotFound: the VM {machine_id} was not found",
            )
        return _observe(vm, self._clock.now())

    async def inventory(self) -> Sequence[Observation]:
        """Look at all VMs, page by page."""
        with _translated():
            self.region.admit_read()
            machines = self.region.machines()
        observed: list[Observation] = []
        for start in range(0, len(machines), _PAGE):
            now = self._clock.now()
            observed += [_observe(vm, now) for vm in machines[start : start + _PAGE]]
            await asyncio.sleep(0)
        return observed

    async def shortages(self) -> Sequence[Shortage]:
        """None: the region tells only who asks for a machine."""
        return ()

    async def _delete(self, name: str, operation: str, host: str, call: str) -> None:
        """Delete the VM `name` if `operation` made it or, when that is unknown, `host` names it."""
        with _translated():
            self.region.admit(f"delete {name} {call}")
            vm = self.region.find(name)
            if vm is None:
                return
            ours = vm.operation == operation if operation else host == HOST_PREFIX + name
            if not ours:
                return
            self.region.delete(vm)
        while self._exists(vm):
            await self._pause(vm.gone_at)

    def _own(self, work: Assignment) -> VirtualMachine:
        """The running VM that this machine's Create made."""
        vm = self.region.find(work.machine_id)
        if vm is None or (work.created_by and vm.operation != work.created_by):
            raise _gone(work.machine_id, "ResourceNotFound: it does not exist")
        self._running(vm)
        return vm

    def _running(self, vm: VirtualMachine) -> Health:
        """Health of a VM that is CREATING or RUNNING; anything else is an error."""
        if not self._exists(vm):
            raise _gone(vm.name, "ResourceNotFound: it does not exist any more")
        health = vm.health(self._clock.now())
        if health is Health.FAILED and vm.trouble is None:
            raise BackendError(
                FailureKind.INVALID,
                f"OSProvisioningClientError: OS provisioning failed for VM '{vm.name}'",
                code="OSProvisioningClientError",
            )
        if health not in (Health.CREATING, Health.RUNNING):
            raise _gone(vm.name, _DETAILS[health])
        return health

    def _exists(self, vm: VirtualMachine) -> bool:
        with _translated():
            return self.region.find(vm.name) is vm

    async def _until(self, vm: VirtualMachine, binding: Binding, at: float) -> None:
        """Wait for a step of `binding` that is due at `at`, as long as the VM runs."""
        while self._clock.now() < at:
            await self._pause(at)
            self._running(vm)

    async def _pause(self, at: float) -> None:
        await self._clock.sleep(min(at - self._clock.now(), _POLL_SECONDS))


def _place(offer: Offer) -> Place:
    return Place(offer.vm_size, offer.zone, offer.capacity_type.tag)


def _observe(vm: VirtualMachine, now: float) -> Observation:
    health = vm.health(now)
    binding = vm.binding(now)
    return Observation(
        machine_id=vm.name,
        host=HOST_PREFIX + vm.name,
        condition=_CONDITIONS[health],
        operation_id=vm.operation,
        cluster=binding.cluster if binding is not None and now >= binding.handed_at else "",
        detail=_DETAILS[health],
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the region says into what the service understands."""
    try:
        yield
    except RegionError as error:
        raise BackendError(
            _KINDS[error.code],
            f"{error.code}: {error}",
            code=error.code,
            retry_after=error.retry_after,
        ) from error
    except OSError as error:
        raise BackendError(FailureKind.TRANSIENT, str(error), code="Ledger") from error


def _gone(name: str, why: str) -> BackendError:
    return BackendError(FailureKind.GONE, f"VM {name} is lost: {why}")


def _occupied(vm: VirtualMachine) -> BackendError:
    """The name is taken by another operation's VM; for good, unless that is being deleted."""
    if vm.gone_at < NEVER:
        return BackendError(
            FailureKind.TRANSIENT,
            f"AnotherOperationInProgress: the VM {vm.name} of {vm.operation} is being deleted",
            code="AnotherOperationInProgress",
        )
    return BackendError(
        FailureKind.CONFLICT,
        f"Conflict: the VM {vm.name} exists and belongs to {vm.operation}",
        code="Conflict",
    )
