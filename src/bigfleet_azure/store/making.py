"""Making a state file before a daemon's first start, with fence marks of an earlier life in it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.store import files
from bigfleet_azure.store.base import StoreUnusable
from bigfleet_azure.store.database import create, explain


def check_absent(path: Path) -> None:
    """Refuse a path at which a new state file cannot be made.

    Raises:
        StoreUnusable: something is there, or a state file was there or cannot be.
    """
    path = path.resolve()
    files.check_place(path)
    if path.exists():
        raise StoreUnusable(
            f"{path} exists, and only a new state file is made; give a path where nothing is"
        )
    files.is_new(path)


def make(path: Path, marks: Sequence[SideMark], now: float) -> None:
    """Make a state file that holds `marks` and nothing else, whole or not at all.

    Args:
        path: where; nothing must be there.
        marks: fence marks, each pair once.
        now: Unix seconds.

    Raises:
        StoreUnusable: with what to do about it; nothing was made.
    """
    path = path.resolve()
    files.check_place(path)
    lock = files.Lock(path)
    lock.acquire()
    try:
        check_absent(path)
        create(path, now, marks)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(explain(error, path)) from error
    finally:
        lock.release()
