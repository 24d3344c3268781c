"""Managed disks: read, listed, and deleted once nobody holds them."""

from tests.support.arm.cloud import Cloud
from tests.support.arm.conflicts import claim
from tests.support.arm.ledger import DISK
from tests.support.arm.operations import COMPUTE
from tests.support.arm.vm_lists import page
from tests.support.arm.wire import Answer, Call, Json, refusal


class Disks:
    """See the module."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def get(self, call: Call) -> Answer:
        found = self._cloud.world.demand(call.subscription, call.group, DISK, call.name)
        return Answer(200, found.view())

    def listed(self, call: Call) -> Answer:
        return page(self._cloud, call, DISK, call.group or None)

    def delete(self, call: Call) -> Answer:
        disk = self._cloud.world.find(call.subscription, call.group, DISK, call.name)
        if disk is None:
            self._cloud.world.demand_group(call.group)
            return Answer(204)
        holder = disk.extra.get("managedBy")
        if holder is not None:
            raise refusal(
                409,
                "OperationNotAllowed",
                f"Disk {disk.name} is attached to VM {holder}.",
            )
        claim(self._cloud, disk, "delete")

        def failed(error: Json) -> None:
            disk.state = "Failed"

        operation = self._cloud.operations.start(
            COMPUTE,
            "disk.delete",
            disk,
            seconds=call.seconds(self._cloud.operations.durations.of("disk.delete", disk.name)),
            finish=lambda: self._cloud.world.remove(disk),
            fail=failed,
            error=call.operation_error,
        )
        return Answer(202, None, self._cloud.operations.headers(operation, call, location=True))
