"""Azure Resource Graph: one query call, of which the double knows the Spot eviction rates.

Its quota is each caller's own and told in headers. What goes wrong on the way is scripted with
`Fault("graph.query", ...)`.
"""

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.graph_query import bad_query, bad_request, parse
from tests.support.arm.skus import Catalogue
from tests.support.arm.wire import Answer, Call, Json, refusal

VERSIONS = frozenset({"2019-04-01", "2021-03-01", "2022-10-01", "2024-04-01"})
TABLES_UNTIL = "2019-04-01"
"""Versions up to this one answer with a table unless asked otherwise."""
EVICTION_RATE = "microsoft.compute/skuspotevictionrate/location"
PRICE_HISTORY = "microsoft.compute/skuspotpricehistory/ostype/location"
BANDS = ("0-5", "5-10", "10-15", "15-20", "20+")
"""Percent an hour."""
PAGE = 1000
SPOT = "spotresources"
ELSEWHERE = "westeurope"
_WINDOW = 5.0
_QUOTA = 15


@dataclass
class _Window:
    """The queries of one caller since the quota was last filled."""

    since: float
    used: int = 0


@dataclass
class Graph:
    """See the module. Sizes that Spot takes have `usual` as their rate until a test sets one."""

    catalogue: Catalogue
    now: Callable[[], float]
    usual: str | None = "5-10"
    """The band of sizes of which nothing else was said; None = they have no row."""
    tenant_only: bool = True
    """Queries of some subscriptions or management groups find no Spot rows, as users report."""
    empty: bool = False
    """All tables are empty."""
    page: int = PAGE
    quota: int = _QUOTA
    """Queries in five seconds."""
    retry_after: bool = False
    """Whether a 429 carries Retry-After beside the headers of its own; none is on record."""
    tables: dict[str, list[Json]] = field(default_factory=dict)
    """More rows, by table in lower case."""
    _rates: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _windows: dict[str, _Window] = field(default_factory=dict)

    def rate(self, size: str, band: str | None, *, region: str | None = None) -> None:
        """Set the eviction rate of a size: one of `BANDS`, anything else, or None for no row."""
        self._rates[region or self.catalogue.location, size.lower()] = band

    def rows(self) -> list[Json]:
        """Everything in SpotResources."""
        here, elsewhere = self.catalogue.location, {}
        sizes = [
            key for key, size in self.catalogue.sizes.items() if size.can("LowPriorityCapable")
        ]
        if self.usual is not None:
            elsewhere = {(ELSEWHERE, size): BANDS[-1] for size in sizes}
        usual = {(here, size): self.usual for size in sizes}
        rates = usual | elsewhere | self._rates
        return [
            found
            for (region, size), band in rates.items()
            if band is not None
            for found in (
                _spot(EVICTION_RATE, region, size, {"evictionRate": band}),
                _spot(PRICE_HISTORY, region, size, {"osType": "linux", "spotPrices": []}),
            )
        ] + self.tables.get(SPOT, [])

    def query(self, call: Call) -> Answer:
        """One page of what a query finds."""
        if call.api_version not in VERSIONS:
            raise refusal(
                400,
                "InvalidApiVersionParameter",
                f"The api-version '{call.api_version}' is invalid. The supported versions are "
                f"'{','.join(sorted(VERSIONS))}'.",
                gateway=True,
            )
        quota = self._charge(call.principal)
        body = call.json()
        options = body.get("options") or {}
        found = self._found(body)
        skip, top = self._place(options)
        page = found[skip : skip + top]
        answer: Json = {"totalRecords": len(found), "count": len(page)}
        answer["data"] = page if _as_objects(options, call.api_version) else _table(page)
        answer |= {"facets": [], "resultTruncated": "false"}
        if skip + top < len(found):
            answer |= _more(page, skip + top, top)
        return Answer(200, answer, quota | {"x-ms-resource-graph-request-duration": "0:00:00:00.1"})

    def _found(self, body: Json) -> list[Json]:
        text = body.get("query")
        if not isinstance(text, str):
            raise bad_query("EmptyQuery", "Query should be specified and not be empty.")
        query = parse(text)
        tables = self.tables | {SPOT: self.rows()}
        if query.table not in tables:
            told = f"Table {query.table} is invalid, unsupported or disallowed."
            raise bad_query("DisallowedLogicalTableName", told)
        narrowed = body.get("subscriptions") or body.get("managementGroups")
        hidden = query.table == SPOT and self.tenant_only and narrowed
        return [] if self.empty or hidden else query.run(tables[query.table])

    def _place(self, options: Json) -> tuple[int, int]:
        """Where the page starts, and how long it is; what is told outright goes before a token."""
        skip, top = (
            _read_token(options["$skipToken"]) if "$skipToken" in options else (0, self.page)
        )
        skip, top = options.get("$skip", skip), options.get("$top", top)
        if not (isinstance(skip, int) and skip >= 0 and isinstance(top, int) and 1 <= top <= PAGE):
            raise bad_request({"code": "BadRequest", "message": "Invalid paging options."})
        return skip, min(top, self.page)

    def _charge(self, principal: str) -> dict[str, str]:
        """Take one query from the caller's quota; the headers that tell what is left."""
        now = self.now()
        window = self._windows.get(principal)
        if window is None or now >= window.since + _WINDOW:
            window = self._windows[principal] = _Window(now)
        wait = math.ceil(window.since + _WINDOW - now)
        over = window.used >= self.quota
        window.used += not over
        left = str(self.quota - window.used)
        headers = {
            "x-ms-ratelimit-remaining-tenant-resource-requests": left,
            "x-ms-user-quota-remaining": left,
            "x-ms-user-quota-resets-after": f"00:00:{wait:02}",
        }
        if over:
            if self.retry_after:
                headers["Retry-After"] = str(wait)
            raise bad_request(_THROTTLED, status=429, code="RateLimiting", headers=headers)
        return headers


_THROTTLED = {
    "code": "RateLimiting",
    "message": "Client application has been throttled and should not continue to repeat the "
    "request until an amount of time has elapsed.",
}


def graph_row(kind: str, location: str, name: str, properties: Json, **more: Any) -> Json:
    """A row about something that lies in no subscription, with the keys of recorded ones."""
    path = kind.removeprefix("microsoft.compute/")
    return {
        "id": f"/providers/Microsoft.Compute/locations/{location}/{path}/{name}",
        "name": name,
        "type": kind,
        "tenantId": "",
        "kind": "",
        "location": location,
        "resourceGroup": "",
        "subscriptionId": "",
        "managedBy": "",
        "sku": None,
        "plan": None,
        "properties": properties,
        "tags": None,
        "identity": None,
        "zones": None,
        "extendedLocation": None,
    } | more


def _spot(kind: str, region: str, size: str, properties: Json) -> Json:
    return graph_row(kind, region, size, properties, sku={"name": size})


def _as_objects(options: Json, version: str) -> bool:
    usual = "table" if version <= TABLES_UNTIL else "objectArray"
    wanted = options.get("resultFormat", usual)
    if wanted not in {"table", "objectArray"}:
        raise bad_request({"code": "BadRequest", "message": f"Unknown resultFormat '{wanted}'."})
    return bool(wanted == "objectArray")


def _table(rows: list[Json]) -> Json:
    names = list(rows[0]) if rows else []
    columns = []
    for name in names:
        texts = any(isinstance(row[name], str) for row in rows)
        columns.append({"name": name, "type": "string" if texts else "object"})
    return {"columns": columns, "rows": [[row[name] for name in names] for row in rows]}


def _more(page: list[Json], skip: int, top: int) -> Json:
    """How the rest is reached: not at all, where the query left out the ids."""
    if "id" not in page[0]:
        return {"resultTruncated": "true"}
    token = json.dumps({"skip": skip, "top": top}).encode()
    return {"$skipToken": base64.b64encode(token).decode()}


def _read_token(token: Any) -> tuple[int, int]:
    try:
        told = json.loads(base64.b64decode(token))
        return int(told["skip"]), int(told["top"])
    except (ValueError, KeyError, TypeError):
        raise bad_request({"code": "InvalidSkipToken", "message": "Invalid skip token."}) from None
