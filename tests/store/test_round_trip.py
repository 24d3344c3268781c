"""What was committed comes back, field by field, when the state file is opened again."""

# ruff: noqa: ASYNC240 - a test may wait for its files
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.fence import Mark
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.store.base import Snapshot, StoreError
from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import (
    DEBT,
    FULL_RECORD,
    INT64_MAX,
    INT64_MIN,
    NOW,
    OFFERED,
    OFFERING,
    Standing,
    record,
    side_mark,
)

Make = Callable[..., SqliteStore]


async def reopened(make: Make, *changes: ChangeSet) -> Snapshot:
    """The snapshot after a first life that committed `changes`, one by one."""
    first = make()
    first.open()
    for change in changes:
        await first.commit(change)
    await first.close()
    second = make()
    snapshot = second.open()
    await second.close()
    return snapshot


@pytest.mark.behaviour(79)
async def test_a_record_with_every_field_set_comes_back(make: Make):
    plain = Record(slot=FULL_RECORD.slot, id=FULL_RECORD.id)
    for name in (f.name for f in fields(Record) if f.name not in ("slot", "id")):
        assert getattr(FULL_RECORD, name) != getattr(plain, name), f"{name} is not tried"
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(FULL_RECORD,)))
    assert snapshot.records == (FULL_RECORD,)
    assert type(snapshot.records[0]) is Record
    assert type(snapshot.records[0].mark) is Mark


async def test_a_record_read_back_is_as_frozen_as_any(make: Make):
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(FULL_RECORD,)))
    with pytest.raises(AttributeError):
        snapshot.records[0].host = "x"  # type: ignore[misc]
    assert hash(snapshot.records[0]) == hash(FULL_RECORD)
    assert replace(snapshot.records[0], host="") == replace(FULL_RECORD, host="")


async def test_a_record_with_nothing_set_comes_back(make: Make):
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(record(0),)))
    assert snapshot.records == (record(0),)


@pytest.mark.behaviour(62)
async def test_a_broken_character_in_a_vendor_s_text_does_not_keep_a_result_from_being_written(
    make: Make,
):
    broken = "status \ud800 unknown"
    failed = record(0, state=State.FAILED, last_error=broken)
    owed = replace(DEBT, reason=broken, last_error=broken)
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(failed,), debts=(owed,)))
    assert snapshot.records[0].last_error == "status ? unknown"
    assert (snapshot.debts[0].reason, snapshot.debts[0].last_error) == ("status ? unknown",) * 2


async def test_progress_and_parts_cost_nothing_where_a_backend_has_none(make: Make, path: Path):
    plain = Operation(number=1, kind=Kind.CREATE, accepted_at=1.5, deadline=2.5)
    await reopened(make, OFFERED, ChangeSet(records=(record(1, operation=plain),)))
    with closing(sqlite3.connect(path)) as tool:
        ((operation, parts),) = tool.execute("SELECT operation, parts FROM machines")
    assert operation == '[1,"create",1.5,2.5,0,false,false,""]'
    assert parts == ""


async def test_what_was_learnt_of_prices_is_kept_word_for_word(make: Make):
    assert (await reopened(make, OFFERED)).market == ""
    kept = '{"prices":{"standard_d4s_v5":{"spot":[0.04,1780000000.0]}}}\x00größer'
    first = ChangeSet(market="older")
    assert (await reopened(make, first, ChangeSet(market=kept), OFFERED)).market == kept


async def test_slots_that_were_left_out_for_one_list_are_listed_by_a_new_process(make: Make):
    hidden = replace(OFFERING, left_out=(10, 20))
    (offering,) = (await reopened(make, ChangeSet(offerings=(hidden,)))).offerings
    assert offering == OFFERING


async def test_whether_the_substrate_was_asked_what_exists_is_remembered(make: Make):
    assert not (await reopened(make)).inventoried
    assert (await reopened(make, ChangeSet(inventoried=True))).inventoried
    assert (await reopened(make, OFFERED)).inventoried


async def test_a_store_knows_when_its_life_began(make: Make, path: Path):
    first = (await reopened(partial(make, clock=Standing()))).created
    assert first == NOW
    assert (await reopened(make)).created == NOW


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("kind", list(Kind))
async def test_every_state_and_kind_comes_back(make: Make, state: State, kind: Kind):
    wanted = record(
        1, state=state, operation=Operation(number=1, kind=kind, accepted_at=1.5, deadline=2.5)
    )
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(wanted,)))
    (found,) = snapshot.records
    assert found == wanted
    assert found.state is state
    assert found.operation is not None
    assert found.operation.kind is kind


_INT64 = st.integers(INT64_MIN, INT64_MAX)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), metadata=st.binary(max_size=5000), token=st.tuples(_INT64, _INT64))
async def test_any_text_and_number_comes_back(
    make: Make, path: Path, text: str, metadata: bytes, token: tuple[int, int]
):
    wanted = record(
        9,
        host=text,
        cluster=text[::-1],
        last_error=text,
        metadata=metadata,
        mark=Mark(text, *token),
    )
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.key").unlink(missing_ok=True)
    snapshot = await reopened(make, OFFERED, ChangeSet(records=(wanted,)))
    assert snapshot.records == (wanted,)


async def test_offerings_come_back(make: Make):
    other = replace(
        OFFERING,
        number=4,
        prefix="fixed",
        offer=replace(
            OFFERING.offer, fixed_prefix="fixed", capacity_type=CapacityType.RESERVED, labels={}
        ),
        segments=(),
        withheld=False,
    )
    snapshot = await reopened(make, ChangeSet(offerings=(other, OFFERING)))
    assert snapshot.offerings == (OFFERING, other)
    assert snapshot.offerings[0].offer.capacity_type is CapacityType.SPOT


async def test_an_offerings_settings_come_back_and_are_not_named_while_there_are_none(
    make: Make, path: Path
):
    settings = {"tags": {"größe": ""}, "asg_ids": ["/a"], "public_ip": True, "spot_max_price": 0.5}
    made = replace(OFFERING, number=9, offer=replace(OFFERING.offer, settings=settings))
    snapshot = await reopened(make, ChangeSet(offerings=(OFFERING, made)))
    assert snapshot.offerings == (OFFERING, made)
    with closing(sqlite3.connect(path)) as tool:
        texts = dict(tool.execute("SELECT number, offer FROM offerings"))
    # A version that knows no settings must be able to read what does not use them.
    assert "settings" not in texts[OFFERING.number]
    assert "settings" in texts[9]


async def test_a_changed_offering_takes_the_place_of_the_old_one(make: Make):
    changed = OFFERING.rebased(70_000)
    snapshot = await reopened(make, OFFERED, ChangeSet(offerings=(changed,)))
    assert snapshot.offerings == (changed,)


async def test_debts_come_back_until_they_are_paid(make: Make):
    tried = replace(DEBT, attempts=5)
    assert (await reopened(make, ChangeSet(debts=(DEBT,)))).debts == (DEBT,)
    assert (await reopened(make, ChangeSet(debts=(tried,)))).debts == (tried,)
    assert (await reopened(make, ChangeSet(cleared_debts=(DEBT.number,)))).debts == ()


@pytest.mark.behaviour(79)
async def test_marks_come_back_each_on_its_own_pair_and_oldest_first(make: Make):
    marks = (
        side_mark("m-1", "shard-a", epoch=INT64_MAX, sequence=INT64_MIN, touched=NOW + 2),
        side_mark("m-1", "shard-b", touched=NOW + 1),
        side_mark("m-2\x00", "shard-a", epoch=-5, sequence=0, touched=NOW + 3),
    )
    snapshot = await reopened(make, ChangeSet(marks=marks))
    assert snapshot.marks == (marks[1], marks[0], marks[2])
    dropped = ChangeSet(dropped_marks=(("m-1", "shard-a"),))
    assert (await reopened(make, dropped)).marks == (marks[1], marks[2])


async def test_a_moved_mark_takes_the_place_of_the_old_one(make: Make):
    moved = side_mark("m-1", sequence=2, touched=NOW + 9)
    snapshot = await reopened(
        make, ChangeSet(marks=(side_mark("m-1"), side_mark("m-2"))), ChangeSet(marks=(moved,))
    )
    assert snapshot.marks == (side_mark("m-2"), moved)


async def test_names_of_shards_without_marks_are_forgotten_and_numbers_stay_unambiguous(
    make: Make, path: Path
):
    wanted = record(1, mark=Mark("kept", 1, 1))
    first = ChangeSet(marks=(side_mark("m", "gone"),))
    await reopened(make, OFFERED, first, ChangeSet(records=(wanted,)))
    await reopened(make, ChangeSet(dropped_marks=(("m", "gone"),)))
    snapshot = await reopened(make, ChangeSet(marks=(side_mark("m", "new"),)))
    assert snapshot.records == (wanted,)
    assert snapshot.marks == (side_mark("m", "new"),)
    assert b"gone" not in path.read_bytes()


@pytest.mark.behaviour(79)
async def test_incarnation_and_head_survive(make: Make):
    store = make()
    incarnation = store.open().incarnation
    await store.commit(ChangeSet(head=500))
    await store.commit(ChangeSet(head=400))
    await store.close()
    again = make().open()
    assert (again.incarnation, again.head) == (incarnation, 500)


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        (ChangeSet(offerings=(OFFERING,)), 2_000 + 49_900 - 1),
        (ChangeSet(offerings=(OFFERING,), records=(record(0, change=90_000),)), 90_000),
        (ChangeSet(debts=(DEBT,)), DEBT.number),
    ],
)
async def test_the_head_is_never_below_a_number_in_use(make: Make, changes: ChangeSet, head: int):
    assert (await reopened(make, changes)).head == head


async def test_the_last_change_of_a_row_wins_within_a_group_and_across(make: Make):
    store = make()
    store.open()
    first = store.commit(OFFERED)
    waiting = [
        store.commit(ChangeSet(records=(record(1, change=1), record(2, change=2)))),
        store.commit(ChangeSet(records=(record(2, change=4), record(3, change=3)))),
        store.commit(ChangeSet(records=(record(3, change=5),))),
    ]
    for one in (first, *waiting):
        await one
    await store.close()
    assert make().open().records == (
        record(1, change=1),
        record(2, change=4),
        record(3, change=5),
    )


async def test_a_record_that_would_come_back_as_another_is_refused(make: Make):
    store = make()
    store.open()
    await store.commit(OFFERED)
    with pytest.raises(StoreError, match="read back"):
        await store.commit(ChangeSet(records=(replace(record(1), id="other-001"),)))
    with pytest.raises(StoreError, match="read back"):
        await store.commit(ChangeSet(records=(replace(record(1), slot=9 << 20),)))


async def test_names_that_callers_invented_do_not_pile_up(make: Make, path: Path):
    store = make()
    store.open()
    await store.commit(ChangeSet(marks=(side_mark("nobody", "kept"),)))
    for wave in range(4):
        invented = tuple(side_mark("nobody", f"shard-{wave}-{n}") for n in range(10_001))
        await store.commit(ChangeSet(marks=invented))
        keys = tuple((side.machine_id, side.mark.shard_id) for side in invented)
        await store.commit(ChangeSet(dropped_marks=keys))
    with closing(sqlite3.connect(path)) as tool:
        names = {name for (name,) in tool.execute("SELECT id FROM shards")}
    assert "kept" in names
    assert len(names) < 2 * 10_001 + 2
    await store.close()
    assert [side.mark.shard_id for side in make().open().marks] == ["kept"]
