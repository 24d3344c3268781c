"""One VM at a time: reading it, telling whose it is, and waiting for what was begun on it.

Two writes to one VM are never in flight at once: whoever writes holds its lock until the write is
over.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from bigfleet_azure.backends.azure import tags
from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.clients import Clients
from bigfleet_azure.backends.azure.connection import Reply
from bigfleet_azure.backends.azure.poller import Over, Poller
from bigfleet_azure.backends.azure.tags import Marks
from bigfleet_azure.backends.azure.vm import Parts, addresses_of, parts_of
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.operation import incarnation_of
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.locks import KeyedLocks

Json = dict[str, Any]

POWERLESS = frozenset({"stopped", "stopping", "deallocated", "deallocating"})
"""Power states in which no guest runs."""

LOOK_SECONDS = 10.0
"""Pause between two reads of a VM whose operation's address is not known: 6 a minute against the
12 that a VM's reads are refilled with (azure-practice section 2)."""


class Vms:
    """What every step on a VM needs.

    Attributes:
        locks: by VM name; held by whoever writes.
    """

    def __init__(self, clients: Clients, poller: Poller, clock: Clock, *, owner: str) -> None:
        self.clients = clients
        self.locks = KeyedLocks()
        self._poller = poller
        self._clock = clock
        self._owner = owner
        self._group_path = clients.group_path

    def marks_of(self, resource: Json, machine_id: str) -> Marks | None:
        """What our tags on a resource say; None when it is not this daemon's machine."""
        marks = Marks.of(resource)
        if marks is None or marks.owner != self._owner or marks.machine_id != machine_id:
            return None
        return marks

    def made_by(self, vm: Json, machine_id: str, operation_id: str, parts: str) -> bool:
        """Whether a VM is ours and the very one: by the operation that made it, else by `vmId`."""
        marks = self.marks_of(vm, machine_id)
        if marks is None:
            return False
        known = Parts.read(parts, self._group_path).vm_id
        if known and parts_of(vm).vm_id != known:
            return False
        return marks.operation_id == operation_id if operation_id else bool(known)

    def leave_to_others(self, vm: Json, machine_id: str, operation_id: str) -> None:
        """Refuse to remove a VM that another store's operation bound.

        Args:
            operation_id: any operation of our store, which alone could have bound it.

        Raises:
            BackendError: CONFLICT.
        """
        binder = tags.bound_by(vm.get("tags") or {})
        if incarnation_of(binder) in ("", incarnation_of(operation_id)):
            return
        raise BackendError(
            FailureKind.CONFLICT,
            f"{machine_id} works for a cluster by {binder}, an operation of another store: another "
            "daemon uses this owner id, and the VM is left alone. Give each daemon an owner id of "
            "its own",
            code="OwnerShared",
        )

    async def end(
        self, reply: Reply, *, kind: str, vm: str, over: Callable[[Json | None], Over]
    ) -> Json | None:
        """Wait for the end of what `reply` says was begun.

        Returns:
            The VM as a list showed it at the end, when a list did.

        Raises:
            ArmError: it failed; or `OperationNotFound`, its address does not tell (any more).
        """
        if not reply.url:
            return None
        try:
            return await self._poller.wait(
                kind=kind, vm=vm, url=reply.url, retry_after=reply.retry_after, over=over
            )
        except ArmError as error:
            if error.failure.status == HTTPStatus.OK:
                raise
            untold = replace(error.failure, status=HTTPStatus.NOT_FOUND, code="OperationNotFound")
            raise ArmError(untold) from error

    async def pause(self) -> None:
        """Wait before a VM is read again."""
        await self._clock.sleep(LOOK_SECONDS)

    def age(self, vm: Json) -> float:
        """Seconds since the VM was made; 0 when Azure does not say."""
        return max(0.0, self._clock.now() - made_at(vm)) if made_at(vm) else 0.0

    async def parts_text(self, vm: Json, *, addresses: bool) -> str:
        """The VM's parts, to be stored; an interface is read for its address when it has one."""
        return (await self.parts(vm, addresses=addresses)).text(self._group_path)

    async def parts(self, vm: Json, *, addresses: bool) -> Parts:
        """What belongs to a VM, by what Azure says."""
        found = parts_of(vm)
        if not addresses:
            return found
        ids = list(found.ids)
        for one in found.ids:
            if "/networkinterfaces/" in one.lower():
                nic = await self.clients.get_part(one)
                ids += addresses_of(nic) if nic else ()
        return Parts(vm_id=found.vm_id, ids=tuple(ids))

    def parts_in(self, vm: Json) -> str:
        """What a VM's JSON alone says of its parts, to be stored."""
        return parts_of(vm).text(self._group_path)

    def note_of(self, part: str) -> str:
        """A part's id as it stands among the stored parts of its machine."""
        return Parts(ids=(part,)).text(self._group_path)

    def name_in_group(self, resource: str) -> str:
        """The VM's name in the id of a VM of our group; "" for any other id."""
        prefix = self.clients.vm_id("").lower()
        name = resource[len(prefix) :] if resource.lower().startswith(prefix) else ""
        return "" if "/" in name else name

    def read_parts(self, text: str) -> Parts:
        """Stored parts."""
        return Parts.read(text, self._group_path)


def state_of(vm: Json) -> str:
    """`provisioningState` of a VM or extension, in lower case."""
    return str((vm.get("properties") or {}).get("provisioningState") or "").lower()


def statuses_of(vm: Json) -> list[Json]:
    """Statuses of a VM's instance view."""
    view = (vm.get("properties") or {}).get("instanceView") or {}
    return [one for one in view.get("statuses") or [] if isinstance(one, dict)]


def power_of(statuses: list[Json]) -> str:
    """Power state such as `running` or `deallocated`; "" when it is not told."""
    for status in statuses:
        code = str(status.get("code") or "").lower()
        if code.startswith("powerstate/"):
            return code.removeprefix("powerstate/")
    return ""


def failure_of(vm: Json) -> Failure:
    """Why a VM is in state Failed, by its instance view: `ProvisioningState/failed/<code>`."""
    for status in statuses_of(vm):
        parts = str(status.get("code") or "").split("/")
        if parts[0].lower() == "provisioningstate" and parts[1:2] == ["failed"]:
            return Failure(
                call="vm.put",
                status=200,
                code=parts[2] if len(parts) > 2 else "ProvisioningFailed",
                message=str(status.get("message") or ""),
            )
    return Failure(
        call="vm.put", status=200, code="ProvisioningFailed", message="the VM is in state Failed"
    )


def made_at(vm: Json) -> float:
    """Unix seconds of a resource's `timeCreated`; 0 when there is none."""
    text = str((vm.get("properties") or {}).get("timeCreated") or "")
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0


def being_deleted(name: str) -> BackendError:
    """The VM of an earlier life is on its way out."""
    return BackendError(
        FailureKind.TRANSIENT,
        f"the VM {name} is being deleted; it is looked at again when it is gone",
        code="Deleting",
        retry_after=timedelta(seconds=LOOK_SECONDS),
    )


def lost(name: str, why: str) -> BackendError:
    """The VM can no longer do its work."""
    return BackendError(FailureKind.GONE, f"VM {name} is lost: {why}", code="Gone")
