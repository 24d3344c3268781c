"""The offerings file: JSON in, offers out, or every fault at once with its path.

The one place that needs pydantic; imported only when an offerings file was named. Its keys are
those of contract section 16. What offers become (ids, numbers, slots) belongs to the domain.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails

from bigfleet_azure.daemon.settings import SettingsError
from bigfleet_azure.domain import quantity
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import (
    FORBIDDEN_LABELS,
    MAX_SLOTS_PER_OFFERING,
    Facts,
    Offer,
    merge,
)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""A Kubernetes label key is PREFIX/NAME or NAME, a value is a NAME or empty; sizes and zones are
published as label values (kubernetes.io/docs/concepts/overview/working-with-objects/labels)."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_CAPACITY_TYPES = {
    "": CapacityType.ON_DEMAND,
    "on_demand": CapacityType.ON_DEMAND,
    "on-demand": CapacityType.ON_DEMAND,
    "ondemand": CapacityType.ON_DEMAND,
    "spot": CapacityType.SPOT,
    "reserved": CapacityType.RESERVED,
}


class OfferingsError(SettingsError):
    """The offerings file cannot be used; `faults` names the file and the path in each."""


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is not 1 to 63 letters, digits, '-', '_' and '.', "
            "starting and ending with a letter or digit"
        )
    return text


def _name_or_empty(text: str) -> str:
    return _name(text) if text else text


def _qualified(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{text!r} has a prefix that is not a DNS name such as example.com")
    _name(name)
    return text


def _amount(text: str) -> str:
    if quantity.parse(text) <= 0:
        raise ValueError(f"{text!r} must be more than 0")
    return text.strip()


def _capacity_type(value: object) -> CapacityType:
    if not isinstance(value, str | None):
        raise ValueError("must be a string; write on_demand, spot or reserved")
    try:
        return _CAPACITY_TYPES[(value or "").lower()]
    except KeyError:
        raise ValueError(f"{value!r} is unknown; write on_demand, spot or reserved") from None


def _absent_if_null(value: object) -> object:
    """Go's decoder, which has read the users' files so far, takes null for "not there"."""
    return {} if value is None else value


_Key = Annotated[str, AfterValidator(_qualified)]
_Amount = Annotated[str, AfterValidator(_amount)]
_LabelValue = Annotated[str, AfterValidator(_name_or_empty)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    vm_size: Annotated[str, AfterValidator(_name)]
    zone: Annotated[str, AfterValidator(_name)]
    capacity_type: Annotated[CapacityType, BeforeValidator(_capacity_type)] = CapacityType.ON_DEMAND
    count: Annotated[int, Field(ge=0, le=MAX_SLOTS_PER_OFFERING)]
    resources: Annotated[dict[_Key, _Amount], BeforeValidator(_absent_if_null)] = {}
    labels: Annotated[dict[_Key, _LabelValue], BeforeValidator(_absent_if_null)] = {}

    def offer(self) -> Offer:
        return Offer(
            vm_size=self.vm_size,
            zone=self.zone,
            capacity_type=self.capacity_type,
            count=self.count,
            resources=self.resources,
            labels=self.labels,
        )


_ENTRIES = TypeAdapter(list[_Entry])


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys it was given more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.repeated = sorted({key for key in keys if keys.count(key) > 1})


Describe = Callable[[Offer], Facts]
"""What the substrate publishes about an offer; BackendError when it knows no such size."""


def load(path: Path, describe: Describe) -> tuple[list[Offer], list[str]]:
    """Read the offers in `path`, equal ones merged, and what is odd about them.

    A count of 0 is allowed and offers nothing.

    Raises:
        OfferingsError: with every fault of the file at once.
    """
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_Object)
    except OSError as error:
        raise OfferingsError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise OfferingsError([f"{path}: is not JSON: {error}"]) from None
    if not isinstance(data, list) or not data:
        raise OfferingsError([f"{path}: must be a non-empty JSON array of offerings"])
    faults = [f"{_spelled(where)}: stands there more than once" for where in _repeated(data, ())]
    warnings = [f"{path}: {text}" for text in _drop_forbidden_labels(data)]
    entries: list[_Entry] = []
    try:
        entries = _ENTRIES.validate_python(data)
    except ValidationError as error:
        faults += [
            f"{_spelled(fault['loc'])}: {_explained(fault)}"
            for fault in error.errors(include_url=False)
        ]
    faults += _unknown_sizes(data, describe)
    offers = merge([entry.offer() for entry in entries])
    faults += [
        f"{offer.vm_size} in {offer.zone}: equal offerings add up to {offer.count} slots; "
        f"the most is {MAX_SLOTS_PER_OFFERING}"
        for offer in offers
        if offer.count > MAX_SLOTS_PER_OFFERING
    ]
    if faults:
        raise OfferingsError([f"{path}: {fault}" for fault in faults])
    if not any(offer.count for offer in offers):
        warnings.append(f"{path}: every count is 0, so nothing is offered")
    warnings += [f"{path}: {text}" for text in _overridden_labels(entries, describe)]
    return offers, warnings


def _unknown_sizes(entries: list[Any], describe: Describe) -> Iterator[str]:
    """Sizes that the substrate does not know, also of entries with other faults."""
    for index, entry in enumerate(entries):
        size = entry.get("vm_size") if isinstance(entry, dict) else None
        if not isinstance(size, str) or not _NAME.fullmatch(size):
            continue
        probe = Offer(vm_size=size, zone="", capacity_type=CapacityType.ON_DEMAND, count=0)
        try:
            describe(probe)
        except BackendError as error:
            yield f"{_spelled((index, 'vm_size'))}: {error}"


def _overridden_labels(entries: list[_Entry], describe: Describe) -> Iterator[str]:
    for index, entry in enumerate(entries):
        own = describe(entry.offer()).labels
        for key in sorted(entry.labels.keys() & own.keys()):
            if entry.labels[key] != own[key]:
                where = _spelled((index, "labels", key))
                yield f"{where}: {own[key]!r} is what the machines have, and is published instead"


_Where = tuple[int | str, ...]


def _repeated(node: object, where: _Where) -> Iterator[_Where]:
    if isinstance(node, _Object):
        for key in node.repeated:
            yield (*where, key)
        for key, value in node.items():
            yield from _repeated(value, (*where, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _repeated(value, (*where, index))


def _drop_forbidden_labels(entries: list[Any]) -> Iterator[str]:
    for index, entry in enumerate(entries):
        labels = entry.get("labels") if isinstance(entry, dict) else None
        if not isinstance(labels, dict):
            continue
        for key in sorted(FORBIDDEN_LABELS & labels.keys()):
            del labels[key]
            yield f"{_spelled((index, 'labels', key))}: must not be published and is left out"


def _spelled(where: _Where) -> str:
    """`[3].resources.cpu`, with keys quoted where a dot would mislead."""
    parts = []
    for step in where:
        if step == "[key]":
            continue
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _IDENTIFIER.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{json.dumps(step)}]")
    return "".join(parts)


_EXPLAINED = {
    "missing": "is required",
    "string_type": "must be a string in quotes",
    "int_type": "must be a whole number without quotes",
    "dict_type": "must be an object of strings",
    "model_type": "must be an object with the keys of an offering",
    "greater_than_equal": "must be 0 or more",
    "less_than_equal": f"is too large; the most is {MAX_SLOTS_PER_OFFERING}",
}


def _explained(fault: ErrorDetails) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    if fault["type"] == "extra_forbidden":
        return f"is not a known key; known are {', '.join(_Entry.model_fields)}"
    return _EXPLAINED.get(fault["type"], fault["msg"])
