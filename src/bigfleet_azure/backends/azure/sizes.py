"""What Azure's list of Resource SKUs says about VM sizes in our location.

Reading only: what it means for an offering is `preflight`'s, what is published of it is
`published`'s. The list is odd in places (azure-facts section 2.4): casing of names and locations
varies, values are text or null, and capabilities come and go between API versions. A capability
that an entry does not mention is one that the size does not have, except where an attribute says
otherwise.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bigfleet_azure.domain.quantity import GIB, MIB

Json = Mapping[str, Any]

PLACEMENTS = ("CacheDisk", "ResourceDisk", "NvmeDisk")
"""Where an ephemeral OS disk may lie, Azure's own default first."""

_ROOM = {
    "CacheDisk": ("cacheddiskbytes", 1),
    "ResourceDisk": ("maxresourcevolumemb", MIB),
    "NvmeDisk": ("nvmedisksizeinmib", MIB),
}
"""Capability that tells the room of a placement, and its unit in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A VM size as the list describes it.

    Attributes:
        name: the list's own spelling.
        family: name of its core quota among the usages; "" when not said.
        vcpus, vcpus_available: of the hardware, and of those the ones that the guest sees.
        architecture: x64 or Arm64.
        generations: Hyper-V generations it boots, V1 and V2; empty when not said.
        controllers: SCSI and NVMe; SCSI when not said.
        ephemeral: by placement, the largest ephemeral OS disk in bytes.
        spot_capable: B and Promo sizes are not, whatever the list says (azure-facts section 2.4;
            Microsoft's page on Spot VMs).
        trusted_launch: not switched off for the size; generation 2 is needed besides.
        confidential: type of confidential computing, "" for none.
        zones: zones of the location that have it, without those barred to us.
        restricted_zones: zones in which the subscription may not have it.
        restricted: the subscription may not have it in the location at all.
        reason: the list's code for the bar.
    """

    name: str
    family: str
    vcpus: int
    vcpus_available: int
    memory_bytes: int
    gpus: int = 0
    architecture: str = "x64"
    generations: frozenset[str] = frozenset()
    controllers: frozenset[str] = frozenset({"SCSI"})
    premium_io: bool = False
    accelerated_networking: bool = False
    ephemeral: Mapping[str, int] = field(default_factory=dict)
    spot_capable: bool = False
    encryption_at_host: bool = False
    trusted_launch: bool = True
    confidential: str = ""
    zones: frozenset[str] = frozenset()
    restricted_zones: frozenset[str] = frozenset()
    restricted: bool = False
    reason: str = ""


class SizeTable:
    """The sizes of one location.

    Attributes:
        location: short name, in lower case.
        known: the list was read at least once.
        odd: entries of the last list that could not be read and were left out.
    """

    def __init__(self, location: str) -> None:
        self.location = plain(location)
        self.known = False
        self.odd = 0
        self._sizes: dict[str, Size] = {}

    def replace(self, skus: Iterable[object]) -> None:
        """Take over a new list. One without a single size changes nothing: it cannot be true."""
        sizes: dict[str, Size] = {}
        odd = 0
        for entry in skus:
            try:
                size = read_size(entry, self.location)
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
                odd += 1
                continue
            if size is not None:
                sizes[size.name.lower()] = size
        self.odd = odd
        if sizes:
            self._sizes = sizes
            self.known = True

    def get(self, name: str) -> Size | None:
        """The size of that name, in any casing; None when the list has none."""
        return self._sizes.get(name.lower())

    def __iter__(self) -> Iterator[Size]:
        return iter(self._sizes.values())


def plain(location: str) -> str:
    """The short name of a location: `eastus` for `East US`."""
    return location.replace(" ", "").lower()


def read_size(entry: Any, location: str) -> Size | None:
    """The size that an entry describes; None when it is no VM size or is not for our location.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: the entry is odd.
    """
    if str(entry.get("resourceType", "")).lower() != "virtualmachines":
        return None
    if location not in {plain(each) for each in entry.get("locations") or ()}:
        return None
    name = entry["name"]
    can = _capabilities(entry)
    vcpus = int(can["vcpus"])
    available = int(can.get("vcpusavailable") or vcpus)
    memory = round(_amount(can["memorygb"]) * GIB)
    if not name or not isinstance(name, str) or min(vcpus, available, memory) < 1:
        raise ValueError("a size without a name, cores or memory")
    barred = _bars(entry, location)
    return Size(
        name=name,
        family=str(entry.get("family") or ""),
        vcpus=vcpus,
        vcpus_available=min(vcpus, available),
        memory_bytes=memory,
        # A part of a GPU is one device to the guest.
        gpus=math.ceil(_amount(can.get("gpus", "0"))),
        architecture=can.get("cpuarchitecturetype") or "x64",
        generations=_listed(can.get("hypervgenerations", "")),
        controllers=_listed(can.get("diskcontrollertypes", "")) or frozenset({"SCSI"}),
        premium_io=_yes(can, "premiumio"),
        accelerated_networking=_yes(can, "acceleratednetworkingenabled"),
        ephemeral=_ephemeral(can),
        spot_capable=_yes(can, "lowprioritycapable") and not _never_spot(name),
        encryption_at_host=_yes(can, "encryptionathostsupported"),
        trusted_launch=not _yes(can, "trustedlaunchdisabled"),
        confidential=can.get("confidentialcomputingtype", ""),
        zones=_zones(entry, location) - barred.zones,
        restricted_zones=barred.zones,
        restricted=barred.everywhere,
        reason=barred.reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bars:
    everywhere: bool
    zones: frozenset[str]
    reason: str


def _bars(entry: Json, location: str) -> _Bars:
    """Where the subscription may not have the size."""
    everywhere = False
    zones: set[str] = set()
    reason = ""
    for one in entry.get("restrictions") or ():
        info = one.get("restrictionInfo") or {}
        where = [*(info.get("locations") or ()), *(one.get("values") or ())]
        if location not in {plain(each) for each in where}:
            continue
        reason = str(one.get("reasonCode") or reason)
        match str(one.get("type")).lower():
            case "zone":
                zones.update(str(each) for each in info.get("zones") or ())
            case "location":
                everywhere = True
    return _Bars(everywhere=everywhere, zones=frozenset(zones), reason=reason)


def _zones(entry: Json, location: str) -> frozenset[str]:
    return frozenset(
        str(zone)
        for info in entry.get("locationInfo") or ()
        if plain(str(info.get("location", ""))) == location
        for zone in info.get("zones") or ()
    )


def _capabilities(entry: Json) -> dict[str, str]:
    """By name in lower case; those without a value are left out."""
    return {
        str(each["name"]).lower(): str(each["value"])
        for each in entry.get("capabilities") or ()
        if each.get("value") is not None
    }


def _ephemeral(can: Mapping[str, str]) -> dict[str, int]:
    if not _yes(can, "ephemeralosdisksupported"):
        return {}
    # The older versions of the API name no placements; they know no NVMe disks either.
    placements = _listed(can.get("supportedephemeralosdiskplacements", "")) or PLACEMENTS[:2]
    found = {}
    for placement in PLACEMENTS:
        capability, unit = _ROOM[placement]
        room = int(_amount(can.get(capability, "0"))) * unit
        if placement in placements and room:
            found[placement] = room
    return found


def _never_spot(name: str) -> bool:
    plain_name = name.lower()
    return plain_name.startswith(("standard_b", "basic_")) or plain_name.endswith("_promo")


def _amount(text: str) -> float:
    amount = float(text)
    if not 0 <= amount < math.inf:
        raise ValueError(f"{text} is no amount")
    return amount


def _listed(text: str) -> frozenset[str]:
    return frozenset(part for each in text.split(",") if (part := each.strip()))


def _yes(can: Mapping[str, str], capability: str) -> bool:
    return can.get(capability, "").lower() == "true"
