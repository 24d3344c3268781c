"""The Backend protocol: what the service asks of a substrate.

Every method is level-triggered: it means "make this true", may be called again at any time for the
same operation, and finds out by itself what is already done. Resuming after a restart is calling
the same method again. Failures are `domain.errors.BackendError`; nothing else may escape.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.shortage import Shortage


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a backend must know again after a restart about an operation under way.

    Attributes:
        attempt: how many tries failed and used up the names they had.
        url: where the substrate reports on a request that it accepted; "" when there is none.
        begun: Unix seconds at which the guest was first told; 0 before.
    """

    attempt: int = 0
    url: str = ""
    begun: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host that exists.

    Attributes:
        ref: the host reference that is published.
        parts: the backend's own note of what the host is and what belongs to it; stored with
            the machine and given back with every later call about it.
    """

    ref: str
    parts: str = ""


Note = Callable[[Progress], Awaitable[None]]
"""Makes the progress of an operation durable; returns when it is."""


async def unnoted(progress: Progress) -> None:
    """A `Note` that forgets."""


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
        parts: what `create` returned beside it.
        cluster: the cluster to join or to leave (Configure, Drain).
        metadata: shard metadata of the binding.
        grace_seconds: time for graceful shutdown (Drain).
        deadline: Unix seconds at which the operation ends, reached or not.
        resumed: an earlier try, or a process before this one, may have begun the work already.
        progress: what was noted last.
        note: to be awaited before anything is done that must not be forgotten.
    """

    machine_id: str
    operation_id: str
    offer: Offer
    created_by: str = ""
    host: str = ""
    parts: str = ""
    cluster: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int = 0
    deadline: float = math.inf
    resumed: bool = False
    progress: Progress = Progress()
    note: Note = unnoted


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
        bound_by: the Configure that bound it, as far as its tags tell.
        detail: the substrate's own words, for `last_error` and logs.
        parts: what belongs to it, as `Host.parts`.
        metadata: shard metadata of its binding, as far as the substrate keeps it; None when it
            is not known there.
        leftover: it is no machine but a part that no machine holds any more; `host` names it, and
            `parts` as it stands among the parts of a machine that has it.
        since: Unix seconds at which it was made; 0 when that is not known.
    """

    machine_id: str
    host: str
    condition: Condition
    operation_id: str = ""
    cluster: str = ""
    bound_by: str = ""
    detail: str = ""
    parts: str = ""
    metadata: Mapping[str, str] | None = None
    leftover: bool = False
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What became of reading prices and eviction rates anew.

    Attributes:
        kept: what to give to `recall` in a later process; "" for nothing.
        troubles: what is wrong with which source; what was known of it stays.
    """

    kept: str = ""
    troubles: tuple[str, ...] = ()


class Backend(Protocol):
    """A substrate. One contract test suite runs on every implementation."""

    name: str
    """Short name for logs, metrics and the start-up line."""

    max_blob_bytes: int
    """Largest bootstrap blob it can deliver; checked when a Configure is accepted."""

    rebuilds: bool
    """Hosts may exist that a new store knows nothing of: they are asked for before it serves."""

    async def start(self) -> None:
        """Acquire sessions and files; before that only `facts` and `watch_facts` are called.

        Called again after a failure, until it succeeds.
        """

    async def close(self) -> None:
        """Release them. Operations in flight were cancelled before."""

    def facts(self, offer: Offer) -> Facts:
        """What is published about `offer`. Answers from memory.

        Raises:
            BackendError: INVALID for what is no size; TRANSIENT while the sizes are not known yet.
        """

    def offered(self, offers: Sequence[Offer]) -> None:
        """These are in force: what `facts` was asked of others besides can be forgotten."""

    def recall(self, kept: str) -> None:
        """Take up what an earlier process's `refresh` wanted kept; before `facts` is called."""

    async def refresh(self) -> Refreshed:
        """Read prices and eviction rates anew; `facts` answers by them from now on."""

    def unpriced(self) -> Sequence[str]:
        """Sizes that are offered at a guessed price, for people."""

    def watch_facts(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `facts` may answer otherwise from now on."""

    async def create(self, work: Assignment) -> Host:
        """Make the machine exist and be provisioned."""

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
        """Make whatever the debt's operation made not exist; return once it is gone.

        Without an operation, what the debt's host and parts name.
        """

    async def shortages(self) -> Sequence[Shortage]:
        """What is known to be short now, found by asking; all of it, each time."""
