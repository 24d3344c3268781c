"""What an operation's end does to its machine, and what it must not do."""

from dataclasses import replace

import pytest

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.domain.settle import Outcome, Settled, settle


def operation(kind: Kind, number: int = 7) -> Operation:
    return Operation(number=number, kind=kind, accepted_at=1.0, deadline=2.0)


def machine(kind: Kind, number: int = 7) -> Record:
    """A machine in the transitional state of that operation."""
    return Record(
        slot=1 << 20,
        id="m-000",
        state=TRANSITIONS[kind].via,
        change=number,
        host="/hosts/m-000",
        cluster="blue",
        metadata=b"x",
        operation=operation(kind, number),
    )


def ended(record: Record | None, kind: Kind, outcome: Outcome, number: int = 7) -> Settled:
    return settle(
        record,
        operation(kind, number),
        outcome,
        slot=1 << 20,
        machine_id="m-000",
        now=50.0,
        change=90,
    )


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("outcome", [Outcome(host="/late"), Outcome(error="too late")])
@pytest.mark.parametrize(
    "later",
    [
        lambda kind: None,
        lambda kind: replace(machine(kind), state=State.FAILED, operation=None, last_error="x"),
        lambda kind: machine(kind, number=8),
    ],
    ids=["gone", "failed", "in another operation"],
)
def test_a_result_of_an_operation_that_is_no_longer_current_changes_no_machine(
    kind: Kind, outcome: Outcome, later
) -> None:
    settled = ended(later(kind), kind, outcome)
    assert settled.record is None
    assert settled.changes.records == ()


@pytest.mark.behaviour(64)
def test_what_a_late_create_made_is_owed() -> None:
    settled = ended(machine(Kind.CREATE, number=8), Kind.CREATE, Outcome(host="/late"))
    [debt] = settled.changes.debts
    assert (debt.machine_id, debt.operation, debt.host) == ("m-000", 7, "/late")
    assert settled.changes.head == debt.number == 90


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("kind", [Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE])
def test_a_late_result_of_the_other_kinds_made_nothing(kind: Kind) -> None:
    assert ended(machine(kind, number=8), kind, Outcome()).changes == ChangeSet()


@pytest.mark.behaviour(7)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_current_result_brings_the_machine_to_its_goal(kind: Kind) -> None:
    after = ended(machine(kind), kind, Outcome(host="/made")).record
    assert after is not None
    assert after.state is TRANSITIONS[kind].target
    assert after.change == 90
    assert after.operation is None
    assert after.host == {Kind.CREATE: "/made", Kind.DELETE: ""}.get(kind, "/hosts/m-000")
    assert bool(after.cluster) is bool(after.metadata) is (kind is not Kind.DRAIN)
