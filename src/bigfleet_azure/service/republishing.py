"""Lets shards take over a new price or probability of slots that nobody uses.

A shard takes nothing of a record over while its state stays the same (contract section 11), so an
unused slot would be ranked by the cost it had when it appeared. One that is missing from a full
List is forgotten, and taken over whole when it is back. So, once the cost of an offering moved far
enough, its unused slots are left out of one full List, a share of them at a time, and return with
new change numbers. Get and Create know them throughout.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal

logger = logging.getLogger(__name__)

WAVES = 10
"""An offering's slots are left out in so many parts, one after the other: most of what is offered
stays offered."""

WAIT_SECONDS = 300.0
"""Longest time for which slots are left out: a shard lists every 10 s (contract section 13)."""

AT_ONCE = 250
"""Slots that get new change numbers in one write."""


class Republisher:
    """One walk through the slots of each offering whose cost moved.

    Args:
        threshold: share of the known cost by which it must have moved; 0 = never.
    """

    def __init__(
        self,
        *,
        inventory: Inventory,
        journal: Journal,
        clock: Clock,
        supervisor: Supervisor,
        threshold: float,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self._clock = clock
        self._supervisor = supervisor
        self._threshold = threshold
        self._walking: set[int] = set()

    def follow(self) -> None:
        """Begin what has become due; called whenever costs may have changed."""
        for offering in self._inventory.offerings():
            number = offering.number
            if number not in self._walking and self._due(offering):
                self._walking.add(number)
                self._supervisor.start(f"republish offering {number}", self._walk(number))

    def _due(self, offering: Offering) -> bool:
        return self._threshold > 0 and offering.offer.count > 0 and offering.moved(self._threshold)

    async def _walk(self, number: int) -> None:
        try:
            while self._due(offering := self._inventory.offering(number)):
                cost = offering.facts.cost
                size = -(-offering.offer.count // WAVES)
                for first in range(0, offering.offer.count, size):
                    if not await self._wave(number, first, first + size):
                        return  # nobody lists: the next change of prices begins anew
                await self._journal.change(f"offering {number}", partial(self._taken, number, cost))
                logger.info("unused slots were published anew", extra={"offering": number})
        finally:
            self._walking.discard(number)

    def _taken(self, number: int, cost: tuple[float, float]) -> ChangeSet:
        return ChangeSet(offerings=(self._inventory.offering(number).with_taken(cost),))

    async def _wave(self, number: int, first: int, end: int) -> bool:
        """Leave the unused slots in [first, end) out of a full List, then show them as changed.

        Returns:
            Whether there was such a List.
        """
        if not self._inventory.unused_between(number, first, end):
            return True
        await self._change(number, lambda current: replace(current, left_out=(first, end)))
        listed = False
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS / self._clock.pace):
                await self._inventory.full_list()
            listed = True
        await self._change(number, lambda current: self._returned(current, first, end))
        names = [
            record.id
            for record in self._inventory.records_of(number)
            if first <= record.index < end and record.state is State.SPECULATIVE
        ]
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            await self._journal.change_all(some, partial(self._touched, some))
        return listed

    def _touched(self, names: Sequence[str]) -> ChangeSet:
        """New change numbers for those that are still unused."""
        unused = [
            name
            for name in names
            if (one := self._inventory.record(name)) and one.state is State.SPECULATIVE
        ]
        return self._inventory.touched(unused)

    def _returned(self, current: Offering, first: int, end: int) -> Offering:
        shown = replace(current, left_out=(0, 0))
        count = min(end, current.offer.count) - first
        if count <= 0:
            return shown
        return shown.rebased_between(first, first + count, self._inventory.reserve(count))

    async def _change(self, number: int, change: Callable[[Offering], Offering]) -> None:
        """Publish an offering that is listed otherwise: that alone moves the revision."""

        def build() -> ChangeSet:
            after = change(self._inventory.offering(number))
            return ChangeSet(offerings=(after,), head=self._inventory.reserve())

        await self._journal.change(f"offering {number}", build)
