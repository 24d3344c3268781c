"""What lies at the path is no state file, or may not be used: refused, named, never emptied."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import asyncio
import os
import sqlite3
import stat
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bigfleet_azure.store import schema
from bigfleet_azure.store.base import StoreUnusable
from bigfleet_azure.store.files import network_file_system
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import OFFERED, sqlite_store

Make = Callable[..., SqliteStore]


def refused(path: Path, match: str) -> None:
    """`path` is refused with such a text, and stays as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreUnusable, match=match) as caught:
        sqlite_store(path).open()
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize("content", ['{"machines": {}}', "[]", '\n  {"version": 1}'])
def test_a_json_state_of_the_go_provider_is_recognised_and_named(path: Path, content: str):
    path.write_text(content)
    refused(path, "JSON state file of the Go provider.*keep it and give --state another path")


@pytest.mark.parametrize("content", [b"hello", b"\0" * 5000, b"SQLite format 2\0" * 100])
def test_other_content_is_refused(path: Path, content: bytes):
    path.write_bytes(content)
    refused(path, "not a state file")


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE t (x)")
    refused(path, "SQLite database of another program")
    assert not path.with_name("state.db.key").exists()


@pytest.mark.behaviour(83)
async def test_a_newer_format_is_refused(make: Make, path: Path):
    store = make()
    store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    refused(path, r"newer version of this program \(format 5, this one knows 4\)")


def test_a_directory_is_refused(tmp_path: Path):
    refused(tmp_path, "is a directory")


def test_a_missing_directory_is_refused(tmp_path: Path):
    refused(tmp_path / "no" / "state.db", r"the directory .*/no does not exist")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_place_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        refused(tmp_path / "state.db", "is not writable by this user")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_file_is_refused(path: Path):
    path.write_bytes(b"x")
    path.chmod(0o400)
    refused(path, "cannot be read and written")


async def test_an_empty_file_as_mktemp_makes_it_becomes_a_state_file(make: Make, path: Path):
    path.touch()
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.close()
    assert make().open().offerings == OFFERED.offerings


@pytest.mark.behaviour(81)
async def test_an_empty_file_that_was_in_use_is_refused(make: Make, path: Path):
    store = make()
    store.open()
    await store.close()
    os.truncate(path, 0)
    refused(path, "is empty, yet .*state.db.key shows that it was in use")


@pytest.mark.behaviour(81)
async def test_a_missing_file_that_was_in_use_is_refused(make: Make, path: Path):
    store = make()
    store.open()
    await store.close()
    path.unlink()
    refused(path, "is missing, yet .*state.db.key shows that it was in use")


@pytest.mark.behaviour(81)
@pytest.mark.parametrize("empty", [False, True])
def test_a_log_without_its_state_file_is_refused(path: Path, empty: bool):
    if empty:
        path.touch()
    path.with_name("state.db-wal").write_bytes(b"frames")
    refused(path, f"is {'empty' if empty else 'missing'}, yet its log")


async def test_the_state_file_and_all_beside_it_are_for_their_owner_only(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(OFFERED)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    names = {"state.db", "state.db-wal", "state.db-shm", "state.db.key", "state.db.lock"}
    assert modes == dict.fromkeys(names, 0o600)


async def test_a_start_that_was_killed_while_making_the_file_is_repeated(make: Make, path: Path):
    for leftover in ("state.db.new", "state.db.new-wal", "state.db.new-journal"):
        path.with_name(leftover).write_bytes(b"half")
    make().open()
    assert not list(path.parent.glob("*.new*"))


async def test_a_symbolic_link_is_followed(make: Make, path: Path, tmp_path: Path):
    target = tmp_path / "elsewhere" / "real.db"
    target.parent.mkdir()
    path.symlink_to(target)
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.close()
    assert path.is_symlink()
    assert target.is_file()
    assert make().open().offerings == OFFERED.offerings


async def test_a_second_store_in_this_process_is_refused(make: Make):
    make().open()
    with pytest.raises(StoreUnusable, match=r"state\.db is in use by another process"):
        make().open()


async def test_a_refused_start_gives_the_lock_back(make: Make, path: Path):
    path.write_bytes(b"hello")
    with pytest.raises(StoreUnusable):
        make().open()
    path.unlink()
    make().open()


@pytest.mark.process
async def test_a_second_process_is_refused_while_the_first_lives(make: Make, path: Path):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from bigfleet_azure.kit.clock import SystemClock
        from bigfleet_azure.store.base import StoreUnusable
        from bigfleet_azure.store.sqlite import SqliteStore
        from bigfleet_azure.telemetry.metrics import Metrics
        try:
            SqliteStore(Path(sys.argv[1]), clock=SystemClock(), metrics=Metrics()).open()
            print("opened")
        except StoreUnusable as error:
            print(error)
    """)

    async def second() -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, os.fspath(path), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out.decode()

    store = make()
    store.open()
    assert "is in use by another process" in await second()
    await store.commit(OFFERED)
    await store.close()
    assert await second() == "opened\n"


MOUNTS = r"""
22 28 0:21 / /proc rw,nosuid - proc proc rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 28 0:40 / /mnt/share rw,relatime shared:20 - nfs4 server:/export rw,vers=4.2
41 40 8:2 / /mnt/share/local rw - xfs /dev/sdb1 rw
42 28 0:41 / /mnt/with\040space rw shared:3 master:2 - cifs //server/share rw
43 28 0:42 / /srv rw - ext4 /dev/sdc1 rw
44 43 0:43 / /srv rw - fuse.sshfs host:/ rw
45 28 0:44 /sub /mnt/tmp rw - tmpfs tmpfs rw
a broken line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", ""),
        ("/var/lib/bigfleet", ""),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/shared", ""),
        ("/mnt/share/local/x", ""),
        ("/mnt/with space/x", "cifs"),
        ("/srv/data", "fuse.sshfs"),
        ("/mnt/tmp", ""),
    ],
)
def test_network_file_systems_are_found_by_the_innermost_mount(folder: str, kind: str):
    assert network_file_system(Path(folder), MOUNTS) == kind


def test_no_list_of_mounts_means_local():
    assert network_file_system(Path("/var"), "") == ""


def test_a_state_file_on_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    mounts = tmp_path / "mountinfo"
    mounts.write_text("28 1 8:1 / / rw - nfs server:/ rw\n")
    monkeypatch.setattr("bigfleet_azure.store.files._MOUNTS", mounts)
    refused(path, r"network file system \(nfs\).*--state a path on a local disk")
