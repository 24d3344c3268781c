"""Time, so that nothing else reads a clock and tests can stand still or jump."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock seconds, and waiting."""

    @property
    def pace(self) -> float:
        """Seconds of this clock in one of the event loop, by which time limits are kept.

        1, but where a simulation runs faster than life.
        """

    def now(self) -> float:
        """Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once for zero or less."""


class SystemClock:
    """The machine's clock and the running loop's timers."""

    pace = 1.0

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        if seconds > 0:
            await asyncio.sleep(seconds)
