"""API descriptions as read from `data/openapi`: references resolved, models laid flat.

Knows Swagger 2.0, JSON Schema draft-04 and 2020-12 as far as those files use them. Which document
answers for which call is decided in `schemas`, the checking itself is in `walker`.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OPENAPI = Path(__file__).parent / "data" / "openapi"


@dataclass(frozen=True)
class Flat:
    """One schema with its references followed and its parts (`allOf`) merged."""

    kinds: frozenset[str] = frozenset()
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: Any = None
    items: Any = None
    values: tuple[Any, ...] | None = None
    open_values: bool = True
    read_only: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)


_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "pattern", "format")


class Document:
    """One file of schemas, or a hand-made one of the same form."""

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self.name = name
        self.content = content
        # By identity; the schema is kept beside its result, lest another object take its place.
        self._flat: dict[int, tuple[Mapping[str, Any], Flat]] = {}

    @classmethod
    def load(cls, name: str) -> "Document":
        return cls(name, json.loads((OPENAPI / name).read_text(encoding="utf-8")))

    def model(self, pointer: str) -> Mapping[str, Any]:
        """The schema at a pointer such as `definitions/VirtualMachine`."""
        node: Any = self.content
        for part in pointer.removeprefix("#/").split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]
        return node

    def flat(self, schema: Mapping[str, Any]) -> Flat:
        """Lay a schema flat; the same schema object is laid flat once."""
        known = self._flat.get(id(schema))
        if known is None:
            known = self._flat[id(schema)] = (schema, self._flatten(schema))
        return known[1]

    def _flatten(self, schema: Mapping[str, Any]) -> Flat:
        parts = [self.flat(part) for part in schema.get("allOf", ())]
        if "$ref" in schema:
            parts.append(self.flat(self.model(schema["$ref"])))
        parts.append(self._own(schema))
        properties: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for part in parts:
            properties.update(part.properties)
            limits.update(part.limits)
        return Flat(
            kinds=frozenset[str]().union(*(part.kinds for part in parts)),
            properties=properties,
            required=frozenset[str]().union(*(part.required for part in parts)),
            additional=_last(part.additional for part in parts),
            items=_last(part.items for part in parts),
            values=_last(part.values for part in parts),
            open_values=all(part.open_values for part in parts),
            read_only=any(part.read_only for part in parts),
            limits=limits,
        )

    def _own(self, schema: Mapping[str, Any]) -> Flat:
        kind = schema.get("type", [])
        values = schema.get("enum", schema.get("x-known-values"))
        closed = "enum" in schema and not schema.get("x-ms-enum", {}).get("modelAsString", False)
        return Flat(
            kinds=frozenset([kind] if isinstance(kind, str) else kind),
            properties=schema.get("properties", {}),
            required=frozenset(schema.get("required", ())),
            additional=schema.get("additionalProperties"),
            items=schema.get("items"),
            values=None if values is None else tuple(values),
            open_values=not closed,
            read_only=bool(schema.get("readOnly", False)),
            limits={key: schema[key] for key in _LIMITS if key in schema},
        )


def _last(values: Any) -> Any:
    found = None
    for value in values:
        if value is not None:
            found = value
    return found


@functools.cache
def document(name: str) -> Document:
    """A file of `data/openapi`, read once."""
    return Document.load(name)


@functools.cache
def operations() -> tuple[Mapping[str, Any], ...]:
    """The calls of the two SDK packages: verb, path template, query keys, statuses."""
    names = ("compute-sdk-39.0.0.operations.json", "network-sdk-33.1.0.operations.json")
    return tuple(
        operation
        for name in names
        for operation in json.loads((OPENAPI / name).read_text(encoding="utf-8"))["operations"]
    )
