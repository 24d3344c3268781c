"""One offering's slots as they are published: records, untouched slots, cached entries.

Knows which slots there are and which chunks are stale; how they are encoded and served is
`service.inventory`'s.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Offering

CHUNK_SLOTS = 256
"""Slots per cached chunk: small enough to rebuild in well under a millisecond, large enough that
a full List of 100,000 joins a few hundred pieces."""


@dataclass(slots=True)
class Shelf:
    """One offering's slots: its records by index, and cached entries by chunk.

    `inside` counts the records within the offered count; those beyond it are surplus.
    """

    offering: Offering
    shared: bytes
    touched: dict[int, Record] = field(default_factory=dict)
    inside: int = 0
    unused_chunks: dict[int, bytes] = field(default_factory=dict)
    used_chunks: dict[int, bytes] = field(default_factory=dict)
    stale_chunks: set[int] = field(default_factory=set)

    def offer_changed(self, offering: Offering, shared: bytes) -> None:
        """Take a new shape, price or count; every cached chunk is stale."""
        self.offering = offering
        self.shared = shared
        self.inside = sum(1 for index in self.touched if index < offering.offer.count)
        self.unused_chunks.clear()
        self.used_chunks.clear()
        self.stale_chunks = {index // CHUNK_SLOTS for index in self.touched}

    def put(self, index: int, record: Record) -> None:
        """Take a record whose visible content changed."""
        if index not in self.touched:
            self.inside += index < self.offering.offer.count
            self.unused_chunks.pop(index // CHUNK_SLOTS, None)
        self.touched[index] = record
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
        withheld = self.offering.withheld and record.state is State.SPECULATIVE
        return withheld or self.withdrawn(record)

    def visible(self, chunk: int) -> list[Record]:
        """The records of one chunk that List shows."""
        first = chunk * CHUNK_SLOTS
        return [
            record
            for index in range(first, first + CHUNK_SLOTS)
            if (record := self.touched.get(index)) and not self.hidden(record)
        ]

    def untouched_between(self, first: int, end: int) -> Iterator[int]:
        """Indexes of untouched slots in [first, end) that are offered."""
        touched = self.touched
        for index in range(first, min(end, self.offering.offer.count)):
            if index not in touched:
                yield index
