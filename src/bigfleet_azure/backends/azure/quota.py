"""What the usages of Compute and Network leave, and which offers that is too little for.

Most refused creates are quota, and a reading of the usages tells that beforehand (azure-practice
section 2). Quota for Spot is one for all sizes; on-demand cores count in their family's quota and
in the region's. VMs in a capacity reservation group need no cores (`shortages.pool_of`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.shortages import ProfileOf, family_of, pool_of, quota_cores
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.shortage import Shortage

BELIEVED_SECONDS = 15 * 60.0
"""A reading older than that closes nothing (azure-practice section 1, quota preflight)."""

Need = Callable[[Offer, VmProfile, SizeTable], int]
"""How much of a quota one VM of the offer takes; 0 for nothing, or when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One quota.

    Attributes:
        name: Azure's own, e.g. `standardDSv5Family`.
        limit: how much there may be; below 0 for no limit.
    """

    name: str
    limit: int
    used: int

    @property
    def left(self) -> int | None:
        """How much may still be made; None for no limit."""
        return None if self.limit < 0 else max(0, self.limit - self.used)


def levels(rows: Iterable[object]) -> list[Level]:
    """The quotas that a usages answer tells; rows that cannot be read are left out."""
    return [level for row in rows if (level := _level(row)) is not None]


def quota_shortages(
    compute: Iterable[object],
    network: Iterable[object],
    sizes: SizeTable,
    profile_of: ProfileOf,
) -> list[Shortage]:
    """A shortage for each quota that leaves too little for some offer.

    Args:
        compute, network: rows of the two usages answers.
    """
    largest = _largest(sizes)
    found = []
    for level, need, most in _needs(levels(compute), levels(network), largest):
        left = level.left
        if left is not None and left < most:
            found.append(_shortage(level, left, need, sizes, profile_of))
    return found


def shown(
    compute: Iterable[object], network: Iterable[object], offers: Iterable[Offer], sizes: SizeTable
) -> dict[str, Level]:
    """Quotas worth a metric, by name: the region's, and those of the families of these offers."""
    families = dict.fromkeys((family_of(offer, sizes) for offer in offers), 1)
    rows = _needs(levels(compute), levels(network), families)
    return {level.name: level for level, _, _ in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many more machines of an offer a quota leaves room for.

    Attributes:
        level: the tightest quota; None when no reading tells of one.
    """

    machines: int | None = None
    level: Level | None = None


def room(
    compute: Iterable[object],
    network: Iterable[object],
    offer: Offer,
    profile: VmProfile,
    sizes: SizeTable,
) -> Room:
    """What the quotas of an offer leave of it."""
    families = {family_of(offer, sizes): 1}
    tightest = Room()
    for level, need, _ in _needs(levels(compute), levels(network), families):
        each, left = need(offer, profile, sizes), level.left
        if not each or left is None:
            continue
        machines = left // each
        if tightest.machines is None or machines < tightest.machines:
            tightest = Room(machines=machines, level=level)
    return tightest


def _shortage(
    level: Level, left: int, need: Need, sizes: SizeTable, profile_of: ProfileOf
) -> Shortage:
    return Shortage(
        key=f"quota {level.name}",
        text=f"quota {level.name}: {level.used} of {level.limit} used",
        seconds=BELIEVED_SECONDS,
        covers=lambda offer: need(offer, profile_of(offer), sizes) > left,
    )


def _level(row: Any) -> Level | None:
    try:
        return Level(
            name=str(row["name"]["value"]),
            limit=int(row["limit"]),
            # Azure has counted below zero.
            used=max(0, int(row["currentValue"])),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _needs(
    compute: list[Level], network: list[Level], families: Mapping[str, int]
) -> Iterator[tuple[Level, Need, int]]:
    """The quotas that VMs need, with how much one takes and the most that any takes."""
    most = max(families.values(), default=1)
    for level in compute:
        name = level.name.lower()
        if name in _COMPUTE:
            yield level, _COMPUTE[name], most
        elif name in families:
            yield level, _family_cores(name), families[name]
    for level in network:
        need = _NETWORK.get(level.name.lower())
        if need is not None:
            yield level, need, 1


def _largest(sizes: SizeTable) -> dict[str, int]:
    """By family, the cores of its largest size."""
    largest: dict[str, int] = {}
    for size in sizes:
        family = size.family.lower()
        largest[family] = max(size.vcpus_available, largest.get(family, 0))
    return largest


def _cores(offer: Offer, profile: VmProfile, sizes: SizeTable, pool: str) -> int:
    return (quota_cores(offer, sizes) or 0) if pool_of(offer, profile) == pool else 0


def _spot_cores(offer: Offer, profile: VmProfile, sizes: SizeTable) -> int:
    return _cores(offer, profile, sizes, "spot")


def _on_demand_cores(offer: Offer, profile: VmProfile, sizes: SizeTable) -> int:
    return _cores(offer, profile, sizes, "on_demand")


def _family_cores(family: str) -> Need:
    def need(offer: Offer, profile: VmProfile, sizes: SizeTable) -> int:
        same = family_of(offer, sizes) == family
        return _on_demand_cores(offer, profile, sizes) if same else 0

    return need


def _one(_offer: Offer, _profile: VmProfile, _sizes: SizeTable) -> int:
    return 1


def _address(_offer: Offer, profile: VmProfile, _sizes: SizeTable) -> int:
    return int(profile.public_ip)


_COMPUTE: dict[str, Need] = {
    "cores": _on_demand_cores,
    "lowprioritycores": _spot_cores,
    "virtualmachines": _one,
}
_NETWORK: dict[str, Need] = {
    "networkinterfaces": _one,
    "publicipaddresses": _address,
    "staticpublicipaddresses": _address,
    "standardskupublicipaddresses": _address,
}
"""Quotas by Azure's name in lower case; our addresses are static and of the Standard SKU."""
