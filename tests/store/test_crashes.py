"""Killed processes, torn logs and damaged files: everything acknowledged, or a loud refusal."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.store.base import StoreUnusable
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import OFFERED, record, sqlite_store
from tests.support.tools import ROOT

Make = Callable[..., SqliteStore]


@pytest.mark.process
@pytest.mark.behaviour(78, 79)
@pytest.mark.parametrize("after", [1, 200, 5000])
async def test_nothing_acknowledged_is_lost_to_sigkill(make: Make, path: Path, after: int):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.store.acknowledging",
        os.fspath(path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    acknowledged = [int(await process.stdout.readline()) for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    rest, _ = await process.communicate()
    acknowledged += [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    snapshot = make().open()
    records = {one.index: one for one in snapshot.records}
    marks = {one.machine_id for one in snapshot.marks}
    for number in acknowledged:
        assert records[number].host == f"vm-{number}"
        assert f"m-{number}" in marks
    # A change set is there whole or not at all.
    assert {f"m-{number}" for number in records} == marks


async def killed_state(path: Path, into: Path, commits: int) -> None:
    """A state file as a killed process leaves it: the log full, `commits` acknowledged."""
    store = sqlite_store(path)
    store.open()
    await store.commit(OFFERED)
    for number in range(commits):
        await store.commit(ChangeSet(records=(record(number, change=number + 1),)))
    copying = await asyncio.create_subprocess_exec(
        "cp", os.fspath(path), f"{path}-wal", os.fspath(into)
    )
    assert await copying.wait() == 0
    await store.close()


@pytest.mark.behaviour(81)
async def test_a_log_torn_anywhere_keeps_what_lies_before_the_tear(path: Path, tmp_path: Path):
    commits = 40
    template = tmp_path / "template"
    template.mkdir()
    await killed_state(path, template, commits)
    log = (template / "state.db-wal").read_bytes()
    database = (template / "state.db").read_bytes()
    cuts = [*sorted(random.Random(7).sample(range(len(log)), 25)), len(log)]
    whole = 0
    for turn, cut in enumerate(cuts):
        torn = tmp_path / f"torn-{turn}" / "state.db"
        torn.parent.mkdir()
        torn.write_bytes(database)
        torn.with_name("state.db-wal").write_bytes(log[:cut])
        store = sqlite_store(torn)
        snapshot = store.open()
        await store.close()
        # Without holes, and never less than a shorter log gave.
        assert [one.index for one in snapshot.records] == list(range(len(snapshot.records)))
        assert len(snapshot.records) >= whole
        whole = len(snapshot.records)
    assert whole == commits


@pytest.mark.behaviour(81)
async def test_a_log_with_a_junk_tail_keeps_everything(path: Path, tmp_path: Path):
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "state.db"
    await killed_state(path, copy.parent, 20)
    with copy.with_name("state.db-wal").open("ab") as log:
        log.write(random.Random(7).randbytes(5000))
    store = sqlite_store(copy)
    assert len(store.open().records) == 20
    await store.close()


async def sound_file(path: Path) -> None:
    store = sqlite_store(path)
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=tuple(record(n, host=f"vm-{n}") for n in range(2000))))
    await store.close()


@pytest.mark.behaviour(81)
async def test_a_page_of_junk_is_refused_wherever_it_lies(path: Path):
    await sound_file(path)
    sound = path.read_bytes()
    pages = len(sound) // 1024
    for page in (1, 2, 3, pages // 3, pages // 2, pages - 1):
        junk = random.Random(page).randbytes(1024)
        path.write_bytes(sound[: page * 1024] + junk + sound[(page + 1) * 1024 :])
        with pytest.raises(StoreUnusable, match=r"state\.db is damaged .*state backup"):
            sqlite_store(path).open()


@pytest.mark.behaviour(81)
async def test_a_file_cut_short_is_refused(path: Path):
    await sound_file(path)
    size = path.stat().st_size
    for cut in (size // 2, size - 1024, 1024, 100, 16):
        os.truncate(path, cut)
        with pytest.raises(StoreUnusable, match=r"state\.db is damaged"):
            sqlite_store(path).open()


@pytest.mark.behaviour(81)
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM offerings",
        "DELETE FROM meta",
        "UPDATE machines SET state = 99",
        "UPDATE machines SET operation = '[1'",
        "UPDATE machines SET operation = '[1]'",
        "UPDATE machines SET shard = 77",
        "UPDATE machines SET host = CAST(x'ff' AS TEXT)",
        "UPDATE offerings SET offer = '{}'",
        "DROP TABLE debts",
    ],
)
async def test_content_that_makes_no_sense_is_refused(path: Path, damage: str):
    await sound_file(path)
    with contextlib.closing(sqlite3.connect(path)) as tool, tool:
        tool.execute(damage)
    with pytest.raises(StoreUnusable, match=r"state\.db is damaged"):
        sqlite_store(path).open()
