"""`--wait`: follow an accepted operation to its end, with a live line where a person looks on."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import CommandFailed, Machine, fail, note, printable
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind, State
from bigfleet_azure.kit import duration

if TYPE_CHECKING:
    from bigfleet_azure.cli.remote import Remote

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_PAUSE_GROWTH = 1.5

Show = Callable[[str], None]


def wait_for(remote: "Remote", kind: Kind, machine: Machine, timeout: timedelta) -> Machine:
    """Ask for the machine until the operation has ended; return it as it is then.

    A daemon that cannot be reached is asked again: after its restart it goes on with the operation.
    A machine found beyond the operation's states has reached the goal and was taken further.
    """
    what = f"{kind} {machine.id}"
    under_way = TRANSITIONS[kind].via.name
    end = time.monotonic() + timeout.total_seconds()
    pause = _FIRST_PAUSE_SECONDS
    with _progress(what) as show:
        while machine.state == under_way:
            show(under_way)
            left = end - time.monotonic()
            if left <= 0:
                fail(
                    Exit.TIMED_OUT,
                    f"{what}: still {under_way} after {duration.spell(timeout)}; the operation "
                    f"goes on, `bigfleet-azure machines get {machine.id}` shows it",
                )
            time.sleep(min(pause, left))
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECONDS)
            machine = _look(remote, what, machine, show)
    if machine.state == State.FAILED.name:
        fail(Exit.FAILED, f"{what}: {machine.id} is FAILED: {printable(machine.last_error)}")
    return machine


def _look(remote: "Remote", what: str, machine: Machine, show: Show) -> Machine:
    try:
        return remote.get(machine.id)
    except CommandFailed as error:
        if error.exit_code == Exit.UNREACHABLE:
            show("the daemon does not answer, asking again")
            return machine
        if error.exit_code == Exit.NOT_FOUND:
            fail(
                Exit.FAILED,
                f"{what}: it FAILED, and its capacity is offered again under another id; "
                "the daemon's log says why",
            )
        raise


@contextmanager
def _progress(what: str) -> Iterator[Show]:
    """Shows what is going on: one live line on a terminal, else a line whenever it changes."""
    if sys.stderr.isatty():
        from rich.console import Console

        begun = time.monotonic()
        with Console(stderr=True).status(what) as status:
            yield lambda text: status.update(f"{what}: {text}, {time.monotonic() - begun:.0f} s")
        return
    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            note(f"{what}: {text}")

    yield show
