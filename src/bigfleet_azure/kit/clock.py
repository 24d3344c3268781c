"""Time, so that nothing else reads a clock and tests can stand still or jump."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock seconds, and waiting."""

    def now(self) -> float:
        """Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once for zero or less."""


class SystemClock:
    """The machine's clock and the running loop's timers."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        if seconds > 0:
            await asyncio.sleep(seconds)
