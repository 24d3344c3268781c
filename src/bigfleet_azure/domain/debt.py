"""Debts: what may still exist in the substrate and nobody needs any more."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """Something to be removed from the substrate, until the substrate says that it is gone.

    Attributes:
        number: unique within one incarnation of the store.
        slot: slot the thing was made for.
        machine_id: the id it was made under.
        operation: number of the operation that made it; only its resources may be touched. 0 when
            that is not known: then it is exactly what host and parts name.
        host: the substrate's reference when it is known, else empty.
        reason: why it is owed, for people.
        since: Unix seconds at which it was recorded.
        attempts: tries so far.
        not_before: Unix seconds of the next try.
        last_error: what the last try said.
        parts: the backend's note of what belongs to the host.
    """

    number: int
    slot: int
    machine_id: str
    operation: int
    host: str
    reason: str
    since: float
    attempts: int = 0
    not_before: float = 0.0
    last_error: str = ""
    parts: str = ""
