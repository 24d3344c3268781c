"""The decision about one mutation, in the exact order of contract section 3.

`decide` is the only place where a request becomes an operation. It refuses, repeats or accepts, and
says what must be durable before the caller hears of it. Refusals are values: nothing is raised.
"""

from dataclasses import dataclass, replace

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import Refusal, RefusalReason
from bigfleet_azure.domain.fence import Mark, SideMark, Token, mark_of, passes
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind
from bigfleet_azure.domain.limits import (
    MAX_GRACE_SECONDS,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    Deadlines,
    names_a_file,
)
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.domain.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One mutation as it was asked for.

    Attributes:
        metadata: packed shard metadata (Configure only).
        unpacked_bytes: size of shard metadata that is too large to be worth packing, else 0.
        blob: the bootstrap blob (Configure only).
        grace_seconds: as sent, possibly negative or huge (Drain only).
    """

    kind: Kind
    machine_id: str
    token: Token
    cluster: str = ""
    metadata: bytes = b""
    unpacked_bytes: int = 0
    blob: Secret = Secret(b"")
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of the machine when the command arrives.

    Attributes:
        record: the committed record; None when no such machine exists.
        stored: whether the record has a row of its own; untouched slots have none.
        mark: the newest mark of this token's shard.
        side_mark: a mark of that shard is kept beside the record.
    """

    record: Record | None
    stored: bool
    mark: Mark | None
    side_mark: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not accepted. The change set may still move the fence mark."""

    refusal: Refusal
    changes: ChangeSet = ChangeSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The operation is on record already: its number again, and no new work."""

    number: int
    record: Record
    changes: ChangeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A new operation; `record` is the machine in its transitional state."""

    number: int
    record: Record
    changes: ChangeSet


Decision = Refused | Replayed | Accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the deployment allows.

    Attributes:
        deadlines: time that each kind of operation may take.
        blob_bytes: the largest blob that the backend takes.
        cluster: the only cluster that machines can join; empty when any can be joined.
        kubeconfigs: each cluster has a kubeconfig in a folder, a file of the cluster's name.
    """

    deadlines: Deadlines
    blob_bytes: int
    cluster: str = ""
    kubeconfigs: bool = False


def decide(
    command: Command, view: View, *, now: float, change: int, queued: bool, limits: Limits
) -> Decision:
    """Decide about `command`.

    Args:
        command: what is asked.
        view: the committed state of the machine; nothing may change it until the answer's
            change set was written.
        now: Unix seconds.
        change: the next change number; it also becomes the operation's number.
        queued: an operation accepted now has to wait for a free place.
        limits: sizes and deadlines in force.

    Returns:
        Refused, Replayed or Accepted, each with what has to be durable before the answer.
    """
    malformed = _malformed(command)
    if malformed:
        return _refused(RefusalReason.INVALID, malformed)
    mark = view.mark
    if not passes(command.token, mark):
        assert mark is not None
        return _refused(
            RefusalReason.STALE_TOKEN,
            f"{command.kind} of {command.machine_id!r}: token epoch {command.token.epoch} "
            f"sequence {command.token.sequence} of shard {command.token.shard_id!r} is not newer "
            f"than epoch {mark.epoch} sequence {mark.sequence}",
        )
    record = view.record
    if record is None:
        return _refused(
            RefusalReason.UNKNOWN_MACHINE,
            f"no machine {command.machine_id!r}",
            _mark_only(command, view, now),
        )
    if command.kind is Kind.CONFIGURE and (invalid := _invalid_cluster(command)):
        return _refused(RefusalReason.INVALID, invalid, _mark_only(command, view, now))
    number = record.recorded(command.kind)
    step = TRANSITIONS[command.kind]
    if number and record.state in (step.via, step.target):
        return _replayed_or_refused(command, view, record, number, now)
    if record.state is not step.source:
        return _refused(
            RefusalReason.ILLEGAL_STATE,
            f"{command.kind} of {record.id} needs state {step.source.name}, "
            f"it is {record.state.name}",
            _mark_only(command, view, now),
        )
    invalid = _invalid_argument(command, limits)
    if invalid:
        return _refused(RefusalReason.INVALID, invalid, _mark_only(command, view, now))
    return _accepted(command, view, record, now=now, change=change, queued=queued, limits=limits)


def _malformed(command: Command) -> str:
    if not command.machine_id:
        return f"{command.kind}: machine_id is empty"
    for name, value in (("machine_id", command.machine_id), ("shard_id", command.token.shard_id)):
        size = len(value.encode())
        if size > MAX_NAME_BYTES:
            return f"{command.kind}: {name} has {size} bytes, at most {MAX_NAME_BYTES} are allowed"
    return ""


def _invalid_cluster(command: Command) -> str:
    where = f"{command.kind} of {command.machine_id}"
    if not command.cluster:
        return f"{where}: cluster_id is empty"
    size = len(command.cluster.encode())
    if size > MAX_NAME_BYTES:
        return f"{where}: cluster_id has {size} bytes, at most {MAX_NAME_BYTES} are allowed"
    return ""


def _invalid_argument(command: Command, limits: Limits) -> str:
    where = f"{command.kind} of {command.machine_id}"
    if command.kind is Kind.DRAIN and command.grace_seconds < 0:
        return f"{where}: grace_period_seconds is {command.grace_seconds}, it must not be negative"
    if command.kind is not Kind.CONFIGURE:
        return ""
    if limits.cluster and command.cluster != limits.cluster:
        return (
            f"{where}: it can only join cluster {limits.cluster!r}, which its image or user data "
            f"names, not {command.cluster!r}"
        )
    if limits.kubeconfigs and not names_a_file(command.cluster):
        return (
            f"{where}: cluster_id {command.cluster!r} is no plain file name, so no kubeconfig can "
            "be its own"
        )
    for name, size, most in (
        ("shard_metadata", command.unpacked_bytes or len(command.metadata), MAX_METADATA_BYTES),
        ("bootstrap_blob", len(command.blob), limits.blob_bytes),
    ):
        if size > most:
            return f"{where}: {name} has {size} bytes, at most {most} are allowed"
    return ""


def _refused(reason: RefusalReason, message: str, changes: ChangeSet | None = None) -> Refused:
    return Refused(refusal=Refusal(reason=reason, message=message), changes=changes or ChangeSet())


def _replayed_or_refused(
    command: Command, view: View, record: Record, number: int, now: float
) -> Refused | Replayed:
    if command.kind is Kind.CONFIGURE and command.cluster != record.cluster:
        return _refused(
            RefusalReason.OTHER_CLUSTER,
            f"configure of {record.id}: it is bound to cluster {record.cluster!r}, "
            f"not to {command.cluster!r}",
            _mark_only(command, view, now),
        )
    return Replayed(number=number, record=record, changes=_mark_only(command, view, now))


def _mark_only(command: Command, view: View, now: float) -> ChangeSet:
    """The mark moves although nothing else does: into the row if it may, else beside it."""
    mark = mark_of(command.token)
    if mark is None:
        return ChangeSet()
    record = view.record
    if record and view.stored and _owns_mark(record, mark):
        return ChangeSet(records=(replace(record, mark=mark),))
    return ChangeSet(marks=(SideMark(command.machine_id, mark, now),))


def _owns_mark(record: Record, mark: Mark) -> bool:
    return record.mark is None or record.mark.shard_id == mark.shard_id


def _accepted(
    command: Command,
    view: View,
    record: Record,
    *,
    now: float,
    change: int,
    queued: bool,
    limits: Limits,
) -> Accepted:
    grace = min(command.grace_seconds, MAX_GRACE_SECONDS) if command.kind is Kind.DRAIN else 0
    operation = Operation(
        number=change,
        kind=command.kind,
        accepted_at=now,
        deadline=now + limits.deadlines.seconds(command.kind, grace),
        grace_seconds=grace,
        queued=queued,
    )
    entered = _entered(command, operation, record, now=now)
    mark = mark_of(command.token)
    inline = mark is not None and _owns_mark(entered, mark)
    if inline:
        entered = replace(entered, mark=mark)
    return Accepted(
        number=change,
        record=entered,
        changes=ChangeSet(
            records=(entered,),
            marks=(SideMark(record.id, mark, now),) if mark is not None and not inline else (),
            dropped_marks=((record.id, mark.shard_id),)
            if mark is not None and inline and view.side_mark
            else (),
            blob=(record.slot, command.blob) if command.kind is Kind.CONFIGURE else None,
        ),
    )


def _entered(command: Command, operation: Operation, record: Record, *, now: float) -> Record:
    """The machine in its transitional state: what the kind records and binds now.

    A new life of the slot forgets the last one's Drain, the only record that another kind's target
    state (IDLE after Create) would otherwise repeat.
    """
    number = operation.number
    entered = replace(
        record,
        state=TRANSITIONS[command.kind].via,
        change=number,
        since=now,
        operation=operation,
    )
    match command.kind:
        case Kind.CREATE:
            return replace(entered, created=number, drained=0, warned=0.0)
        case Kind.CONFIGURE:
            return replace(
                entered, configured=number, cluster=command.cluster, metadata=command.metadata
            )
        case Kind.DRAIN:
            return replace(entered, drained=number)
        case Kind.DELETE:
            return replace(entered, deleted=number)
