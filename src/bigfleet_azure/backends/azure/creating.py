"""Making a VM exist: one conditional PUT, adoption of what is there, and clearing up a failed try.

An existing VM is never PUT again. What Azure reports as failed is looked at before it is believed:
the VM may have come up all the same (field case A9).
"""

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from bigfleet_azure.backends.azure import errors
from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.connection import Reply
from bigfleet_azure.backends.azure.planning import Planner
from bigfleet_azure.backends.azure.poller import Over
from bigfleet_azure.backends.azure.removing import Remover
from bigfleet_azure.backends.azure.tags import Marks
from bigfleet_azure.backends.azure.vm import security_type_of, suffix_of
from bigfleet_azure.backends.azure.vms import (
    Vms,
    being_deleted,
    failure_of,
    state_of,
)
from bigfleet_azure.backends.base import Assignment, Host
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind

logger = logging.getLogger(__name__)

Json = dict[str, Any]

GUEST_LATE_SECONDS = 15.0
"""Pause between looks at a VM whose guest did not report in time and may still do so."""

_GUEST_LATE = "OSProvisioningTimedOut"


class Creator:
    """The Create operation.

    Attributes:
        listed: lower-case names of the VMs that the last inventory showed: for these the GET
            comes before the PUT.
    """

    def __init__(self, vms: Vms, planner: Planner, remover: Remover) -> None:
        self._vms = vms
        self._planner = planner
        self._remover = remover
        self.listed: frozenset[str] = frozenset()

    async def create(self, work: Assignment) -> Host:
        """Make it true that the VM of this operation exists and is provisioned."""
        async with self._vms.locks.hold(work.machine_id):
            try:
                return await self._create(work)
            except ArmError as error:
                raise self._planner.refused(error.failure, work) from error

    async def _create(self, work: Assignment) -> Host:
        name = work.machine_id
        if work.resumed or name.lower() in self.listed:
            vm = await self._vms.clients.get_vm(name)
            if vm is not None:
                return await self._adopt(work, vm, Reply(status=200, url=work.progress.url))
        begun = await self._begin(work)
        if begun.status == 0:
            vm = await self._vms.clients.get_vm(name)
            if vm is None:
                message = f"Azure says that {name} exists, and does not find it"
                raise BackendError(FailureKind.TRANSIENT, message, code="Exists")
            return await self._adopt(work, vm, Reply(status=200))
        return await self._follow(work, begun)

    async def _begin(self, work: Assignment) -> Reply:
        """Send the PUT; a reply of status 0 means that a VM of that name exists."""
        body = self._planner.body(work, suffix_of(work.operation_id, work.progress.attempt))
        try:
            reply = await self._vms.clients.put_vm(work.machine_id, body)
        except ArmError as error:
            verdict = errors.classify(error.failure)
            if verdict.exists:
                return Reply(status=0)
            if verdict.names_taken:
                await self._used_up(work)
            raise
        marks = Marks.of(reply.body)
        if reply.status != 201 or marks is None or marks.operation_id != work.operation_id:
            return Reply(status=0)
        await work.note(replace(work.progress, url=reply.url))
        return reply

    async def _adopt(self, work: Assignment, vm: Json, reply: Reply) -> Host:
        """Go on with a VM that is there, if this very operation made it."""
        name = work.machine_id
        marks = self._vms.marks_of(vm, name)
        if marks is None:
            raise _taken(name, "it does not carry our owner and machine id")
        if marks.operation_id != work.operation_id:
            if state_of(vm) == "deleting":
                raise being_deleted(name)
            raise _taken(name, f"it belongs to operation {marks.operation_id or 'unknown'}")
        if state_of(vm) == "creating" or (state_of(vm) == "failed" and reply.url):
            return await self._follow(work, reply)  # only the operation itself says why it failed
        return await self._judge(work, vm, None)

    async def _follow(self, work: Assignment, reply: Reply) -> Host:
        """Wait for the end of the create, then look at what came of it."""
        failure: Failure | None = None
        seen: Json | None = None
        try:
            over = partial(_over, operation_id=work.operation_id)
            seen = await self._vms.end(reply, kind="vm.create", vm=work.machine_id, over=over)
        except ArmError as error:
            if error.failure.status == HTTPStatus.OK:  # else the address is not known any more
                failure = error.failure
        while True:
            vm = seen or await self._vms.clients.get_vm(
                work.machine_id, instance_view=failure is None
            )
            if vm is None or state_of(vm) != "creating":
                return await self._judge(work, vm, failure)
            seen = None
            await self._vms.pause()

    async def _judge(self, work: Assignment, vm: Json | None, failure: Failure | None) -> Host:
        """Decide by what the VM itself says."""
        name = work.machine_id
        if vm is None:
            await self._used_up(work)
            if failure is not None:
                raise ArmError(failure)
            message = f"the VM {name} vanished while it was being created; it is made anew"
            raise BackendError(FailureKind.TRANSIENT, message, code="Vanished")
        marks = self._vms.marks_of(vm, name)
        if marks is None or marks.operation_id != work.operation_id:
            raise _taken(name, "somebody replaced or re-tagged it while it was being created")
        if state_of(vm) == "deleting":
            await self._used_up(work)
            raise being_deleted(name)
        if state_of(vm) != "failed":
            return await self._host(work, vm)
        if failure is None:
            failure = failure_of(await self._vms.clients.get_vm(name, instance_view=True) or vm)
        refusal = self._planner.refused(failure, work)
        if errors.classify(failure).code == _GUEST_LATE:
            refusal.retry_after = timedelta(seconds=GUEST_LATE_SECONDS)
            raise refusal
        if refusal.kind in RETRYABLE:
            await self._used_up(work)
            logger.info("a failed try is cleared up", extra={"machine": name, "code": failure.code})
            await self._remover.remove_vm(name, vm)
        raise refusal

    async def _used_up(self, work: Assignment) -> None:
        """The names of this try cannot be used again: say so before anything else is done."""
        await work.note(replace(work.progress, attempt=work.progress.attempt + 1, url=""))

    async def _host(self, work: Assignment, vm: Json) -> Host:
        wanted = self._planner.resolved(work.offer).security_type
        found = security_type_of(vm)
        if found != wanted:
            raise BackendError(
                FailureKind.INVALID,
                f"the VM {work.machine_id} has security type {found}, and {wanted} was asked for; "
                "set --security-type to what the subscription allows",
                code="SecurityType",
            )
        addresses = self._planner.profile(work.offer).public_ip
        parts = await self._vms.parts_text(vm, addresses=addresses)
        return Host(ref=str(vm["id"]), parts=parts)


def _over(vm: Json | None, operation_id: str) -> Over:
    """What a list says about a create."""
    marks = Marks.of(vm) if vm else None
    if vm is None or marks is None or marks.operation_id != operation_id:
        return Over.ASK
    match state_of(vm):
        case "creating":
            return Over.RUNNING
        case "succeeded" | "updating":
            return Over.DONE
        case _:
            return Over.ASK


def _taken(name: str, why: str) -> BackendError:
    return BackendError(
        FailureKind.CONFLICT,
        f"a VM named {name} exists and is not this operation's: {why}; remove it, or let the "
        "daemons that share the group differ in --owner-id and --provider",
        code="Conflict",
    )
