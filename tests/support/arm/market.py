"""The Retail Prices API: what things cost, told a page at a time to whoever asks.

It has no authentication and nothing of ARM's. Everything about it may be changed while it runs;
what goes wrong on the way is scripted with `Fault("prices", ...)` and `price_error`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack
from urllib.parse import quote

from tests.support.arm.price_filter import BAD_VALUES, BAD_WORDS, parse, price_error
from tests.support.arm.price_rows import TRAPS, Calendar, Offer, is_old, row, rows
from tests.support.arm.skus import Catalogue
from tests.support.arm.wire import Answer, Call, Json, Refusal

PATH = "/api/retail/prices"
PAGE = 1000
"""Rows of a full page (recorded)."""
EXACT = "2023-01-01-preview"
"""The version that tells savings plans and compares the values of filters with regard to case."""
VERSIONS = frozenset({"", "2021-10-01-preview", EXACT})
CORE_HOUR = 0.048
"""USD; makes Standard_D4s_v5 cost what it does in eastus."""
ELSEWHERE = "westeurope"
_DEARER = 1.2
_SPOT, _ONE_YEAR, _THREE_YEARS = 0.2, 0.62 * 8760, 0.4 * 26280


class Prices(TypedDict, total=False):
    """What `Market.price` sets: see `Offer`."""

    on_demand: float | None
    spot: float | None
    reserved_1y: float | None
    reserved_3y: float | None


@dataclass
class Limits:
    """What the API does not take; its real limits are not documented."""

    length: int | None = None
    """Characters of a filter."""
    terms: int | None = None
    """Comparisons in a filter."""
    status: int = 400
    """400, or 414 with a page of HTML."""


@dataclass
class Market:
    """See the module. Sizes have a default price until a test sets one."""

    catalogue: Catalogue
    now: Callable[[], float]
    page: int = PAGE
    limits: Limits = field(default_factory=Limits)
    traps: frozenset[str] = TRAPS
    """Which misleading rows there are, of `TRAPS`."""
    empty: bool = False
    """Whatever is asked, there are no rows."""
    partial: int | None = None
    """At most so many rows for one question, as if there were no more."""
    loose: bool = False
    """The price type Consumption finds reservations too (recorded in 2022)."""
    endpoint: str = ""
    _offers: dict[tuple[str, str], Offer] = field(default_factory=dict)
    _added: list[Json] = field(default_factory=list)
    _dropped: list[Callable[[Json], bool]] = field(default_factory=list)
    _seed: int | None = None

    def price(self, size: str, *, region: str | None = None, **prices: Unpack[Prices]) -> None:
        """Set some prices of a size, in USD; None takes rows away."""
        offer = self.offer(size, region)
        self._offers[offer.region, size.lower()] = replace(offer, **prices)

    def offer(self, size: str, region: str | None = None) -> Offer:
        """What a size costs now."""
        region = region or self.catalogue.location
        found = self._offers.get((region, size.lower()))
        return found or self._usual(size, region)

    def row(self, size: str, *, term: str | None = None, **changes: object) -> Json:
        """A size's Linux row, hourly or of a term, with some keys changed, for `add`."""
        offer = self.offer(size)
        return row(offer, offer.on_demand or 0.0, term=term) | changes

    def add(self, *added: Json) -> None:
        """Have these rows too."""
        self._added += added

    def drop(self, which: Callable[[Json], bool]) -> None:
        """Have none of the rows that this holds for."""
        self._dropped.append(which)

    def shuffle(self, seed: int | None) -> None:
        """Tell rows in another order, the same one on every page; None = the usual one."""
        self._seed = seed

    def rows(self) -> list[Json]:
        """Everything that is for sale, in the order in which it is told."""
        location, calendar = self.catalogue.location, Calendar.at(self.now())
        regions = [location, ELSEWHERE] if "elsewhere" in self.traps else [location]
        sizes = [size.name for size in self.catalogue.sizes.values()]
        offers = {
            (region, name.lower()): self.offer(name, region) for region in regions for name in sizes
        }
        offers |= self._offers
        found = [each for offer in offers.values() for each in rows(offer, calendar, self.traps)]
        found += self._added
        found = [each for each in found if not any(which(each) for which in self._dropped)]
        if self._seed is not None:
            random.Random(self._seed).shuffle(found)
        return found

    def answer(self, call: Call) -> Answer:
        """One page."""
        if call.api_version not in VERSIONS:
            raise Refusal(price_error(400, "Unsupported API version"))
        skip = call.query.get("$skip", "0")
        if not skip.isdecimal():
            raise Refusal(price_error(400, BAD_WORDS))
        start, found = int(skip), self._found(call)
        page = found[start : start + self.page]
        more = start + self.page < len(found)
        body = {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": [_told(each, call.api_version) for each in page],
            "NextPageLink": self._next(call, start + self.page) if more else None,
            "Count": len(page),
        }
        return Answer(200, body)

    def _found(self, call: Call) -> list[Json]:
        text = call.query.get("$filter", "")
        wanted = parse(text, exact=call.api_version == EXACT, loose=self.loose)
        self._check_limits(len(text), wanted.terms)
        found = [] if self.empty else [each for each in self.rows() if wanted.matches(each)]
        if call.query.get("meterRegion", "").strip("'") == "primary":
            found = [each for each in found if each["isPrimaryMeterRegion"]]
        return found[: self.partial]

    def _check_limits(self, length: int, terms: int) -> None:
        limits = self.limits
        too_long = limits.length is not None and length > limits.length
        if too_long or (limits.terms is not None and terms > limits.terms):
            if limits.status == 414:
                raise Refusal(Answer(414, "<html><body>URI Too Long</body></html>"))
            raise Refusal(price_error(limits.status, BAD_VALUES))

    def _next(self, call: Call, skip: int) -> str:
        asked = {key: text for key, text in call.query.items() if key != "$skip"}
        query = "".join(f"{key}={quote(text, safe='()')}&" for key, text in asked.items())
        return f"{self.endpoint}{PATH}?{query}$skip={skip}"

    def _usual(self, size: str, region: str) -> Offer:
        known = self.catalogue.get(size)
        hour = round(CORE_HOUR * (known.cores if known is not None else 4), 6)
        if region == ELSEWHERE:
            hour = round(hour * _DEARER, 6)
        spot_taken = known is None or known.can("LowPriorityCapable")
        return Offer(
            size=known.name if known is not None else size,
            region=region,
            on_demand=hour,
            spot=round(hour * _SPOT, 6) if spot_taken else None,
            reserved_1y=None if is_old(size) else float(round(hour * _ONE_YEAR)),
            reserved_3y=None if is_old(size) else float(round(hour * _THREE_YEARS)),
        )


def _told(found: Json, version: str) -> Json:
    """A row as this version tells it."""
    return {key: value for key, value in found.items() if key != "savingsPlan" or version == EXACT}
