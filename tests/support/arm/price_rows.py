"""The rows that the Retail Prices API has for one size in one region, traps among them.

Keys, formats and the ways in which rows resemble each other are those of the recorded answers
(`truth/data/wire/retail-*`): a reservation shares its meter with the hourly row and gives the price
of the whole term, a DevTest row shares meter and SKU with the Windows row, Windows stands in the
product's name only. Prices are round figures, not Azure's.
"""

import functools
import re
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.support.arm.wire import Json

TRAPS = frozenset(
    {
        "low priority",
        "devtest",
        "placeholder",
        "cloud services",
        "expired",
        "future",
        "unit",
        "elsewhere",
    }
)
"""Rows that no choice may fall on; `elsewhere` are all rows of another region."""
REGIONS = {
    "eastus": "US East",
    "eastus2": "US East 2",
    "westus2": "US West 2",
    "westeurope": "EU West",
    "qatarcentral": "QA Central",
}
WINDOWS_SHARE = 0.24
"""Of the on-demand price, on top of it: about what the recorded rows have."""
_VERSION = re.compile(r"_v(\d+)$")
_SPELT_OUT = re.compile(r"ds_v5$|_v6$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Prices of one size in one region, in USD; None = there is no such row."""

    size: str
    region: str
    on_demand: float | None
    """An hour, Linux."""
    spot: float | None
    """An hour, Linux."""
    reserved_1y: float | None
    """The whole year."""
    reserved_3y: float | None
    """The three years."""

    @property
    def meter(self) -> str:
        """`D4s v5` of `Standard_D4s_v5`."""
        return self.size.removeprefix("Standard_").replace("_", " ")

    @property
    def sku(self) -> str:
        """The SKU's name, which some sizes spell as ARM does."""
        return self.size if _SPELT_OUT.search(self.size) else self.meter

    @property
    def series(self) -> str:
        """`Dsv5` of `Standard_D4s_v5`."""
        return re.sub(r"(?<=[A-Z])[\d-]+", "", self.meter, count=1).replace(" ", "")

    @property
    def primary(self) -> bool:
        """Whether the hourly rows are of the meter's own region: old sizes' are not (recorded)."""
        return not is_old(self.size)


def is_old(size: str) -> bool:
    """Up to version 3, or without one: sold without reservations (recorded)."""
    version = _VERSION.search(size)
    return version is None or int(version[1]) <= 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The dates that rows carry, seen from one moment; Spot is published anew every month."""

    today: datetime

    @classmethod
    def at(cls, seconds: float) -> "Calendar":
        moment = datetime.fromtimestamp(seconds, UTC)
        return cls(today=moment.replace(hour=0, minute=0, second=0, microsecond=0))

    @property
    def month(self) -> datetime:
        return self.today.replace(day=1)

    @property
    def next_month(self) -> datetime:
        return (self.month + timedelta(days=32)).replace(day=1)

    @property
    def last_month(self) -> datetime:
        return (self.month - timedelta(days=1)).replace(day=1)

    def days(self, count: int) -> datetime:
        return self.today + timedelta(days=count)


_SECOND = timedelta(seconds=1)


@functools.lru_cache(maxsize=4096)
def rows(offer: Offer, calendar: Calendar, traps: frozenset[str]) -> tuple[Json, ...]:
    """All rows of one size in one region; whoever changes one must copy it."""
    return tuple(_rows(offer, calendar, traps))


def _rows(offer: Offer, calendar: Calendar, traps: frozenset[str]) -> Iterator[Json]:
    if offer.on_demand is not None:
        yield from _hourly(offer, offer.on_demand, traps)
        yield from _traps(offer, offer.on_demand, calendar, traps)
    if offer.spot is not None:
        yield from _spot(offer, offer.spot, calendar, traps)
    for term, price in (("1 Year", offer.reserved_1y), ("3 Years", offer.reserved_3y)):
        if price is not None:
            yield row(offer, price, term=term)


def row(
    offer: Offer,
    price: float,
    *,
    kind: str = "Consumption",
    label: str = "",
    product: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    term: str | None = None,
    unit: str = "1 Hour",
) -> Json:
    """One row; `label` follows the meter's and the SKU's name, `product` the product's."""
    start = start or datetime(2021, 6, 1, tzinfo=UTC)
    product_id = "DZH318Z0" + _letters(offer.series, product)
    tail = f" {label}" if label else ""
    found: Json = {"currencyCode": "USD", "tierMinimumUnits": 0.0}
    if term is not None:
        found["reservationTerm"] = term
    found |= {
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": offer.region,
        "location": REGIONS.get(offer.region, offer.region),
        "effectiveStartDate": _stamp(start),
    }
    if end is not None:
        found["effectiveEndDate"] = _stamp(end)
    return found | {
        "meterId": _meter(offer, label, product),
        "meterName": offer.meter + tail,
        "productId": product_id,
        "skuId": f"{product_id}/{_letters(offer.size, label, term or '')}",
        "productName": f"Virtual Machines {offer.series} Series{product}",
        "skuName": offer.sku + tail,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": unit,
        "type": "Reservation" if term else kind,
        "isPrimaryMeterRegion": offer.primary or bool(term) or label == "Spot",
        "armSkuName": offer.size,
    }


def _hourly(offer: Offer, price: float, traps: frozenset[str]) -> Iterator[Json]:
    windows = _money(price * (1 + WINDOWS_SHARE))
    plans = [
        {"unitPrice": _money(price * share), "retailPrice": _money(price * share), "term": term}
        for share, term in ((0.47, "3 Years"), (0.69, "1 Year"))
    ]
    yield row(offer, price) | {"savingsPlan": plans}
    yield row(offer, windows, product=" Windows")
    if "devtest" in traps:
        yield row(offer, price, product=" Windows", kind="DevTestConsumption")
    if "low priority" in traps:
        low = _money(price * 0.1)
        yield row(offer, low, label="Low Priority")
        yield row(offer, _money(price * 0.2), label="Low Priority", product=" Windows")
        yield row(offer, low, label="Low Priority", product=" Windows", kind="DevTestConsumption")


def _spot(offer: Offer, price: float, calendar: Calendar, traps: frozenset[str]) -> Iterator[Json]:
    windows = _money(price * (1 + WINDOWS_SHARE))
    start, end = calendar.month, calendar.next_month - _SECOND
    yield row(offer, price, label="Spot", start=start, end=end)
    yield row(offer, windows, label="Spot", product=" Windows", start=start, end=end)
    if "devtest" in traps:
        yield row(
            offer,
            price,
            label="Spot",
            product=" Windows",
            kind="DevTestConsumption",
            start=start,
            end=end,
        )
    if "expired" in traps:
        last = _money(price * 0.5)
        yield row(offer, last, label="Spot", start=calendar.last_month, end=start - _SECOND)
    if "future" in traps:
        yield row(offer, _money(price * 0.7), label="Spot", start=calendar.next_month)


def _traps(offer: Offer, price: float, calendar: Calendar, traps: frozenset[str]) -> Iterator[Json]:
    """Rows that look like the hourly one and are not."""
    if "placeholder" in traps:
        yield row(offer, 0.0)
    if "cloud services" in traps:
        yield row(offer, _money(price * 0.9), product=" Cloud Services")
    if "expired" in traps:
        yield row(offer, _money(price * 0.8), end=calendar.days(-1) - _SECOND)
    if "future" in traps:
        yield row(offer, _money(price * 0.7), start=calendar.days(30))
    if "unit" in traps:
        yield row(offer, _money(price * 60), unit="100 Hours")


def _meter(offer: Offer, label: str, product: str) -> str:
    name = f"{offer.region}/{offer.size}/{label}/{product}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _letters(*names: str) -> str:
    return f"{zlib.crc32('/'.join(names).encode()) & 0xFFFF:04X}"


def _money(amount: float) -> float:
    return round(amount, 6)


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
