"""Change sets as SQL: the last word on each row, and the statements that write it.

Knows nothing of files, threads or transactions; single rows are `rows`' business.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.domain.machine import SLOT_BITS, Record
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.store.rows import (
    WRITE_BLOB,
    WRITE_DEBT,
    WRITE_MACHINE,
    WRITE_MARK,
    WRITE_OFFERING,
    Row,
    debt_row,
    machine_row,
    offering_row,
)
from bigfleet_azure.store.schema import PAGE_BYTES
from bigfleet_azure.store.sealing import Sealer

_WRITE_SHARD = "INSERT INTO shards (number, id) VALUES (?, ?)"
_WRITE_HEAD = (
    "INSERT INTO meta (key, value) VALUES ('head', ?) ON CONFLICT (key) DO UPDATE SET"
    " value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))"
)
_WRITE_INVENTORIED = "INSERT OR REPLACE INTO meta (key, value) VALUES ('inventoried', ?)"
_WRITE_MARKET = "INSERT OR REPLACE INTO meta (key, value) VALUES ('market', ?)"
_WRITE_KEY_CHECK = "INSERT OR REPLACE INTO meta (key, value) VALUES ('key_check', ?)"
_DROP_UNUSED_SHARDS = (
    "DELETE FROM shards WHERE number NOT IN (SELECT shard FROM marks)"
    " AND number NOT IN (SELECT shard FROM machines WHERE shard IS NOT NULL)"
)
_PRUNE_SHARDS_AT = 10_000
"""A region has one shard, a few over the years; this many names were invented by somebody."""
_DROP_DEBT = "DELETE FROM debts WHERE number = ?"
_DROP_BLOB = "DELETE FROM blobs WHERE slot = ?"
_DROP_MARK = (
    "DELETE FROM marks WHERE machine = ? AND shard = (SELECT number FROM shards WHERE id = ?)"
)


class Batch:
    """The change sets of one group, reduced to the last word on each row, in order."""

    def __init__(self) -> None:
        self.machines: dict[int, Record] = {}
        self.marks: dict[tuple[str, str], SideMark | None] = {}
        self.blobs: dict[int, Secret | None] = {}
        self.debts: dict[int, Debt | None] = {}
        self.offerings: dict[int, Offering] = {}
        self.head: int | None = None
        self.market: str | None = None
        self.inventoried = False

    def add(self, changes: ChangeSet) -> None:
        """Lay `changes` over what is there."""
        for record in changes.records:
            self.machines[record.slot] = record
        for machine_id, shard_id in changes.dropped_marks:
            self.marks[machine_id, shard_id] = None
        for side in changes.marks:
            self.marks[side.machine_id, side.mark.shard_id] = side
        if changes.blob is not None:
            slot, blob = changes.blob
            self.blobs[slot] = blob
        for slot in changes.handed_over:
            self.blobs[slot] = None
        for debt in changes.debts:
            self.debts[debt.number] = debt
        for number in changes.cleared_debts:
            self.debts[number] = None
        for offering in changes.offerings:
            self.offerings[offering.number] = offering
        if changes.head is not None:
            self.head = max(changes.head, self.head or 0)
        self.market = self.market if changes.market is None else changes.market
        self.inventoried = self.inventoried or changes.inventoried


@dataclass
class Prepared:
    """A batch as SQL, with what has to be remembered once it is durable.

    Attributes:
        statements: in the order in which they run.
        shards: numbers of shards that are new in it.
        offerings: offerings it writes.
        sealed: it holds a blob sealed with the present key.
        pages: about how many pages it dirties.
    """

    statements: list[tuple[str, list[Row]]] = field(default_factory=list)
    shards: dict[str, int] = field(default_factory=dict)
    offerings: dict[int, Offering] = field(default_factory=dict)
    sealed: bool = False
    pages: int = 0

    def add(self, sql: str, rows: list[Row]) -> None:
        """Append a statement, unless there is no row for it."""
        if rows:
            self.statements.append((sql, rows))
            self.pages += len(rows)

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the statements inside the caller's transaction."""
        for sql, rows in self.statements:
            connection.executemany(sql, rows)


class Codec:
    """Turns batches into SQL; remembers the shards and offerings that rows refer to."""

    def __init__(self, offerings: Iterable[Offering], shards: dict[str, int]) -> None:
        self._offerings: dict[int, Offering] = {o.number: o for o in offerings}
        self._shards = shards
        self._last_shard = max(shards.values(), default=0)
        self._prune_at = _PRUNE_SHARDS_AT
        self._key_checked = False

    def prepare(self, batch: Batch, sealer: Sealer) -> Prepared:
        """`batch` as SQL.

        Raises:
            ValueError: a record does not fit its offering, so it would come back as another.
        """
        out = Prepared(offerings=batch.offerings)
        self._machines(batch, out)
        self._marks(batch, out)
        self._blobs(batch, out, sealer)
        debts = [debt_row(debt) for debt in batch.debts.values() if debt is not None]
        offerings = [offering_row(offering) for offering in batch.offerings.values()]
        out.add(WRITE_DEBT, debts)
        out.add(_DROP_DEBT, _gone(batch.debts))
        out.add(WRITE_OFFERING, offerings)
        out.add(_WRITE_SHARD, [(number, shard) for shard, number in out.shards.items()])
        out.add(_WRITE_HEAD, [(str(batch.head),)] if batch.head is not None else [])
        out.add(_WRITE_MARKET, [(batch.market,)] if batch.market is not None else [])
        out.add(_WRITE_INVENTORIED, [("1",)] if batch.inventoried else [])
        return out

    @property
    def crowded(self) -> bool:
        """Whether so many shards were named that it is worth forgetting the unused ones."""
        return len(self._shards) >= self._prune_at

    def prune(self, connection: sqlite3.Connection) -> None:
        """Forget shards that no mark names any more: anybody can invent such a name."""
        with connection:
            connection.execute(_DROP_UNUSED_SHARDS)
        self._shards = dict(connection.execute("SELECT id, number FROM shards"))
        self._prune_at = max(_PRUNE_SHARDS_AT, 2 * len(self._shards))

    def accept(self, done: Prepared) -> None:
        """Remember what `done` wrote: it is durable."""
        self._shards.update(done.shards)
        self._key_checked = self._key_checked or done.sealed
        self._offerings.update(done.offerings)

    def _machines(self, batch: Batch, out: Prepared) -> None:
        rows = []
        for record in batch.machines.values():
            number = record.slot >> SLOT_BITS
            offering = batch.offerings.get(number) or self._offerings.get(number)
            expected = offering and offering.machine_id(record.index, record.generation)
            if expected != record.id:
                raise ValueError(f"machine {record.id!r} would be read back as {expected!r}")
            mark = record.mark
            shard = self._shard(mark.shard_id, out) if mark else None
            rows.append(machine_row(record, shard))
            out.pages += (len(record.metadata) + len(record.parts)) // PAGE_BYTES
        out.add(WRITE_MACHINE, rows)

    def _marks(self, batch: Batch, out: Prepared) -> None:
        written, dropped = [], []
        for (machine_id, shard_id), side in batch.marks.items():
            if side is None:
                dropped.append((machine_id, shard_id))
            else:
                shard = self._shard(shard_id, out)
                mark = side.mark
                written.append((machine_id, shard, mark.epoch, mark.sequence, side.touched))
        out.add(WRITE_MARK, written)
        out.add(_DROP_MARK, dropped)

    def _blobs(self, batch: Batch, out: Prepared, sealer: Sealer) -> None:
        rows = [
            (slot, sealer.seal(slot, blob))
            for slot, blob in batch.blobs.items()
            if blob is not None
        ]
        out.add(WRITE_BLOB, rows)
        out.add(_DROP_BLOB, _gone(batch.blobs))
        out.pages += sum(len(sealed) for _, sealed in rows) // PAGE_BYTES
        out.sealed = bool(rows)
        if rows and not self._key_checked:
            out.add(_WRITE_KEY_CHECK, [(sealer.key_check(),)])

    def _shard(self, shard_id: str, out: Prepared) -> int:
        number = self._shards.get(shard_id) or out.shards.get(shard_id)
        if number is None:
            # A number lost with a failed write is not missed.
            self._last_shard += 1
            number = out.shards[shard_id] = self._last_shard
        return number


def _gone(rows: Mapping[int, object | None]) -> list[Row]:
    return [(key,) for key, value in rows.items() if value is None]
