"""Bootstrap blobs lie on disk sealed only, and a lost key costs no more than the blobs."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.store.base import StoreError, StoreUnusable
from bigfleet_azure.store.sealing import Sealer, load_or_create_key
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import OFFERED, record

Make = Callable[..., SqliteStore]

KEY = bytes(range(100, 132))
OTHER_KEY = bytes(range(132, 164))
PLANTED = b"planted-join-secret-" + bytes(range(256)) * 20
SLOT = record(7).slot


async def everything_in(folder: Path) -> bytes:
    """All files of `folder`, read by another process: reading here would drop SQLite's locks."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", "cat state.db*", stdout=asyncio.subprocess.PIPE, cwd=folder
    )
    content, _ = await process.communicate()
    return content


async def test_a_planted_secret_is_found_in_no_file(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=(record(7),), blob=(SLOT, Secret(PLANTED))))
    content = await everything_in(path.parent)
    assert len(content) > len(PLANTED)
    await store.close()
    content += await everything_in(path.parent)
    assert PLANTED[:20] not in content
    assert PLANTED[20:60] not in content


async def test_an_error_does_not_show_the_blob(make: Make):
    store = make()
    store.open()
    with pytest.raises(StoreError) as caught:
        await store.commit(ChangeSet(blob=(2**70, Secret(PLANTED))))
    assert "planted" not in str(caught.value) + repr(caught.value.__cause__)


async def test_a_blob_survives_a_restart_and_its_key_lies_beside_the_state(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(ChangeSet(blob=(SLOT, Secret(PLANTED))))
    await store.close()
    again = make()
    assert again.open().wrong_key == ""
    assert await again.blob(SLOT) == Secret(PLANTED)
    key = path.with_name("state.db.key")
    assert len(bytes.fromhex(key.read_text())) == 32


async def test_no_key_file_is_made_when_a_key_was_given(make: Make, path: Path):
    make(key_text=KEY.hex()).open()
    assert not path.with_name("state.db.key").exists()


async def test_a_lost_key_is_told_and_costs_the_old_blobs_only(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(OFFERED)
    await store.commit(ChangeSet(records=(record(7),), blob=(SLOT, Secret(PLANTED))))
    await store.close()
    path.with_name("state.db.key").unlink()

    store = make()
    snapshot = store.open()
    assert "1 stored bootstrap blobs were sealed with another state key" in snapshot.wrong_key
    assert snapshot.records == (record(7),)
    assert await store.blob(SLOT) is None
    await store.commit(ChangeSet(blob=(SLOT + 1, Secret(b"new"))))
    await store.close()

    store = make()
    assert store.open().wrong_key == ""
    assert await store.blob(SLOT) is None
    assert await store.blob(SLOT + 1) == Secret(b"new")


async def test_a_key_that_comes_back_opens_the_blobs_again(make: Make):
    store = make(key_text=KEY.hex())
    store.open()
    await store.commit(ChangeSet(blob=(SLOT, Secret(PLANTED))))
    await store.close()
    store = make(key_text=OTHER_KEY.hex())
    assert store.open().wrong_key
    await store.close()
    store = make(key_text=KEY.hex())
    assert store.open().wrong_key == ""
    assert await store.blob(SLOT) == Secret(PLANTED)


async def test_another_key_is_no_trouble_while_no_blob_is_stored(make: Make):
    store = make(key_text=KEY.hex())
    store.open()
    await store.commit(ChangeSet(blob=(SLOT, Secret(PLANTED))))
    await store.commit(ChangeSet(handed_over=(SLOT,)))
    await store.close()
    assert make(key_text=OTHER_KEY.hex()).open().wrong_key == ""


def test_a_sealed_blob_opens_only_for_its_slot_its_store_and_unchanged():
    sealer = Sealer(Secret(KEY), "0badcafe")
    sealed = sealer.seal(SLOT, Secret(PLANTED))
    assert sealer.unseal(SLOT, sealed) == Secret(PLANTED)
    assert sealer.unseal(SLOT + 1, sealed) is None
    assert Sealer(Secret(KEY), "deadbeef").unseal(SLOT, sealed) is None
    assert Sealer(Secret(OTHER_KEY), "0badcafe").unseal(SLOT, sealed) is None
    for damaged in (b"", sealed[:5], sealed[:20], sealed[:-1], b"\x02" + sealed[1:]):
        assert sealer.unseal(SLOT, damaged) is None


def test_the_same_blob_is_never_sealed_the_same_way_twice():
    sealer = Sealer(Secret(KEY), "0badcafe")
    assert len({sealer.seal(SLOT, Secret(PLANTED)) for _ in range(10)}) == 10


def test_a_key_check_opens_under_its_key_only():
    check = Sealer(Secret(KEY), "0badcafe").key_check()
    assert Sealer(Secret(KEY), "0badcafe").opens(check)
    assert not Sealer(Secret(OTHER_KEY), "0badcafe").opens(check)
    assert not Sealer(Secret(KEY), "0badcafe").opens("no hex")


@pytest.mark.parametrize(
    "content",
    [
        KEY,
        KEY + b"\n",
        KEY.hex().encode(),
        KEY.hex().upper().encode() + b"\n",
        base64.b64encode(KEY),
        base64.b64encode(KEY) + b"\r\n",
    ],
)
def test_a_key_file_holds_raw_bytes_hex_or_base64(path: Path, tmp_path: Path, content: bytes):
    file = tmp_path / "key"
    file.write_bytes(content)
    assert load_or_create_key(path, file, None).reveal() == KEY


def test_a_raw_key_may_end_in_a_newline_of_its_own(path: Path, tmp_path: Path):
    key = KEY[:-1] + b"\n"
    for content in (key, key + b"\n"):
        (tmp_path / "key").write_bytes(content)
        assert load_or_create_key(path, tmp_path / "key", None).reveal() == key


@pytest.mark.parametrize("text", [KEY.hex(), f" {KEY.hex()}\n", base64.b64encode(KEY).decode()])
def test_a_key_from_the_environment_is_hex_or_base64(path: Path, text: str):
    assert load_or_create_key(path, None, text).reveal() == KEY


def test_the_key_file_comes_before_the_environment(path: Path, tmp_path: Path):
    (tmp_path / "key").write_bytes(KEY)
    assert load_or_create_key(path, tmp_path / "key", OTHER_KEY.hex()).reveal() == KEY


@pytest.mark.parametrize("content", [b"", b"short", KEY[:31], KEY + b"xx", b"zz" * 32])
def test_what_is_no_key_is_refused_without_showing_it(path: Path, tmp_path: Path, content: bytes):
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(StoreUnusable, match="is no key: 32 bytes are needed") as caught:
        load_or_create_key(path, file, None)
    assert content.decode("latin-1") not in str(caught.value).replace(str(file), "") or not content


def test_a_passphrase_in_the_environment_is_refused(path: Path):
    with pytest.raises(StoreUnusable, match="the state key in the environment is no key"):
        load_or_create_key(path, None, "correct horse battery staple....")


def test_a_missing_key_file_is_refused(path: Path, tmp_path: Path):
    with pytest.raises(StoreUnusable, match=r"cannot read the state key .*No such file"):
        load_or_create_key(path, tmp_path / "none", None)


def test_a_key_half_made_by_a_killed_start_is_made_anew(path: Path):
    path.with_name("state.db.key.new").write_bytes(b"half")
    key = load_or_create_key(path, None, None)
    assert load_or_create_key(path, None, None) == key
    assert not path.with_name("state.db.key.new").exists()
