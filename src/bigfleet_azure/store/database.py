"""A state file as a database: made, opened, checked, and its errors put into words.

Used by the daemon's store and by those who only look (`inspect`). Who may use the file, and when
it is written, is not decided here.
"""

import os
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.store import files, rows, schema
from bigfleet_azure.store.base import StoreError, StoreUnusable

CHECKPOINT_PAGES = 4096
"""Dirtied pages after which the log is folded into the file: 4 MiB. More would save little (random
rows of a fleet hardly repeat) and make a start after a kill read longer."""

LOG_LIMIT_BYTES = 8 * 1024 * 1024
"""What the log is cut back to after it grew past this; below, its space is overwritten, since
growing a file costs a flush ten times as much (design section 10)."""

READ_MAP_BYTES = 1 << 30
"""More than any state file; SQLite maps what there is."""

BUSY_SECONDS = 2.0
"""How long another program's lock on the file is waited out. Nobody but an operator's tool takes
one; the daemon's callers wait all that time."""


def create(path: Path, now: float, marks: Sequence[SideMark] = ()) -> None:
    """Make the state file under another name and rename it: it exists whole or not at all.

    It holds `marks` and nothing else.
    """
    draft = path.with_name(f"{path.name}.new")
    for leftover in ("", "-wal", "-shm", "-journal"):
        draft.with_name(draft.name + leftover).unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        schema.prepare_new(connection)
        schema.lay_out(connection, now=now)
        rows.new_store(connection, incarnation=secrets.token_hex(4), now=now)
        rows.first_marks(connection, marks)
    finally:
        connection.close()
    draft.rename(path)
    files.sync_folder(path.parent)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection to an existing database; with `read_only`, beside a daemon that uses it."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        # Opened by one thread, then owned by another.
        check_same_thread=False,
    )


def tune(connection: sqlite3.Connection) -> None:
    """Set how the file is written; only after it was seen to be ours."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
    # The writer's own count comes first; this bounds the log should that be far off.
    connection.execute(f"PRAGMA wal_autocheckpoint = {4 * CHECKPOINT_PAGES}")


def load_checked(
    connection: sqlite3.Connection, path: Path, *, upgrade_at: float | None = None
) -> rows.Loaded:
    """Check an opened database and read it.

    Args:
        upgrade_at: the present time; an older format is upgraded. None refuses it.

    Raises:
        StoreUnusable: it is foreign, damaged, or of another version.
        sqlite3.Error: SQLite says so; see `explain`.
    """
    if schema.application_of(connection) != schema.APPLICATION_ID:
        raise StoreUnusable(
            f"{path} is a SQLite database of another program; give --state another path"
        )
    version = schema.version_of(connection)
    if version > schema.VERSION:
        raise StoreUnusable(
            f"{path} was written by a newer version of this program (format {version}, this one "
            f"knows {schema.VERSION}); use that version, or restore a backup made before it"
        )
    # Read once from end to end: through a map that takes half the time of as many calls, and is
    # given back afterwards, since it counts as the process's memory.
    connection.execute(f"PRAGMA mmap_size = {READ_MAP_BYTES}").fetchone()
    try:
        return _load_checked(connection, path, version, upgrade_at)
    finally:
        connection.execute("PRAGMA mmap_size = 0").fetchone()


def _load_checked(
    connection: sqlite3.Connection, path: Path, version: int, upgrade_at: float | None
) -> rows.Loaded:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreUnusable(damaged(path, found))
    if version < schema.VERSION:
        if upgrade_at is None:
            raise StoreUnusable(
                f"{path} has the older format {version}; the daemon upgrades it at its next start"
            )
        schema.lay_out(connection, now=upgrade_at)
    try:
        return rows.load(connection)
    except sqlite3.OperationalError as error:
        # Text that is no UTF-8 is Python's own finding and carries no code.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
            raise
        raise StoreUnusable(damaged(path, str(error))) from error
    except (LookupError, TypeError, ValueError) as error:
        raise StoreUnusable(damaged(path, f"unreadable content, {error!r}")) from error


def damaged(path: Path, what: str) -> str:
    """The text for a state file that cannot be trusted."""
    return (
        f"{path} is damaged ({' '.join(what.split())}); move it and {files.wal_of(path).name} "
        "aside and restore a copy made by `bigfleet-azure state backup`"
    )


def explain(error: Exception, path: Path) -> str:
    """What happened to the state file, and what to do about it."""
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, OSError):
        return f"{path}: {error.strerror}"
    name = getattr(error, "sqlite_errorname", "")
    match name.split("_")[1] if name else "":
        case "FULL":
            return f"{path}: the disk is full; free space there, the next write tries again"
        case "READONLY":
            return f"{path} is read-only; make it and its directory writable"
        case "BUSY" | "LOCKED":
            return f"{path} is locked by another program; end what holds it"
        case "CORRUPT" | "NOTADB":
            return damaged(path, str(error))
        case "IOERR" | "CANTOPEN":
            return (
                f"{path}: the disk refused ({name}); look at the disk, its quota and the "
                "process's limits, the next write tries again"
            )
        case _:
            return f"{path}: {type(error).__name__}: {error}"
