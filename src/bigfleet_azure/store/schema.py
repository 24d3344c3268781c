"""The state file's layout: tables, format versions, and the named steps from each to the next.

Rows are none of its business (`rows`), nor is when to open what (`sqlite`). sqlite-utils is
imported only when something has to be created or changed: it costs a start a tenth of a second.
"""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x42464157
"""`BFAW`, in the header of every state file, so that a foreign database is recognised."""

PAGE_BYTES = 1024
"""A changed row costs a whole page in the log; small pages halve the bytes (design section 10)."""


def create_tables(db: "Database", _now: float) -> None:
    """Version 1. Few tables without indexes: a transition touches one page of one table.

    A machine's id is not stored: it follows from its offering, its slot and its generation.
    """
    db.table("meta").create({"key": str, "value": str}, pk="key")
    db.table("offerings").create(
        {
            "number": int,
            "prefix": str,
            "offer": str,
            "facts": str,
            "segments": str,
            "withheld": int,
            "published": str,
        },
        pk="number",
    )
    db.table("shards").create({"number": int, "id": str}, pk="number")
    db.table("shards").create_index(["id"], unique=True)
    db.table("machines").create(
        {
            "slot": int,
            "generation": int,
            "state": int,
            "change": int,
            "since": float,
            "host": str,
            "cluster": str,
            "metadata": bytes,
            "last_error": str,
            "created": int,
            "configured": int,
            "drained": int,
            "deleted": int,
            "operation": str,
            "shard": int,
            "epoch": int,
            "sequence": int,
        },
        pk="slot",
    )
    db.execute(
        "CREATE TABLE marks (machine TEXT NOT NULL, shard INTEGER NOT NULL, epoch INTEGER NOT NULL,"
        " sequence INTEGER NOT NULL, PRIMARY KEY (machine, shard)) WITHOUT ROWID"
    )
    db.table("blobs").create({"slot": int, "sealed": bytes}, pk="slot")
    db.table("debts").create(
        {
            "number": int,
            "slot": int,
            "machine": str,
            "operation": int,
            "host": str,
            "reason": str,
            "since": float,
            "attempts": int,
            "not_before": float,
            "last_error": str,
        },
        pk="number",
    )


def date_marks(db: "Database", now: float) -> None:
    """Version 2: marks know when they were last written, so that old ones can be forgotten.

    Marks of version 1 count as written now: forgetting one too early would let a stale caller in.
    """
    db.execute("ALTER TABLE marks ADD COLUMN touched REAL NOT NULL DEFAULT 0")
    db.execute("UPDATE marks SET touched = ?", (now,))


def keep_parts(db: "Database", _now: float) -> None:
    """Version 3: machines and debts carry the backend's note of what belongs to their host.

    A last column with a default: rows of older versions stay as they are. Operations may end in
    what the backend noted of their progress (`rows`); those of older versions have none.
    """
    for table in ("machines", "debts"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN parts TEXT NOT NULL DEFAULT ''")


def keep_notices(db: "Database", _now: float) -> None:
    """Version 4: machines keep what a notice of their eviction raised, offerings what was taken.

    Last columns with defaults, as in version 3: no notice came, and what is published was taken.
    """
    db.execute("ALTER TABLE machines ADD COLUMN warned REAL NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE offerings ADD COLUMN taken TEXT NOT NULL DEFAULT ''")


Step = Callable[["Database", float], None]

STEPS: tuple[Step, ...] = (create_tables, date_marks, keep_parts, keep_notices)
VERSION = len(STEPS)
"""The format this program reads and writes, kept in the header's `user_version`."""


def version_of(connection: sqlite3.Connection) -> int:
    """The format version of an opened state file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def application_of(connection: sqlite3.Connection) -> int:
    """The application id of an opened database."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return int(application)


def lay_out(connection: sqlite3.Connection, *, now: float, version: int = VERSION) -> None:
    """Bring an empty or older database to `version`, each step in a transaction of its own."""
    from sqlite_utils import Database, Migrations

    migrations = Migrations("bigfleet-azure")
    for number, step in enumerate(STEPS[:version], start=1):
        migrations(name=step.__name__)(_numbered(step, number, now))
    migrations.apply(Database(connection))


def _numbered(step: Step, number: int, now: float) -> Callable[["Database"], None]:
    """`step`, leaving its version number behind in the same transaction."""

    def apply(db: "Database") -> None:
        step(db, now)
        db.execute(f"PRAGMA user_version = {number}")

    return apply


def prepare_new(connection: sqlite3.Connection) -> None:
    """Set what can only be set while a database is empty."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
