"""What ledger lines mean: VMs to lines, and lines back to VMs.

Lines, times in Unix seconds:

    ["p", number, size, zone, priority]                    a place; later lines say its number
    ["c", vm, operation, place, provisioned_at]            created; a sixth item 1: it will fail
    ["b", vm, operation, cluster, handed_at, ready_after]  bootstrap blob taken; null: never Ready
    ["u", vm, at]                                          leaves its cluster
    ["d", vm, at]                                          deleted, and gone at that time
    ["e", vm] ["s", vm] ["f", vm]                          evicted, stopped, failed
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bigfleet_azure.backends.simulated import ledger
from bigfleet_azure.backends.simulated.ledger import Event, LedgerError
from bigfleet_azure.backends.simulated.vm import NEVER, Binding, Health, Place, VirtualMachine

_PLACE, _CREATED, _BOUND, _UNBOUND, _DELETED = "pcbud"
_TROUBLES = {"e": Health.EVICTED, "s": Health.STOPPED, "f": Health.FAILED}
_LETTERS = {trouble: letter for letter, trouble in _TROUBLES.items()}

_PER_SECOND = 100
"""Written times are hundredths of a second, rounded down: what has happened once must not be still
to come after a restart."""


def place(number: int, where: Place) -> Event:
    """A place gets its number."""
    return (_PLACE, number, *where)


def created(vm: VirtualMachine, place_number: int) -> Event:
    """A VM begins."""
    event = (_CREATED, vm.name, vm.operation, place_number, _short(vm.provisioned_at))
    return (*event, 1) if vm.doomed else event


def bound(name: str, binding: Binding) -> Event:
    """A VM is given a bootstrap blob."""
    after = binding.ready_after
    return (
        _BOUND,
        name,
        binding.operation,
        binding.cluster,
        _short(binding.handed_at),
        None if after is None else _short(after),
    )


def unbound(name: str, leaves_at: float) -> Event:
    """A VM leaves its cluster."""
    return (_UNBOUND, name, _short(leaves_at))


def deleted(name: str, gone_at: float) -> Event:
    """The deletion of a VM is accepted."""
    return (_DELETED, name, _short(gone_at))


def troubled(name: str, trouble: Health) -> Event:
    """A VM is evicted, stopped or broken."""
    return (_LETTERS[trouble], name)


def _short(seconds: float) -> float:
    return math.floor(seconds * _PER_SECOND) / _PER_SECOND


def replay(
    path: Path, events: Iterable[Event]
) -> tuple[dict[str, VirtualMachine], dict[Place, int]]:
    """The VMs and the places that a ledger tells of, VMs whose deletion was accepted included.

    Raises:
        LedgerError: a line does not fit what the lines before it said.
    """
    machines: dict[str, VirtualMachine] = {}
    places: list[Place] = []
    for number, event in enumerate(events, start=2):
        try:
            _replay(event, machines, places)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise LedgerError(path, number, f"it makes no sense ({error!r})") from None
    return machines, {where: number for number, where in enumerate(places)}


def _replay(event: Event, machines: dict[str, VirtualMachine], places: list[Place]) -> None:
    """Repeat one event; anything unexpected in it raises one of many errors."""
    what, name, *rest = cast("tuple[str, str, Any]", event)
    if what == _CREATED:
        operation, where, at, *doomed = rest
        before = machines.get(name)
        if before is not None and before.gone_at == NEVER:
            raise ValueError(f"{name} exists already")
        machines[name] = VirtualMachine(name, operation, places[where], float(at), doomed == [1])
    elif what == _BOUND:
        operation, cluster, at, after = rest
        # One string per cluster, not per VM.
        machines[name].given = Binding(operation, sys.intern(cluster), float(at), after)
    elif what == _UNBOUND:
        binding = machines[name].given
        if binding is None:
            raise ValueError(f"{name} was in no cluster")
        binding.leaves_at = float(rest[0])
    elif what == _DELETED:
        machines[name].gone_at = float(rest[0])
    elif what == _PLACE:
        places.append(Place(*rest))
    else:
        machines[name].trouble = _TROUBLES[what]


def snapshot(machines: Iterable[VirtualMachine], places: Mapping[Place, int]) -> Iterator[Event]:
    """The fewest lines that tell the same."""
    for where, number in places.items():
        yield place(number, where)
    for vm in machines:
        yield created(vm, places[vm.place])
        if vm.given is not None:
            yield bound(vm.name, vm.given)
            if vm.given.leaves_at < NEVER:
                yield unbound(vm.name, vm.given.leaves_at)
        if vm.trouble is not None:
            yield troubled(vm.name, vm.trouble)
        if vm.gone_at < NEVER:
            yield deleted(vm.name, vm.gone_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAudit:
    """What a ledger tells about its VMs since it was begun or last compacted.

    Attributes:
        created, deleted: number of such events.
        live: names of VMs that were created and not deleted.
        doubled: names that were created again while they were live.
    """

    created: int
    deleted: int
    live: frozenset[str]
    doubled: frozenset[str]


def audit(path: Path) -> LedgerAudit:
    """Count what happened in the ledger at `path`; it may be in use, and is not changed.

    Raises:
        LedgerError: the file is foreign or damaged.
        OSError: it cannot be read.
    """
    creations = deletions = 0
    live: set[str] = set()
    doubled: set[str] = set()
    for event in ledger.read(path):
        name = str(event[1])
        if event[0] == _CREATED:
            creations += 1
            if name in live:
                doubled.add(name)
            live.add(name)
        elif event[0] == _DELETED:
            deletions += 1
            live.discard(name)
    return LedgerAudit(
        created=creations, deleted=deletions, live=frozenset(live), doubled=frozenset(doubled)
    )
