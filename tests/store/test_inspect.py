"""A state file can be shown, backed up and verified, also while a daemon writes to it."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import asyncio
import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.store.base import Snapshot, StoreError, StoreUnusable
from bigfleet_azure.store.inspect import backup, read_only_snapshot, verify
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import DEBT, FULL_RECORD, OFFERED, record, side_mark, sqlite_store

Make = Callable[..., SqliteStore]

HELD = ChangeSet(
    records=(FULL_RECORD,),
    marks=(side_mark("m-1"),),
    debts=(DEBT,),
    blob=(FULL_RECORD.slot, Secret(b"join")),
)


async def filled(make: Make) -> SqliteStore:
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(HELD)
    return store


async def test_a_file_in_use_is_shown_without_disturbing_its_user(make: Make, path: Path):
    store = await filled(make)
    shown = await asyncio.to_thread(read_only_snapshot, path)
    assert shown.records == HELD.records
    assert (shown.offerings, shown.marks, shown.debts) == (OFFERED.offerings, HELD.marks, (DEBT,))
    await store.commit(ChangeSet(records=(record(1),)))
    assert len((await asyncio.to_thread(read_only_snapshot, path)).records) == 2
    await store.close()
    assert len(read_only_snapshot(path).records) == 2


async def test_each_look_sees_one_moment(make: Make, path: Path):
    store = await filled(make)

    async def look() -> list[Snapshot]:
        return [await asyncio.to_thread(read_only_snapshot, path) for _ in range(10)]

    looking = asyncio.create_task(look())
    turn = 0
    while not looking.done():
        turn += 1
        await store.commit(
            ChangeSet(
                records=(record(1, change=turn),), debts=(replace(DEBT, number=1, attempts=turn),)
            )
        )
    for shown in await looking:
        changes = [one.change for one in shown.records if one.index == 1]
        attempts = [debt.attempts for debt in shown.debts if debt.number == 1]
        assert changes == attempts


async def test_a_backup_made_while_in_use_is_a_state_file(make: Make, path: Path, tmp_path: Path):
    store = await filled(make)
    target = tmp_path / "backup.db"
    await asyncio.to_thread(backup, path, target)
    await store.commit(ChangeSet(records=(record(1),)))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert verify(target) == []
    key = path.with_name("state.db.key").read_text()
    restored = sqlite_store(target, key_text=key)
    try:
        snapshot = restored.open()
        assert snapshot.records == HELD.records
        assert snapshot.incarnation == read_only_snapshot(path).incarnation
        assert await restored.blob(FULL_RECORD.slot) == Secret(b"join")
    finally:
        await restored.close()


@pytest.mark.behaviour(38, 59)
async def test_a_restored_backup_gives_out_no_number_that_its_origin_gave_out_since(
    make: Make, path: Path, tmp_path: Path
):
    store = await filled(make)
    target = tmp_path / "backup.db"
    await asyncio.to_thread(backup, path, target)
    await store.commit(ChangeSet(records=(record(1, change=1_000_000),)))
    await store.close()
    before, untouched = read_only_snapshot(path), read_only_snapshot(target)
    assert (before.restored, untouched.restored) == (0, 0)
    assert untouched.records == HELD.records
    heads = [before.head]
    for life in (1, 1, 1):
        restored = sqlite_store(target)
        try:
            snapshot = restored.open()
        finally:
            await restored.close()
        assert snapshot.restored == life
        assert snapshot.head > before.head
        heads.append(snapshot.head)
    assert len(set(heads[1:])) == 1, "only the first start is a restore"
    again = tmp_path / "again.db"
    backup(target, again)
    second = sqlite_store(again)
    try:
        assert second.open().restored == 2
    finally:
        await second.close()


async def test_a_backup_never_overwrites(make: Make, path: Path, tmp_path: Path):
    await filled(make)
    target = tmp_path / "backup.db"
    target.write_text("precious")
    with pytest.raises(StoreError, match=r"cannot make .*backup\.db: File exists"):
        backup(path, target)
    assert target.read_text() == "precious"
    with pytest.raises(StoreError, match=r"cannot make .*No such file or directory"):
        backup(path, tmp_path / "no" / "backup.db")


@pytest.mark.parametrize("look", [read_only_snapshot, lambda path: backup(path, Path("never"))])
def test_what_is_no_state_file_is_refused_and_nothing_is_made(
    path: Path, look: Callable[[Path], object]
):
    with pytest.raises(StoreUnusable, match="there is no state file"):
        look(path)
    assert not path.exists()
    path.write_text("{}")
    with pytest.raises(StoreUnusable, match="JSON state file of the Go provider"):
        look(path)
    assert not Path("never").exists()


async def test_a_sound_file_verifies(make: Make, path: Path):
    store = await filled(make)
    assert await asyncio.to_thread(verify, path) == []
    await store.close()
    assert verify(path) == []


async def test_the_problems_of_a_damaged_file_are_reported(make: Make, path: Path):
    store = await filled(make)
    await store.commit(ChangeSet(records=tuple(record(n, host="x" * 99) for n in range(2000))))
    await store.close()
    content = path.read_bytes()
    with path.open("r+b") as file:
        for page in (40, 90):
            file.seek(page * 1024)
            file.write(os.urandom(1024))
    problems = verify(path)
    assert problems
    assert all("state.db is damaged" in problem for problem in problems)
    path.write_bytes(content)
    with contextlib.closing(sqlite3.connect(path)) as tool, tool:
        tool.execute("DELETE FROM offerings")
    (problem,) = verify(path)
    assert "is damaged (unreadable content" in problem
    path.unlink()
    (problem,) = verify(path)
    assert "is missing, yet" in problem
    path.with_name("state.db.key").unlink()
    (problem,) = verify(path)
    assert "there is no state file" in problem
