"""Virtual time: a clock that stands still until a test moves it."""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_TURNS = 20
"""Turns of the loop given to tasks before it is taken that all of them wait for something."""


class VirtualClock:
    """Implements `kit.clock.Clock`; whoever sleeps on it wakes when a test lets time pass."""

    pace = 1.0

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    @property
    def sleepers(self) -> int:
        """How many are waiting for time to pass."""
        self._forget_cancelled()
        return len(self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking each sleeper at its own moment."""
        goal = self._now + seconds
        await self.settle()
        while self.sleepers and self._sleepers[0][0] <= goal:
            await self._wake_next()
        self._now = goal
        await self.settle()

    async def run(self, call: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of `call`, with just as much time passed as it needs."""
        task = asyncio.ensure_future(call)
        await self.settle()
        while not task.done():
            if not self.sleepers:
                task.cancel()
                raise AssertionError("it waits, but not for time to pass")
            await self._wake_next()
        return await task

    async def settle(self) -> None:
        """Let all tasks run until they wait for something."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _wake_next(self) -> None:
        at, _, woken = heapq.heappop(self._sleepers)
        self._now = max(self._now, at)
        woken.set_result(None)
        await self.settle()

    def _forget_cancelled(self) -> None:
        self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[2].done()]
        heapq.heapify(self._sleepers)
