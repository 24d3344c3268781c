"""What an operation's end does to its machine, and how lost and failed machines move on.

A result applies only while the machine is still in the transitional state of that same operation;
otherwise it changes no state and what it made becomes a debt (contract sections 3 and 8).
"""

from dataclasses import dataclass, replace

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.domain.lifecycle import LOSS_WALKS, TRANSITIONS, Kind, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an operation ended.

    Attributes:
        error: empty for success, else the reason that `last_error` will carry.
        host: the host a Create made, when it is known.
        parts: the backend's note of what belongs to it.
    """

    error: str = ""
    host: str = ""
    parts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The machine after the outcome; `record` is None when the outcome changed nothing visible."""

    record: Record | None
    changes: ChangeSet


def settle(
    record: Record | None,
    operation: Operation,
    outcome: Outcome,
    *,
    slot: int,
    machine_id: str,
    now: float,
    change: int,
) -> Settled:
    """Apply `outcome` of `operation` to the machine.

    Args:
        record: the committed record under that id now; None when it is gone.
        operation: the operation that ended.
        outcome: how it ended.
        slot, machine_id: the machine the operation was accepted for.
        now: Unix seconds.
        change: the next change number.
    """
    current = record.operation if record else None
    if record is None or current is None or current.number != operation.number:
        return _discarded(
            operation, outcome, slot=slot, machine_id=machine_id, now=now, change=change
        )
    if outcome.error:
        return _failed(record, operation, outcome, now=now, change=change)
    return _succeeded(record, operation, outcome, now=now, change=change)


def _discarded(
    operation: Operation, outcome: Outcome, *, slot: int, machine_id: str, now: float, change: int
) -> Settled:
    if operation.kind is not Kind.CREATE or outcome.error:
        return Settled(record=None, changes=ChangeSet())
    debt = Debt(
        number=change,
        slot=slot,
        machine_id=machine_id,
        operation=operation.number,
        host=outcome.host,
        reason="its create succeeded too late",
        since=now,
        parts=outcome.parts,
    )
    return Settled(record=None, changes=ChangeSet(debts=(debt,), head=change))


def _succeeded(
    record: Record, operation: Operation, outcome: Outcome, *, now: float, change: int
) -> Settled:
    target = TRANSITIONS[operation.kind].target
    after = replace(record, state=target, change=change, since=now, operation=None)
    match operation.kind:
        case Kind.CREATE:
            after = replace(after, host=outcome.host, parts=outcome.parts)
        case Kind.DRAIN:
            after = replace(after, cluster="", metadata=b"")
        case Kind.DELETE:
            after = replace(after, host="", parts="", warned=0.0)
        case Kind.CONFIGURE:
            pass
    return Settled(record=after, changes=ChangeSet(records=(after,)))


def _failed(
    record: Record, operation: Operation, outcome: Outcome, *, now: float, change: int
) -> Settled:
    after = replace(
        record,
        state=State.FAILED,
        change=change,
        since=now,
        operation=None,
        last_error=outcome.error,
    )
    debts: tuple[Debt, ...] = ()
    if operation.kind is Kind.CREATE:
        debts = (debt_of(after, "its create failed", operation.number, now=now, number=change),)
    forgotten = (record.slot,) if operation.kind is Kind.CONFIGURE else ()
    return Settled(
        record=after,
        changes=ChangeSet(records=(after,), debts=debts, handed_over=forgotten),
    )


def debt_of(record: Record, reason: str, operation: int, *, now: float, number: int) -> Debt:
    """A debt for what `operation` made for this machine."""
    return Debt(
        number=number,
        slot=record.slot,
        machine_id=record.id,
        operation=operation,
        host=record.host,
        reason=reason,
        since=now,
        parts=record.parts,
    )


def lose(record: Record, reason: str, *, now: float, change: int, until: float = 0.0) -> Settled:
    """First step of the walk of a settled machine whose host is gone (contract section 12).

    Args:
        until: Unix seconds up to which a bound host that is about to go can still be drained;
            not later than `now` for one that is gone already.
    """
    walk = LOSS_WALKS[record.state]
    draining = walk.via is State.DRAINING
    left = max(0.0, until - now) if draining else 0.0
    operation = Operation(
        number=change,
        kind=Kind.DRAIN if draining else Kind.DELETE,
        accepted_at=now,
        deadline=now + left,
        grace_seconds=int(left),
        loss=reason,
    )
    after = replace(record, state=walk.via, change=change, since=now, operation=operation)
    if operation.kind is Kind.DRAIN:
        after = replace(after, drained=change)
    else:
        after = replace(after, deleted=change)
    return Settled(record=after, changes=ChangeSet(records=(after,)))


def finish_loss(record: Record, *, now: float, change: int) -> Settled:
    """Second step of the walk, once a List has served the first; leftovers become a debt."""
    operation = record.operation
    assert operation is not None
    debt = debt_of(record, operation.loss, record.created, now=now, number=change)
    if operation.kind is Kind.DRAIN:
        after = replace(
            record,
            state=State.FAILED,
            change=change,
            since=now,
            operation=None,
            last_error=operation.loss,
        )
    else:
        after = replace(
            record,
            state=State.SPECULATIVE,
            change=change,
            since=now,
            operation=None,
            host="",
            parts="",
            warned=0.0,
        )
    return Settled(record=after, changes=ChangeSet(records=(after,), debts=(debt,)))


def retire(record: Record, new_id: str, *, now: float, change: int) -> Settled:
    """Give a FAILED machine's capacity back: its id goes, the slot returns under `new_id`.

    The old id's mark is kept beside the records, so that a stale caller is still recognised.
    """
    after = Record(
        slot=record.slot,
        id=new_id,
        generation=record.generation + 1,
        change=change,
        since=now,
    )
    marks = (SideMark(record.id, record.mark, now),) if record.mark else ()
    changes = ChangeSet(records=(after,), marks=marks)
    return Settled(record=after, changes=changes)
