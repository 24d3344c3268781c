"""Blocks: capacity that is known to be short for a while, by what is short.

A block hides the unused slots of the offerings that it covers from List (their absence is how a
shard learns); it never fails anything. Operations that were accepted already probe through it, one
per block at a time whatever the offering, and the first success lifts it. Who hides and shows
slots is `service.catalogue`.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

PROBE_EVERY_SECONDS = 30.0
"""Pause between two probes of what is short (design section 5)."""

TIME_TO_LIVE_SECONDS = {
    FailureKind.QUOTA: 600.0,
    FailureKind.OUT_OF_CAPACITY: 3600.0,
}
"""How long a refusal of each kind is believed (azure-practice section 3: family quota 10 min,
allocation failures 1 h)."""

REFUSAL, SURVEY = "refusal", "survey"
"""How a shortage was learnt."""

SHOWN = 3
"""Texts of shortages that are shown to people; the rest is counted."""


def of_one_offering(number: int, offer: Offer, kind: FailureKind, text: str) -> Shortage:
    """The shortage when nothing is known but that this offering was refused for `kind`."""
    return Shortage(
        key=f"offering {number}",
        text=f"{offer.vm_size} {offer.capacity_type.tag} in {offer.zone}: {text}",
        seconds=TIME_TO_LIVE_SECONDS[kind],
        covers=_Like(replace(offer, count=0)),
    )


@dataclass(frozen=True, slots=True)
class _Like:
    """Covers offers that differ from this one in their count at most."""

    offer: Offer

    def __call__(self, other: Offer) -> bool:
        return replace(other, count=0) == self.offer


@dataclass(slots=True)
class _Block:
    """One shortage that is believed.

    Attributes:
        until: by the way it was learnt, Unix seconds up to which it is believed.
        next_probe: Unix seconds from which the next operation may try all the same.
        lifted: set when it ends.
    """

    shortage: Shortage
    next_probe: float
    until: dict[str, float] = field(default_factory=dict)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


class Blocks:
    """The standing blocks, by the key of what is short."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._gauges = {way: metrics.blocks.labels(way) for way in (REFUSAL, SURVEY)}
        self._standing: dict[str, _Block] = {}
        self.changed: Callable[[Callable[[Offer], bool]], None] = lambda concerns: None
        """Called when a block appears, goes or covers others than before: whom it concerns."""

    def blocked(self, offer: Offer) -> bool:
        """Whether something that `offer` needs is short now."""
        return any(block.shortage.covers(offer) for block in self._standing.values())

    def record(self, shortage: Shortage) -> None:
        """Note a refusal for lack of something; a repeated one prolongs the block."""
        self._put(shortage, REFUSAL)

    def survey(self, shortages: Sequence[Shortage]) -> None:
        """Take what was found by asking: all that is short, as far as asking can tell.

        What an earlier survey found and this one does not is over, unless a refusal still says it.
        """
        found = {shortage.key for shortage in shortages}
        for shortage in shortages:
            self._put(shortage, SURVEY)
        for key in self._standing.keys() - found:
            self._standing[key].until.pop(SURVEY, None)
        self.expire()

    def _put(self, shortage: Shortage, way: str) -> None:
        now = self._clock.now()
        block = self._standing.get(shortage.key)
        if block is None:
            block = _Block(shortage, next_probe=now + PROBE_EVERY_SECONDS)
            self._standing[shortage.key] = block
            self.changed(shortage.covers)
        before, after = block.shortage.covers, shortage.covers
        block.shortage = shortage
        block.until[way] = max(block.until.get(way, 0.0), now + shortage.seconds)
        if before != after:
            self.changed(lambda offer: before(offer) != after(offer))

    def lift(self, offer: Offer) -> None:
        """Forget what `offer` was blocked by: it succeeded, or gave capacity back."""
        for key, block in list(self._standing.items()):
            if block.shortage.covers(offer):
                self._end(key)

    def expire(self) -> None:
        """Forget blocks whose time is over; called by a loop."""
        now = self._clock.now()
        for key, block in list(self._standing.items()):
            block.until = {way: until for way, until in block.until.items() if until > now}
            if not block.until:
                self._end(key)

    def _end(self, key: str) -> None:
        block = self._standing.pop(key)
        block.lifted.set()
        self.changed(block.shortage.covers)

    async def turn(self, offer: Offer) -> None:
        """Wait for this caller's turn to probe all that blocks `offer`, or for that to be over."""
        while covering := [b for b in self._standing.values() if b.shortage.covers(offer)]:
            now = self._clock.now()
            for block in covering:
                # A wall clock that was set back must not put the next probe off by as much.
                block.next_probe = min(block.next_probe, now + PROBE_EVERY_SECONDS)
            last = max(covering, key=lambda block: block.next_probe)
            if last.next_probe <= now:
                for block in covering:
                    block.next_probe = now + PROBE_EVERY_SECONDS
                return
            try:
                async with asyncio.timeout((last.next_probe - now) / self._clock.pace):
                    await last.lifted.wait()
            except TimeoutError:
                continue

    def refresh_metrics(self) -> None:
        """Set the gauges that are read only when somebody looks."""
        for way, gauge in self._gauges.items():
            gauge.set(sum(way in block.until for block in self._standing.values()))

    def text(self, offers: Collection[Offer]) -> str:
        """What these offers are short of, for people; empty when they are short of nothing."""
        shortages = (block.shortage for block in self._standing.values())
        texts = [short.text for short in shortages if any(map(short.covers, offers))]
        rest = [f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
        return "; ".join(texts[:SHOWN] + rest)
