"""A write that fails: nothing of it is kept, the caller hears why, and the next one is tried."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import asyncio
import contextlib
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.store import database, sqlite
from bigfleet_azure.store.base import StoreError, StoreUnusable
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import OFFERED, record, side_mark, sqlite_store

Make = Callable[..., SqliteStore]


@contextlib.contextmanager
def no_file_may_exceed(size: int) -> Iterator[None]:
    """The kernel refuses every write beyond `size`, as a disk without room does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that stores open, newest last."""
    made: list[sqlite3.Connection] = []
    connect = database.connect

    def remembering(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        made.append(connect(path, read_only=read_only))
        return made[-1]

    monkeypatch.setattr(sqlite, "connect", remembering)
    return made


@pytest.mark.behaviour(82)
async def test_a_refused_write_is_not_acknowledged_and_the_next_succeeds(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=(record(1, host="kept"),)))
    log = path.with_name("state.db-wal").stat().st_size
    with no_file_may_exceed(log + 4096):
        waiting = [
            store.commit(ChangeSet(records=(record(n, host="h" * 2000),))) for n in range(1, 30)
        ]
        for one in waiting:
            with pytest.raises(StoreError, match=r"state\.db: the disk refused .* tries again"):
                await one
    await store.commit(ChangeSet(records=(record(50, host="after"),)))
    await store.close()
    assert make().open().records == (record(1, host="kept"), record(50, host="after"))


@pytest.mark.behaviour(82)
async def test_what_failed_stays_away_also_when_the_process_is_killed_after(
    make: Make, path: Path, tmp_path: Path
):
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=(record(1, host="kept"),)))
    log = path.with_name("state.db-wal")
    with (
        no_file_may_exceed(log.stat().st_size + 4096),
        pytest.raises(StoreError),
    ):
        await store.commit(ChangeSet(records=tuple(record(n, host="h" * 900) for n in range(30))))
    copy = tmp_path / "killed" / "state.db"
    copy.parent.mkdir()
    copy.with_name("state.db-wal").write_bytes(log.read_bytes())
    # Read by another process: here the path may not be opened outside SQLite.
    process = await asyncio.create_subprocess_exec("cp", os.fspath(path), os.fspath(copy))
    assert await process.wait() == 0
    other = sqlite_store(copy)
    try:
        assert other.open().records == (record(1, host="kept"),)
    finally:
        await other.close()


@pytest.mark.behaviour(82)
async def test_a_full_disk_is_named_and_room_lets_it_go_on(
    make: Make, connections: list[sqlite3.Connection]
):
    store = make()
    store.open()
    await store.commit(OFFERED)
    (pages,) = connections[-1].execute("PRAGMA page_count").fetchone()
    connections[-1].execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match=r"state\.db: the disk is full; free space"):
        await store.commit(ChangeSet(records=tuple(record(n) for n in range(500))))
    await store.commit(ChangeSet(records=(record(1),)))
    connections[-1].execute("PRAGMA max_page_count = 1000000")
    await store.commit(ChangeSet(records=tuple(record(n) for n in range(500))))
    await store.close()
    assert len(make().open().records) == 500


@pytest.mark.behaviour(82)
async def test_a_read_only_file_is_named(make: Make, connections: list[sqlite3.Connection]):
    store = make()
    store.open()
    connections[-1].execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match=r"state\.db is read-only; make it"):
        await store.commit(OFFERED)
    connections[-1].execute("PRAGMA query_only = OFF")
    await store.commit(OFFERED)


@pytest.mark.behaviour(82)
async def test_another_programs_lock_is_named_and_its_end_lets_it_go_on(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    store = make()
    store.open()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"state\.db is locked by another program"):
            await store.commit(OFFERED)
        assert await store.blob(1) is None
        holder.execute("ROLLBACK")
        await store.commit(OFFERED)


@pytest.mark.behaviour(82)
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_removed_while_in_use_takes_no_acknowledged_write_with_it(
    make: Make, path: Path, replaced: bool
):
    store = make()
    store.open()
    await store.commit(OFFERED)
    aside = path.rename(path.with_name("aside.db"))
    if replaced:
        path.write_bytes(b"another")
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.commit(ChangeSet(records=(record(1),)))
    aside.rename(path)
    await store.commit(ChangeSet(records=(record(2),)))
    await store.close()
    assert make().open().records == (record(2),)


@pytest.mark.behaviour(82)
async def test_names_of_shards_from_a_failed_write_are_written_by_the_next(
    make: Make, connections: list[sqlite3.Connection]
):
    store = make()
    store.open()
    connections[-1].execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError):
        await store.commit(ChangeSet(marks=(side_mark("m", "new"),)))
    connections[-1].execute("PRAGMA query_only = OFF")
    await store.commit(ChangeSet(marks=(side_mark("m", "new"),)))
    await store.close()
    assert make().open().marks == (side_mark("m", "new"),)


async def test_a_checkpoint_that_fails_costs_a_warning_and_nothing_else(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: Path
):
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 300)
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=tuple(record(n, host="h" * 500) for n in range(300))))
    await store.commit(ChangeSet())  # taken up after the log was folded in
    assert not caplog.records
    # The log's room is there to be overwritten; the file would have to grow.
    with no_file_may_exceed(path.stat().st_size):
        await store.commit(
            ChangeSet(records=tuple(record(n, host="h" * 10) for n in range(300, 600)))
        )
        await store.commit(ChangeSet(records=(record(600),)))
    assert "the log was not folded in" in caplog.text
    await store.close()
    assert len(make().open().records) == 601


async def test_a_state_file_that_cannot_be_made_leaves_nothing_behind(make: Make, path: Path):
    with no_file_may_exceed(2048), pytest.raises(StoreUnusable, match=r"state\.db"):
        make().open()
    assert not path.exists()
    make().open()
