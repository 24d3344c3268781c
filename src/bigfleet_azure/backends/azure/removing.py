"""Making VMs and what belongs to them not exist.

Nothing is deleted before a fresh GET has shown that it is ours: by owner tag, machine id, and the
operation or `vmId` that it was made by (field case A10). Nothing counts as gone before a 404.
"""

import asyncio
import logging
from collections import defaultdict
from datetime import timedelta
from enum import Enum
from typing import Any

from bigfleet_azure.backends.azure import errors
from bigfleet_azure.backends.azure.arm import ArmError
from bigfleet_azure.backends.azure.poller import Over
from bigfleet_azure.backends.azure.tags import Marks
from bigfleet_azure.backends.azure.vm import Parts, parts_of
from bigfleet_azure.backends.azure.vms import LOOK_SECONDS, Vms, state_of
from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

Json = dict[str, Any]

HELD_SECONDS = 30.0
"""Pause before a part that something still holds is looked at again."""

YIELD_EVERY = 500
"""Parts looked at before other work gets a turn."""


class _Held(Enum):
    BY_NOTHING = 0
    BY_US = 1
    BY_OTHERS = 2


class Remover:
    """Delete and reclaim."""

    def __init__(self, vms: Vms, clock: Clock) -> None:
        self._vms = vms
        self._clock = clock
        self._listed_at = 0.0
        self._listed: list[Json] = []
        self._listed_by_maker: dict[str, list[Json]] = {}

    async def delete(self, work: Assignment) -> None:
        """Make the machine of this host not exist."""
        name = work.machine_id
        async with self._vms.locks.hold(name):
            try:
                vm = await self._vms.clients.get_vm(name)
                parts = self._vms.read_parts(work.parts)
                if vm is not None and self._vms.made_by(vm, name, work.created_by, work.parts):
                    self._vms.leave_to_others(vm, name, work.operation_id)
                    found = await self._vms.parts(vm, addresses=not work.parts)
                    parts = _joined(parts, found)
                    await self.remove_vm(name, vm)
                await self._remove_parts(name, parts)
            except ArmError as error:
                raise errors.backend_error(error.failure, name) from error

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        """Make what a debt stands for not exist."""
        name = debt.machine_id
        async with self._vms.locks.hold(name):
            try:
                await self._reclaim(debt, operation_id)
            except ArmError as error:
                raise errors.backend_error(error.failure, name) from error

    async def _reclaim(self, debt: Debt, operation_id: str) -> None:
        name = debt.machine_id
        if debt.host and "/virtualmachines/" not in debt.host.lower():
            await self._remove_parts(name, await self._swept(name, debt.host))
            return
        parts = self._vms.read_parts(debt.parts)
        vm = await self._vms.clients.get_vm(name)
        if vm is not None and self._vms.made_by(vm, name, operation_id, debt.parts):
            if operation_id:  # else an earlier store of ours may have bound it
                self._vms.leave_to_others(vm, name, operation_id)
            parts = _joined(parts, await self._vms.parts(vm, addresses=True))
            await self.remove_vm(name, vm)
        if operation_id:
            parts = _joined(parts, await self._parts_made_by(name, operation_id, debt.since))
        await self._remove_parts(name, parts)

    async def _swept(self, name: str, resource: str) -> Parts:
        """A part that a list showed as left, if it still is ours and left: nothing else proves it.

        One that a machine of ours holds is no leftover; its VM was missing from the list.
        """
        part = await self._vms.clients.get_part(resource)
        if part is None or self._vms.marks_of(part, name) is None:
            return Parts()
        holder = holder_of(part)
        if holder and await self._held(name, holder) is _Held.BY_US:
            return Parts()
        return Parts(ids=(resource,))

    async def remove_vm(self, name: str, vm: Json) -> None:
        """Delete a VM that is known to be ours, and see it gone. Its lock is held.

        Raises:
            ArmError: Azure refused, or the deletion failed.
            BackendError: TRANSIENT, a deletion that somebody began before ended without effect.
        """
        if state_of(vm) != "deleting":
            reply = await self._vms.clients.delete_vm(name)
            if reply is not None:
                await self._vms.end(reply, kind="vm.delete", vm=name, over=_over)
        while (seen := await self._vms.clients.get_vm(name)) is not None:
            if parts_of(seen).vm_id != parts_of(vm).vm_id:
                return
            if state_of(seen) != "deleting":
                raise BackendError(
                    FailureKind.TRANSIENT,
                    f"the VM {name} is not being deleted any more, and still there; its deletion "
                    "is asked for again",
                    code="NotDeleted",
                    retry_after=timedelta(seconds=LOOK_SECONDS),
                )
            await self._vms.pause()

    async def _remove_parts(self, name: str, parts: Parts) -> None:
        """Make each part not exist; what cannot go yet does not keep the others (case A3)."""
        trouble: list[BackendError] = []
        # Interfaces first: an address is held by its interface.
        for one in sorted(parts.ids, key=_order):
            try:
                await self._remove_part(name, one)
            except ArmError as error:
                trouble.append(errors.backend_error(error.failure, name))
            except BackendError as error:
                trouble.append(error)
        if trouble:
            raise max(trouble, key=lambda each: each.retry_after or timedelta())

    async def _remove_part(self, name: str, resource: str) -> None:
        part = await self._vms.clients.get_part(resource)
        if part is None:
            return
        holder = holder_of(part)
        held = await self._held(name, holder) if holder else _Held.BY_NOTHING
        if held is _Held.BY_OTHERS:
            logger.warning(
                "a part is held by what is not ours and is left alone",
                extra={"machine": name, "part": resource, "holder": holder},
            )
            return
        if held is _Held.BY_US:
            raise BackendError(
                FailureKind.TRANSIENT,
                f"{resource} of {name} is still held by {holder}",
                code="InUse",
                retry_after=timedelta(seconds=HELD_SECONDS),
            )
        if Marks.of(part) is not None and self._vms.marks_of(part, name) is None:
            raise BackendError(
                FailureKind.CONFLICT,
                f"{resource} belonged to {name} and is tagged for another owner or machine now: "
                "it is left alone; remove it by hand if nobody needs it",
                code="Foreign",
            )
        reply = await self._vms.clients.delete_part(resource)
        if reply is not None:
            await self._vms.end(reply, kind="part.delete", vm=name, over=_over)
        if await self._vms.clients.get_part(resource) is not None:
            raise BackendError(
                FailureKind.TRANSIENT, f"{resource} of {name} is not gone yet", code="InUse"
            )
        logger.info("a leftover part was deleted", extra={"machine": name, "part": resource})

    async def _held(self, name: str, holder: str) -> _Held:
        """Whose what a part hangs on is; a VM that does not exist holds nothing."""
        vm = self._vms.name_in_group(holder)
        if vm:
            found = await self._vms.clients.get_vm(vm)
        elif "/microsoft.network/networkinterfaces/" in holder.lower():
            found = await self._vms.clients.get_part("/".join(holder.split("/")[:9]))
        else:
            return _Held.BY_OTHERS
        if found is None:
            return _Held.BY_NOTHING
        return _Held.BY_US if self._vms.marks_of(found, name) else _Held.BY_OTHERS

    async def _parts_made_by(self, name: str, operation_id: str, since: float) -> Parts:
        """Parts that carry the operation's tag, however they came to be left."""
        found = []
        await self.listed_parts(since)
        for part in self._listed_by_maker.get(operation_id, ()):
            marks = self._vms.marks_of(part, name)
            if marks is not None and marks.operation_id == operation_id:
                found.append(str(part["id"]))
        return Parts(ids=tuple(found))

    async def listed_parts(self, since: float) -> list[Json]:
        """The group's interfaces, addresses and disks with our marks, as of `since` or later.

        One look serves all debts that are older than it.
        """
        if self._listed_at > since:
            return self._listed
        begun, clients = self._clock.now(), self._vms.clients
        found = await clients.list_nics() + await clients.list_addresses()
        found += await clients.list_disks()
        listed, by_maker = [], defaultdict(list)
        for position, part in enumerate(found):
            if position % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            marks = Marks.of(part)
            if marks is not None:
                listed.append(part)
                by_maker[marks.operation_id].append(part)
        self._listed_at, self._listed, self._listed_by_maker = begun, listed, by_maker
        return listed


def holder_of(part: Json) -> str:
    """Id of what a part hangs on; "" when nothing holds it."""
    properties = part.get("properties") or {}
    for key in ("virtualMachine", "ipConfiguration", "natGateway"):
        held = properties.get(key)
        if isinstance(held, dict) and held.get("id"):
            return str(held["id"])
    return str(part.get("managedBy") or "")


def _order(resource: str) -> int:
    return 0 if "/networkinterfaces/" in resource.lower() else 1


def _joined(first: Parts, second: Parts) -> Parts:
    ids = {one.lower(): one for one in (*first.ids, *second.ids)}
    return Parts(vm_id=first.vm_id or second.vm_id, ids=tuple(ids.values()))


def _over(vm: Json | None) -> Over:
    """What a list says about a deletion: absence is for a GET to confirm."""
    return Over.RUNNING if vm is not None and state_of(vm) == "deleting" else Over.ASK
