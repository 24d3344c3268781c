"""The SQLite store: one state file, one writer thread, one transaction for all who wait.

Owns when the file is written, flushed and folded together. What lies in it is described by
`schema` and `rows`, where it may lie by `files`, how it is opened by `database`.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.store import files, rows
from bigfleet_azure.store.base import Snapshot, StoreError, StoreUnusable
from bigfleet_azure.store.batch import Batch, Codec
from bigfleet_azure.store.database import (
    CHECKPOINT_PAGES,
    connect,
    create,
    explain,
    load_checked,
    tune,
)
from bigfleet_azure.store.sealing import Sealer, load_or_create_key
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.002
"""How long a group may grow while there is load (design section 10)."""

LOAD_SECONDS = 0.02
"""Quiet time after which there is no load any more: many times what clients need to come back."""

IDLE_SECONDS = 1.5
"""Quiet time after which the log is folded into the file."""


class SqliteStore:
    """A state file in use by this process."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        metrics: Metrics,
        key_file: Path | None = None,
        key_text: str | None = None,
    ) -> None:
        # SQLite names its log after the file behind a symbolic link, and so must we.
        self._path = path = path.resolve()
        self._clock = clock
        self._metrics = metrics
        self._key_file = key_file
        self._key_text = key_text
        self._lock = files.Lock(path)
        self._writer: _Writer | None = None

    def open(self) -> Snapshot:
        """Open the state file, or make it; see `Store.open`."""
        files.check_place(self._path)
        self._lock.acquire()
        try:
            return self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> Snapshot:
        now = self._clock.now()
        try:
            if files.is_new(self._path):
                create(self._path, now)
            connection = connect(self._path)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnusable(explain(error, self._path)) from error
        try:
            loaded = load_checked(connection, self._path, upgrade_at=now)
            tune(connection)
            if loaded.backup:
                loaded = rows.begin_restored(connection, loaded)
            rows.forget_unused_shards(connection, loaded)
            key = load_or_create_key(self._path, self._key_file, self._key_text)
            sealer = Sealer(key, loaded.snapshot.incarnation)
        except sqlite3.Error as error:
            connection.close()
            raise StoreUnusable(explain(error, self._path)) from error
        except BaseException:
            connection.close()
            raise
        self._writer = _Writer(
            self._path,
            connection,
            Codec(loaded.snapshot.offerings, loaded.shards),
            sealer,
            self._measure,
        )
        wrong_key = ""
        if loaded.blobs and not sealer.opens(loaded.key_check):
            wrong_key = (
                f"{loaded.blobs} stored bootstrap blobs were sealed with another state key; "
                "give that key back before their Configures end, else these fail"
            )
        return replace(loaded.snapshot, wrong_key=wrong_key)

    def commit(self, changes: ChangeSet) -> asyncio.Future[None]:
        """Hand `changes` to the writer thread; done means flushed to disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._writer is None:
            done.set_exception(StoreError(f"{self._path} is not open"))
        else:
            self._writer.write(_Write(changes, done))
        return done

    async def blob(self, slot: int) -> Secret | None:
        """The blob kept for `slot`.

        Raises:
            StoreError: the file cannot be read.
        """
        if self._writer is None:
            raise StoreError(f"{self._path} is not open")
        found: asyncio.Future[Secret | None] = asyncio.get_running_loop().create_future()
        self._writer.read(_Read(slot, found))
        return await found

    async def close(self) -> None:
        """Write what was submitted, fold the log into the file, release file and lock."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.stop)
            self._lock.release()

    def _measure(self, group: int, seconds: float) -> None:
        self._metrics.commit_group.observe(group)
        self._metrics.commit_duration.observe(seconds)


@dataclass(frozen=True, slots=True)
class _Write:
    changes: ChangeSet
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Read:
    slot: int
    found: asyncio.Future[Secret | None]


class _Writer:
    """The thread that owns the connection. Submitting never waits for it."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        codec: Codec,
        sealer: Sealer,
        measure: Callable[[int, float], None],
    ) -> None:
        self._path = path
        self._identity = _identity(path)
        self._connection = connection
        self._codec = codec
        self._sealer = sealer
        self._measure = measure
        self._writes: deque[_Write] = deque()
        self._reads: deque[_Read] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._dirty_pages = 0
        # Dies with the process: whatever was not acknowledged by then owes nothing.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def write(self, write: _Write) -> None:
        self._writes.append(write)
        self._wake.set()

    def read(self, read: _Read) -> None:
        self._reads.append(read)
        self._wake.set()

    def stop(self) -> None:
        """Finish what was submitted and end; blocking."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        last_group, last_end = 0, 0.0
        while not self._stopping or self._writes or self._reads:
            if not self._wake.wait(IDLE_SECONDS if self._dirty_pages else None):
                self._checkpoint("PASSIVE")
                continue
            # A lone change set goes at once; while they come in numbers, more are on their way.
            loaded = last_group > 1 and time.perf_counter() - last_end < LOAD_SECONDS
            if loaded and not self._stopping:
                time.sleep(LINGER_SECONDS)
            # Cleared before the queues are emptied: what comes later sets it again.
            self._wake.clear()
            group = [self._writes.popleft() for _ in range(len(self._writes))]
            if group:
                self._write_group(group)
                last_group, last_end = len(group), time.perf_counter()
            if self._codec.crowded:
                self._prune()
            while self._reads:
                self._answer(self._reads.popleft())
            if self._dirty_pages >= CHECKPOINT_PAGES:
                # After the acknowledgements: nobody waits for it but the next group.
                self._checkpoint("PASSIVE")
        self._checkpoint("TRUNCATE")
        self._connection.close()

    def _write_group(self, group: list[_Write]) -> None:
        start = time.perf_counter()
        error = self._try(group)
        if error is None or len(group) == 1 or _concerns_all(error):
            errors = [error] * len(group)
        else:
            errors = [self._try([write]) for write in group]
        seconds = time.perf_counter() - start
        _tell(group[0].done, self._resolve, group, errors, seconds)

    def _try(self, group: Sequence[_Write]) -> Exception | None:
        """Write `group` whole, or nothing of it."""
        try:
            changes = Batch()
            for write in group:
                changes.add(write.changes)
            prepared = self._codec.prepare(changes, self._sealer)
            self._check_identity()
            if self._connection.in_transaction:
                # An earlier rollback failed with the disk; until one succeeds nothing is written.
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            prepared.run(self._connection)
            self._connection.execute("COMMIT")
        except Exception as error:  # the writer's guard: the callers must hear of it
            self._roll_back()
            return error
        self._codec.accept(prepared)
        self._dirty_pages += prepared.pages
        return None

    def _prune(self) -> None:
        try:
            self._codec.prune(self._connection)
        except sqlite3.Error as error:
            logger.warning("unused shards were not forgotten: %s", explain(error, self._path))

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _check_identity(self) -> None:
        """SQLite would go on writing into a file that nobody can find any more."""
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"{self._path} was removed or replaced while in use; put the file back, or "
                "restart on what is there now"
            )

    def _resolve(self, group: list[_Write], errors: list[Exception | None], seconds: float) -> None:
        self._measure(len(group), seconds)
        for write, error in zip(group, errors, strict=True):
            if write.done.done():
                continue
            if error is None:
                write.done.set_result(None)
            else:
                failure = StoreError(explain(error, self._path))
                failure.__cause__ = error
                write.done.set_exception(failure)

    def _answer(self, read: _Read) -> None:
        blob: Secret | None = None
        failure: StoreError | None = None
        try:
            sealed = rows.read_blob(self._connection, read.slot)
            blob = self._sealer.unseal(read.slot, sealed) if sealed is not None else None
        except Exception as error:  # the writer's guard, as above
            failure = StoreError(explain(error, self._path))

        def resolve() -> None:
            if read.found.done():
                return
            if failure is None:
                read.found.set_result(blob)
            else:
                read.found.set_exception(failure)

        _tell(read.found, resolve)

    def _checkpoint(self, mode: str) -> None:
        """Fold the log into the file. What it holds is durable without that."""
        self._dirty_pages = 0
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            logger.warning("the log was not folded in: %s", explain(error, self._path))


def _tell(future: asyncio.Future[Any], callback: Callable[..., None], *arguments: object) -> None:
    """Run `callback` where `future` is awaited."""
    # RuntimeError: the loop was closed over what it had submitted; nobody waits any more.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(callback, *arguments)


def _concerns_all(error: Exception) -> bool:
    """Whether the file is at fault, not the content of one change set."""
    return isinstance(error, (StoreError, sqlite3.OperationalError)) or (
        type(error) is sqlite3.DatabaseError
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
