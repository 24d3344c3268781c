"""Reads prices and eviction rates anew, and gives them to the market.

Each source is asked by itself: trouble with one leaves the others' answers, and what was known.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from bigfleet_azure.backends.azure import errors, meters
from bigfleet_azure.backends.azure.arm import ArmError
from bigfleet_azure.backends.azure.clients import Clients
from bigfleet_azure.backends.azure.market import Learned, Market, price_file
from bigfleet_azure.backends.azure.options import AzureOptions
from bigfleet_azure.backends.azure.retail import RetailPrices, open_session
from bigfleet_azure.backends.base import Refreshed
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

BANDS = {"0-5": 0, "5-10": 1, "10-15": 2, "15-20": 3, "20+": 4}
"""Resource Graph's words for the bands, in percent (azure-facts section 2.6)."""

SHOWN = 5
"""Sizes that a message names; the rest is counted."""


class Refresher:
    """See the module.

    Args:
        sizes: the sizes to ask about, as ARM writes them.
    """

    def __init__(
        self,
        options: AzureOptions,
        *,
        market: Market,
        clients: Clients,
        clock: Clock,
        metrics: Metrics,
        sizes: Callable[[], Sequence[str]],
    ) -> None:
        self._options = options
        self._market = market
        self._clients = clients
        self._clock = clock
        self._metrics = metrics
        self._sizes = sizes
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the price service."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def refresh(self) -> Refreshed:
        """Ask every source once."""
        sizes = self._sizes()
        troubles = [
            trouble
            for trouble in (
                self._read_file(),
                await self._told(self._prices(sizes)),
                await self._told(self._rates(sizes)),
            )
            if trouble
        ]
        self.show()
        return Refreshed(kept=self._market.dump(), troubles=tuple(troubles))

    def show(self) -> None:
        """Bring the gauges of freshness up to date."""
        self._metrics.price_last_success.set(self._market.prices_at)
        self._metrics.rates_last_success.set(self._market.rates_at)

    async def _told(self, step: Awaitable[str]) -> str:
        """What is wrong with a source; empty when nothing is."""
        try:
            return await step
        except ArmError as error:
            return str(errors.backend_error(error.failure, "the eviction rates"))
        except BackendError as error:
            return str(error)

    def _read_file(self) -> str:
        path = self._options.market.price_file
        if path is None:
            return ""
        try:
            self._market.file = price_file(path.read_bytes())
        except OSError as error:
            return f"--price-file={path} cannot be read, so its last prices stay: {error.strerror}"
        except ValueError as error:
            return f"--price-file={path} {error}; its last prices stay"
        return ""

    async def _prices(self, sizes: Sequence[str]) -> str:
        if not self._options.market.endpoint or not sizes:
            return ""
        with self._clients.measured("RetailPrices"):
            rows = meters.by_size(await self._retail().rows(sizes))
            now, region = self._clock.now(), self._options.location
            chosen = {
                size: meters.choose(rows.get(size.lower(), ()), size=size, region=region, now=now)
                for size in sizes
            }
            learned = self._market.learn_prices(chosen, now)
            self._count(learned)
            if not learned.priced:
                raise BackendError(
                    FailureKind.TRANSIENT,
                    f"the price service named no price of {_named(sizes)}, so the last ones stay",
                    code="NoPrices",
                )
        if learned.missing:
            logger.warning("no retail price for %s", _named(learned.missing))
        return ""

    def _count(self, learned: Learned) -> None:
        for outcome, count in (
            ("priced", learned.priced),
            ("missing", len(learned.missing)),
            ("unbelievable", learned.odd),
            ("ambiguous", learned.ambiguous),
        ):
            self._metrics.price_rows.labels(outcome).inc(count)

    async def _rates(self, sizes: Sequence[str]) -> str:
        if not sizes:
            return ""
        rows = await self._clients.spot_eviction_rates(sizes)
        bands: dict[str, int] = {}
        for row in rows:
            size, band = _band(row)
            if band is None:
                self._metrics.price_rows.labels("unknown_rate").inc()
            elif size:
                # Of two rows the worse one: a guess never makes a size look better than it is.
                bands[size] = max(band, bands.get(size, 0))
        self._market.learn_rates(bands, self._clock.now())
        if not bands:
            return "Resource Graph named no eviction rate of our sizes, so the last ones stay"
        return ""

    def _retail(self) -> RetailPrices:
        if self._session is None:
            self._session = open_session(self._options.arm_ca)
        return RetailPrices(
            self._session,
            endpoint=self._options.market.endpoint,
            region=self._options.location,
            clock=self._clock,
        )


def _band(row: dict[str, Any]) -> tuple[str, int | None]:
    """Size and band in a row of Resource Graph; None for words that are not known."""
    sku, properties = row.get("sku"), row.get("properties")
    size = str(sku.get("name", "")).lower() if isinstance(sku, dict) else ""
    word = str(properties.get("evictionRate", "")) if isinstance(properties, dict) else ""
    return size, BANDS.get(word.removesuffix("%").strip())


def _named(sizes: Sequence[str]) -> str:
    rest = [f"{len(sizes) - SHOWN} more"] if len(sizes) > SHOWN else []
    return ", ".join([*sizes[:SHOWN], *rest])
