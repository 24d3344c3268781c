"""Operations: one accepted mutation (or one loss walk) and all that must survive a restart."""

from dataclasses import dataclass

from bigfleet_azure.domain.lifecycle import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation in flight.

    Attributes:
        number: unique within one incarnation of the store; see `operation_id`.
        kind: what was asked.
        accepted_at: Unix seconds of the accept.
        deadline: Unix seconds after which the operation ends in FAILED.
        grace_seconds: time workloads get for graceful shutdown (Drain only).
        handed_over: the bootstrap blob has reached the machine and is no longer stored
            (Configure only); what is left is waiting for the node to be Ready.
        queued: it waits for a free place in our own pools, which does not count.
        loss: why the host is gone, when this is a loss walk and not a caller's mutation
            (contract section 12); empty otherwise.
        attempt, url, begun: what the backend noted, as its `Progress`.
    """

    number: int
    kind: Kind
    accepted_at: float
    deadline: float
    grace_seconds: int = 0
    handed_over: bool = False
    queued: bool = False
    loss: str = ""
    attempt: int = 0
    url: str = ""
    begun: float = 0.0

    @property
    def lost_slowly(self) -> bool:
        """Whether this walks a machine whose host was still there to be drained."""
        return bool(self.loss) and self.deadline > self.accepted_at


def operation_id(incarnation: str, number: int) -> str:
    """The id callers see. The incarnation keeps it unique also after the store was lost."""
    return f"op-{incarnation}-{number}"


def incarnation_of(operation: str) -> str:
    """The incarnation in an operation id; empty when it is none of ours."""
    prefix, _, number = operation.rpartition("-")
    return prefix.removeprefix("op-") if prefix.startswith("op-") and number.isdigit() else ""
