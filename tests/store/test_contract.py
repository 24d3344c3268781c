"""What every store promises; each test runs on each of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.store.base import Store, StoreError
from bigfleet_azure.store.memory import MemoryStore
from tests.store.builders import DEBT, FULL_RECORD, OFFERED, record, side_mark, sqlite_store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = (
        MemoryStore(SystemClock())
        if request.param == "memory"
        else sqlite_store(tmp_path / "state.db")
    )
    yield made
    await made.close()


@pytest.fixture
def opened(store: Store) -> Store:
    store.open()
    return store


async def test_a_new_store_is_empty_and_has_an_incarnation(store: Store):
    snapshot = store.open()
    assert len(snapshot.incarnation) == 8
    assert int(snapshot.incarnation, 16) >= 0
    assert (snapshot.head, snapshot.records, snapshot.marks, snapshot.offerings) == (0, (), (), ())
    assert (snapshot.debts, snapshot.wrong_key) == ((), "")


async def test_two_stores_have_two_incarnations(tmp_path: Path):
    incarnations = {MemoryStore(SystemClock()).open().incarnation for _ in range(5)}
    for number in range(5):
        store = sqlite_store(tmp_path / f"{number}.db")
        incarnations.add(store.open().incarnation)
        await store.close()
    assert len(incarnations) == 10


async def test_every_kind_of_change_is_accepted(opened: Store):
    await opened.commit(ChangeSet())
    await opened.commit(OFFERED)
    await opened.commit(
        ChangeSet(
            records=(FULL_RECORD,),
            marks=(side_mark("no-such-machine"),),
            blob=(FULL_RECORD.slot, Secret(b"join")),
            debts=(DEBT,),
            head=9,
        )
    )
    await opened.commit(
        ChangeSet(
            dropped_marks=(("no-such-machine", "shard-b"), ("never-seen", "shard-c")),
            handed_over=(FULL_RECORD.slot, 12345),
            cleared_debts=(DEBT.number, 999),
        )
    )


async def test_commits_are_done_in_the_order_of_the_calls(opened: Store):
    await opened.commit(OFFERED)
    done: list[int] = []

    async def commit(index: int) -> None:
        await opened.commit(ChangeSet(records=(record(index),)))
        done.append(index)

    await asyncio.gather(*(commit(index) for index in range(40)))
    assert done == list(range(40))


async def test_a_blob_is_kept_until_it_was_handed_over(opened: Store):
    blob = Secret(b"\x00\xffjoin" * 500_000)
    await opened.commit(OFFERED)
    await opened.commit(ChangeSet(records=(record(7),), blob=(record(7).slot, blob)))
    assert await opened.blob(record(7).slot) == blob
    assert await opened.blob(record(8).slot) is None
    await opened.commit(ChangeSet(handed_over=(record(7).slot,)))
    assert await opened.blob(record(7).slot) is None


async def test_a_newer_blob_takes_the_place_of_an_older_one(opened: Store):
    await opened.commit(ChangeSet(blob=(7, Secret(b"old"))))
    await opened.commit(ChangeSet(blob=(7, Secret(b"new"))))
    assert await opened.blob(7) == Secret(b"new")


async def test_an_empty_blob_is_a_blob(opened: Store):
    await opened.commit(ChangeSet(blob=(7, Secret(b""))))
    assert await opened.blob(7) == Secret(b"")


async def test_a_commit_after_close_is_refused(opened: Store):
    await opened.close()
    with pytest.raises(StoreError, match="not open"):
        await opened.commit(ChangeSet())


async def test_a_commit_before_open_is_refused(store: Store):
    with pytest.raises(StoreError, match="not open"):
        await store.commit(ChangeSet())


async def test_closing_finishes_what_was_submitted(opened: Store):
    submitted = [
        asyncio.ensure_future(opened.commit(ChangeSet(marks=(side_mark(f"m-{number}"),))))
        for number in range(20)
    ]
    await opened.close()
    assert all(one.done() and one.exception() is None for one in submitted)


async def test_closing_twice_does_no_harm(opened: Store):
    await opened.close()
    await opened.close()


async def test_a_caller_that_gave_up_disturbs_nobody(opened: Store):
    given_up = asyncio.ensure_future(opened.commit(ChangeSet(marks=(side_mark("a"),))))
    waiting = asyncio.ensure_future(opened.commit(ChangeSet(marks=(side_mark("b"),))))
    given_up.cancel()
    await waiting
