"""What capacity costs and how often it is taken away: the newest that is known of each size.

Answers from memory. Where it comes from is asked by `refreshing`; what is learnt outlives a restart
as a text that the service keeps. Of several sources the first that knows a price is believed: the
operator's file, the Retail Prices API (the last good answer, however old), the table of common
sizes while that API never answered, and what the dearest families would take.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bigfleet_azure.backends import sizes as table
from bigfleet_azure.backends.azure.meters import (
    LEAST_SPOT_SHARE,
    MOST_SPOT_SHARE,
    Chosen,
    Meter,
)
from bigfleet_azure.backends.azure.options import MarketOptions, RateBasis, ReservedTerm
from bigfleet_azure.backends.sizes import BANDS, Hardware
from bigfleet_azure.domain.lifecycle import CapacityType

HOURS_A_MONTH = 720
"""A month of 30 days, as the Go provider takes it (contract section 16)."""

_TERMS = {ReservedTerm.ONE_YEAR: Meter.ONE_YEAR, ReservedTerm.THREE_YEARS: Meter.THREE_YEARS}

_FILE_KEYS = {"on_demand": Meter.ON_DEMAND, "spot": Meter.SPOT}
RESERVED_KEY = "reserved"
"""Keys of a size in a price file; reserved is the hourly price of whatever term was bought."""


class Source(StrEnum):
    """Where a published price comes from."""

    FILE = "file"
    RETAIL = "retail"
    TABLE = "table"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A price as it is published.

    Attributes:
        usd_per_hour: what the capacity costs.
        source: who says so; ESTIMATE is flagged wherever prices are shown.
        read_at: Unix seconds of the answer that named it; 0 for other sources.
    """

    usd_per_hour: float
    source: Source
    read_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Listed:
    """A price that the Retail Prices API named, and when."""

    price: float
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one answer came to.

    Attributes:
        priced: sizes for which it named an on-demand price.
        missing: sizes asked for without one.
        odd: prices that were not believed.
        ambiguous: prices for which several rows fitted.
    """

    priced: int = 0
    missing: tuple[str, ...] = ()
    odd: int = 0
    ambiguous: int = 0


class Market:
    """See the module.

    Args:
        options: how prices and rates are read.
        region: Azure region in short form.

    Attributes:
        prices_at, rates_at: Unix seconds of the last good answer about each; 0 for none.
        file: the operator's prices by lower-case size.
    """

    def __init__(self, options: MarketOptions, region: str) -> None:
        self._options = options
        self._region = region
        self._listed: dict[str, dict[Meter, _Listed]] = {}
        self._bands: dict[str, int] = {}
        self.prices_at = 0.0
        self.rates_at = 0.0
        self.file: Mapping[str, Mapping[str, float]] = options.prices

    # Asked

    def quote(self, vm_size: str, capacity_type: CapacityType, hardware: Hardware) -> Quote:
        """What capacity of that size and type costs."""
        name = vm_size.lower()
        if own := self._own_price(name, capacity_type):
            return Quote(usd_per_hour=own, source=Source.FILE)
        if quote := self._retail_quote(name, capacity_type):
            return quote
        if self.prices_at or table.pinned(vm_size) is None:
            dearest = table.dearest(vcpus=hardware.vcpus, gpus=hardware.gpus)
            guess = max(dearest, hardware.price_usd_per_hour)  # constrained sizes cost the whole
            return Quote(usd_per_hour=guess, source=Source.ESTIMATE)
        return Quote(usd_per_hour=table.usual_price(hardware, capacity_type), source=Source.TABLE)

    def _own_price(self, name: str, capacity_type: CapacityType) -> float | None:
        own = self.file.get(name, {})
        if capacity_type is CapacityType.RESERVED:
            return own.get(RESERVED_KEY) or own.get(Meter.ON_DEMAND)
        return own.get(Meter.SPOT if capacity_type is CapacityType.SPOT else Meter.ON_DEMAND)

    def _retail_quote(self, name: str, capacity_type: CapacityType) -> Quote | None:
        known = self._listed.get(name, {})
        wanted = Meter.ON_DEMAND
        if capacity_type is CapacityType.SPOT:
            wanted = Meter.SPOT
        elif capacity_type is CapacityType.RESERVED:
            wanted = _TERMS.get(self._options.reserved_term, wanted)
        # What has no price of its own is never a bargain unseen: it costs what on-demand does.
        found = known.get(wanted) or known.get(Meter.ON_DEMAND)
        if found is None:
            return None
        share = 1.0 if wanted in known and wanted is Meter.SPOT else 1 - self._options.discount
        return Quote(
            usd_per_hour=round(found.price * share, 6),
            source=Source.RETAIL if wanted in known else Source.ESTIMATE,
            read_at=found.read_at,
        )

    def probability(self, vm_size: str, capacity_type: CapacityType, hardware: Hardware) -> float:
        """Probability of an eviction within an hour; 0 for all but Spot."""
        if capacity_type is not CapacityType.SPOT:
            return 0.0
        rate = BANDS[self._bands.get(vm_size.lower(), hardware.eviction_band)]
        if self._options.rate_basis is RateBasis.MONTH:
            return 1 - math.pow(1 - rate, 1 / HOURS_A_MONTH)
        return rate

    def rate_known(self, vm_size: str) -> bool:
        """Whether Resource Graph ever told the eviction rate of a size."""
        return vm_size.lower() in self._bands

    # Learnt

    def learn_prices(self, chosen: Mapping[str, Chosen], now: float) -> Learned:
        """Take over what an answer says of each size that was asked for.

        What it does not say stays as it was.
        """
        missing, odd, ambiguous = [], 0, 0
        for size, one in chosen.items():
            listed = dict(self._listed.get(size.lower(), {}))
            ambiguous += len(one.ambiguous)
            prices = dict(one.prices)
            if Meter.ON_DEMAND not in prices:
                missing.append(size)
            on_demand = prices.get(Meter.ON_DEMAND) or (
                listed[Meter.ON_DEMAND].price if Meter.ON_DEMAND in listed else None
            )
            if (spot := prices.get(Meter.SPOT)) and not _believable(spot, on_demand):
                del prices[Meter.SPOT]
                odd += 1
            listed |= {meter: _Listed(price, now) for meter, price in prices.items()}
            if listed:
                self._listed[size.lower()] = listed
        priced = len(chosen) - len(missing)
        if priced:
            self.prices_at = now
        return Learned(priced=priced, missing=tuple(missing), odd=odd, ambiguous=ambiguous)

    def learn_rates(self, bands: Mapping[str, int], now: float) -> None:
        """Take over eviction bands by size; sizes that are not named keep theirs."""
        self._bands |= {size.lower(): band for size, band in bands.items()}
        if bands:
            self.rates_at = now

    # Kept

    def dump(self) -> str:
        """All that was learnt, for `load`."""
        return json.dumps(
            {
                "region": self._region,
                "prices_at": self.prices_at,
                "rates_at": self.rates_at,
                "prices": {
                    size: {meter: [one.price, one.read_at] for meter, one in listed.items()}
                    for size, listed in sorted(self._listed.items())
                },
                "bands": dict(sorted(self._bands.items())),
            },
            separators=(",", ":"),
        )

    def load(self, text: str) -> None:
        """Take over what an earlier process learnt; of another region, or unreadable, nothing."""
        try:
            kept = json.loads(text)
            if kept["region"] != self._region:
                return
            listed = {
                size: {Meter(meter): _Listed(*one) for meter, one in prices.items()}
                for size, prices in kept["prices"].items()
            }
            bands = {size: int(band) for size, band in kept["bands"].items()}
            prices_at, rates_at = float(kept["prices_at"]), float(kept["rates_at"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        self._listed, self._bands = listed, bands
        self.prices_at, self.rates_at = prices_at, rates_at


def _believable(spot: float, on_demand: float | None) -> bool:
    if on_demand is None:
        return True
    return LEAST_SPOT_SHARE * on_demand <= spot <= MOST_SPOT_SHARE * on_demand


def price_file(content: bytes) -> dict[str, dict[str, float]]:
    """The operator's prices, by lower-case size: `{"Standard_D4s_v5": {"on_demand": 0.15}}`.

    Raises:
        ValueError: with every fault, each the rest of a sentence.
    """
    try:
        read = json.loads(content)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(read, dict) or not read:
        raise ValueError('must be an object such as {"Standard_D4s_v5": {"on_demand": 0.15}}')
    faults = [fault for size, prices in read.items() for fault in _price_faults(size, prices)]
    names = [size.lower() for size in read]
    faults += [f"names {name} twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if faults:
        raise ValueError("; ".join(faults))
    return {
        size.lower(): {key: float(price) for key, price in prices.items()}
        for size, prices in read.items()
    }


def _price_faults(size: str, prices: object) -> Iterable[str]:
    keys = (*_FILE_KEYS, RESERVED_KEY)
    if not size.lower().startswith("standard_"):
        yield f"names {size!r}, which is no VM size such as Standard_D4s_v5"
    if not isinstance(prices, dict) or not prices:
        yield f"has no prices for {size}; write some of {', '.join(keys)}"
        return
    for key, price in prices.items():
        number = isinstance(price, int | float) and not isinstance(price, bool)
        if key not in keys:
            yield f"has {key!r} for {size}, where only {', '.join(keys)} can stand"
        elif not number or not math.isfinite(price) or price <= 0:
            yield f"has {price!r} as {key} of {size}, which is no price in USD per hour"
