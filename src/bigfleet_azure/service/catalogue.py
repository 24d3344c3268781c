"""Applies the operator's offers to the fleet, and hides what cannot be had.

New slots appear, surplus unused ones go, used ones stay until they are empty; a changed price or
shape gives exactly the machines that show it a new change number.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import (
    Assignment,
    Facts,
    Offer,
    Offering,
    assign,
    named_for,
)
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.blocks import Blocks
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal

logger = logging.getLogger(__name__)

_DIGEST_BYTES = 8
_TOUCH_AT_ONCE = 250
"""Machines renumbered in one go; more would hold the loop for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What applying the offers changed.

    Attributes:
        added, removed: slots.
        changed: offerings that publish something else than before.
        unknown: offers left as they were, or out, since the substrate does not know them yet.
    """

    added: int
    removed: int
    changed: int
    unknown: int


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
        self._offers: Sequence[Offer] = ()
        blocks.changed = self._blocks_changed

    async def apply(self, offers: Sequence[Offer]) -> Applied:
        """Make the published slots follow `offers`; called at start and on reload.

        Raises:
            OffersRefused: with every fault.
        """
        async with self._applying:
            try:
                applied = await self._apply_all(offers)
                self._offers = tuple(offers)
            finally:
                self._backend.offered(self._offers)
            return applied

    async def refresh(self) -> Applied:
        """Publish what the substrate says of the offers now; the offers stay what they are.

        Raises:
            OffersRefused: with every offer that the substrate knows nothing of any more.
        """
        return await self.apply(self._offers)

    async def _apply_all(self, offers: Sequence[Offer]) -> Applied:
        known = {offering.number: offering for offering in self._inventory.offerings()}
        wanted = assign(offers, known.values(), provider=self._provider, region=self._region)
        self._check(offers)
        added = removed = changed = unknown = 0
        for assignment in wanted:
            before = known.pop(assignment.number, None)
            facts = self._facts(assignment.offer)
            unknown += facts is None
            if before and (facts is None or facts.guessed):
                facts = before.facts
            if facts is None:
                continue
            had = before.offer.count if before else 0
            added += max(0, assignment.offer.count - had)
            removed += max(0, had - assignment.offer.count)
            changed += await self._apply(assignment, facts)
            await self.follow_block(assignment.number)
        for offering in known.values():
            removed += offering.offer.count
            await self._shrink(offering.number, 0)
        return Applied(added=added, removed=removed, changed=changed, unknown=unknown)

    def _check(self, offers: Sequence[Offer]) -> None:
        """Find everything that cannot be offered before anything is changed."""
        faults = [
            f"offering {known.prefix}: its machines were published under another --provider "
            f"than {self._provider!r}, and host.provider must not change under them"
            for known in self._inventory.offerings()
            if not named_for(known.prefix, known.offer, self._provider)
            and any(record.host for record in self._inventory.records_of(known.number))
        ]
        for offer in offers:
            try:
                self._facts(offer)
            except BackendError as error:
                faults.append(f"{offer.vm_size} in {offer.zone}: {error}")
        if faults:
            raise OffersRefused("\n".join(faults))

    def _facts(self, offer: Offer) -> Facts | None:
        """What is to be published about `offer`; None while the substrate cannot tell yet.

        Raises:
            BackendError: there is no such thing.
        """
        try:
            return self._backend.facts(offer)
        except BackendError as error:
            if error.kind in RETRYABLE:
                return None
            raise

    async def _apply(self, assignment: Assignment, facts: Facts) -> bool:
        """Bring one offering to its wanted shape; True when what it publishes changed.

        Under the lock of its block: what is renumbered by either must be whole before the other.
        """
        async with self._journal.locks.hold(_block_key(assignment.number)):
            return await self._apply_alone(assignment, facts)

    async def _apply_alone(self, assignment: Assignment, facts: Facts) -> bool:
        before = self._inventory.find_offering(assignment.number)
        wanted = self._described(assignment, facts)
        if before is not None and _same(wanted, before):
            return False
        had = before.offer.count if before else 0
        changed = before is not None and wanted.published != before.published

        def build() -> Offering:
            current = self._inventory.find_offering(assignment.number)
            count = wanted.offer.count
            after = replace(
                wanted,
                segments=current.segments if current else (),
                withheld=current.withheld if current else self._blocks.blocked(wanted.offer),
                taken=current.taken_beside(facts) if current else None,
                left_out=current.left_out if current else wanted.left_out,
            )
            if changed:
                return after.rebased(self._inventory.reserve(count) if count else 0)
            base = self._inventory.reserve(count - had) if count > had else 0
            return after.resized(count, base)

        def anew(record: Record) -> bool:
            return changed or (record.state is State.SPECULATIVE and record.index >= had)

        if wanted.offer.count < had:
            await self._shrink(assignment.number, wanted.offer.count)
        if before is None:
            changes = lambda: ChangeSet(offerings=(build(),))  # noqa: E731 - one expression
            await self._journal.change(_key(assignment.number), changes)
        else:
            await self._show(assignment.number, build, anew)
        return changed

    def _described(self, assignment: Assignment, facts: Facts) -> Offering:
        described = Offering(
            number=assignment.number,
            prefix=assignment.prefix,
            offer=assignment.offer,
            facts=facts,
        )
        return replace(described, published=self._digest(described))

    def _digest(self, offering: Offering) -> str:
        shared = self._inventory.shared_fields(offering)
        return hashlib.blake2b(shared, digest_size=_DIGEST_BYTES).hexdigest()

    async def _shrink(self, number: int, count: int) -> None:
        """Take slots away: unused ones at once, used ones when they are empty.

        The offering and the rows are kept: a number must never come to mean another offering, and
        a retired id must not come back when its slot is offered again.
        """

        def build() -> ChangeSet:
            current = self._inventory.offering(number)
            if current.offer.count <= count:
                return ChangeSet()
            return ChangeSet(offerings=(current.resized(count, 0),), head=self._inventory.reserve())

        await self._journal.change(_key(number), build)

    async def _show(
        self,
        number: int,
        build: Callable[[], Offering | None],
        anew: Callable[[Record], bool],
    ) -> None:
        """Publish an offering, and give new change numbers to the records that `anew` picks.

        Until all of them have one the offering is stored without its digest. A process that starts
        after a crash in between takes it for changed, and shows all of it anew.
        """

        def publish() -> ChangeSet:
            offering = build()
            if offering is None:
                return ChangeSet()
            return ChangeSet(offerings=(replace(offering, published=""),), head=offering.head)

        def complete() -> ChangeSet:
            offering = self._inventory.offering(number)
            return ChangeSet(offerings=(replace(offering, published=self._digest(offering)),))

        await self._journal.change(_key(number), publish)
        await self._inventory.renew(number)
        await self._touch([r for r in self._inventory.records_of(number) if anew(r)])
        await self._journal.change(_key(number), complete)

    async def _touch(self, records: list[Record]) -> None:
        """Give each of these machines a new change number."""
        for first in range(0, len(records), _TOUCH_AT_ONCE):
            names = [record.id for record in records[first : first + _TOUCH_AT_ONCE]]
            await self._journal.change_all(names, partial(self._inventory.touched, names))

    def _blocks_changed(self, concerns: Callable[[Offer], bool]) -> None:
        for offering in self._inventory.offerings():
            if concerns(offering.offer):
                number = offering.number
                self._supervisor.start(f"withhold offering {number}", self.follow_block(number))

    async def follow_block(self, number: int) -> None:
        """Hide the offering's unused slots while it is blocked; bring them back as changed."""
        async with self._journal.locks.hold(_block_key(number)):
            offering = self._inventory.offering(number)
            blocked = self._blocks.blocked(offering.offer)
            if blocked == offering.withheld:
                return
            if blocked:
                await self._journal.change(_key(number), lambda: self._withheld(number))
                return
            await self._show(
                number,
                lambda: self._returned(number),
                lambda record: record.state is State.SPECULATIVE,
            )
        logger.info("offering is back", extra={"offering": number})

    def _withheld(self, number: int) -> ChangeSet:
        head = self._inventory.reserve() if self._inventory.unused(number) else None
        hidden = replace(self._inventory.offering(number), withheld=True)
        return ChangeSet(offerings=(hidden,), head=head)

    def _returned(self, number: int) -> Offering:
        offering = replace(self._inventory.offering(number), withheld=False)
        if not self._inventory.untouched(number):
            return offering
        return offering.rebased(self._inventory.reserve(offering.offer.count))

    async def show_all(self) -> None:
        """Bring back what an earlier process withheld: blocks do not outlive a process."""
        for offering in self._inventory.offerings():
            if offering.withheld:
                await self.follow_block(offering.number)


def _key(number: int) -> str:
    """Lock of an offering; no machine id contains a space."""
    return f"offering {number}"


def _block_key(number: int) -> str:
    """Lock of whoever hides or renumbers an offering's slots."""
    return f"block {number}"


def _same(wanted: Offering, known: Offering) -> bool:
    """Whether nothing about an offering differs but what the process itself decides."""
    own = replace(
        wanted,
        segments=known.segments,
        withheld=known.withheld,
        taken=known.taken,
        left_out=known.left_out,
    )
    return own == known
