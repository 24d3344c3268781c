"""The offerings file: JSON in, offers out, or every fault at once with its path.

This and `offering_keys` alone need pydantic; imported only when an offerings file was named. The
keys here are those of contract section 16. What offers become (ids, numbers, slots) belongs to the
domain.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from bigfleet_azure.daemon.offering_keys import VmKeys
from bigfleet_azure.daemon.settings import SettingsError, similar
from bigfleet_azure.domain import quantity
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import (
    FORBIDDEN_LABELS,
    MAX_SLOTS_PER_OFFERING,
    Facts,
    Offer,
    merge,
)

if TYPE_CHECKING:
    from bigfleet_azure.backends.azure.options import AzureOptions

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


class _Entry(VmKeys):
    vm_size: Annotated[str, AfterValidator(_name)]
    zone: Annotated[str, AfterValidator(_name)]
    capacity_type: Annotated[CapacityType, BeforeValidator(_capacity_type)] = CapacityType.ON_DEMAND
    count: Annotated[int, Field(ge=0, le=MAX_SLOTS_PER_OFFERING)]
    resources: Annotated[dict[_Key, _Amount], BeforeValidator(_absent_if_null)] = Field(
        default_factory=dict
    )
    labels: Annotated[dict[_Key, _LabelValue], BeforeValidator(_absent_if_null)] = Field(
        default_factory=dict
    )

    def offer(self, settings: Mapping[str, Any]) -> Offer:
        return Offer(
            vm_size=self.vm_size,
            zone=self.zone,
            capacity_type=self.capacity_type,
            count=self.count,
            resources=self.resources,
            labels=self.labels,
            settings=settings,
        )


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys it was given more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.repeated = sorted({key for key in keys if keys.count(key) > 1})


Describe = Callable[[Offer], Facts]
"""What the substrate publishes about an offer; BackendError when it knows no such size."""


def load(
    path: Path, describe: Describe, azure: "AzureOptions | None" = None
) -> tuple[list[Offer], list[str]]:
    """Read the offers in `path`, equal ones merged, and what is odd about them.

    A count of 0 is allowed and offers nothing.

    Args:
        path: the file; the files that it names are looked for beside it.
        describe: what the substrate publishes.
        azure: what machines are like unless their offering says otherwise; None for the simulated
            region, which makes them all alike.

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
    entries: dict[int, _Entry] = {}
    for index, entry in enumerate(data):
        try:
            entries[index] = _Entry.model_validate(entry)
        except ValidationError as error:
            faults += _refusals(index, error)
    made, found = _made(entries, azure, path.absolute().parent)
    faults += [*found, *_unknown_sizes(data, describe)]
    offers = merge(made.values())
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
    warnings += [f"{path}: {text}" for text in _overridden_labels(made, describe)]
    if azure is None:
        warnings += [f"{path}: {text}" for text in _idle_keys(entries)]
    return offers, warnings


def _refusals(index: int, error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        yield f"{_spelled((index, *fault['loc']))}: {_explained(fault)}"


def _made(
    entries: Mapping[int, _Entry], azure: "AzureOptions | None", folder: Path
) -> tuple[dict[int, Offer], list[str]]:
    """The offers by their place in the file, and what is wrong with how they are to be made."""
    if azure is None:
        return {index: entry.offer({}) for index, entry in entries.items()}, []
    from bigfleet_azure.backends.azure.profiles import contradictions, profile_of

    offers: dict[int, Offer] = {}
    faults: list[str] = []
    for index, entry in entries.items():
        settings, found = entry.settings(folder)
        faults += [f"{_spelled((index, key))}: {fault}" for key, fault in found]
        offer = offers[index] = entry.offer(settings)
        profile = profile_of(azure.profile, offer)
        faults += [
            f"{_spelled((index,))}: {fault}"
            for fault in contradictions(offer, profile, azure.location)
        ]
    return offers, faults


def _idle_keys(entries: Mapping[int, _Entry]) -> Iterator[str]:
    given = {key for entry in entries.values() for key in entry.given()}
    if given:
        keys = ", ".join(key for key in VmKeys.model_fields if key in given)
        yield f"without effect on the simulated region: {keys}"


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
            if error.kind in RETRYABLE:
                continue
            yield f"{_spelled((index, 'vm_size'))}: {error}"


def _overridden_labels(offers: Mapping[int, Offer], describe: Describe) -> Iterator[str]:
    for index, offer in offers.items():
        try:
            own = describe(offer).labels
        except BackendError:
            continue  # not known yet
        for key in sorted(offer.labels.keys() & own.keys()):
            if offer.labels[key] != own[key]:
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
    "float_type": "must be a number without quotes",
    "bool_type": "must be true or false, without quotes",
    "list_type": "must be a list of strings",
    "dict_type": "must be an object of strings",
    "model_type": "must be an object with the keys of an offering",
    "greater_than_equal": "must be 0 or more",
}


def _explained(fault: ErrorDetails) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    if fault["type"] == "extra_forbidden":
        own = [key for key in _Entry.model_fields if key not in VmKeys.model_fields]
        known = [*own, *VmKeys.model_fields]
        hint = similar(str(fault["loc"][-1]), known)
        return "is not a known key" + (hint or f"; known are {', '.join(known)}")
    if fault["type"] == "less_than_equal":
        return f"is too large; the most is {fault['ctx']['le']}"
    return _EXPLAINED.get(fault["type"], fault["msg"])
