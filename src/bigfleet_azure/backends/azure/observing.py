"""What the daemon's machines look like from the outside: one by a GET, all by lists.

A list is a hint: it may be late, short or without power states. Only `inspect` proves absence.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from bigfleet_azure.backends.azure import errors, tags
from bigfleet_azure.backends.azure.arm import ArmError
from bigfleet_azure.backends.azure.creating import Creator
from bigfleet_azure.backends.azure.removing import Remover, holder_of
from bigfleet_azure.backends.azure.tags import Marks
from bigfleet_azure.backends.azure.vms import (
    POWERLESS,
    Vms,
    made_at,
    power_of,
    state_of,
    statuses_of,
)
from bigfleet_azure.backends.base import Condition, Observation
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

Json = dict[str, Any]

YIELD_EVERY = 200
"""VMs or parts looked at before other work gets a turn: some 10 ms."""


class Observer:
    """Inspect and inventory."""

    def __init__(
        self, vms: Vms, creator: Creator, remover: Remover, clock: Clock, *, owner: str
    ) -> None:
        self._vms = vms
        self._creator = creator
        self._remover = remover
        self._clock = clock
        self._owner = owner
        self._copies: set[str] = set()

    async def inspect(self, machine_id: str, host: str) -> Observation:
        """Ask Azure about one VM."""
        name = host.rpartition("/")[2] or machine_id
        try:
            vm = await self._vms.clients.get_vm(name, instance_view=True)
        except ArmError as error:
            raise errors.backend_error(error.failure, machine_id) from error
        if vm is None:
            return Observation(
                machine_id=machine_id,
                host=host,
                condition=Condition.GONE,
                detail=f"ResourceNotFound: the VM {name} was not found",
            )
        marks = self._vms.marks_of(vm, machine_id)
        if marks is None:
            return Observation(
                machine_id=machine_id,
                host=host,
                condition=Condition.GONE,
                detail=f"the VM {name} does not carry our owner and machine id any more; it is "
                "left alone, and billed until somebody deletes it",
            )
        return self._observed(vm, marks, statuses_of(vm))

    async def inventory(self) -> list[Observation]:
        """List our machines, and parts of ours that nothing holds."""
        clients = self._vms.clients
        begun = self._clock.now()
        try:
            vms = await clients.list_vms()
            powers = {
                str(vm.get("id")).lower(): statuses_of(vm) for vm in await clients.list_statuses()
            }
            parts = await self._remover.listed_parts(begun)
        except ArmError as error:
            raise errors.backend_error(error.failure, "the inventory") from error
        self._creator.listed = frozenset(str(vm.get("name")).lower() for vm in vms)
        observed = []
        for position, vm in enumerate(vms):
            if position % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            marks = self._ours(vm)
            if marks is not None:
                observed.append(self._observed(vm, marks, powers.get(str(vm["id"]).lower(), [])))
        present = {str(vm.get("id")).lower() for vm in vms}
        for position, part in enumerate(parts):
            if position % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            leftover = self._leftover(part, present)
            if leftover is not None:
                observed.append(leftover)
        return observed

    def _ours(self, vm: Json) -> Marks | None:
        """The marks of a VM that is ours; None for others, and for copies that took our tags."""
        marks = Marks.of(vm)
        if marks is None or marks.owner != self._owner:
            return None
        name = str(vm.get("name"))
        if name.lower() == marks.machine_id.lower():
            return marks
        if name not in self._copies:
            self._copies.add(name)
            logger.warning(
                "a VM has the tags of one of our machines and another name; it is left alone",
                extra={"machine": marks.machine_id, "host": str(vm["id"])},
            )
        return None

    def _observed(self, vm: Json, marks: Marks, statuses: list[Json]) -> Observation:
        condition, detail = _condition(vm, power_of(statuses))
        return Observation(
            machine_id=marks.machine_id,
            host=str(vm["id"]),
            condition=condition,
            operation_id=marks.operation_id,
            cluster=marks.cluster,
            bound_by=tags.bound_by(vm.get("tags") or {}),
            detail=detail,
            parts=self._vms.parts_in(vm),
            metadata=_metadata(vm.get("tags") or {}, marks),
            since=made_at(vm),
        )

    def _leftover(self, part: Json, present: set[str]) -> Observation | None:
        """A part of ours that no living VM or interface holds.

        A disk is named after its machine; one that has our tags alone is somebody's copy.
        """
        marks = Marks.of(part)
        if marks is None or marks.owner != self._owner:
            return None
        holder = holder_of(part)
        if holder and (not self._vms.name_in_group(holder) or holder.lower() in present):
            return None
        whose, _, name = str(part["id"]).lower().rpartition("/")
        if whose.endswith("/disks") and not name.startswith(f"{marks.machine_id}-"):
            return None
        return Observation(
            machine_id=marks.machine_id,
            host=str(part["id"]),
            condition=Condition.FAILED,
            operation_id=marks.operation_id,
            detail="a part that no machine holds",
            parts=self._vms.note_of(str(part["id"])),
            leftover=True,
            since=made_at(part),
        )


def _metadata(found: Mapping[str, str], marks: Marks) -> dict[str, str] | None:
    """The binding's metadata; what is left of a binding whose cluster somebody took off.

    Such a machine is not known to be free, and must not be taken for it after a lost store.
    """
    if marks.cluster:
        return tags.metadata_of(found)
    return {key: value for key, value in tags.unbinding_tags(found).items() if value} or None


def _condition(vm: Json, power: str) -> tuple[Condition, str]:
    state = state_of(vm)
    spot = (vm.get("properties") or {}).get("priority") in ("Spot", "Low")
    if state == "creating":
        return Condition.CREATING, "provisioning state Creating"
    if state == "deleting":
        return Condition.FAILED, "provisioning state Deleting"
    if power in POWERLESS:
        # Nothing else marks an eviction (azure-facts section 2.1, field case H1).
        if spot:
            return Condition.EVICTED, f"the spot VM was evicted: power state VM {power}"
        return Condition.STOPPED, f"power state VM {power}"
    if state == "failed":
        return Condition.FAILED, "provisioning state Failed"
    return Condition.RUNNING, ""
