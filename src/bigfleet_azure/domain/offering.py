"""Offerings: what capacity is offered, and how it becomes named slots.

Slots that no call ever touched have no record of their own. An offering describes them in
segments: a run of indexes whose change numbers count up from a base. That keeps the fleet's cost
flat, and makes "these slots came back" one small write however many they are.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.machine import SLOT_BITS

MAX_ID_CHARACTERS = 60
"""Longest machine id; leaves room below a DNS label's 63 (design section 6)."""

MAX_SLOTS_PER_OFFERING = 1 << SLOT_BITS

_MAX_PREFIX = MAX_ID_CHARACTERS - len("-1000000") - len("-r9999")
_DIGEST_CHARACTERS = 6
_GENERATION = re.compile(r"(.+)-r([1-9][0-9]{0,8})", re.ASCII)

FORBIDDEN_LABELS = frozenset(
    {
        "instance-type",
        "instance_type",
        "instanceType",
        "zone",
        "availability-zone",
        "availability_zone",
        "capacity-type",
        "capacity_type",
        "capacityType",
    }
)
"""Label keys that must never be published (contract section 11)."""

_SHORT_CAPACITY = {
    CapacityType.ON_DEMAND: "od",
    CapacityType.SPOT: "spot",
    CapacityType.RESERVED: "res",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Capacity as the operator asks for it: one entry of the offerings file.

    Attributes:
        vm_size: Azure's name of the size, e.g. Standard_D4s_v5.
        zone: published zone, e.g. eastus-1.
        count: number of slots.
        resources: per-replica request shape in Kubernetes quantities.
        labels: node labels to publish.
        fixed_prefix: ids are this prefix and a plain index, instead of a derived name.
        settings: how the backend is to make its machines, as JSON; only the backend reads it, and
            it is not published.
    """

    vm_size: str
    zone: str
    capacity_type: CapacityType
    count: int
    resources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    fixed_prefix: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str, CapacityType]:
        """What decides where capacity comes from: size, zone and capacity type."""
        return self.vm_size, self.zone, self.capacity_type

    @property
    def shape_digest(self) -> str:
        """Short digest of all but place and count: tells two offers of one place apart."""
        shape = (sorted(self.resources.items()), sorted(self.labels.items()))
        if not self.settings:
            return _digest(shape)
        return _digest((*shape, json.dumps(self.settings, sort_keys=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the substrate says about an offer, published with each of its machines.

    Attributes:
        price_usd_per_hour: finite and not negative.
        interruption_probability: per hour, in [0, 1]; above 0 for spot.
        allocatable: what workloads may use, in Kubernetes quantities.
        labels: arch, os, region, capacity and accelerator labels.
        guessed: the substrate no longer knows the size: what it said before is better than this.
            Not stored.
    """

    price_usd_per_hour: float
    interruption_probability: float
    allocatable: Mapping[str, str]
    labels: Mapping[str, str]
    guessed: bool = field(default=False, compare=False)

    @property
    def cost(self) -> tuple[float, float]:
        """Price and interruption probability: what a shard ranks capacity by."""
        return self.price_usd_per_hour, self.interruption_probability


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of slots: index `first + n` last changed at change number `base + n`."""

    first: int
    count: int
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """An offer with its stable number, id prefix and slots.

    Attributes:
        number: stable for the life of the store; the upper part of slot numbers.
        prefix: first part of its machines' ids.
        segments: change numbers of its untouched slots, covering [0, offer.count).
        withheld: unused slots are left out of List.
        published: digest of the published facts the change numbers stand for.
        taken: price and interruption probability that a shard which follows Lists took over for
            the unused slots; None while that is what `facts` says. A shard takes a new value over
            only with a new state (contract section 11).
        left_out: unused slots from the first index up to the second are not listed either; no store
            keeps that, so a new process lists them.
    """

    number: int
    prefix: str
    offer: Offer
    facts: Facts
    segments: tuple[Segment, ...] = ()
    withheld: bool = False
    published: str = ""
    taken: tuple[float, float] | None = None
    left_out: tuple[int, int] = (0, 0)

    def machine_id(self, index: int, generation: int = 0) -> str:
        """The id of a slot; each retired id is followed by one with the next generation."""
        suffix = f"-r{generation}" if generation else ""
        return _slot_id(self.prefix, self.offer, index) + suffix

    def index_of(self, machine_id: str) -> int | None:
        """The index behind an id of generation 0, None when it is not one of this offering's."""
        text = machine_id[len(self.prefix) + 1 :]
        if not text.isascii() or not text.isdigit() or len(text) > len(str(MAX_SLOTS_PER_OFFERING)):
            return None
        index = int(text)
        return index if self.machine_id(index) == machine_id else None

    def slot_of(self, machine_id: str) -> tuple[int, int] | None:
        """Index and generation behind an id of any generation, None when it is not one of ours."""
        index = self.index_of(machine_id)
        if index is not None:
            return index, 0
        match = _GENERATION.fullmatch(machine_id)
        index = self.index_of(match[1]) if match else None
        return None if match is None or index is None else (index, int(match[2]))

    def change_of(self, index: int) -> int:
        """Change number of an untouched slot."""
        for segment in self.segments:
            if segment.first <= index < segment.first + segment.count:
                return segment.base + index - segment.first
        raise LookupError(f"{self.prefix} has no slot {index}")

    @property
    def head(self) -> int:
        """The newest change number of its untouched slots, 0 when there are none."""
        return max((s.base + s.count - 1 for s in self.segments if s.count), default=0)

    def resized(self, count: int, base: int) -> "Offering":
        """The offering with `count` slots; added ones take change numbers from `base` on."""
        kept = tuple(
            replace(s, count=min(s.count, count - s.first))
            for s in self.segments
            if s.first < count
        )
        covered = max((s.first + s.count for s in kept), default=0)
        added = (Segment(covered, count - covered, base),) if count > covered else ()
        return replace(self, offer=replace(self.offer, count=count), segments=kept + added)

    def rebased(self, base: int) -> "Offering":
        """The offering with all its untouched slots changed anew, from `base` on."""
        count = self.offer.count
        return replace(self, segments=(Segment(0, count, base),) if count else ())

    def taken_beside(self, facts: Facts) -> tuple[float, float] | None:
        """What shards took over of the cost, once `facts` are published."""
        taken = self.taken or self.facts.cost
        return None if taken == facts.cost else taken

    def with_taken(self, cost: tuple[float, float]) -> "Offering":
        """The offering once shards took over that cost."""
        return replace(self, taken=None if cost == self.facts.cost else cost)

    def moved(self, threshold: float) -> bool:
        """Whether price or probability moved by more than that share since shards took them over.

        From nothing to something is more than any share.
        """
        if self.taken is None:
            return False
        return any(
            abs(now - taken) > threshold * taken
            for now, taken in zip(self.facts.cost, self.taken, strict=True)
        )

    def rebased_between(self, first: int, end: int, base: int) -> "Offering":
        """The offering with its untouched slots in [first, end) changed anew, from `base` on."""
        kept: list[Segment] = []
        for s in self.segments:
            if (before := min(first, s.first + s.count) - s.first) > 0:
                kept.append(Segment(s.first, before, s.base))
            start = max(end, s.first)
            if (after := s.first + s.count - start) > 0:
                kept.append(Segment(start, after, s.base + start - s.first))
        end = min(end, self.offer.count)
        changed = (Segment(first, end - first, base),) if end > first else ()
        return replace(self, segments=tuple(sorted((*kept, *changed), key=lambda s: s.first)))


def _slot_id(prefix: str, offer: Offer, index: int) -> str:
    return f"{prefix}-{index}" if offer.fixed_prefix else f"{prefix}-{index:03d}"


def merge(offers: Iterable[Offer]) -> list[Offer]:
    """Add up the counts of offers that differ in nothing else; order of first appearance."""
    merged: dict[tuple[object, ...], Offer] = {}
    for offer in offers:
        key = (*offer.place, offer.shape_digest, offer.fixed_prefix)
        known = merged.get(key)
        merged[key] = replace(known, count=known.count + offer.count) if known else offer
    return list(merged.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An offer matched with the number and prefix it keeps or gets."""

    number: int
    prefix: str
    offer: Offer

    @property
    def first_id(self) -> str:
        """The id of its first slot."""
        return self.machine_id(0)

    def machine_id(self, index: int) -> str:
        """The first id of a slot."""
        return _slot_id(self.prefix, self.offer, index)


def assign(
    offers: Iterable[Offer], known: Collection[Offering], *, provider: str, region: str
) -> list[Assignment]:
    """Give each offer its stable number and prefix, whatever the order of the file.

    An offer keeps those of the known offering with the same place and shape; failing that, of the
    only known one of its place (an edited shape). New ones get the plain derived prefix if it is
    free, else one with the shape's digest.
    """
    merged = merge(offers)
    places = [offer.place for offer in merged]
    unclaimed = {offering.number: offering for offering in known}
    matched: dict[int, Assignment] = {}

    def claim(position: int, offering: Offering) -> None:
        del unclaimed[offering.number]
        matched[position] = Assignment(
            number=offering.number, prefix=offering.prefix, offer=merged[position]
        )

    for position, offer in enumerate(merged):
        for offering in unclaimed.values():
            if _same(offering.offer, offer):
                claim(position, offering)
                break
    for position, offer in enumerate(merged):
        if position in matched or places.count(offer.place) > 1:
            continue
        siblings = [o for o in unclaimed.values() if o.offer.place == offer.place]
        if len(siblings) == 1 and siblings[0].offer.fixed_prefix == offer.fixed_prefix:
            claim(position, siblings[0])
    taken = {offering.prefix for offering in known}
    number = max((offering.number for offering in known), default=0)
    fresh = sorted(set(range(len(merged))) - matched.keys(), key=lambda p: _order(merged[p]))
    for position in fresh:
        offer = merged[position]
        number += 1
        plain = prefix = derived_prefix(offer, provider=provider, region=region)
        attempt = 0
        while prefix in taken:
            prefix = _shortened(f"{plain}-{_digest((*offer.place, offer.shape_digest, attempt))}")
            attempt += 1
        taken.add(prefix)
        matched[position] = Assignment(number=number, prefix=prefix, offer=offer)
    return [matched[position] for position in range(len(merged))]


def _same(left: Offer, right: Offer) -> bool:
    return (
        left.place == right.place
        and left.shape_digest == right.shape_digest
        and left.fixed_prefix == right.fixed_prefix
    )


def _order(offer: Offer) -> tuple[object, ...]:
    return (*offer.place, offer.shape_digest)


def derived_prefix(offer: Offer, *, provider: str, region: str) -> str:
    """First part of an offer's ids: provider, region once, capacity, size, zone.

    >>> derived_prefix(
    ...     Offer(vm_size="Standard_F8s_v2", zone="eastus-1",
    ...           capacity_type=CapacityType.SPOT, count=1),
    ...     provider="azure", region="eastus")
    'azure-eastus-spot-f8s-v2-1'
    """
    if offer.fixed_prefix:
        return offer.fixed_prefix
    region = region or region_of(offer.zone)
    named = f"-{_label(region)}-" in f"-{_label(provider)}-"
    where = provider if named else f"{provider}-{region}"
    zone = _label(offer.zone).removeprefix(_label(region))
    size = offer.vm_size.removeprefix("Standard_").removeprefix("standard_")
    return _shortened(f"{where}-{_SHORT_CAPACITY[offer.capacity_type]}-{size}-{zone}")


def named_for(prefix: str, offer: Offer, provider: str) -> bool:
    """Whether a prefix was derived under that provider name."""
    if offer.fixed_prefix:
        return True
    return prefix.startswith(_shortened(provider)[: _MAX_PREFIX - _DIGEST_CHARACTERS - 1])


def region_of(zone: str) -> str:
    """The region a zone name starts with: `eastus` for `eastus-1`."""
    region, dash, number = zone.rpartition("-")
    return region if dash and number.isdigit() else zone


def _digest(content: object) -> str:
    """A short digest of plain data."""
    raw = repr(content).encode()
    return hashlib.blake2b(raw, digest_size=_DIGEST_CHARACTERS // 2).hexdigest()


def _label(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _shortened(text: str) -> str:
    label = _label(text)
    if not label[:1].isalpha():
        label = f"m-{label}"
    if len(label) <= _MAX_PREFIX:
        return label
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_CHARACTERS // 2).hexdigest()
    return f"{label[: _MAX_PREFIX - _DIGEST_CHARACTERS - 1].rstrip('-')}-{digest}"


_BUILT_IN = (
    ("Standard_D4s_v5", CapacityType.ON_DEMAND, 0),
    ("Standard_F8s_v2", CapacityType.SPOT, 0),
    ("Standard_D4s_v5", CapacityType.ON_DEMAND, 1),
    ("Standard_F8s_v2", CapacityType.SPOT, 1),
)
_BUILT_IN_RESOURCES = {"cpu": "1", "memory": "2Gi"}
_FALLBACK_SEED_COUNT = 16
"""Contract section 16: a seed count of 0 or less means 16."""


def built_in_mix(seed_count: int, zones: Sequence[str]) -> list[Offer]:
    """The offers used without an offerings file: `seed_count` slots split over four buckets."""
    total = seed_count if seed_count > 0 else _FALLBACK_SEED_COUNT
    share, rest = divmod(total, len(_BUILT_IN))
    return [
        Offer(
            vm_size=size,
            zone=zones[zone],
            capacity_type=capacity,
            count=share + (position < rest),
            resources=_BUILT_IN_RESOURCES,
        )
        for position, (size, capacity, zone) in enumerate(_BUILT_IN)
        if share + (position < rest)
    ]
