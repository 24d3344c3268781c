"""Blocks: offerings whose capacity is known to be unavailable for a while.

A block hides the offering's unused slots from List (their absence is how a shard learns); it never
fails anything. Operations that were accepted already probe through it, one per offering at a
time, and the first success lifts it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.kit.clock import Clock

PROBE_EVERY_SECONDS = 30.0
"""Pause between two probes of one blocked offering (design section 5)."""

TIME_TO_LIVE_SECONDS = {
    FailureKind.QUOTA: 600.0,
    FailureKind.OUT_OF_CAPACITY: 3600.0,
}
"""How long a refusal of each kind is believed (azure-practice section 3: family quota 10 min,
allocation failures 1 h)."""


@dataclass(slots=True)
class _Block:
    until: float
    next_probe: float
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


class Blocks:
    """The standing blocks, by offering number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._standing: dict[int, _Block] = {}
        self.changed: Callable[[int], None] = lambda number: None
        """Called with an offering's number whenever its block appears or goes."""

    def blocked(self, number: int) -> bool:
        """Whether the offering is blocked now."""
        return number in self._standing

    def record(self, number: int, kind: FailureKind) -> None:
        """Note a refusal for lack of capacity; a repeated one prolongs the block."""
        now = self._clock.now()
        until = now + TIME_TO_LIVE_SECONDS[kind]
        known = self._standing.get(number)
        if known is not None:
            known.until = max(known.until, until)
            return
        self._standing[number] = _Block(until=until, next_probe=now + PROBE_EVERY_SECONDS)
        self.changed(number)

    def lift(self, number: int) -> None:
        """Forget the block: something succeeded, or capacity was given back."""
        known = self._standing.pop(number, None)
        if known is not None:
            known.lifted.set()
            self.changed(number)

    def expire(self) -> None:
        """Forget blocks whose time is over; called by a loop."""
        now = self._clock.now()
        for number in [n for n, block in self._standing.items() if block.until <= now]:
            self.lift(number)

    async def turn(self, number: int) -> None:
        """Wait for this caller's turn to probe the offering, or for its block to be lifted."""
        while (block := self._standing.get(number)) is not None:
            now = self._clock.now()
            # A wall clock that was set back must not put the next probe off by as much.
            block.next_probe = min(block.next_probe, now + PROBE_EVERY_SECONDS)
            wait = block.next_probe - now
            if wait <= 0:
                block.next_probe = now + PROBE_EVERY_SECONDS
                return
            try:
                async with asyncio.timeout(wait):
                    await block.lifted.wait()
            except TimeoutError:
                continue
