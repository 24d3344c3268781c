"""The Backend protocol: what the service asks of a substrate.

Every method is level-triggered: it means "make this true", may be called again at any time for the
same operation, and finds out by itself what is already done. Resuming after a restart is calling
the same method again. Failures are `domain.errors.BackendError`; nothing else may escape.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One operation as a backend sees it.

    Attributes:
        machine_id: also the name of the VM and of its node.
        operation_id: names everything this operation makes; equal on every retry and resume.
        created_by: operation id of the Create that made the host ("" before it has succeeded
            and during it).
        offer: size, zone, capacity type and the operator's settings.
        host: the host reference, as returned by `create`; "" before.
        cluster: the cluster to join or to leave (Configure, Drain).
        metadata: shard metadata of the binding.
        grace_seconds: time for graceful shutdown (Drain).
        resumed: a process before this one may have begun the work already.
    """

    machine_id: str
    operation_id: str
    offer: Offer
    created_by: str = ""
    host: str = ""
    cluster: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int = 0
    resumed: bool = False


class Condition(StrEnum):
    """What a host is found to be, from the outside."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    EVICTED = "evicted"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One host as the substrate shows it.

    Attributes:
        machine_id: the id it is tagged with.
        host: its reference.
        operation_id: the Create it is tagged with.
        condition: GONE only from `inspect`, when the substrate says that it does not exist.
        cluster: the cluster it is tagged as bound to.
        detail: the substrate's own words, for `last_error` and logs.
    """

    machine_id: str
    host: str
    condition: Condition
    operation_id: str = ""
    cluster: str = ""
    detail: str = ""


class Backend(Protocol):
    """A substrate. One contract test suite runs on every implementation."""

    name: str
    """Short name for logs, metrics and the start-up line."""

    max_blob_bytes: int
    """Largest bootstrap blob it can deliver; checked when a Configure is accepted."""

    async def start(self) -> None:
        """Acquire sessions and files. Called once, before any other method but `facts`."""

    async def close(self) -> None:
        """Release them. Operations in flight were cancelled before."""

    def facts(self, offer: Offer) -> Facts:
        """What is published about `offer`. Answers from memory; INVALID for an unknown size."""

    async def create(self, work: Assignment) -> str:
        """Make the machine exist and be provisioned; return its host reference."""

    async def configure(self, work: Assignment, blob: Secret) -> None:
        """Hand the bootstrap blob to the machine so that its node joins `work.cluster`."""

    async def wait_ready(self, work: Assignment) -> None:
        """Return once the node is seen Ready in `work.cluster`; wait as long as it takes."""

    async def drain(self, work: Assignment) -> None:
        """Make the machine leave its cluster, giving workloads `work.grace_seconds`."""

    async def delete(self, work: Assignment) -> None:
        """Make the machine and all that belongs to it not exist."""

    async def inspect(self, machine_id: str, host: str) -> Observation:
        """Ask the substrate itself about one host: the only proof of absence."""

    async def inventory(self) -> Sequence[Observation]:
        """All hosts of this daemon that can be listed. A hint, never proof of absence."""

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        """Make whatever the debt's operation made not exist; return once it is gone."""
