"""One offering's slots as they are published: records, untouched slots, cached entries.

Knows which slots there are and which chunks are stale; how they are encoded and served is
`service.inventory`'s.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Offering

MAX_CHUNKS = 1 << 30
"""All of them."""

CHUNK_SLOTS = 256
"""Slots per cached chunk: small enough to rebuild in well under a millisecond, large enough that
a full List of 100,000 joins a few hundred pieces."""


@dataclass(slots=True)
class Shelf:
    """One offering's slots: its records by index, and cached entries by chunk.

    `inside` counts the records within the offered count; those beyond it are surplus. Cached chunks
    in `older_unused` and `older_used` still hold the shared fields `older`.
    """

    offering: Offering
    shared: bytes
    touched: dict[int, Record] = field(default_factory=dict)
    inside: int = 0
    unused_chunks: dict[int, bytes] = field(default_factory=dict)
    used_chunks: dict[int, bytes] = field(default_factory=dict)
    stale_chunks: set[int] = field(default_factory=set)
    older: bytes = b""
    older_unused: set[int] = field(default_factory=set)
    older_used: set[int] = field(default_factory=set)

    def offer_changed(self, offering: Offering, shared: bytes) -> None:
        """Take a new shape, price or count."""
        before, self.offering = self.offering, offering
        if (before.offer.count, before.withheld) != (offering.offer.count, offering.withheld):
            self.inside = sum(1 for index in self.touched if index < offering.offer.count)
            self._all_stale()
        elif shared != self.shared:
            self._recoded(shared)
        self.shared = shared
        if before.left_out != offering.left_out:
            for first, end in (before.left_out, offering.left_out):
                self._stale_between(first, end)

    def loaded(self) -> None:
        """Every record from the store is in `touched`."""
        self.inside = sum(1 for index in self.touched if index < self.offering.offer.count)
        self._all_stale()

    def _all_stale(self) -> None:
        self.unused_chunks.clear()
        self.used_chunks.clear()
        self.older_unused.clear()
        self.older_used.clear()
        self.stale_chunks = {index // CHUNK_SLOTS for index in self.touched}

    def _stale_between(self, first: int, end: int) -> None:
        for chunk in range(first // CHUNK_SLOTS, -(-end // CHUNK_SLOTS)):
            self.unused_chunks.pop(chunk, None)
            self.older_unused.discard(chunk)
            if chunk in self.used_chunks:
                self.stale_chunks.add(chunk)

    def _recoded(self, shared: bytes) -> None:
        """Note that cached entries have other shared fields from now on.

        Prices have a fixed size on the wire, so a new one fits where the old one stands: a large
        fleet is not encoded anew for it (`renew`).
        """
        if len(self.shared) != len(shared) or self.older_unused or self.older_used:
            self._all_stale()
            return
        self.older = self.shared
        self.older_unused = set(self.unused_chunks)
        self.older_used = self.used_chunks.keys() - self.stale_chunks

    def renew(self, most: int = MAX_CHUNKS) -> bool:
        """Put the present shared fields into as many older chunks; whether some are left."""
        for _ in range(most):
            if self.older_unused:
                chunk = self.older_unused.pop()
                if (ready := self.unused_chunks.get(chunk)) is not None:
                    self.unused_chunks[chunk] = ready.replace(self.older, self.shared)
            elif self.older_used:
                self._renew_used(self.older_used.pop())
            else:
                return False
        return bool(self.older_unused or self.older_used)

    def _renew_used(self, chunk: int) -> None:
        """Metadata may happen to hold the same bytes: such a chunk has to be encoded anew."""
        ready = self.used_chunks[chunk]
        if chunk in self.stale_chunks:
            return
        if ready.count(self.older) == len(self.visible(chunk)):
            self.used_chunks[chunk] = ready.replace(self.older, self.shared)
        else:
            self.stale_chunks.add(chunk)

    def put(self, index: int, record: Record) -> None:
        """Take a record with a new change number."""
        known = self.touched.get(index)
        self.touched[index] = record
        if known is None:
            self.inside += index < self.offering.offer.count
            self.unused_chunks.pop(index // CHUNK_SLOTS, None)
            self.older_unused.discard(index // CHUNK_SLOTS)
        elif _same_bytes(known, record):
            return
        self.stale_chunks.add(index // CHUNK_SLOTS)

    @property
    def untouched(self) -> int:
        """Number of offered slots without a record."""
        return self.offering.offer.count - self.inside

    def withdrawn(self, record: Record) -> bool:
        """Whether the slot is no longer offered, and empty: nobody knows it any more."""
        return record.state is State.SPECULATIVE and record.index >= self.offering.offer.count

    def hidden(self, record: Record) -> bool:
        """Whether List leaves the record out."""
        if record.state is not State.SPECULATIVE:
            return False
        first, end = self.offering.left_out
        unlisted = self.offering.withheld or first <= record.index < end
        return unlisted or self.withdrawn(record)

    def visible(self, chunk: int) -> list[Record]:
        """The records of one chunk that List shows."""
        first = chunk * CHUNK_SLOTS
        return [
            record
            for index in range(first, first + CHUNK_SLOTS)
            if (record := self.touched.get(index)) and not self.hidden(record)
        ]

    def untouched_between(self, first: int, end: int) -> Iterator[int]:
        """Indexes of untouched slots in [first, end) that are offered and listed."""
        touched = self.touched
        hidden, shown = self.offering.left_out
        for index in range(first, min(end, self.offering.offer.count)):
            if index not in touched and not hidden <= index < shown:
                yield index


def _same_bytes(known: Record, record: Record) -> bool:
    """Whether two records of a slot are one on the wire: all but the change number is the same."""
    return (
        known.state is record.state
        and known.id == record.id
        and known.host is record.host
        and known.cluster is record.cluster
        and known.metadata is record.metadata
        and known.last_error is record.last_error
        and known.warned == record.warned
    )
