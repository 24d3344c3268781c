"""Walks a JSON value along a schema and names every difference by its path.

Stricter than the schemas themselves: a key that a schema does not name is a fault, so that a
misspelt one cannot pass. Lenient only where Microsoft says so: open enumerations in answers.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.support.arm.truth.documents import Document, Flat

UNKNOWN = "unknown key"
READ_ONLY = "read-only key"
MISSING = "missing key"
TYPE = "wrong type"
VALUE = "wrong value"
NULL = "null"

_PYTHON: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class Fault:
    """One difference between a body and its schema."""

    kind: str
    path: str
    text: str

    @property
    def place(self) -> str:
        """The path with the positions in lists taken out."""
        return re.sub(r"\[\d+\]", "[]", self.path)

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}: {self.text}"


class Walker:
    """Checks bodies of one direction against one document."""

    def __init__(
        self,
        document: Document,
        *,
        request: bool,
        explain: Callable[[str], str | None] = lambda _place: None,
    ) -> None:
        self._document = document
        self._request = request
        # Asked about an unknown key's place: a better kind than UNKNOWN, if there is one.
        self._explain = explain

    def faults(self, schema: Mapping[str, Any], value: Any) -> list[Fault]:
        """Every fault of a body, in the order of its keys."""
        return list(self._walk(self._document.flat(schema), value, "$"))

    def _walk(self, flat: Flat, value: Any, path: str) -> Iterator[Fault]:
        if value is None:
            if "null" not in flat.kinds:
                yield Fault(NULL, path, f"null where {_kinds(flat)} is described")
            return
        if not _fits(flat, value):
            yield Fault(TYPE, path, f"{_name(value)} where {_kinds(flat)} is described")
            return
        if isinstance(value, dict):
            yield from self._object(flat, value, path)
        elif isinstance(value, list):
            if flat.items is not None:
                items = self._document.flat(flat.items)
                for index, item in enumerate(value):
                    yield from self._walk(items, item, f"{path}[{index}]")
        else:
            yield from self._scalar(flat, value, path)

    def _object(self, flat: Flat, value: Mapping[str, Any], path: str) -> Iterator[Fault]:
        for key in sorted(flat.required - value.keys()):
            if not (self._request and self._document.flat(flat.properties[key]).read_only):
                yield Fault(MISSING, f"{path}.{key}", "required")
        if not flat.properties and flat.additional is None:
            return  # Described as "an object" and no more: extension settings, for one.
        for key, item in value.items():
            here = f"{path}.{key}"
            if key in flat.properties:
                inner = self._document.flat(flat.properties[key])
                if inner.read_only and self._request:
                    yield Fault(READ_ONLY, here, "only Azure may set it")
                else:
                    yield from self._walk(inner, item, here)
            elif flat.additional is True:
                continue
            elif isinstance(flat.additional, dict):
                yield from self._walk(self._document.flat(flat.additional), item, here)
            else:
                yield self._unknown(flat, key, here)

    def _unknown(self, flat: Flat, key: str, path: str) -> Fault:
        plain = Fault(UNKNOWN, path, f"{self._document.name} does not name it")
        kind = self._explain(plain.place)
        if kind is not None:
            return Fault(kind, path, "only Azure may set it")
        same = [name for name in flat.properties if name.lower() == key.lower()]
        hint = f"; meant {same[0]!r}?" if same else ""
        return Fault(UNKNOWN, path, plain.text + hint)

    def _scalar(self, flat: Flat, value: Any, path: str) -> Iterator[Fault]:
        strict = self._request or not flat.open_values
        if flat.values is not None and strict and value not in flat.values:
            known = ", ".join(map(str, flat.values[:12]))
            yield Fault(VALUE, path, f"{value!r} is none of {known}")
        limits = flat.limits
        if isinstance(value, str):
            if len(value) > limits.get("maxLength", len(value)):
                yield Fault(VALUE, path, f"longer than {limits['maxLength']} characters")
            if len(value) < limits.get("minLength", 0):
                yield Fault(VALUE, path, f"shorter than {limits['minLength']} characters")
            if "pattern" in limits and not re.search(limits["pattern"], value):
                yield Fault(VALUE, path, f"{value!r} does not match {limits['pattern']}")
            if limits.get("format") == "date-time" and not is_time(value):
                yield Fault(VALUE, path, f"{value!r} is not a time")
        elif not isinstance(value, bool):
            low, high = limits.get("minimum", value), limits.get("maximum", value)
            if not low <= value <= high:
                yield Fault(VALUE, path, f"{value} is not within {low} to {high}")


def is_time(value: str) -> bool:
    """Tell whether a string is a time as Azure writes them (seven digits of a second)."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,7})?(Z|[+-]\d\d:\d\d)?", value)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match.group(1) + "+00:00")
    except ValueError:
        return False
    return True


def _fits(flat: Flat, value: Any) -> bool:
    if not flat.kinds:
        return True
    if isinstance(value, bool):
        return "boolean" in flat.kinds
    return any(isinstance(value, _PYTHON[kind]) for kind in flat.kinds if kind in _PYTHON)


def _kinds(flat: Flat) -> str:
    return " or ".join(sorted(flat.kinds)) or "a value"


def _name(value: Any) -> str:
    for name, types in _PYTHON.items():
        if type(value) in types:
            return name
    return type(value).__name__
