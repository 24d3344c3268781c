"""The shape of a value, and how the shape of our answer compares with the recorded ones.

A shape keeps keys, kinds and formats (a time, a GUID, an ARM id) and forgets values. Shapes of
several recordings add up: what all of them have must be there, what some have may be. How an
exchange comes about is the replay's business.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.truth.walker import is_time

TEXT = "text"
_GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_FORMATS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("guid", re.compile(_GUID)),
    ("etag", re.compile(rf'W/"{_GUID}"')),
    ("arm-id", re.compile(r"/subscriptions/[^/]+(/.*)?", re.IGNORECASE)),
    ("url", re.compile(r"https?://\S+")),
    ("ipv4", re.compile(r"\d{1,3}(\.\d{1,3}){3}")),
    ("whole", re.compile(r"\d+")),
)
# A format that is chance rather than meaning: the number 4 as text, an address where a name stood.
_WEAK = frozenset({"whole", "ipv4"})

# Keys under these are names that people choose; what stands there is compared as one.
MAPS = frozenset({"tags", "userAssignedIdentities"})
ANY_KEY = "*"
# What is under these is the business of whoever sent it, echoed as it came.
OPAQUE = frozenset({"settings"})
# Texts that are echoed as they came: recorded ones may all have one format by chance.
ECHOED = frozenset({"forceUpdateTag"})
# Under these the keys depend on the form that a request chose: an image by id, or by its names.
CHOSEN_FORMS = frozenset({"imageReference", "securityProfile"})

# What is there because a request brought it: all recordings may have it by chance.
ASKED_FOR = frozenset({"tags", "zones", "identity", "plan", "settings", "enableAutomaticUpgrade"})

# What an answer about a deallocated VM lacks (recorded of an evicted one), of whatever kind it is.
GONE_WHILE_DEALLOCATED = frozenset({"diskSizeGB", "storageAccountType"})

_NOT_NEEDED = ASKED_FOR | GONE_WHILE_DEALLOCATED


@dataclass
class Shape:
    """What is known of the values at one place."""

    kinds: set[str] = field(default_factory=set)
    objects: int = 0
    keys: dict[str, "Shape"] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    items: "Shape | None" = None

    @property
    def always(self) -> frozenset[str]:
        """The keys that every object seen at this place has."""
        return frozenset(key for key, count in self.counts.items() if count == self.objects)

    def add(self, value: Any, *, chosen_names: bool = False, opaque: bool = False) -> "Shape":
        """Learn from one more value."""
        kind = kind_of(value)
        self.kinds.add(kind)
        if kind == "object" and not opaque:
            self.objects += 1
            for key, inner in value.items():
                name = ANY_KEY if chosen_names else key
                place = self.keys.setdefault(name, Shape())
                place.add(inner, chosen_names=key in MAPS, opaque=key in OPAQUE)
                self.counts[name] = self.counts.get(name, 0) + (0 if chosen_names else 1)
        elif kind == "list":
            self.items = self.items or Shape()
            for inner in value:
                self.items.add(inner)
        return self

    def loosen(self, wider: "Shape", *, enough: int) -> None:
        """Where few values were seen, ask only for keys that the wider shape always has too."""
        for key, inner in self.keys.items():
            other = wider.keys.get(key)
            if other is None:
                continue
            if self.objects < enough and key not in wider.always:
                self.counts[key] = -1
            inner.loosen(other, enough=enough)
        if self.items is not None and wider.items is not None:
            self.items.loosen(wider.items, enough=enough)


def shape(*values: Any) -> Shape:
    """The shape that all these values share."""
    known = Shape()
    for value in values:
        known.add(value)
    return known


def kind_of(value: Any) -> str:
    """The kind of a JSON value; texts by their format."""
    if isinstance(value, str):
        if is_time(value):
            return "time"
        return next((name for name, form in _FORMATS if form.fullmatch(value)), TEXT)
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "boolean"),
        (int, "number"),
        (float, "number"),
        (dict, "object"),
        (list, "list"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


@dataclass(frozen=True)
class Difference:
    """One way in which our answer is not like the recorded ones."""

    what: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}: {self.text}"


Known = Callable[[str], bool]
"""Tells whether something other than the recordings names a key, by its place."""


def missing_or_extra(
    ours: Any, recorded: Shape, *, known: Known = lambda _place: False
) -> list[Difference]:
    """Compare our value with the recorded shape.

    A key that all recordings have must be there; one that some have may be. A key that none has is
    extra unless `known` vouches for it. Kinds must agree, and so must telling formats.
    """
    return list(_compare(ours, recorded, "$", known))


def _compare(ours: Any, recorded: Shape, path: str, known: Known) -> Iterator[Difference]:
    kind = kind_of(ours)
    name = path.rpartition(".")[2]
    if name in ECHOED and isinstance(ours, str):
        return
    if not _agree(kind, recorded.kinds):
        expected = " or ".join(sorted(recorded.kinds))
        yield Difference("kind", path, f"{kind} ({str(ours)[:60]!r}) where {expected} was recorded")
        return
    if kind == "object" and name not in OPAQUE:
        chosen = ANY_KEY in recorded.keys or name in MAPS
        needed = frozenset() if name in CHOSEN_FORMS else recorded.always - _NOT_NEEDED - {ANY_KEY}
        for key in sorted(needed - ours.keys()):
            yield Difference("missing", f"{path}.{key}", "every recording has it")
        for key, inner in ours.items():
            here = f"{path}.{key}"
            place = recorded.keys.get(ANY_KEY if chosen else key)
            if place is not None:
                yield from _compare(inner, place, here, known)
            elif not chosen and not known(re.sub(r"\[\d+\]", "[]", here)):
                yield Difference("extra", here, "no recording and no schema has it")
    elif kind == "list" and recorded.items is not None and recorded.items.kinds:
        for index, inner in enumerate(ours):
            yield from _compare(inner, recorded.items, f"{path}[{index}]", known)


def _agree(kind: str, recorded: set[str]) -> bool:
    if not recorded or kind in recorded:
        return True
    texts = {TEXT, "time"} | {name for name, _form in _FORMATS}
    if kind in texts:
        # Once any text was recorded here, any is good; a telling format binds only when alone.
        return bool(recorded & ({TEXT} | _WEAK)) or (kind in _WEAK and bool(recorded & texts))
    return False
