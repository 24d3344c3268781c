"""What can be done to a VM besides changing it: power, eviction, reimage, boot diagnostics."""

from collections.abc import Callable

from tests.support.arm.cloud import Cloud
from tests.support.arm.compute import Compute
from tests.support.arm.conflicts import claim
from tests.support.arm.extensions import Extensions
from tests.support.arm.rules import check_custom_data
from tests.support.arm.vms import DEALLOCATED, RUNNING, STOPPED, Vm
from tests.support.arm.wire import Answer, Call, refusal


class VmActions:
    """POSTs on one VM."""

    def __init__(self, cloud: Cloud, compute: Compute, extensions: Extensions) -> None:
        self._cloud = cloud
        self._compute = compute
        self._extensions = extensions

    def start(self, call: Call) -> Answer:
        return self._act(call, "vm.start", "start", self._run)

    def restart(self, call: Call) -> Answer:
        return self._act(call, "vm.restart", "restart", self._reboot)

    def deallocate(self, call: Call) -> Answer:
        return self._act(call, "vm.deallocate", "deallocate", self.deallocated)

    def power_off(self, call: Call) -> Answer:
        """Stopped, and still billed."""
        return self._act(call, "vm.power-off", "powerOff", self.stop)

    def reimage(self, call: Call) -> Answer:
        """A new OS disk from the image: the last script of CustomScript runs again."""
        vm = self._compute.demand(call)
        profile = (call.body or {}).get("osProfile") or {}
        custom = profile.get("customData")
        check_custom_data(custom)
        if custom is not None and custom != vm.custom_data:
            raise refusal(
                400,
                "BadRequest",
                "The custom data must be equal to the one given when the VM was created.",
                target="customData",
            )

        def again(vm: Vm) -> None:
            self._reboot(vm)
            self._extensions.run_again(vm)

        return self._act(call, "vm.reimage", "reimage", again)

    def simulate_eviction(self, call: Call) -> Answer:
        vm = self._compute.demand(call)
        if not vm.spot:
            raise refusal(
                409,
                "OperationNotAllowed",
                "Operation 'simulateEviction' is allowed only for Spot Virtual Machines",
            )
        seconds = self._cloud.operations.durations.of("vm.eviction", vm.name)
        self._cloud.timeline.after(seconds, lambda: self.evict(vm))
        return Answer(204)

    def boot_diagnostics(self, call: Call) -> Answer:
        """Addresses that need no token: the signature is in them."""
        vm = self._compute.demand(call)
        profile = (vm.sent.get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
        if not profile.get("enabled"):
            raise refusal(
                409,
                "OperationNotAllowed",
                f"Boot diagnostics is not enabled on VM '{vm.name}'.",
            )
        base = f"{self._cloud.operations.endpoint}/boot-diagnostics/{vm.vm_id}"
        body = {
            "consoleScreenshotBlobUri": f"{base}/screenshot.bmp?sig=signed",
            "serialConsoleLogBlobUri": f"{base}/serialconsole.log?sig=signed",
        }
        return Answer(200, body)

    def evict(self, vm: Vm) -> None:
        """What Azure does when it wants a Spot VM's place; the policy decides what is left."""
        if self._cloud.world.get(vm.id) is not vm or vm.power == DEALLOCATED:
            return
        if vm.operation is not None:
            self._cloud.operations.preempt(vm.operation)
        if vm.sent.get("evictionPolicy", "Deallocate") == "Delete":
            self._compute.end(vm)
        else:
            vm.state = "Succeeded"
            self.deallocated(vm)

    def stop(self, vm: Vm) -> None:
        """Shut down, from outside or from inside the guest."""
        was_running = vm.power == RUNNING
        vm.power = STOPPED
        vm.changed = self._cloud.world.now()
        if was_running:
            self._cloud.guest.stopped(vm)

    def deallocated(self, vm: Vm) -> None:
        self.stop(vm)
        vm.power = DEALLOCATED
        vm.etag += 1
        self._cloud.ledger.stop_billing(vm.id, self._cloud.world.now())

    def _reboot(self, vm: Vm) -> None:
        self.stop(vm)
        self._run(vm)

    def _run(self, vm: Vm) -> None:
        """Starting what runs does nothing."""
        if vm.power == RUNNING:
            return
        vm.power = RUNNING
        self._cloud.ledger.start_billing(vm.id, self._cloud.world.now())
        self._cloud.guest.booted(vm)

    def _act(self, call: Call, kind: str, what: str, then: Callable[[Vm], None]) -> Answer:
        vm = self._compute.demand(call)
        claim(self._cloud, vm, what)
        operation = self._compute.begin(call, vm, kind, finish=lambda: then(vm))
        return Answer(202, None, self._cloud.operations.headers(operation, call, location=True))
