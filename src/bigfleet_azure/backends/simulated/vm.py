"""What the simulated region knows of one VM. Facts and readings of them only; no rules."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

NEVER = math.inf
"""A time that does not come."""


class Place(NamedTuple):
    """Where capacity comes from; quota and capacity are counted for each."""

    size: str
    zone: str
    priority: str

    def __str__(self) -> str:
        return f"{self.size} ({self.priority}) in {self.zone}"


class Health(StrEnum):
    """What a VM's instance view would tell."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    EVICTED = "evicted"
    FAILED = "failed"
    DELETING = "deleting"


@dataclass(slots=True)
class Binding:
    """A bootstrap blob that a VM was given.

    Attributes:
        operation: who gave it.
        cluster: the cluster its node joins.
        handed_at: Unix seconds at which the blob is on the VM.
        ready_after: seconds from then until the node is Ready; None for never.
        leaves_at: Unix seconds at which the node has left the cluster again.
    """

    operation: str
    cluster: str
    handed_at: float
    ready_after: float | None
    leaves_at: float = NEVER

    @property
    def ready_at(self) -> float:
        """Unix seconds at which the node is Ready."""
        return NEVER if self.ready_after is None else self.handed_at + self.ready_after


@dataclass(slots=True)
class VirtualMachine:
    """A VM. Read it freely; only the region changes it.

    Attributes:
        name: unique in the region while the VM exists.
        operation: owner's tag: what made it.
        place: size, zone and priority.
        provisioned_at: Unix seconds at which provisioning ends.
        doomed: provisioning ends in failure.
        trouble: what happened to it since, if anything.
        given: the last bootstrap blob, also when the node has left again.
        gone_at: Unix seconds at which an accepted deletion is done.
        life: VMs of this name before it, since the process began.
        bindings: bootstrap blobs it was given, since the process began.
    """

    name: str
    operation: str
    place: Place
    provisioned_at: float
    doomed: bool = False
    trouble: Health | None = None
    given: Binding | None = None
    gone_at: float = NEVER
    life: int = 0
    bindings: int = 0

    def health(self, now: float) -> Health:
        """What the VM is found to be at `now`."""
        if self.gone_at < NEVER:
            return Health.DELETING
        if self.trouble is not None:
            return self.trouble
        if now < self.provisioned_at:
            return Health.CREATING
        return Health.FAILED if self.doomed else Health.RUNNING

    def binding(self, now: float) -> Binding | None:
        """The binding that has not ended by `now`."""
        given = self.given
        return given if given is not None and now < given.leaves_at else None
