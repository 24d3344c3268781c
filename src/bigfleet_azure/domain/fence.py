"""Fencing tokens and marks: which shard may still speak for a machine (contract section 4)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """The fencing token of one call. Negative numbers are ordinary numbers."""

    shard_id: str
    epoch: int
    sequence: int

    @property
    def absent(self) -> bool:
        """True for ("", 0, 0): the call passes the fence and leaves no mark."""
        return not self.shard_id and self.epoch == 0 and self.sequence == 0


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest token accepted for one (shard, machine) pair."""

    shard_id: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SideMark:
    """A mark kept beside the records: of another shard, or for an id without a record.

    Attributes:
        touched: Unix seconds at which it last moved.
    """

    machine_id: str
    mark: Mark
    touched: float


def passes(token: Token, mark: Mark | None) -> bool:
    """Whether `token` is strictly newer than `mark`, by epoch and then by sequence.

    No mark means first contact, which passes whatever the numbers are. The absent token passes
    always, also where ("", 0, 1) has left a mark.
    """
    if mark is None or token.absent:
        return True
    return (token.epoch, token.sequence) > (mark.epoch, mark.sequence)


def newest(*marks: Mark | None) -> Mark | None:
    """The newest of some marks of one pair; None when there is none."""
    known = [mark for mark in marks if mark is not None]
    return max(known, key=lambda mark: (mark.epoch, mark.sequence), default=None)


def mark_of(token: Token) -> Mark | None:
    """The mark that an accepted token leaves; None for the absent token."""
    if token.absent:
        return None
    return Mark(token.shard_id, token.epoch, token.sequence)
