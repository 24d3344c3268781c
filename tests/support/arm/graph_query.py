"""The little of Resource Graph's query language that the double reads.

A table, then `where` with comparisons of text joined by `and`, `project`, and `order by`, between
bars. All else is refused in the documented form of a query that does not parse.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.arm.wire import Json, Refusal, refusal

Rows = list[Json]
Stage = Callable[[Rows], Rows]

_TEXT = r"(?:'[^']*'|\"[^\"]*\")"
_PATH = r"[A-Za-z]\w*(?:\.\w+)*"
_BARS = re.compile(rf"((?:{_TEXT}|[^|'\"])+)")
_CONDITION = re.compile(
    rf"\s*(?P<path>{_PATH})\s*"
    rf"(?:(?P<sign>==|=~)\s*(?P<one>{_TEXT})|(?P<word>in~?)\s*\((?P<many>[^()]*)\))\s*"
)
_COLUMN = re.compile(
    rf"\s*(?:(?P<name>\w+)\s*=\s*)?(?:tostring\(\s*(?P<cast>{_PATH})\s*\)|(?P<path>{_PATH}))\s*"
)
_KEY = re.compile(r"\s*(?P<name>\w+)(?:\s+(?P<way>asc|desc))?\s*")
_COMPARED = frozenset({"type", "location", "sku.name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query that was understood."""

    table: str
    """In lower case."""
    stages: tuple[Stage, ...]

    def run(self, rows: Rows) -> Rows:
        for stage in self.stages:
            rows = stage(rows)
        return rows


def parse(text: str) -> Query:
    """Understand a query, or refuse it."""
    table, *rest = _BARS.findall(text.strip()) or [""]
    if _BARS.sub("", text.strip()).strip("|") or not re.fullmatch(r"\s*\w+\s*", table):
        raise bad_query()
    return Query(table=table.strip().lower(), stages=tuple(map(_stage, rest)))


def bad_query(code: str = "ParserFailure", message: str = "ParserFailure") -> Refusal:
    """The refusal of a query; the double tells no position in it."""
    why = {
        "code": "InvalidQuery",
        "message": "Query is invalid. Please refer to the documentation for the Azure Resource "
        "Graph service and fix the error before retrying.",
    }
    return bad_request(why, {"code": code, "message": message})


def bad_request(
    *details: Json, status: int = 400, code: str = "BadRequest", **more: Any
) -> Refusal:
    """An error as Resource Graph writes it: what is wrong stands in the details."""
    message = (
        "Please provide below info when asking for support: timestamp = 2026-12-01T00:00:00Z, "
    )
    message += "correlationId = 00000000-0000-0000-0000-000000000000."
    return refusal(status, code, message, details=list(details), **more)


def _stage(text: str) -> Stage:
    word, _, rest = text.strip().partition(" ")
    if word == "where":
        return _where(rest)
    if word == "project":
        return _project(rest)
    by, _, keys = rest.strip().partition(" ")
    if word in {"order", "sort"} and by == "by":
        return _order(keys)
    raise bad_query()


def _where(text: str) -> Stage:
    tests, position = [], 0
    while True:
        found = _CONDITION.match(text, position)
        if found is None:
            raise bad_query()
        tests.append(_test(found))
        position = found.end()
        if position == len(text):
            return lambda rows: [row for row in rows if all(test(row) for test in tests)]
        joined = re.compile(r"and\b").match(text, position)
        if joined is None:
            raise bad_query()
        position = joined.end()


def _test(found: re.Match[str]) -> Callable[[Json], bool]:
    path = found["path"]
    if path not in _COMPARED:
        raise bad_query()
    listed = found["one"] if found["sign"] else found["many"]
    if not re.fullmatch(rf"\s*{_TEXT}(?:\s*,\s*{_TEXT})*\s*", listed):
        raise bad_query()
    wanted = {each[1:-1] for each in re.findall(_TEXT, listed)}
    if found["sign"] == "==" or found["word"] == "in":
        return lambda row: _at(row, path) in wanted
    lower = {each.lower() for each in wanted}
    return lambda row: str(_at(row, path)).lower() in lower


def _project(text: str) -> Stage:
    columns: dict[str, str] = {}
    for part in text.split(","):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise bad_query()
        path = found["cast"] or found["path"]
        columns[found["name"] or path.replace(".", "_")] = path
    return lambda rows: [{name: _at(row, path) for name, path in columns.items()} for row in rows]


def _order(text: str) -> Stage:
    keys = []
    for part in text.split(","):
        found = _KEY.fullmatch(part)
        if found is None:
            raise bad_query()
        keys.append((found["name"], found["way"] != "asc"))

    def ordered(rows: Rows) -> Rows:
        for name, backwards in reversed(keys):
            rows = sorted(rows, key=lambda row: str(row.get(name)), reverse=backwards)
        return rows

    return ordered


def _at(row: Json, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
