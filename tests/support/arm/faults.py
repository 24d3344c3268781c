"""Scripted faults: what goes wrong at which call, and what there is too little of.

A `Fault` matches calls by route and name and strikes some of them. Shortages, quotas and lists
that lie are settings of the cloud, which hold until a test changes them.
"""

import fnmatch
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.wire import Answer, Call, Json, fault_body

BEFORE = "before"
"""The connection breaks before anything was accepted."""
AFTER = "after"
"""The write is accepted, its answer is lost."""


@dataclass
class Fault:
    """What strikes the calls that it matches; empty fields do nothing."""

    route: str = "*"
    name: str = "*"
    """Pattern for the last name of the path, or for the VM's."""
    skip: int = 0
    """Matching calls to spare first."""
    times: int | None = 1
    """Calls to strike; None = all."""
    answer: Answer | None = None
    delay: float = 0.0
    """Azure seconds before the call is looked at."""
    drop: str | None = None
    """`BEFORE` or `AFTER`."""
    operation: Json | None = None
    """The call is accepted and its operation ends with this error."""
    seconds: float | None = None
    """The operation takes this long."""
    leave: Collection[str] = ()
    """A VM deletion leaves these parts: `nic`, `ip`, `disk`."""
    rewrite: Callable[[Any], Any] | None = None
    """Changes the body of a good answer."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of a good answer, in place of its own."""
    struck: int = 0
    seen: int = 0

    def matches(self, call: Call) -> bool:
        names = {call.name.lower(), call.vm_name.lower()}
        return fnmatch.fnmatchcase(call.route, self.route) and any(
            fnmatch.fnmatchcase(name, self.name.lower()) for name in names
        )


def error(
    status: int,
    code: str,
    message: str = "Scripted.",
    *,
    details: list[Json] | None = None,
    headers: dict[str, str] | None = None,
    wrapped: bool = True,
) -> Answer:
    """An error answer for a `Fault`."""
    body = fault_body(code, message, details=details, wrapped=wrapped)
    return Answer(status, body, dict(headers or {}))


def operation_error(code: str, message: str = "Scripted.", **more: Any) -> Json:
    """An error for `Fault.operation`."""
    return {"code": code, "message": message, **more}


class Faults:
    """The faults of one double."""

    def __init__(self) -> None:
        self.all: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        self.all.append(fault)
        return fault

    def clear(self) -> None:
        self.all.clear()

    def strike(self, call: Call) -> list[Fault]:
        """The faults that strike this call, which count it."""
        found: list[Fault] = []
        for fault in self.all:
            if not fault.matches(call):
                continue
            fault.seen += 1
            exhausted = fault.times is not None and fault.struck >= fault.times
            if fault.seen > fault.skip and not exhausted:
                fault.struck += 1
                found.append(fault)
        return found


@dataclass
class Shortage:
    """No room for more than `room` VMs of what it matches."""

    size: str = "*"
    zone: str = "*"
    """`none` for VMs without a zone."""
    priority: str = "*"
    room: int = 0
    code: str | None = None
    """None = what Azure gives: Spot is refused at the PUT, all else fails in the operation."""
    at_put: bool | None = None

    def matches(self, size: str, zone: str, priority: str) -> bool:
        pairs = ((size, self.size), (zone, self.zone), (priority, self.priority))
        return all(fnmatch.fnmatchcase(value.lower(), pattern.lower()) for value, pattern in pairs)


@dataclass
class Capacity:
    """What the region has too little of, and what the subscription may use."""

    shortages: list[Shortage] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    """By the usage's name, like `cores`, `lowPriorityCores`, a family, or `PublicIPAddresses`."""
    old_quota_wording: bool = False


@dataclass
class Lists:
    """How lists lie."""

    hidden: list[str] = field(default_factory=list)
    """Patterns of names that lists leave out."""
    lag: float = 0.0
    """Seconds by which lists are behind: new ones are absent, deleted ones still there."""
    empty: bool = False
    page: int = 50
    capital_groups: bool = True
    """Lists of the subscription write the group in capitals (recorded)."""

    def shows(self, name: str) -> bool:
        if not self.hidden:
            return not self.empty
        return not self.empty and not any(
            fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in self.hidden
        )


@dataclass
class Quirks:
    """Behaviours of which more than one form is on record."""

    existing: int = 412
    """What `If-None-Match: *` on an existing VM is answered with: 412 or 409."""
    conflict: str = "ConflictingConcurrentWriteNotAllowed"
    """The code of the 409 for a write while another runs; `preempt` lets the newer one win."""
    tags: int = 200
    """200, or 202 with a Location."""
    security_type: str | None = None
    """VMs get this one, whatever was asked for."""
    reserve_deleted: bool = False
    """NICs left by an ordinary deletion stay reserved too."""
    reservation: float = 180.0
    late_missing: float = 60.0
    """Seconds after a deletion in which Compute, not ARM, answers the 404."""
