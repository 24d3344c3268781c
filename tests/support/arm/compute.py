"""Virtual machines: PUT, PATCH, DELETE and the reads of one.

A PUT that finds no room is accepted all the same: its operation fails, and a shell, an interface
and a disk are left behind.
"""

import copy
from collections.abc import Callable

from tests.support.arm.capacity import allocation_error, check_room
from tests.support.arm.cloud import Cloud
from tests.support.arm.conflicts import claim
from tests.support.arm.ledger import VM
from tests.support.arm.operations import COMPUTE, Operation
from tests.support.arm.parts import Parts
from tests.support.arm.resources import resource_id
from tests.support.arm.rules import check_vm
from tests.support.arm.tags import check_tags
from tests.support.arm.vm_changes import check_changes, merge
from tests.support.arm.vms import RUNNING, Vm
from tests.support.arm.wire import Answer, Call, Json, Refusal, refusal

_TOP = ("zones", "identity", "plan")


class Compute:
    """See the module."""

    def __init__(self, cloud: Cloud, parts: Parts) -> None:
        self._cloud = cloud
        self._parts = parts

    def put(self, call: Call) -> Answer:
        existing = self._known(call)
        if existing is not None and call.headers.get("If-None-Match") == "*":
            raise self._exists(existing)
        if existing is None:
            return self._create(call)
        _check_match(call, existing)
        return self._replace(call, existing)

    def get(self, call: Call) -> Answer:
        vm = self.demand(call)
        expand = call.query.get("$expand", "").lower()
        body = vm.view(instance="instanceview" in expand, user_data="userdata" in expand)
        return Answer(200, body)

    def instance_view(self, call: Call) -> Answer:
        return Answer(200, self.demand(call).instance_view())

    def patch(self, call: Call) -> Answer:
        """Tags, identity and the few properties that change without more."""
        vm = self.demand(call)
        _check_match(call, vm)
        body = call.json()
        tags = check_tags(body["tags"], VM) if "tags" in body else None
        claim(self._cloud, vm, "update")
        if tags is not None:
            vm.retag(tags)
            vm.extra["tagged"] = True
        if "identity" in body:
            vm.top["identity"] = body["identity"]
        for key in ("userData", "billingProfile", "diagnosticsProfile"):
            if key in (body.get("properties") or {}):
                vm.sent[key] = body["properties"][key]
        operation = self.begin(call, vm, "vm.update", finish=_nothing)
        headers = self._cloud.operations.headers(operation, call, location=False)
        return Answer(200, vm.view(), headers)

    def delete(self, call: Call) -> Answer:
        """A deletion wins over whatever runs; a second one joins the first."""
        vm = self._known(call)
        if vm is None:
            self._cloud.world.demand_group(call.group)
            return Answer(204)
        if vm.deleting and vm.operation is not None:
            operation = vm.operation
        else:
            if vm.operation is not None:
                self._cloud.operations.preempt(vm.operation)
            operation = self._delete(call, vm)
        headers = self._cloud.operations.headers(operation, call, location=True)
        return Answer(202, None, headers)

    def demand(self, call: Call) -> Vm:
        """The VM of a call; Compute itself says that one is gone which it had until just now."""
        vm = self._known(call)
        if vm is not None:
            return vm
        identity = resource_id(call.subscription, call.group, VM, call.vm_name)
        if self._cloud.world.recently_deleted(identity, self._cloud.quirks.late_missing):
            message = "The entity was not found in this Azure location."
            raise refusal(404, "NotFound", message)
        found = self._cloud.world.demand(call.subscription, call.group, VM, call.vm_name)
        assert isinstance(found, Vm)
        return found

    def begin(
        self,
        call: Call,
        vm: Vm,
        kind: str,
        *,
        finish: Callable[[], None],
        fail: Callable[[Json], None] | None = None,
    ) -> Operation:
        """A write other than creation and deletion: the VM is Updating while it runs."""
        before = vm.state if vm.state in {"Succeeded", "Failed"} else "Succeeded"
        vm.state = "Updating"
        vm.etag += 1

        def settle(then: Callable[[], None]) -> None:
            vm.state = "Succeeded" if before == "Succeeded" or not vm.shell else "Failed"
            vm.changed = self._cloud.world.now()
            vm.etag += 1
            then()

        def failed(error: Json) -> None:
            settle(lambda: fail(error) if fail is not None else None)
            if fail is None:
                vm.state = "Failed"

        return self._cloud.operations.start(
            COMPUTE,
            kind,
            vm,
            seconds=call.seconds(self._seconds(kind, vm)),
            finish=lambda: settle(finish),
            fail=failed,
            error=call.operation_error,
        )

    def end(self, vm: Vm, leave: frozenset[str] = frozenset()) -> None:
        """The VM is gone, with what was to go with it."""
        was_running = vm.power == RUNNING
        self._cloud.world.remove(vm)
        self._parts.release(vm, leave)
        if was_running:
            self._cloud.guest.stopped(vm)

    def _create(self, call: Call) -> Answer:
        self._cloud.world.demand_group(call.group)
        body = copy.deepcopy(call.json())
        identity = resource_id(call.subscription, call.group, VM, call.vm_name)
        size, traits = check_vm(self._cloud, call.vm_name, {**body, "id": identity})
        vm = Vm(
            id=identity,
            type=VM,
            location=self._cloud.location,
            tags=check_tags(body.get("tags"), VM),
            state="Creating",
            sent=body["properties"],
            top={key: body[key] for key in _TOP if body.get(key)},
            generation=traits.generation,
            agent=traits.agent,
            image={"exactVersion": traits.exact_version} if traits.exact_version else {},
        )
        vm.extra["tagged"] = "tags" in body
        if self._cloud.quirks.security_type:
            vm.sent.setdefault("securityProfile", {})["securityType"] = (
                self._cloud.quirks.security_type
            )
        self._parts.check(vm)
        check_room(self._cloud, vm, size, self._parts.addresses_wanted(vm.sent))
        self._cloud.world.add(vm)
        vm.changed = vm.created
        self._parts.bear(vm)
        operation = self._provision(call, vm)
        headers = self._cloud.operations.headers(operation, call, location=False)
        return Answer(201, vm.view(), headers)

    def _provision(self, call: Call, vm: Vm) -> Operation:
        error = call.operation_error or allocation_error(self._cloud, vm)
        kind = "vm.create" if error is None else "vm.allocation-failure"

        def finish() -> None:
            vm.state, vm.power, vm.shell = "Succeeded", RUNNING, False
            vm.changed = self._cloud.world.now()
            vm.etag += 1
            self._mark_shell(vm)
            self._cloud.ledger.start_billing(vm.id, vm.changed)
            self._cloud.guest.booted(vm)

        def fail(error: Json) -> None:
            vm.state, vm.shell = "Failed", True
            vm.changed = self._cloud.world.now()
            self._mark_shell(vm)
            self._parts.reserve(vm)

        return self._cloud.operations.start(
            COMPUTE,
            "vm.create",
            vm,
            seconds=call.seconds(self._seconds(kind, vm)),
            finish=finish,
            fail=fail,
            error=error,
        )

    def _replace(self, call: Call, vm: Vm) -> Answer:
        """A PUT on a VM that is there: nothing, an update, or a refusal of what cannot change."""
        body = copy.deepcopy(call.json())
        check_vm(self._cloud, vm.name, {**body, "id": vm.id})
        tags = check_tags(body.get("tags"), VM)
        check_changes(vm, body)
        claim(self._cloud, vm, "createOrUpdate")
        if "tags" in body:
            vm.retag(tags)
            vm.extra["tagged"] = True
        merge(vm, body["properties"])
        self._cloud.usages.recount(vm)
        if vm.shell:
            vm.state = "Creating"
            operation = self._provision(call, vm)
        else:
            operation = self.begin(call, vm, "vm.update", finish=_nothing)
        headers = self._cloud.operations.headers(operation, call, location=False)
        headers.pop("Retry-After", None)
        return Answer(200, vm.view(), headers)

    def _delete(self, call: Call, vm: Vm) -> Operation:
        vm.deleting, vm.state = True, "Deleting"
        vm.etag += 1

        def fail(error: Json) -> None:
            vm.deleting, vm.state = False, "Failed"

        return self._cloud.operations.start(
            COMPUTE,
            "vm.delete",
            vm,
            seconds=call.seconds(self._seconds("vm.delete", vm)),
            finish=lambda: self.end(vm, call.leave),
            fail=fail,
            error=call.operation_error,
        )

    def _seconds(self, kind: str, vm: Vm) -> float:
        return self._cloud.operations.durations.of(kind, vm.name)

    def _mark_shell(self, vm: Vm) -> None:
        entry = self._cloud.ledger.entry(vm.id)
        if entry is not None:
            entry.failed = vm.shell

    def _known(self, call: Call) -> Vm | None:
        found = self._cloud.world.find(call.subscription, call.group, VM, call.vm_name)
        assert found is None or isinstance(found, Vm)
        return found

    def _exists(self, vm: Vm) -> Refusal:
        if self._cloud.quirks.existing == 412:
            return refusal(
                412,
                "PreconditionFailed",
                f"The precondition 'If-None-Match: *' failed: the resource '{vm.id}' exists.",
            )
        return refusal(409, "Conflict", f"The resource '{vm.id}' already exists.")


def _check_match(call: Call, vm: Vm) -> None:
    wanted = call.headers.get("If-Match")
    if wanted not in {None, "*", f'"{vm.etag}"'}:
        raise refusal(412, "PreconditionFailed", f"The etag of '{vm.id}' is not {wanted}.")


def _nothing() -> None:
    """An update whose effect was there at once."""
