"""Facts as rows: what change sets become in SQL, and how rows become facts again.

Knows the tables' columns; knows nothing of files, threads or transactions.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

from bigfleet_azure import __version__
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import Mark, SideMark
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State
from bigfleet_azure.domain.machine import INDEX_MASK, SLOT_BITS, Record
from bigfleet_azure.domain.offering import Facts, Offer, Offering, Segment
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.store.base import Snapshot

Row = tuple[Any, ...]

RESTORED_GAP = 1 << 32
"""Change numbers left out after a restore: more than the lost life can have given out since the
backup, so that none of its operation ids comes again (1,500 a second for a month)."""

_MACHINE_COLUMNS = (
    "slot, generation, state, change, since, host, cluster, metadata, last_error, "
    "created, configured, drained, deleted, operation, shard, epoch, sequence, parts, warned"
)
_DEBT_COLUMNS = (
    "number, slot, machine, operation, host, reason, since, attempts, not_before, last_error, parts"
)
_OFFERING_COLUMNS = "number, prefix, offer, facts, segments, withheld, published, taken"


def _insert(table: str, columns: str) -> str:
    places = ", ".join("?" * len(columns.split(",")))
    return f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({places})"  # noqa: S608 - constants


WRITE_MACHINE = _insert("machines", _MACHINE_COLUMNS)
WRITE_DEBT = _insert("debts", _DEBT_COLUMNS)
WRITE_OFFERING = _insert("offerings", _OFFERING_COLUMNS)
WRITE_MARK = _insert("marks", "machine, shard, epoch, sequence, touched")
WRITE_BLOB = _insert("blobs", "slot, sealed")


def machine_row(record: Record, shard: int | None) -> Row:
    """The row of `record`, whose mark belongs to the shard of that number."""
    mark = record.mark
    return (
        record.slot,
        record.generation,
        int(record.state),
        record.change,
        record.since,
        record.host,
        record.cluster,
        record.metadata,
        _whole(record.last_error),
        record.created,
        record.configured,
        record.drained,
        record.deleted,
        _operation_text(record.operation) if record.operation else None,
        shard,
        mark.epoch if mark else None,
        mark.sequence if mark else None,
        record.parts,
        record.warned,
    )


def _operation_text(operation: Operation) -> str:
    """The operation as JSON; progress is left out while there is none, which saves its bytes."""
    progress = [operation.attempt, operation.url, operation.begun]
    return _compact(
        [
            operation.number,
            operation.kind,
            operation.accepted_at,
            operation.deadline,
            operation.grace_seconds,
            operation.handed_over,
            operation.queued,
            operation.loss,
            *(progress if any(progress) else ()),
        ]
    )


def _operation(text: str) -> Operation:
    number, kind, accepted_at, deadline, grace_seconds, handed_over, queued, loss, *progress = (
        json.loads(text)
    )
    attempt, url, begun = progress or (0, "", 0.0)
    return Operation(
        number=number,
        kind=Kind(kind),
        accepted_at=accepted_at,
        deadline=deadline,
        grace_seconds=grace_seconds,
        handed_over=handed_over,
        queued=queued,
        loss=loss,
        attempt=attempt,
        url=url,
        begun=begun,
    )


def _whole(text: str) -> str:
    """`text` as SQLite takes it: a vendor's broken character must not hold up a result for ever."""
    return text.encode(errors="replace").decode() if text else text


_compact = json.JSONEncoder(separators=(",", ":")).encode


def debt_row(debt: Debt) -> Row:
    """The row of `debt`."""
    return (
        debt.number,
        debt.slot,
        debt.machine_id,
        debt.operation,
        debt.host,
        _whole(debt.reason),
        debt.since,
        debt.attempts,
        debt.not_before,
        _whole(debt.last_error),
        debt.parts,
    )


def _debt(row: Row) -> Debt:
    return Debt(
        number=row[0],
        slot=row[1],
        machine_id=row[2],
        operation=row[3],
        host=row[4],
        reason=row[5],
        since=row[6],
        attempts=row[7],
        not_before=row[8],
        last_error=row[9],
        parts=row[10],
    )


def offering_row(offering: Offering) -> Row:
    """The row of `offering`; what is only ever read whole is JSON."""
    offer, facts = offering.offer, offering.facts
    return (
        offering.number,
        offering.prefix,
        _compact(
            {
                "vm_size": offer.vm_size,
                "zone": offer.zone,
                "capacity_type": int(offer.capacity_type),
                "count": offer.count,
                "resources": dict(offer.resources),
                "labels": dict(offer.labels),
                "fixed_prefix": offer.fixed_prefix,
                # Left out while there are none: earlier versions know no such key.
                **({"settings": dict(offer.settings)} if offer.settings else {}),
            }
        ),
        _compact(
            {
                "price_usd_per_hour": facts.price_usd_per_hour,
                "interruption_probability": facts.interruption_probability,
                "allocatable": dict(facts.allocatable),
                "labels": dict(facts.labels),
            }
        ),
        _compact([(s.first, s.count, s.base) for s in offering.segments]),
        int(offering.withheld),
        offering.published,
        _compact(offering.taken) if offering.taken else "",
    )


def _offering(row: Row) -> Offering:
    number, prefix, offer, facts, segments, withheld, published, taken = row
    asked = json.loads(offer)
    asked["capacity_type"] = CapacityType(asked["capacity_type"])
    return Offering(
        number=number,
        prefix=prefix,
        offer=Offer(**asked),
        facts=Facts(**json.loads(facts)),
        segments=tuple(Segment(*segment) for segment in json.loads(segments)),
        withheld=bool(withheld),
        published=published,
        taken=tuple(json.loads(taken)) if taken else None,
    )


def new_store(connection: sqlite3.Connection, *, incarnation: str, now: float) -> None:
    """Write what every store starts with."""
    connection.executemany(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [("incarnation", incarnation), ("created", str(now)), ("program", __version__)],
    )


def first_marks(connection: sqlite3.Connection, marks: Sequence[SideMark]) -> None:
    """Write the fence marks that a store starts with."""
    shards = {shard: n for n, shard in enumerate({side.mark.shard_id for side in marks}, start=1)}
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO shards (number, id) VALUES (?, ?)", [(n, shard) for shard, n in shards.items()]
    )
    connection.executemany(
        WRITE_MARK,
        [
            (s.machine_id, shards[s.mark.shard_id], s.mark.epoch, s.mark.sequence, s.touched)
            for s in marks
        ],
    )
    connection.execute("COMMIT")


def mark_as_backup(connection: sqlite3.Connection) -> None:
    """Let the copy of a state file know that it is one; see `begin_restored`."""
    with connection:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('backup', '1')")


def begin_restored(connection: sqlite3.Connection, loaded: "Loaded") -> "Loaded":
    """Begin the life of a restored backup: the life that it was made in went on after it."""
    snapshot = replace(
        loaded.snapshot,
        head=loaded.snapshot.head + RESTORED_GAP,
        restored=loaded.snapshot.restored + 1,
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
        [("head", str(snapshot.head)), ("restored", str(snapshot.restored))],
    )
    connection.execute("DELETE FROM meta WHERE key = 'backup'")
    connection.execute("COMMIT")
    return replace(loaded, snapshot=snapshot, backup=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All rows as facts, and what the store itself keeps of them.

    Attributes:
        key_check: what tells whether the key is still the one blobs were sealed with; empty
            when none ever was.
        blobs: how many blobs are stored.
        backup: it is a backup that was not used yet.
    """

    snapshot: Snapshot
    shards: dict[str, int]
    key_check: str
    blobs: int
    backup: bool


def load(connection: sqlite3.Connection) -> Loaded:
    """Read everything but the blobs.

    Raises:
        LookupError, TypeError, ValueError: the content is damaged.
    """
    meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta"))
    shards: dict[int, str] = dict(connection.execute("SELECT number, id FROM shards"))
    offerings = tuple(
        _offering(row)
        for row in connection.execute(
            f"SELECT {_OFFERING_COLUMNS} FROM offerings ORDER BY number"  # noqa: S608 - constants
        )
    )
    records = _load_machines(connection, {o.number: o for o in offerings}, shards)
    marks = tuple(
        SideMark(machine_id, Mark(shards[shard], epoch, sequence), touched)
        for machine_id, shard, epoch, sequence, touched in connection.execute(
            "SELECT machine, shard, epoch, sequence, touched FROM marks ORDER BY touched"
        )
    )
    debts = tuple(
        _debt(row)
        for row in connection.execute(
            f"SELECT {_DEBT_COLUMNS} FROM debts ORDER BY number"  # noqa: S608 - constants
        )
    )
    (blobs,) = connection.execute("SELECT count(*) FROM blobs").fetchone()
    heads = (
        int(meta.get("head", 0)),
        max((record.change for record in records), default=0),
        max((offering.head for offering in offerings), default=0),
        max((debt.number for debt in debts), default=0),
    )
    return Loaded(
        snapshot=Snapshot(
            incarnation=meta["incarnation"],
            head=max(heads),
            records=records,
            marks=marks,
            offerings=offerings,
            debts=debts,
            restored=int(meta.get("restored", 0)),
            created=float(meta.get("created", 0)),
            market=meta.get("market", ""),
            inventoried="inventoried" in meta,
        ),
        shards={shard: number for number, shard in shards.items()},
        key_check=meta.get("key_check", ""),
        blobs=blobs,
        backup="backup" in meta,
    )


def _twin(frozen: type) -> Any:
    """An unfrozen class with the fields of `frozen`, whose instances can become that class.

    A frozen dataclass sets each field through a call: 100,000 records take 0.34 s to build, 0.15 s
    by way of such a twin.
    """
    return make_dataclass(
        f"_{frozen.__name__}", [(f.name, f.type) for f in fields(frozen)], slots=True
    )


_RecordTwin = _twin(Record)
_MarkTwin = _twin(Mark)


def _load_machines(
    connection: sqlite3.Connection, offerings: dict[int, Offering], shards: dict[int, str]
) -> tuple[Record, ...]:
    states = {int(state): state for state in State}
    clusters: dict[str, str] = {}
    records: list[Record] = []
    for (
        slot,
        generation,
        state,
        change,
        since,
        host,
        cluster,
        metadata,
        last_error,
        created,
        configured,
        drained,
        deleted,
        operation,
        shard,
        epoch,
        sequence,
        parts,
        warned,
    ) in connection.execute(
        f"SELECT {_MACHINE_COLUMNS} FROM machines ORDER BY slot"  # noqa: S608 - constants
    ):
        mark = None
        if shard:
            mark = _MarkTwin(shards[shard], epoch, sequence)
            mark.__class__ = Mark
        # By position, in the order of Record's fields: it is a tenth of the start of a large fleet.
        record = _RecordTwin(
            slot,
            offerings[slot >> SLOT_BITS].machine_id(slot & INDEX_MASK, generation),
            generation,
            states[state],
            change,
            since,
            host,
            parts,
            # One string per cluster, not per machine.
            clusters.setdefault(cluster, cluster),
            metadata,
            last_error,
            created,
            configured,
            drained,
            deleted,
            _operation(operation) if operation else None,
            mark,
            warned,
        )
        record.__class__ = Record
        records.append(record)
    return tuple(records)


def read_blob(connection: sqlite3.Connection, slot: int) -> bytes | None:
    """The sealed blob of `slot`."""
    row = connection.execute("SELECT sealed FROM blobs WHERE slot = ?", (slot,)).fetchone()
    return bytes(row[0]) if row else None


def forget_unused_shards(connection: sqlite3.Connection, loaded: Loaded) -> None:
    """Drop shards that no mark names any more: anybody can invent such a name."""
    used = {record.mark.shard_id for record in loaded.snapshot.records if record.mark}
    used.update(side.mark.shard_id for side in loaded.snapshot.marks)
    unused = [shard for shard in loaded.shards if shard not in used]
    connection.executemany(
        "DELETE FROM shards WHERE number = ?", [(loaded.shards.pop(shard),) for shard in unused]
    )
