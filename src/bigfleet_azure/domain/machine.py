"""The machine record: one slot's durable facts, and what a slot's number means."""

from dataclasses import dataclass

from bigfleet_azure.domain.fence import Mark
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.domain.operation import Operation

SLOT_BITS = 20
"""Slots of one offering are numbered below 2**20; the offering's number stands above them."""


INDEX_MASK = (1 << SLOT_BITS) - 1
"""The bits of a slot's number that are its index."""


def slot_number(offering: int, index: int) -> int:
    """The integer under which a slot's row is stored: neighbours stay neighbours on disk."""
    return offering << SLOT_BITS | index


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A machine at one moment. Untouched slots have no record until a call names them.

    Attributes:
        slot: `slot_number` of the offering and index it belongs to.
        id: the machine id, a DNS-1123 label.
        generation: how many ids of this slot were retired before this one.
        state: where in the lifecycle it is.
        change: change number of its last visible change; 0 only while being built.
        since: Unix seconds at which `state` was entered.
        host: the substrate's reference of the real host; empty when there is none.
        parts: the backend's note of what belongs to that host; only the backend reads it.
        cluster: the cluster it is bound to; empty in every unbound state.
        metadata: packed shard metadata (`domain.metadata`).
        last_error: why it FAILED; empty in every clean state.
        created, configured, drained, deleted: number of the last operation of each kind that
            may still be repeated; 0 when there is none.
        operation: the operation in flight, in transitional states only.
        mark: the fence mark of the first shard that changed this machine. Marks of other
            shards, and of machines without a record, are kept beside the records.
        warned: interruption probability that a notice of this host's eviction raised the
            published one to; 0 without a notice.
    """

    slot: int
    id: str
    generation: int = 0
    state: State = State.SPECULATIVE
    change: int = 0
    since: float = 0.0
    host: str = ""
    parts: str = ""
    cluster: str = ""
    metadata: bytes = b""
    last_error: str = ""
    created: int = 0
    configured: int = 0
    drained: int = 0
    deleted: int = 0
    operation: Operation | None = None
    mark: Mark | None = None
    warned: float = 0.0

    @property
    def offering(self) -> int:
        """Number of the offering the slot belongs to."""
        return self.slot >> SLOT_BITS

    @property
    def index(self) -> int:
        """Position of the slot within its offering."""
        return self.slot & INDEX_MASK

    def recorded(self, kind: Kind) -> int:
        """Number of the last operation of `kind` on record, 0 for none."""
        match kind:
            case Kind.CREATE:
                return self.created
            case Kind.CONFIGURE:
                return self.configured
            case Kind.DRAIN:
                return self.drained
            case Kind.DELETE:
                return self.deleted
