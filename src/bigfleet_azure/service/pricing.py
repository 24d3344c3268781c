"""Keeps prices and eviction rates fresh: asks the substrate, keeps what it said, publishes it.

An offering whose cost did not change is not touched. What fails leaves the last good figures in
place, with a condition.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.service.catalogue import Catalogue, OffersRefused
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.service.republishing import Republisher
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

CONDITION = "prices"


class Pricing:
    """See the module."""

    def __init__(
        self,
        *,
        backend: Backend,
        inventory: Inventory,
        catalogue: Catalogue,
        journal: Journal,
        republisher: Republisher,
        conditions: Conditions,
        metrics: Metrics,
        kept: str,
    ) -> None:
        """Take the service's parts.

        Args:
            kept: what the store holds of prices and rates.
        """
        self._backend = backend
        self._inventory = inventory
        self._catalogue = catalogue
        self._journal = journal
        self._republisher = republisher
        self._conditions = conditions
        self._metrics = metrics
        self._kept = kept
        self._known_guesses: set[str] = set()
        self._just_asked = False
        backend.recall(kept)

    async def take(self) -> None:
        """Ask once, unless the start just did, and publish what changed."""
        if not self._just_asked:
            await self.ask()
        self._just_asked = False
        try:
            applied = await self._catalogue.refresh()
        except OffersRefused as error:
            self._conditions.set("offerings", str(error))
            return
        self._republisher.follow()
        if applied.changed:
            logger.info("prices or eviction rates changed", extra={"offerings": applied.changed})

    async def ask(self) -> None:
        """Learn what things cost, without publishing it yet."""
        refreshed = await self._backend.refresh()
        self._known_guesses = set(self._backend.unpriced())
        if refreshed.kept and refreshed.kept != self._kept:
            kept = self._kept = refreshed.kept
            await self._journal.change("prices?", lambda: ChangeSet(market=kept))
        self._metrics.price_refresh.labels("error" if refreshed.troubles else "success").inc()
        if refreshed.troubles:
            self._conditions.set(CONDITION, "; ".join(refreshed.troubles))
        else:
            self._conditions.clear(CONDITION)

    async def ask_about_new(self, offers: Sequence[Offer]) -> None:
        """Ask when nothing was ever learnt, or sizes are without a price that are new.

        Args:
            offers: what is about to be offered.
        """
        for offer in offers:
            with suppress(BackendError):  # applying them tells
                self._backend.facts(offer)  # a substrate knows by this what is asked for
        guessed = set(self._backend.unpriced())
        if not self._kept or guessed - self._known_guesses:
            await self.ask()
            self._just_asked = True

    def guessed(self) -> list[str]:
        """Sizes that are offered at a guessed price."""
        offered = {one.offer.vm_size for one in self._inventory.offerings() if one.offer.count}
        return [size for size in self._backend.unpriced() if size in offered]

    def refresh_metrics(self) -> None:
        """Set the gauges that are read only when somebody looks."""
        self._metrics.guessed_prices.set(len(self.guessed()))
        for offering in self._inventory.offerings():
            offer = offering.offer
            if offer.count:
                gauge = self._metrics.prices.labels(offer.vm_size, offer.capacity_type.tag)
                gauge.set(offering.facts.price_usd_per_hour)
