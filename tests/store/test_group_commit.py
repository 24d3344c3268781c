"""Change sets that wait together share one flush; counts, not times."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.store.base import StoreError
from bigfleet_azure.store.sqlite import SqliteStore
from bigfleet_azure.telemetry.metrics import Metrics
from tests.store.builders import OFFERED, OFFERING, record, side_mark, sqlite_store

Make = Callable[..., SqliteStore]


def groups(metrics: Metrics) -> int:
    name = "bigfleet_azure_store_commit_group_size_count"
    return int(metrics.registry.get_sample_value(name) or 0)


def change_sets(metrics: Metrics) -> int:
    name = "bigfleet_azure_store_commit_group_size_sum"
    return int(metrics.registry.get_sample_value(name) or 0)


@pytest.mark.behaviour(89)
async def test_sixty_four_clients_share_flushes(make: Make):
    metrics = Metrics()
    store = make(metrics=metrics)
    store.open()
    await store.commit(OFFERED)

    async def client(number: int) -> None:
        for turn in range(10):
            await store.commit(ChangeSet(records=(record(number * 10 + turn),)))

    await asyncio.gather(*(client(number) for number in range(64)))
    assert change_sets(metrics) == 641
    assert groups(metrics) < 641 / 4


async def test_a_lone_change_set_has_a_flush_of_its_own(make: Make):
    metrics = Metrics()
    store = make(metrics=metrics)
    store.open()
    for turn in range(5):
        await store.commit(ChangeSet(marks=(side_mark(f"m-{turn}"),)))
    assert groups(metrics) == change_sets(metrics) == 5


async def test_submitting_does_not_wait_for_the_disk(make: Make):
    store = make()
    store.open()
    waiting = [store.commit(ChangeSet(marks=(side_mark(f"m-{n}"),))) for n in range(100)]
    assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)


async def test_one_change_set_that_cannot_be_stored_fails_alone(make: Make):
    store = make()
    store.open()
    first = store.commit(OFFERED)
    good = [store.commit(ChangeSet(records=(record(number),))) for number in range(3)]
    bad = store.commit(ChangeSet(records=(record(9, change=2**64), record(10))))
    later = store.commit(ChangeSet(records=(record(4),)))
    await asyncio.gather(first, *good, later)
    with pytest.raises(StoreError):
        await bad
    await store.close()
    assert {one.index for one in make().open().records} == {0, 1, 2, 4}


async def test_one_thread_writes_and_it_ends_with_the_store(make: Make):
    def writers() -> int:
        return sum(1 for thread in threading.enumerate() if thread.name == "store-writer")

    before = writers()
    store = make()
    store.open()
    await store.commit(OFFERED)
    assert writers() == before + 1
    await store.close()
    assert writers() == before


def written_bytes() -> int:
    """Bytes this process handed to the kernel so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise AssertionError("/proc/self/io has no wchar")


async def bytes_per_transition(path: Path, machines: int, stride: int) -> float:
    """Of accepts and settles one by one in a fleet of `machines`, checkpoints included."""
    store = sqlite_store(path)
    store.open()
    records = tuple(record(n, state=State.IDLE, host=f"vm-{n}", change=n) for n in range(machines))
    await store.commit(replace(OFFERED, records=records))
    await store.close()
    store = sqlite_store(path)
    store.open()
    before = written_bytes()
    transitions = 400
    for turn in range(transitions):
        index = turn * stride % machines
        for state in (State.DELETING, State.SPECULATIVE):
            change = OFFERING.head + turn
            await store.commit(ChangeSet(records=(record(index, state=state, change=change),)))
    await store.close()
    return (written_bytes() - before) / transitions


@pytest.mark.behaviour(89)
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc/self/io")
async def test_bytes_per_transition_do_not_grow_with_the_fleet(tmp_path: Path):
    small = await bytes_per_transition(tmp_path / "small.db", 1_000, stride=1)
    large = await bytes_per_transition(tmp_path / "large.db", 20_000, stride=1)
    assert large == pytest.approx(small, rel=0.2)


@pytest.mark.behaviour(89)
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc/self/io")
async def test_a_transition_far_from_the_last_costs_one_page_more_at_most(tmp_path: Path):
    near = await bytes_per_transition(tmp_path / "near.db", 20_000, stride=1)
    far = await bytes_per_transition(tmp_path / "far.db", 20_000, stride=7919)
    # Neighbours share their page when the log is folded in.
    assert far - near <= 1024 * 1.1


@pytest.mark.behaviour(89)
async def test_the_log_is_folded_in_and_does_not_grow_without_end(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(OFFERED)
    log = path.with_name("state.db-wal")
    for turn in range(40):
        changed = tuple(record(n, change=turn, host="x" * 500) for n in range(500))
        await store.commit(ChangeSet(records=changed))
    # 40 x 250 KiB of pages, at least, went through it.
    assert log.stat().st_size < 8 * 1024 * 1024
    await store.close()
    assert not log.exists()


async def test_the_log_is_folded_in_when_idle(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bigfleet_azure.store.sqlite.IDLE_SECONDS", 0.01)
    store = make()
    store.open()
    before = path.stat().st_size
    await store.commit(replace(OFFERED, records=tuple(record(n) for n in range(500))))
    async with asyncio.timeout(10):
        while path.stat().st_size <= before:  # noqa: ASYNC110 - the disk raises no event
            await asyncio.sleep(0.01)
