"""The filter language of the Retail Prices API, as far as it is known to work.

`field eq 'value'`, `and`, `or` and parentheses. What else OData has is refused, as recorded for
`any(...)`; so is a price type that does not exist.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.arm.wire import Answer, Json, Refusal

Test = Callable[[Json], bool]

FIELDS = frozenset(
    {
        "armRegionName",
        "location",
        "meterId",
        "meterName",
        "productId",
        "skuId",
        "productName",
        "skuName",
        "serviceName",
        "serviceId",
        "serviceFamily",
        "priceType",
        "armSkuName",
    }
)
"""What the API's description lists. Rows call the price type `type`; filters do not know that."""
PRICE_TYPES = frozenset({"consumption", "reservation", "devtestconsumption", "savingsplan"})
"""The last finds nothing (recorded)."""
BAD_VALUES = "Invalid OData parameters supplied"
BAD_WORDS = "Invalid parameters supplied"
_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z]+)|'(?P<text>(?:[^']|'')*)'|(?P<sign>[()]))")


def price_error(status: int, message: str = "Scripted.", **headers: str) -> Answer:
    """An error as this API writes it: with capitals. Underscores in header names are hyphens."""
    code = {400: "BadRequest", 429: "TooManyRequests"}.get(status, "InternalServerError")
    body = {"Error": {"Code": code, "Message": message}}
    return Answer(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter that was understood."""

    matches: Test
    terms: int
    """Comparisons in it."""


class _Parser:
    """Recursive descent; `and` binds closer than `or`."""

    def __init__(self, text: str, *, exact: bool, loose: bool) -> None:
        self._tokens = _tokens(text)
        self._exact = exact
        self._loose = loose
        self.terms = 0

    def whole(self) -> Test:
        found = self._alternatives()
        if self._tokens:
            raise Refusal(price_error(400, BAD_WORDS))
        return found

    def _alternatives(self) -> Test:
        tests = [self._conjunction()]
        while self._took("word", "or"):
            tests.append(self._conjunction())
        return lambda row: any(test(row) for test in tests)

    def _conjunction(self) -> Test:
        tests = [self._term()]
        while self._took("word", "and"):
            tests.append(self._term())
        return lambda row: all(test(row) for test in tests)

    def _term(self) -> Test:
        if self._took("sign", "("):
            inner = self._alternatives()
            self._need("sign", ")")
            return inner
        field = self._need("word")
        self._need("word", "eq")
        value = self._need("text").replace("''", "'")
        self.terms += 1
        if field not in FIELDS:
            raise Refusal(price_error(400, BAD_WORDS))
        return self._comparison(field, value)

    def _comparison(self, field: str, value: str) -> Test:
        wanted = {value}
        if field == "priceType":
            if value.lower() not in PRICE_TYPES:
                raise Refusal(price_error(400, BAD_VALUES))
            field = "type"
            if self._loose and value.lower() == "consumption":
                wanted.add("Reservation")
        if self._exact:
            return lambda row: row[field] in wanted
        lower = {each.lower() for each in wanted}
        return lambda row: row[field].lower() in lower

    def _took(self, kind: str, text: str) -> bool:
        if self._tokens and self._tokens[0] == (kind, text):
            del self._tokens[0]
            return True
        return False

    def _need(self, kind: str, text: str | None = None) -> str:
        if not self._tokens or self._tokens[0][0] != kind or text not in {None, self._tokens[0][1]}:
            raise Refusal(price_error(400, BAD_WORDS))
        return self._tokens.pop(0)[1]


def parse(text: str, *, exact: bool, loose: bool = False) -> Filter:
    """Understand a filter, or refuse it.

    `exact` compares values with regard to case; `loose` lets the price type Consumption find
    reservations too, as an older version of the API did.
    """
    if not text.strip():
        return Filter(matches=lambda _row: True, terms=0)
    parser = _Parser(text, exact=exact, loose=loose)
    return Filter(matches=parser.whole(), terms=parser.terms)


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise Refusal(price_error(400, BAD_WORDS))
        assert token.lastgroup is not None
        found.append((token.lastgroup, token[token.lastgroup]))
        position = token.end()
    return found
