"""Applies the operator's offers to the fleet, and hides what cannot be had.

New slots appear, surplus unused ones go, used ones stay until they are empty; a changed price or
shape gives exactly the machines that show it a new change number.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Assignment, Offer, Offering, assign
from bigfleet_azure.domain.settle import Settled, vanish
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.blocks import Blocks
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal

logger = logging.getLogger(__name__)

_DIGEST_BYTES = 8
_TOUCH_AT_ONCE = 500
"""Machines renumbered in one go; more would hold the loop for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What applying the offers changed, in slots and offerings."""

    added: int
    removed: int
    changed: int


class OffersRefused(Exception):
    """The substrate knows nothing of some offers; one line for each, and nothing was changed."""


class Catalogue:
    """The offerings as the operator wants them, kept in step with what is published."""

    def __init__(
        self,
        *,
        backend: Backend,
        inventory: Inventory,
        journal: Journal,
        blocks: Blocks,
        clock: Clock,
        supervisor: Supervisor,
        provider: str,
        region: str,
    ) -> None:
        self._backend = backend
        self._inventory = inventory
        self._journal = journal
        self._blocks = blocks
        self._clock = clock
        self._supervisor = supervisor
        self._provider = provider
        self._region = region
        self._applying = asyncio.Lock()
        blocks.changed = self._block_changed

    async def apply(self, offers: Sequence[Offer]) -> Applied:
        """Make the published slots follow `offers`; called at start and on reload.

        Raises:
            OffersRefused: with every fault.
        """
        async with self._applying:
            return await self._apply_all(offers)

    async def _apply_all(self, offers: Sequence[Offer]) -> Applied:
        known = {offering.number: offering for offering in self._inventory.offerings()}
        wanted = assign(offers, known.values(), provider=self._provider, region=self._region)
        self._check(offers)
        added = removed = changed = 0
        for assignment in wanted:
            before = known.pop(assignment.number, None)
            had = before.offer.count if before else 0
            added += max(0, assignment.offer.count - had)
            removed += max(0, had - assignment.offer.count)
            changed += await self._apply(assignment)
        for offering in known.values():
            removed += offering.offer.count
            await self._shrink(offering, 0)
        return Applied(added=added, removed=removed, changed=changed)

    def _check(self, offers: Sequence[Offer]) -> None:
        """Find everything that the substrate cannot offer before anything is changed."""
        faults = []
        for offer in offers:
            try:
                self._backend.facts(offer)
            except BackendError as error:
                faults.append(f"{offer.vm_size} in {offer.zone}: {error}")
        if faults:
            raise OffersRefused("\n".join(faults))

    async def _apply(self, assignment: Assignment) -> bool:
        """Bring one offering to its wanted shape; True when what it publishes changed."""
        before = self._inventory.find_offering(assignment.number)
        wanted = self._described(assignment, before)
        if before is not None and wanted == before:
            return False
        changed = before is not None and wanted.published != before.published
        if before is not None and wanted.offer.count < before.offer.count:
            await self._shrink(before, wanted.offer.count)

        def build() -> ChangeSet:
            current = self._inventory.find_offering(assignment.number)
            count = wanted.offer.count
            grown = count - (current.offer.count if current else 0)
            after = replace(
                wanted,
                segments=current.segments if current else (),
                withheld=current.withheld if current else False,
            )
            if changed:
                base = self._inventory.reserve(count) if count else 0
                return ChangeSet(offerings=(after.rebased(base),))
            base = self._inventory.reserve(grown) if grown > 0 else 0
            return ChangeSet(offerings=(after.resized(count, base),))

        await self._journal.change(_key(assignment.number), build)
        if changed:
            await self._touch(self._inventory.records_of(assignment.number))
        return changed

    def _described(self, assignment: Assignment, before: Offering | None) -> Offering:
        described = Offering(
            number=assignment.number,
            prefix=assignment.prefix,
            offer=assignment.offer,
            facts=self._backend.facts(assignment.offer),
            segments=before.segments if before else (),
            withheld=before.withheld if before else False,
        )
        shared = self._inventory.shared_fields(described)
        digest = hashlib.blake2b(shared, digest_size=_DIGEST_BYTES).hexdigest()
        return replace(described, published=digest)

    async def _shrink(self, before: Offering, count: int) -> None:
        """Take slots away: at once where they are unused, by `vanish` where they are used.

        An emptied offering is kept: its number is part of its slots' numbers, and must never
        come to mean another.
        """

        def build() -> ChangeSet:
            current = self._inventory.offering(before.number)
            return ChangeSet(offerings=(current.resized(count, 0),), head=self._inventory.reserve())

        if before.offer.count > count:
            await self._journal.change(_key(before.number), build)
        for record in self._inventory.records_of(before.number):
            if record.state is State.SPECULATIVE and self._inventory.surplus(record):
                await self._remove(record)

    async def _remove(self, record: Record) -> None:
        def build() -> ChangeSet:
            current = self._inventory.record(record.id)
            if current is None or current.state is not State.SPECULATIVE:
                return ChangeSet()
            gone = replace(current, change=self._inventory.reserve(), since=self._clock.now())
            return vanish(Settled(record=gone, changes=ChangeSet())).changes

        await self._journal.change(record.id, build)

    async def _touch(self, records: list[Record]) -> None:
        """Give each of these machines a new change number."""
        for first in range(0, len(records), _TOUCH_AT_ONCE):
            batch = records[first : first + _TOUCH_AT_ONCE]
            await asyncio.gather(*(self._touch_one(record.id) for record in batch))

    async def _touch_one(self, machine_id: str) -> None:
        def build() -> ChangeSet:
            current = self._inventory.record(machine_id)
            if current is None:
                return ChangeSet()
            return ChangeSet(records=(replace(current, change=self._inventory.reserve()),))

        await self._journal.change(machine_id, build)

    def _block_changed(self, number: int) -> None:
        self._supervisor.start(f"withhold offering {number}", self.follow_block(number))

    async def follow_block(self, number: int) -> None:
        """Hide the offering's unused slots while it is blocked; bring them back as changed."""
        returned = False

        def build() -> ChangeSet:
            nonlocal returned
            offering = self._inventory.find_offering(number)
            blocked = self._blocks.blocked(number)
            if offering is None or blocked == offering.withheld:
                return ChangeSet()
            returned = not blocked
            turned = replace(offering, withheld=blocked)
            if blocked:
                head = self._inventory.reserve() if self._inventory.unused(number) else None
                return ChangeSet(offerings=(turned,), head=head)
            if self._inventory.untouched(number):
                turned = turned.rebased(self._inventory.reserve(offering.offer.count))
            return ChangeSet(offerings=(turned,))

        await self._journal.change(_key(number), build)
        if returned:
            unused = [
                record
                for record in self._inventory.records_of(number)
                if record.state is State.SPECULATIVE
            ]
            await self._touch(unused)
            logger.info("offering is back", extra={"offering": number})

    async def show_all(self) -> None:
        """Bring back what an earlier process withheld: blocks do not outlive a process."""
        for offering in self._inventory.offerings():
            if offering.withheld:
                await self.follow_block(offering.number)


def _key(number: int) -> str:
    """Lock of an offering; no machine id contains a space."""
    return f"offering {number}"
