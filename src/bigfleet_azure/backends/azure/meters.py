"""Which rows of the Retail Prices API are the prices of a VM size, and why the others are not.

Pure: rows in, prices out. Fetching them is `retail`'s. The traps are those of azure-facts section
2.5 and of field cases I1, I2 and I4: nothing but all of these conditions together finds the row.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]


class Meter(StrEnum):
    """What a price is for."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    ONE_YEAR = "reserved_1y"
    THREE_YEARS = "reserved_3y"


TERM_HOURS = {Meter.ONE_YEAR: 8_760, Meter.THREE_YEARS: 26_280}
"""Hours of a reservation's term; the API gives the price of the whole term although it says
`1 Hour` (azure-facts section 2.5)."""

_TERMS = {"1 Year": Meter.ONE_YEAR, "3 Years": Meter.THREE_YEARS}

LEAST_SPOT_SHARE, MOST_SPOT_SHARE = 0.02, 1.0
"""A Spot price outside this part of the on-demand price is a mistake: Azure's discounts end at
90 %, and nobody pays more for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One row, judged for a size.

    Attributes:
        row: as the API gave it.
        meter: what it would be the price of; None when it is none of ours.
        price_usd_per_hour: by the hour; 0 when it is rejected.
        rejected: why it was not chosen; empty for the chosen one.
    """

    row: Row
    meter: Meter | None = None
    price_usd_per_hour: float = 0.0
    rejected: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The prices of one size.

    Attributes:
        prices: USD per hour by what they are for.
        ambiguous: for which of them more than one row remained.
        judgements: every row of the size, chosen ones first.
    """

    prices: Mapping[Meter, float] = field(default_factory=dict)
    ambiguous: tuple[Meter, ...] = ()
    judgements: tuple[Judgement, ...] = ()


def by_size(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the lower-case name of the size that they say they are of."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row.get("armSkuName", "")).lower()].append(row)
    return dict(found)


def choose(rows: Iterable[Row], *, size: str, region: str, now: float) -> Chosen:
    """The prices that `rows` hold for a size, whatever their order.

    Of several rows that fit, the newest counts, then one of the meter's primary region, then the
    dearest: a guess may make a size look worse than it is, never better.

    Args:
        size: ARM's name of it; case does not matter.
        region: Azure region in short form.
        now: Unix seconds at which a price has to be in force.
    """
    moment = datetime.fromtimestamp(now, UTC)
    judged = [_judge(row, size, region, moment) for row in rows]
    chosen: dict[Meter, Judgement] = {}
    ambiguous = []
    for meter in Meter:
        fitting = sorted(
            (one for one in judged if one.meter is meter and not one.rejected), key=_rank
        )
        if fitting:
            chosen[meter] = fitting[-1]
        if len({one.price_usd_per_hour for one in fitting}) > 1:
            ambiguous.append(meter)
    winners = {id(one) for one in chosen.values()}
    losers = [
        one
        if one.rejected
        else Judgement(
            row=one.row,
            meter=one.meter,
            price_usd_per_hour=one.price_usd_per_hour,
            rejected="another row fits better",
        )
        for one in judged
        if id(one) not in winners
    ]
    return Chosen(
        prices={meter: one.price_usd_per_hour for meter, one in chosen.items()},
        ambiguous=tuple(ambiguous),
        judgements=(*chosen.values(), *losers),
    )


def _rank(one: Judgement) -> tuple[object, ...]:
    row = one.row
    return (
        str(row.get("effectiveStartDate", "")),
        row.get("isPrimaryMeterRegion") is True,
        one.price_usd_per_hour,
        str(row.get("skuId", "")),
        str(row.get("meterId", "")),
    )


def _judge(row: Row, size: str, region: str, now: datetime) -> Judgement:
    meter, fault = _meter(row)
    fault = fault or _fault(row, size, region, now)
    if fault or meter is None:
        return Judgement(row=row, meter=meter, rejected=fault)
    price = float(row["retailPrice"]) / TERM_HOURS.get(meter, 1)
    return Judgement(row=row, meter=meter, price_usd_per_hour=round(price, 6))


def _meter(row: Row) -> tuple[Meter | None, str]:
    """What a row is the price of, or why it is none of ours."""
    names = (str(row.get("skuName", "")), str(row.get("meterName", "")))
    if any("low priority" in name.lower() for name in names):
        return None, "it is of Low Priority, the predecessor of Spot"
    spot = any(name.lower().endswith(" spot") for name in names)
    kind = row.get("type")
    if kind == "Reservation":
        term = _TERMS.get(str(row.get("reservationTerm", "")))
        return term, "" if term else f"its term is {row.get('reservationTerm')!r}"
    if kind != "Consumption":
        return None, f"its type is {kind}, not Consumption"
    return (Meter.SPOT if spot else Meter.ON_DEMAND), ""


def _fault(row: Row, size: str, region: str, now: datetime) -> str:
    """Why a row is not the price of this size here and now; empty when it is."""
    product = str(row.get("productName", ""))
    if str(row.get("armSkuName", "")).lower() != size.lower():
        return f"it is of size {row.get('armSkuName')!r}"
    if str(row.get("armRegionName", "")).lower() != region:
        return f"it is of region {row.get('armRegionName')!r}"
    if row.get("serviceName") != "Virtual Machines" or "Cloud Services" in product:
        return f"it is of {product!r}, no virtual machine"
    for word, what in (("Windows", "Windows"), ("Dedicated Host", "a dedicated host")):
        if word in product:
            return f"it is of {what}"
    if row.get("currencyCode") != "USD":
        return f"it is in {row.get('currencyCode')}"
    if row.get("unitOfMeasure") != "1 Hour":
        return f"its unit is {row.get('unitOfMeasure')!r}"
    if row.get("tierMinimumUnits") not in (0, None):
        return f"it is for {row.get('tierMinimumUnits')} hours and more"
    if not _positive(row.get("retailPrice")):
        return f"its price is {row.get('retailPrice')!r}"
    return _date_fault(row, now)


def _positive(price: object) -> bool:
    number = isinstance(price, int | float) and not isinstance(price, bool)
    return number and math.isfinite(price) and price > 0  # type: ignore[arg-type,operator]


def _date_fault(row: Row, now: datetime) -> str:
    try:
        start = _moment(row.get("effectiveStartDate"))
        end = _moment(row.get("effectiveEndDate"))
    except ValueError:
        return "its dates cannot be read"
    if start is not None and start > now:
        return f"it is in force from {row.get('effectiveStartDate')}"
    if end is not None and end <= now:
        return f"it was in force until {row.get('effectiveEndDate')}"
    return ""


def _moment(text: object) -> datetime | None:
    if not text:
        return None
    read = datetime.fromisoformat(str(text))
    return read if read.tzinfo else read.replace(tzinfo=UTC)
