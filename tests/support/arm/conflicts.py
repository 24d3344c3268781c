"""Two writes to one resource: what the newer one is told, and when the older one gives way."""

from tests.support.arm.cloud import Cloud
from tests.support.arm.resources import Resource
from tests.support.arm.vms import Vm
from tests.support.arm.wire import refusal

_MESSAGES = {
    "ConflictingConcurrentWriteNotAllowed": "Changes to this resource can't be made while another "
    "write is in progress. Please try later.",
    "AnotherOperationInProgress": "Another operation on this or dependent resource is in progress.",
    "Conflict": "The request failed due to conflict with a concurrent request. To resolve it, "
    "please refer to https://aka.ms/activitylog to get more details on the conflicting requests.",
}


def claim(cloud: Cloud, resource: Resource, what: str) -> None:
    """Begin a write other than a deletion, or be refused."""
    if isinstance(resource, Vm) and resource.deleting:
        raise refusal(
            409,
            "OperationNotAllowed",
            f"Operation '{what}' is not allowed on VM '{resource.name}' since the VM is marked "
            "for deletion. You can only retry the Delete operation (or wait for an ongoing one "
            "to complete).",
        )
    running = resource.operation
    if running is None:
        return
    code = cloud.quirks.conflict
    if code == "preempt":
        cloud.operations.preempt(running)
        if running.kind == "vm.create":
            # On record: the create is reported as preempted, yet the VM is fine.
            running.finish()
        return
    raise refusal(409, code, _MESSAGES.get(code, "The write conflicts with a running one."))
