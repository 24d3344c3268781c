"""Ends a daemon at a moment of a test's choosing, as SIGKILL does.

async with Site(tmp_path) as site:
    moment = Moment(site.arm, machine, "vm.put", Side.LOST)
    await site.create(machine)
    await until(lambda: moment.reached)
    await crash(site)                 # what was not on the disk by now never gets there
    site.arm.faults.clear()
    await site.boot()
    moment.let_go()
"""

import asyncio
import fnmatch
import re
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import AFTER, Fault, operation_error
from tests.support.arm.operations import Operation
from tests.support.arm.wire import Call
from tests.support.azure import Site

NEVER = 1e9
"""Seconds that no test waits for."""

LATE_SECONDS = 240.0
"""A request of a dead daemon that is under way for so long arrives after the next one has begun."""

_POLLS = frozenset({"compute.operation", "network.operation", "network.result"})


def freeze(site: Site) -> dict[str, bytes]:
    """What lies on the disk now. The daemon's own work ends with it, at this very moment."""
    assert site.daemon is not None
    supervisor = site.daemon._supervisor
    for task in list(supervisor._tasks):
        task.cancel()
    supervisor.start = _stillborn  # type: ignore[method-assign]
    # The file before its log: what the log holds is in it until a later write.
    names = [site.state.name, f"{site.state.name}-wal", f"{site.state.name}.key"]
    paths = [site.state.with_name(name) for name in names]
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def _stillborn(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    work.close()
    return asyncio.create_task(asyncio.sleep(0), name=name)


async def crash(site: Site, kept: dict[str, bytes] | None = None) -> None:
    """End the daemon, and put back what was on the disk when it was frozen."""
    kept = freeze(site) if kept is None else kept
    await site.kill()
    for path in site.state.parent.glob(f"{site.state.name}*"):
        path.unlink()
    for name, content in kept.items():
        path = site.state.with_name(name)
        path.write_bytes(content)
        path.chmod(0o600)


def operation_of(script: str) -> str:
    """The operation that a guest's script was sent for."""
    found = re.search(r"^operation=(\S+)$", script, re.MULTILINE)
    assert found, script
    return found[1]


def scripts_run(arm: ArmDouble) -> Counter[str]:
    """How often guests ran a script, by operation."""
    return Counter(operation_of(run.script) for run in arm.ledger.scripts)


@dataclass
class About(Fault):
    """A fault for the calls about one machine: its VM, what is in it, its parts, its operations."""

    arm: ArmDouble | None = None
    machine: str = ""
    once: Fault | None = None
    """Strikes only after this one has."""

    def matches(self, call: Call) -> bool:
        if not fnmatch.fnmatchcase(call.route, self.route):
            return False
        if self.once is not None and not self.once.struck:
            return False
        assert self.arm is not None
        if call.route in _POLLS:
            return self.arm.operations._find(call).resource.name.startswith(self.machine)
        return f"/{self.machine}" in call.path


class Side(Enum):
    """Where in a call the daemon is stopped."""

    UNSENT = "before it arrives"
    LATE = "before it arrives, and it arrives all the same when the next daemon is at work"
    LOST = "after it was accepted, before the answer"
    RUNNING = "while its operation runs"
    ENDED = "after its operation ended, before anybody saw it"
    FAILED = "after its operation failed, before anybody saw it"


class Moment:
    """The moment at which nothing more about one machine gets through.

    Args:
        skip: calls of that name to spare first.
    """

    def __init__(
        self, arm: ArmDouble, machine: str, route: str, side: Side, *, skip: int = 0
    ) -> None:
        self._arm = arm
        self.machine = machine
        self.side = side

        def add(fault: str, **what: object) -> Fault:
            return arm.faults.add(About(fault, arm=arm, machine=machine, **what))  # type: ignore[arg-type]

        match side:
            case Side.UNSENT:
                self._mark = add(route, delay=NEVER, times=None, skip=skip)
            case Side.LATE:
                self._mark = Fault()
                add("*", delay=NEVER, times=None, once=self._mark)
                self._mark = add(route, delay=LATE_SECONDS, skip=skip)
            case Side.LOST:
                self._mark = About(route, arm=arm, machine=machine, drop=AFTER, skip=skip)
                add("*", delay=NEVER, times=None, once=self._mark)
                arm.faults.add(self._mark)
            case Side.RUNNING | Side.ENDED | Side.FAILED:
                error = operation_error("AllocationFailed") if side is Side.FAILED else None
                add(route, seconds=NEVER, operation=error)
                self._mark = add("*.operation", delay=NEVER, times=None)

    @property
    def reached(self) -> bool:
        return self._mark.struck > 0

    def end(self) -> None:
        """Let the operation end where the daemon is to miss just that."""
        if self.side in (Side.ENDED, Side.FAILED):
            self._arm.operations.end(self._running())

    def let_go(self) -> None:
        """Let the operation end that ran at the kill."""
        if self.side is Side.RUNNING:
            self._arm.operations.end(self._running())

    def _running(self) -> Operation:
        [found] = [
            one for one in self._arm.operations.running() if one.resource.name == self.machine
        ]
        return found
