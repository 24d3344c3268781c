"""Azure's time: one clock with a speed factor, and the timeline of what happens on its own.

The daemon under test and the double share one `ArmClock`, so that 180 Azure seconds may take one.
Values on the wire (Retry-After, startTime) are Azure seconds and are never scaled.
"""

import asyncio
import functools
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime


class ArmClock:
    """Implements `kit.clock.Clock`; `speed` Azure seconds pass in one real second."""

    def __init__(self, speed: float = 1.0, start: float | None = None) -> None:
        self._speed = speed
        self._start = time.time() if start is None else start
        self._origin = time.monotonic()

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        """From now on; time neither jumps nor goes back."""
        self._start, self._origin = ArmClock.now(self), time.monotonic()
        self._speed = value

    @property
    def pace(self) -> float:
        """As `kit.clock.Clock` wants it."""
        return self._speed

    def now(self) -> float:
        return self._start + (time.monotonic() - self._origin) * self._speed

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds / self.speed)


class SteppedClock(ArmClock):
    """Stands still but for whoever sleeps on it, which moves it on at once: no test is too slow."""

    def __init__(self, start: float | None = None) -> None:
        super().__init__(1.0, start)
        self._now = super().now()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        await asyncio.sleep(0)


class Event:
    """Something due; a cancelled one never happens."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do
        self.cancelled = False


class Timeline:
    """What is due when. Due events happen in order, before the next request sees the world."""

    def __init__(self, clock: ArmClock) -> None:
        self.clock = clock
        self._due: list[tuple[float, int, Event]] = []
        self._count = 0
        self._moment: float | None = None
        self._changed = asyncio.Event()

    def now(self) -> float:
        """The clock's time; inside an event the exact moment at which it was due."""
        return self.clock.now() if self._moment is None else self._moment

    def after(self, seconds: float, do: Callable[[], None]) -> Event:
        event = Event(do)
        self._count += 1
        heapq.heappush(self._due, (self.now() + seconds, self._count, event))
        self._changed.set()
        return event

    def settle(self) -> None:
        """Let everything happen that is due by now."""
        now = self.clock.now()
        while self._due and self._due[0][0] <= now:
            when, _, event = heapq.heappop(self._due)
            if event.cancelled:
                continue
            self._moment = when
            try:
                event.do()
            finally:
                self._moment = None

    async def run(self) -> None:
        """Keep settling, for guests that act while nobody asks."""
        while True:
            self._changed.clear()
            self.settle()
            wait = None
            if self._due:
                wait = max(0.0, self._due[0][0] - self.clock.now()) / self.clock.speed
            try:
                await asyncio.wait_for(self._changed.wait(), wait)
            except TimeoutError:
                continue


@functools.lru_cache(maxsize=10_000)
def stamp(seconds: float) -> str:
    """A moment as Compute writes it: seven digits of fraction and an offset."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}0+00:00"
