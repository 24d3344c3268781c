"""Looking at a state file from outside, also while a daemon uses it: show, back up, verify.

Takes no lock of ours and writes nothing to the state file.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bigfleet_azure.store import files, rows
from bigfleet_azure.store.base import Snapshot, StoreError, StoreUnusable
from bigfleet_azure.store.database import connect, damaged, explain, load_checked


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to the state file.

    Raises:
        StoreUnusable: there is none, or it cannot be read.
    """
    path = path.resolve()
    try:
        if files.is_new(path):
            raise StoreUnusable(f"{path}: there is no state file")
        with closing(connect(path, read_only=True)) as connection:
            # One read transaction: all that follows sees one moment.
            connection.execute("BEGIN")
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(explain(error, path)) from error


def read_only_snapshot(path: Path) -> Snapshot:
    """What the state file holds now.

    Raises:
        StoreUnusable: with what to do about it.
    """
    with _opened(path) as connection:
        return load_checked(connection, path).snapshot


def backup(path: Path, target: Path) -> None:
    """Copy the state file as it is at one moment to `target`, which must not exist.

    Raises:
        StoreError: the state file cannot be read, or `target` cannot be made.
    """
    with _opened(path) as source:
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise StoreError(f"cannot make {target}: {error.strerror}") from error
        try:
            with closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
                rows.mark_as_backup(copy)
            files.sync_folder(target.absolute().parent)
        except (OSError, sqlite3.Error) as error:
            for leftover in (target, files.wal_of(target), target.with_name(f"{target.name}-shm")):
                leftover.unlink(missing_ok=True)
            raise StoreError(f"no backup was made: {explain(error, target)}") from error


def verify(path: Path) -> list[str]:
    """All that is wrong with the state file; nothing when it is sound."""
    try:
        with _opened(path) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                return [damaged(path, problem) for problem in found]
            load_checked(connection, path)
    except StoreUnusable as error:
        return [str(error)]
    return []
