"""The published fleet: what Get and List answer from, without a disk and without a lock.

Only committed facts get in here, through `publish`. Machines that were ever touched are records,
kept in the order of their change numbers; all other slots exist only as their offering's segments.
Encoded bytes are cached in chunks of slots, so that a full List joins ready bytes and a delta costs
its own size, not the fleet's.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Protocol

from bigfleet_azure.domain import cursor
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.decide import View
from bigfleet_azure.domain.fence import newest
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import INDEX_MASK, SLOT_BITS, Record, slot_number
from bigfleet_azure.domain.metadata import varint
from bigfleet_azure.domain.offering import MAX_SLOTS_PER_OFFERING, Offering, Segment
from bigfleet_azure.kit.signal import Signal
from bigfleet_azure.service.marks import SideMarks
from bigfleet_azure.service.shelf import CHUNK_SLOTS, Shelf
from bigfleet_azure.store.base import Snapshot

RENEWED_AT_ONCE = 32
"""Chunks that get new shared fields in one go: a few milliseconds."""

_REVISION_TAG = b"\x12"


class Encoder(Protocol):
    """Wire encoding of machines, provided by the gRPC edge."""

    def shared(self, offering: Offering) -> bytes:
        """The fields that all machines of an offering have in common."""

    def machine(self, record: Record, shared: bytes, provider: str) -> bytes:
        """One whole Machine message."""

    def entry(self, body: bytes) -> bytes:
        """A Machine message as one entry of a MachineList."""

    def unused_entries(self, ids: Iterable[str], shared: bytes) -> bytes:
        """Entries of never-touched slots."""


@dataclass(slots=True)
class _Unserved:
    """A machine that must not move on before a List has carried it.

    Attributes:
        loaded: it is from the store, so an earlier process may have served it.
        over: set when a List has carried it, or it left that state.
    """

    loaded: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Inventory:
    """The machines as callers may see them, and the head of the change numbers."""

    def __init__(self, encoder: Encoder, provider: str, snapshot: Snapshot) -> None:
        self._encoder = encoder
        self._provider = provider
        self.incarnation = snapshot.incarnation
        restored = f"-{snapshot.restored}" if snapshot.restored else ""
        self._cursor_key = snapshot.incarnation + restored
        self.marks = SideMarks(snapshot.marks)
        self._shelves: dict[int, Shelf] = {}
        self._by_prefix: dict[str, Shelf] = {}
        self._records: dict[str, Record] = {}
        self._states: Counter[State] = Counter()
        self._unserved: dict[str, _Unserved] = {}
        self._full_list = Signal()
        self._head = self._next = snapshot.head
        for offering in snapshot.offerings:
            self._put_offering(offering)
        self._load(snapshot.records)

    def _load(self, records: Iterable[Record]) -> None:
        for record in sorted(records, key=attrgetter("change")):
            self._records[record.id] = record
            self._shelves[record.slot >> SLOT_BITS].touched[record.slot & INDEX_MASK] = record
            self._states[record.state] += 1
            if _must_be_served(record):
                self._unserved[record.id] = _Unserved(loaded=True)
        for shelf in self._shelves.values():
            shelf.loaded()

    # Change numbers

    @property
    def head(self) -> int:
        """The newest published change number."""
        return self._head

    def next_change(self) -> int:
        """The change number that `reserve` would give next."""
        return self._next + 1

    def reserve(self, count: int = 1) -> int:
        """Take `count` change numbers; returns the first. Unused ones leave a harmless gap."""
        first = self._next + 1
        self._next += count
        return first

    # Single machines

    def record(self, machine_id: str) -> Record | None:
        """The machine under that id, None when no such machine exists."""
        known = self._records.get(machine_id)
        if known is not None:
            return None if self._shelves[known.offering].withdrawn(known) else known
        prefix, _, _ = machine_id.rpartition("-")
        shelf = self._by_prefix.get(prefix)
        index = shelf.offering.index_of(machine_id) if shelf else None
        if shelf is None or index is None or index >= shelf.offering.offer.count:
            return None
        if index in shelf.touched:
            return None
        return Record(
            slot=slot_number(shelf.offering.number, index),
            id=machine_id,
            change=shelf.offering.change_of(index),
        )

    def vacant(self, machine_id: str) -> Record | None:
        """The never-used slot behind an id of any generation, as the record it would get.

        Also slots beyond the count that is offered. None when there is no such slot, or it was
        ever used.
        """
        prefix = machine_id.rpartition("-")[0]
        for shelf in map(self._by_prefix.get, (prefix, prefix.rpartition("-")[0])):
            slot = shelf.offering.slot_of(machine_id) if shelf else None
            if shelf is None or slot is None:
                continue
            index, generation = slot
            if index < MAX_SLOTS_PER_OFFERING and index not in shelf.touched:
                number = slot_number(shelf.offering.number, index)
                return Record(slot=number, id=machine_id, generation=generation)
        return None

    def offered(self, record: Record) -> bool:
        """Whether the slot lies within the count that is offered."""
        return record.index < self._shelves[record.offering].offering.offer.count

    def view(self, machine_id: str, shard_id: str) -> View:
        """All that a decision about the machine needs."""
        known = self._records.get(machine_id)
        own = known.mark if known and known.mark and known.mark.shard_id == shard_id else None
        side = self.marks.get(machine_id, shard_id)
        return View(
            record=self.record(machine_id),
            stored=known is not None,
            mark=newest(own, side),
            side_mark=side is not None,
        )

    def with_newest_mark(self, record: Record) -> Record:
        """`record` with the newest mark of its shard.

        A newer one than its own was left beside it while its slot was not offered.
        """
        if record.mark is None:
            return record
        side = self.marks.get(record.id, record.mark.shard_id)
        return replace(record, mark=newest(record.mark, side))

    def offering(self, number: int) -> Offering:
        """The offering with that number."""
        return self._shelves[number].offering

    def find_offering(self, number: int) -> Offering | None:
        """The offering with that number, None when it is gone."""
        shelf = self._shelves.get(number)
        return shelf.offering if shelf else None

    def offerings(self) -> list[Offering]:
        """All offerings, also emptied ones whose last machines are still in use."""
        return [shelf.offering for shelf in self._shelves.values()]

    def records_of(self, number: int) -> list[Record]:
        """The records of one offering, in no particular order."""
        return list(self._shelves[number].touched.values())

    def records(self) -> list[Record]:
        """All records, oldest change first."""
        return list(self._records.values())

    def encoded(self, record: Record) -> bytes:
        """The machine as a wire message."""
        return self._encoder.machine(record, self._shelves[record.offering].shared, self._provider)

    def shared_fields(self, offering: Offering) -> bytes:
        """The wire form of what all machines of `offering` have in common."""
        return self._encoder.shared(offering)

    def counts(self) -> dict[State, int]:
        """Machines by state, withheld slots included."""
        counts = {state: self._states[state] for state in State}
        counts[State.SPECULATIVE] = sum(self.unused(number) for number in self._shelves)
        return counts

    def withheld(self) -> int:
        """Unused slots that List leaves out."""
        return sum(
            self.unused(number)
            for number, shelf in self._shelves.items()
            if shelf.offering.withheld
        )

    def untouched(self, number: int) -> int:
        """Slots of one offering that have no record."""
        return self._shelves[number].untouched

    def unused(self, number: int) -> int:
        """SPECULATIVE machines of one offering, with or without a record."""
        shelf = self._shelves[number]
        return shelf.untouched + sum(
            1
            for record in shelf.touched.values()
            if record.state is State.SPECULATIVE and not shelf.withdrawn(record)
        )

    def unused_between(self, number: int, first: int, end: int) -> bool:
        """Whether any of the offered slots in [first, end) is SPECULATIVE."""
        shelf = self._shelves[number]
        indexes = range(first, min(end, shelf.offering.offer.count))
        known = map(shelf.touched.get, indexes)
        return any(one is None or one.state is State.SPECULATIVE for one in known)

    # Publishing

    def publish(self, changes: ChangeSet) -> None:
        """Take in a committed change set."""
        for offering in changes.offerings:
            self._put_offering(offering)
            self._head = max(self._head, offering.head)
        for record in changes.records:
            self._put(record)
        self.marks.apply(changes)
        head = changes.head or 0
        if changes.offerings:
            self._head = max(self._head, head)
        # A debt takes a number too, but nothing of it is visible: the revision stays.
        self._next = max(self._next, self._head, head)

    def _put_offering(self, offering: Offering) -> None:
        shelf = self._shelves.get(offering.number)
        if shelf is None:
            shelf = Shelf(offering=offering, shared=self.shared_fields(offering))
            self._shelves[offering.number] = self._by_prefix[offering.prefix] = shelf
            return
        shelf.offer_changed(offering, self.shared_fields(offering))

    def _put(self, record: Record) -> None:
        shelf = self._shelves[record.offering]
        known = shelf.touched.get(record.index)
        if known is not None and known.change == record.change:
            self._records[record.id] = shelf.touched[record.index] = record
            return
        if known is not None:
            del self._records[known.id]
            self._states[known.state] -= 1
        shelf.put(record.index, record)
        self._records[record.id] = record
        self._states[record.state] += 1
        self._head = max(self._head, record.change)
        # A new price or label is no such change: the state itself has to be carried by a List.
        if known is None or (known.id, known.state) != (record.id, record.state):
            if known is not None:
                self._no_longer_unserved(known.id)
            if _must_be_served(record):
                # From its publication on: the first List may come before anybody waits for it.
                self._unserved[record.id] = _Unserved()

    def _no_longer_unserved(self, machine_id: str) -> None:
        if unserved := self._unserved.pop(machine_id, None):
            unserved.over.set()

    async def served(self, machine_id: str) -> None:
        """Wait until a List has carried a FAILED or lost machine in its present state."""
        if unserved := self._unserved.get(machine_id):
            await unserved.over.wait()

    async def renew(self, number: int) -> None:
        """Have an offering's cached entries at hand again, letting others run in between."""
        shelf = self._shelves[number]
        while shelf.renew(RENEWED_AT_ONCE):  # noqa: ASYNC110 - it waits for nobody, it gives way
            await asyncio.sleep(0)

    async def full_list(self) -> None:
        """Wait until a full List that shows unused slots was answered."""
        await self._full_list.wait()

    def touched(self, machine_ids: Iterable[str]) -> ChangeSet:
        """The change that gives machines new change numbers and nothing else."""
        known = [record for name in machine_ids if (record := self.record(name))]
        return ChangeSet(records=tuple(replace(one, change=self.reserve()) for one in known))

    # Reading

    def answer_get(self, machine_id: str) -> bytes | None:
        """One machine as a wire message; None when it does not exist."""
        record = self.record(machine_id)
        return None if record is None else self.encoded(record)

    def answer_list(
        self, *, states: frozenset[int], max_results: int, since_revision: bytes
    ) -> bytes:
        """A whole encoded MachineList.

        Args:
            states: wire numbers of the states wanted; empty for all.
            max_results: upper bound; 0 or less for none.
            since_revision: a cursor of an earlier answer; anything else means a full list.
        """
        since = cursor.decode(self._cursor_key, since_revision)
        since = 0 if since is None or since > self._head else since
        last: int | None = None
        if max_results > 0:
            parts, last = self._page(states, max_results, since)
        elif since:
            parts = self._delta(states, since)
        elif states:
            parts = self._filtered(states)
        else:
            parts = self._all()
        self._note_served(states, since, last)
        if not since and last is None and (not states or State.SPECULATIVE in states):
            self._full_list.fire()
        revision = cursor.encode(self._cursor_key, self._head if last is None else last)
        parts.append(_REVISION_TAG + varint(len(revision)) + revision)
        return b"".join(parts)

    def _all(self) -> list[bytes]:
        parts: list[bytes] = []
        for shelf in self._shelves.values():
            parts += self._unused(shelf)
            parts += self._used(shelf)
        return parts

    def _unused(self, shelf: Shelf) -> Iterator[bytes]:
        if shelf.offering.withheld:
            return
        shelf.renew()
        for chunk in range(-(-shelf.offering.offer.count // CHUNK_SLOTS)):
            ready = shelf.unused_chunks.get(chunk)
            if ready is None:
                ready = shelf.unused_chunks[chunk] = self._encode_untouched(
                    shelf,
                    shelf.untouched_between(chunk * CHUNK_SLOTS, (chunk + 1) * CHUNK_SLOTS),
                )
            yield ready

    def _used(self, shelf: Shelf) -> Iterable[bytes]:
        shelf.renew()
        for chunk in shelf.stale_chunks:
            shelf.used_chunks[chunk] = self._encode(shelf, shelf.visible(chunk))
        shelf.stale_chunks.clear()
        return shelf.used_chunks.values()

    def _filtered(self, states: frozenset[int]) -> list[bytes]:
        parts: list[bytes] = []
        for shelf in self._shelves.values():
            if State.SPECULATIVE in states:
                parts += self._unused(shelf)
            self._used(shelf)
            for chunk, ready in shelf.used_chunks.items():
                visible = shelf.visible(chunk)
                wanted = [record for record in visible if record.state in states]
                if len(wanted) == len(visible):
                    parts.append(ready)
                elif wanted:
                    parts.append(self._encode(shelf, wanted))
        return parts

    def _delta(self, states: frozenset[int], since: int) -> list[bytes]:
        parts = [self._entry(record) for record in self._newer(states, since)]
        if states and State.SPECULATIVE not in states:
            return parts
        for shelf, segment, start in self._newer_segments(since):
            indexes = shelf.untouched_between(start, segment.first + segment.count)
            parts.append(self._encode_untouched(shelf, indexes))
        return parts

    def _page(
        self, states: frozenset[int], limit: int, since: int
    ) -> tuple[list[bytes], int | None]:
        """Oldest changes first; also the change number of the last one when more remain."""
        used = (
            (record.change, self._shelves[record.offering], record.index)
            for record in self._records.values()
            if record.change > since and self._wanted(record, states)
        )
        sources: list[Iterable[tuple[int, Shelf, int]]] = [used]
        if not states or State.SPECULATIVE in states:
            sources += [
                self._numbered(shelf, segment, start)
                for shelf, segment, start in self._newer_segments(since)
            ]
        ordered = heapq.merge(*sources, key=lambda item: item[0])
        page = list(islice(ordered, limit))
        more = next(ordered, None) is not None
        parts = [
            self._entry(shelf.touched[index])
            if index in shelf.touched
            else self._encode_untouched(shelf, (index,))
            for _, shelf, index in page
        ]
        return parts, page[-1][0] if more else None

    def _newer(self, states: frozenset[int], since: int) -> Iterator[Record]:
        """Visible records changed after `since`, newest first."""
        for record in reversed(self._records.values()):
            if record.change <= since:
                return
            if self._wanted(record, states):
                yield record

    def _wanted(self, record: Record, states: frozenset[int]) -> bool:
        """Whether a List for these states shows the record."""
        if states and record.state not in states:
            return False
        return not self._shelves[record.offering].hidden(record)

    def _newer_segments(self, since: int) -> Iterator[tuple[Shelf, Segment, int]]:
        """Segments with untouched slots changed after `since`, and the first such index."""
        for shelf in self._shelves.values():
            if shelf.offering.withheld:
                continue
            for segment in shelf.offering.segments:
                skip = max(0, since + 1 - segment.base)
                if skip < segment.count:
                    yield shelf, segment, segment.first + skip

    @staticmethod
    def _numbered(shelf: Shelf, segment: Segment, start: int) -> Iterator[tuple[int, Shelf, int]]:
        for index in shelf.untouched_between(start, segment.first + segment.count):
            yield segment.base + index - segment.first, shelf, index

    def _entry(self, record: Record) -> bytes:
        return self._encoder.entry(self.encoded(record))

    def _encode(self, shelf: Shelf, records: Iterable[Record]) -> bytes:
        encode, frame = self._encoder.machine, self._encoder.entry
        shared, provider = shelf.shared, self._provider
        return b"".join([frame(encode(record, shared, provider)) for record in records])

    def _encode_untouched(self, shelf: Shelf, indexes: Iterable[int]) -> bytes:
        name = shelf.offering.machine_id
        return self._encoder.unused_entries([name(index) for index in indexes], shelf.shared)

    def _note_served(self, states: frozenset[int], since: int, last: int | None) -> None:
        """Wake those who wait for a machine to be served, if this answer carried it.

        Or an earlier process's did: who follows all changes with a cursor of that time does not
        get the machine again.
        """
        for machine_id, unserved in list(self._unserved.items()):
            record = self._records[machine_id]
            carried = (
                (not states or record.state in states)
                and (last is None or record.change <= last)
                and since < record.change
            )
            if carried or (unserved.loaded and not states and since >= record.change):
                self._no_longer_unserved(machine_id)


def _must_be_served(record: Record) -> bool:
    """Whether the machine must not move on before a List has carried it."""
    return record.state is State.FAILED or bool(record.operation and record.operation.loss)
