"""Waiting for the ends of Azure's operations: all of them together, with few calls.

What is here and nowhere else: when an operation's own address is asked, and when one list of the
VMs stands for many of those calls. The calls themselves are handed in, with their pace; what a VM
says about an operation is told by whoever began it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_Result = TypeVar("_Result")

USUAL_SECONDS = {
    "vm.create": 67.0,
    "vm.delete": 26.0,
    "vm.start": 11.0,
    "extension.put": 20.0,
}
"""Medians of recorded operations (azure-facts section 2.1)."""

OTHER_SECONDS = 30.0
"""Taken for kinds of which no median is on record: the slowest of the quick ones."""

SLOW_AFTER = 3
"""Multiples of the usual time after which an operation is asked about less often. Ours."""

POLL_SECONDS = 5.0
"""Shortest pause between two questions about one operation: 12 a minute of the 15 that come back
(azure-practice section 2). Also the pause between the starts of two lists."""

JITTER_SECONDS = 0.5
SLOW_POLL_SECONDS = (10.0, 15.0)
"""Pause when the operation is slow, or its address gave no answer (azure-practice section 2)."""

POLLS_A_SECOND = 12
"""Most operations asked about in a second, of the 25 reads that ARM gives back in one, which all
else needs too. Ours."""

POLLS_AT_ONCE = 24
"""How many may be asked about at once after a quiet time. Ours."""

LIST_ABOVE = 60
"""More operations in flight are looked up in a list: with 60, asking each costs 12 reads a second,
and a list of a thousand VMs 4 (pages of 50)."""

LIST_BELOW = 40
"""Fewer are asked about one by one again, once the lists have run on for `LIST_TAIL_SECONDS`."""

LIST_TAIL_SECONDS = 45.0
"""How long lists go on for the last of many operations. The first answer of an address may forbid
the second question for 35 s (azure-facts section 2.1), and lists need no such answer. Ours."""

LIST_PATIENCE_SECONDS = 60.0
"""When a list takes longer than that, addresses are asked meanwhile. Ours."""

TOLD_NO_MORE = frozenset({400, 404, 409, 410, 412})
"""Answers after which an address is of no use any more: it knows of no operation, or it is a
`Location` and answers as the failed operation would have."""


class Over(Enum):
    """What a VM in a list says about an operation on it."""

    RUNNING = "running"
    DONE = "done"
    """It is over, and ended well."""
    ASK = "ask"
    """The list cannot tell, or it failed: its address knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an operation's address said.

    Attributes:
        done: it has ended.
        failure: why, when it did not end well.
        retry_after: when to ask again; None when the answer does not say.
        body: the whole report.
    """

    done: bool
    failure: Failure | None = None
    retry_after: timedelta | None = None
    body: Json = field(default_factory=dict)


@dataclass(eq=False, slots=True, kw_only=True)
class _Operation:
    """One operation that is waited for.

    Attributes:
        since: when it was accepted, as far as we know.
        due: when its address may be asked next; Azure's Retry-After is in it.
        placed: whether `due` is its place among all that are asked about.
        asked_for: set while a list leaves it to its address.
        ended: a list has told that it is over; the VM's JSON there.
    """

    kind: str
    vm: str
    url: str
    over: Callable[[Json | None], Over]
    since: float
    due: float
    placed: bool = False
    asked_for: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Future[Json | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, vm: Json | None) -> None:
        if not self.ended.done():
            self.ended.set_result(vm)
        self.asked_for.set()


class Poller:
    """Waits for operations; each in the task that wants to know, lists in one of its own.

    Args:
        ask: reads an operation's address, given its VM and the address; at its turn.
        list_all: lists the VMs of the group by lower-case name; at its turn.
        metrics: counts the ends and what told of them.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ask: Callable[[str, str], Coroutine[Any, Any, Reading]],
        list_all: Callable[[], Awaitable[Mapping[str, Json]]],
        metrics: Metrics | None = None,
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._list_all = list_all
        self._metrics = metrics
        self._random = random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._operations: set[_Operation] = set()
        self._lister: asyncio.Task[None] | None = None
        self._next_place = 0.0

    async def wait(
        self,
        *,
        kind: str,
        vm: str,
        url: str,
        retry_after: timedelta | None,
        over: Callable[[Json | None], Over],
    ) -> Json | None:
        """Wait until the operation has ended well.

        Calls that fail on the way are made again. A wait that is cancelled is forgotten.

        Args:
            kind: `vm.create` and so on: decides how long it usually takes.
            vm: the VM's name.
            url: the operation's address.
            retry_after: what the answer that accepted it said.
            over: what the VM in a list, or its absence there, says about the operation.

        Returns:
            The VM as the list showed it that told of the end; None when the address told.

        Raises:
            ArmError: it failed, or its address is not known (any more), which says nothing about
                how it ended.
        """
        now = self._clock.now()
        operation = _Operation(kind=kind, vm=vm, url=url, over=over, since=now, due=now)
        self._next_in(operation, self._pause(operation), _believed(kind, retry_after))
        self._operations.add(operation)
        if len(self._operations) > LIST_ABOVE and self._lister is None:
            self._lister = asyncio.create_task(self._keep_listing(), name="arm-lists")
        try:
            while not await self._ended_by_list(operation):
                if await self._ended_by_address(operation):
                    self._count(kind, "address")
                    return None
            self._count(kind, "list")
            return operation.ended.result()
        finally:
            self._operations.discard(operation)

    async def close(self) -> None:
        """End the lists; what still waits is left to whoever waits."""
        if self._lister is not None:
            self._lister.cancel()
            await asyncio.gather(self._lister, return_exceptions=True)

    def _count(self, kind: str, told_by: str) -> None:
        if self._metrics is not None:
            self._metrics.arm_ends.labels(kind, told_by).inc()

    # Addresses

    async def _ended_by_list(self, operation: _Operation) -> bool:
        """Wait until the address is to be asked; True when a list tells before that it is over."""
        while not operation.ended.done():
            wait = operation.due - self._clock.now()
            if self._lister is not None and not operation.asked_for.is_set():
                await operation.asked_for.wait()
            elif wait > 0:
                await _unless(operation.ended, self._clock.sleep(wait))
            elif not operation.placed:
                operation.due, operation.placed = self._place(), True
            else:
                return False
        return True

    async def _ended_by_address(self, operation: _Operation) -> bool:
        """Ask the address, unless a list tells first; whether the operation has ended well."""
        operation.asked_for.clear()
        operation.placed = False
        try:
            reading = await _unless(operation.ended, self._ask(operation.vm, operation.url))
        except ArmError as error:
            if error.failure.status in TOLD_NO_MORE:
                raise
            self._next_in(operation, self._slow_pause(), error.failure.retry_after)
            return False
        if reading is None:
            return False
        if reading.failure is not None:
            raise ArmError(reading.failure)
        wanted = _believed(operation.kind, reading.retry_after)
        self._next_in(operation, self._pause(operation), wanted)
        return reading.done

    def _next_in(self, operation: _Operation, pause: float, retry_after: timedelta | None) -> None:
        wanted = retry_after.total_seconds() if retry_after is not None else 0.0
        operation.due = self._clock.now() + max(pause, wanted)

    def _place(self) -> float:
        """The next moment at which one more address may be asked."""
        earliest = self._clock.now() - POLLS_AT_ONCE / POLLS_A_SECOND
        self._next_place = max(self._next_place, earliest) + 1 / POLLS_A_SECOND
        return self._next_place

    def _slow(self, operation: _Operation) -> bool:
        return self._clock.now() - operation.since > _slow_seconds(operation.kind)

    def _pause(self, operation: _Operation) -> float:
        if self._slow(operation):
            return self._slow_pause()
        return POLL_SECONDS + self._random.uniform(0, JITTER_SECONDS)

    def _slow_pause(self) -> float:
        return self._random.uniform(*SLOW_POLL_SECONDS)

    # Lists

    async def _keep_listing(self) -> None:
        """List as long as there are many operations; then leave them to their addresses."""
        many = self._clock.now()
        try:
            while self._operations and self._clock.now() - many <= LIST_TAIL_SECONDS:
                began = self._clock.now()
                pause = await self._list_when_due()
                if len(self._operations) >= LIST_BELOW:
                    many = self._clock.now()
                if self._operations:
                    await self._clock.sleep(began + pause - self._clock.now())
        finally:
            self._lister = None
            self._leave_to_addresses(self._operations)

    async def _list_when_due(self) -> float:
        """List if any operation may be over; seconds from now to the start of the next list."""
        early = min(operation.due for operation in self._operations) - self._clock.now()
        if early > 0:
            return min(early, POLL_SECONDS)
        # An operation that is accepted while the list is made may be missing from it.
        judged = list(self._operations)
        try:
            vms = await self._listed()
            for operation in judged:
                _judge(operation, vms)
        except ArmError as error:
            self._leave_to_addresses(judged)
            wanted = error.failure.retry_after or timedelta()
            return max(self._slow_pause(), wanted.total_seconds())
        except Exception:  # the guard of a loop: addresses still tell
            logger.exception("a list of VMs could not be read; operations are asked about instead")
            self._leave_to_addresses(judged)
            return self._slow_pause()
        return POLL_SECONDS if not all(map(self._slow, judged)) else self._slow_pause()

    async def _listed(self) -> Mapping[str, Json]:
        """The list; as long as it takes, addresses are asked after a while."""
        listing = asyncio.ensure_future(self._list_all())
        try:
            while not listing.done():
                await _unless(listing, self._clock.sleep(LIST_PATIENCE_SECONDS))
                if not listing.done():
                    self._leave_to_addresses(self._operations)
            return listing.result()
        finally:
            listing.cancel()

    @staticmethod
    def _leave_to_addresses(operations: "set[_Operation] | list[_Operation]") -> None:
        for operation in operations:
            operation.asked_for.set()


def _slow_seconds(kind: str) -> float:
    return SLOW_AFTER * USUAL_SECONDS.get(kind, OTHER_SECONDS)


def _believed(kind: str, retry_after: timedelta | None) -> timedelta | None:
    """What an answer wants, but no wait over which a deadline would pass unseen."""
    longest = timedelta(seconds=_slow_seconds(kind))
    return min(retry_after, longest) if retry_after is not None else None


def _judge(operation: _Operation, vms: Mapping[str, Json]) -> None:
    vm = vms.get(operation.vm.lower())
    match operation.over(vm):
        case Over.RUNNING:
            operation.asked_for.clear()
        case Over.DONE:
            operation.end(vm)
        case Over.ASK:
            operation.asked_for.set()


async def _unless(
    first: "asyncio.Future[Any]", work: Coroutine[Any, Any, _Result]
) -> _Result | None:
    """The result of `work`, or None when `first` is done before; then the work is given up."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    try:
        await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
        return None if first.done() else task.result()
    finally:
        task.cancel()


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """A failure of work that was given up concerns nobody."""
    if not task.cancelled():
        task.exception()
