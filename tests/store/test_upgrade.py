"""State files of older formats are brought up to date, with all they hold."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.fence import Mark, SideMark
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.store import rows, schema
from bigfleet_azure.store.base import StoreUnusable
from bigfleet_azure.store.inspect import read_only_snapshot
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import DEBT, FULL_RECORD, NOW, OFFERING, Standing, record, side_mark

Make = Callable[..., SqliteStore]


@pytest.fixture
def first_format(path: Path) -> Path:
    """A state file as format 1 wrote it, with a machine and two side marks."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        schema.prepare_new(old)
        schema.lay_out(old, now=NOW, version=1)
        rows.new_store(old, incarnation="0badcafe", now=NOW)
        old.execute(
            "INSERT INTO offerings VALUES (?, ?, ?, ?, ?, 1, ?)",
            (
                OFFERING.number,
                OFFERING.prefix,
                json.dumps(
                    {
                        "vm_size": OFFERING.offer.vm_size,
                        "zone": OFFERING.offer.zone,
                        "capacity_type": 4,
                        "count": OFFERING.offer.count,
                        "resources": OFFERING.offer.resources,
                        "labels": OFFERING.offer.labels,
                        "fixed_prefix": "",
                    }
                ),
                json.dumps(
                    {
                        "price_usd_per_hour": OFFERING.facts.price_usd_per_hour,
                        "interruption_probability": OFFERING.facts.interruption_probability,
                        "allocatable": OFFERING.facts.allocatable,
                        "labels": OFFERING.facts.labels,
                    }
                ),
                json.dumps([(0, 100, 1), (100, 49_900, 2000)]),
                OFFERING.published,
            ),
        )
        old.execute("INSERT INTO shards VALUES (1, 'shard-a'), (2, 'shard-b')")
        old.execute(
            "INSERT INTO machines VALUES (?, 0, 3, 77, ?, 'vm-1', '', x'', '', 70, 0, 0, 0, "
            "NULL, 1, 4, -5)",
            (record(1).slot, NOW),
        )
        old.execute("INSERT INTO marks VALUES ('m-1', 1, 2, 3), ('m-2', 2, 4, 5)")
        old.execute(
            "INSERT INTO debts VALUES (?, ?, ?, 17, '/vm/1', ?, ?, 4, ?, ?)",
            (
                DEBT.number,
                DEBT.slot,
                DEBT.machine_id,
                DEBT.reason,
                DEBT.since,
                DEBT.not_before,
                DEBT.last_error,
            ),
        )
        assert schema.version_of(old) == 1
    return path


@pytest.mark.behaviour(83)
async def test_a_file_of_the_first_format_is_upgraded_with_all_it_holds(
    make: Make, first_format: Path
):
    store = make(clock=Standing())
    snapshot = store.open()
    assert snapshot.incarnation == "0badcafe"
    (machine,) = snapshot.records
    assert (machine.id, machine.change, machine.host) == (record(1).id, 77, "vm-1")
    assert machine.mark == Mark("shard-a", 4, -5)
    assert snapshot.offerings == (replace(OFFERING, taken=None),)
    assert snapshot.debts == (replace(DEBT, parts=""),)
    assert (snapshot.created, snapshot.inventoried) == (NOW, False)
    assert set(snapshot.marks) == {
        SideMark("m-1", Mark("shard-a", 2, 3), NOW),
        SideMark("m-2", Mark("shard-b", 4, 5), NOW),
    }
    await store.commit(
        ChangeSet(records=(FULL_RECORD,), marks=(side_mark("m-3", touched=NOW + 1),))
    )
    await store.close()
    with closing(sqlite3.connect(first_format)) as upgraded:
        assert schema.version_of(upgraded) == schema.VERSION
    again = make().open()
    assert again.records == (machine, FULL_RECORD)
    assert again.marks[-1] == side_mark("m-3", touched=NOW + 1)


@pytest.fixture
def second_format(first_format: Path) -> Path:
    """The same as format 2 wrote it, with an operation in flight."""
    with closing(sqlite3.connect(first_format, isolation_level=None)) as old:
        schema.lay_out(old, now=NOW, version=2)
        old.execute(
            "INSERT INTO machines VALUES (?, 1, 2, 90, ?, '', '', x'', '', 90, 0, 0, 0, ?, "
            "NULL, NULL, NULL)",
            (record(2).slot, NOW, '[90,"create",1780000000.25,1780000480.75,0,false,true,""]'),
        )
        assert schema.version_of(old) == 2
    return first_format


@pytest.mark.behaviour(83)
async def test_operations_of_the_second_format_go_on_without_progress_and_take_it_on(
    make: Make, second_format: Path
):
    store = make(clock=Standing())
    snapshot = store.open()
    idle, creating = snapshot.records
    assert (idle.id, idle.host, idle.parts) == (record(1).id, "vm-1", "")
    assert (creating.state, creating.parts) == (State.CREATING, "")
    assert creating.operation == Operation(
        number=90, kind=Kind.CREATE, accepted_at=NOW, deadline=NOW + 480.5, queued=True
    )
    noted = replace(creating.operation, attempt=2, url="https://management/1", begun=NOW)
    after = (replace(idle, parts="nic-1"), replace(creating, operation=noted))
    await store.commit(ChangeSet(records=after, debts=(DEBT,)))
    await store.close()
    again = make().open()
    assert again.records == after
    assert again.debts == (DEBT,)


@pytest.mark.behaviour(83)
def test_a_failing_step_leaves_the_older_format_whole(
    first_format: Path, make: Make, monkeypatch: pytest.MonkeyPatch
):
    def failing_step(db: object, now: float) -> None:
        schema.date_marks(db, now)  # type: ignore[arg-type]
        raise sqlite3.OperationalError("as if the disk were full")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (schema.create_tables, failing_step))
        with pytest.raises(StoreUnusable, match="as if the disk were full"):
            make().open()
    with closing(sqlite3.connect(first_format)) as old:
        assert schema.version_of(old) == 1
    assert len(make().open().marks) == 2


def test_looking_at_an_older_file_does_not_change_it(first_format: Path):
    with pytest.raises(StoreUnusable, match="older format 1; the daemon upgrades it"):
        read_only_snapshot(first_format)
    with closing(sqlite3.connect(first_format)) as old:
        assert schema.version_of(old) == 1


async def test_an_upgraded_and_a_new_file_have_the_same_tables(
    make: Make, first_format: Path, tmp_path: Path
):
    def tables(path: Path) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(path)) as connection:
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
                )
            ]
            return [
                (name, repr(connection.execute(f"PRAGMA table_info({name})").fetchall()))
                for name in names
            ]

    store = make()
    store.open()
    await store.close()
    upgraded = tables(first_format)
    first_format.unlink()
    first_format.with_name(f"{first_format.name}.key").unlink()
    store = make()
    store.open()
    await store.close()
    assert tables(first_format) == upgraded
    with closing(sqlite3.connect(first_format)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (schema.PAGE_BYTES,)


@pytest.fixture
def third_format(first_format: Path) -> Path:
    """The same as format 3 wrote it."""
    with closing(sqlite3.connect(first_format, isolation_level=None)) as old:
        schema.lay_out(old, now=NOW, version=3)
        assert schema.version_of(old) == 3
    return first_format


@pytest.mark.behaviour(83)
async def test_machines_and_offerings_of_the_third_format_know_of_no_notice_and_no_other_price(
    make: Make, third_format: Path
):
    store = make(clock=Standing())
    snapshot = store.open()
    assert [one.warned for one in snapshot.records] == [0.0]
    assert [one.taken for one in snapshot.offerings] == [None]
    assert snapshot.market == ""
    warned = replace(FULL_RECORD, warned=0.5)
    await store.commit(ChangeSet(records=(warned,), market="learnt"))
    await store.close()
    again = make().open()
    assert (again.records[-1], again.market) == (warned, "learnt")
