"""The machine lifecycle as data: states, kinds of operation and the transitions between them.

Everything that asks "what is legal from here?" reads the tables below; the documentation's state
diagram is drawn from them. No behaviour that needs a machine record belongs here.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class State(IntEnum):
    """Lifecycle state of a machine; the numbers are the wire's (contract section 1)."""

    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8


class CapacityType(IntEnum):
    """How the capacity is paid for; the numbers are the wire's (contract section 1)."""

    RESERVED = 2
    ON_DEMAND = 3
    SPOT = 4

    @property
    def tag(self) -> str:
        """The name used in offerings files and resource tags: reserved, on_demand or spot."""
        return self.name.lower()


class Kind(StrEnum):
    """Kind of a mutation, and half of its idempotency key (contract section 5)."""

    CREATE = "create"
    CONFIGURE = "configure"
    DRAIN = "drain"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One legal step: the only state it starts from, the state entered at accept, the goal."""

    source: State
    via: State
    target: State


TRANSITIONS: dict[Kind, Transition] = {
    Kind.CREATE: Transition(source=State.SPECULATIVE, via=State.CREATING, target=State.IDLE),
    Kind.CONFIGURE: Transition(source=State.IDLE, via=State.CONFIGURING, target=State.CONFIGURED),
    Kind.DRAIN: Transition(source=State.CONFIGURED, via=State.DRAINING, target=State.IDLE),
    Kind.DELETE: Transition(source=State.IDLE, via=State.DELETING, target=State.SPECULATIVE),
}
"""Contract section 2. Any transitional state may also end in FAILED."""

LOSS_WALKS: dict[State, Transition] = {
    State.CONFIGURED: Transition(source=State.CONFIGURED, via=State.DRAINING, target=State.FAILED),
    State.IDLE: Transition(source=State.IDLE, via=State.DELETING, target=State.SPECULATIVE),
}
"""How a settled machine whose host vanished becomes visible: the only paths a shard takes in
(contract section 12). Each state must be served by a List before the next."""

KIND_OF_TRANSITIONAL: dict[State, Kind] = {step.via: kind for kind, step in TRANSITIONS.items()}

WITH_HOST = frozenset(
    {State.IDLE, State.CONFIGURING, State.CONFIGURED, State.DRAINING, State.DELETING}
)
WITH_CLUSTER = frozenset({State.CONFIGURING, State.CONFIGURED, State.DRAINING})
"""What each state must carry (contract section 2); FAILED keeps what the machine had."""
