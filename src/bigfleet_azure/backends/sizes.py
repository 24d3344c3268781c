"""Azure VM sizes without asking Azure, and what is published of a size whoever knows its hardware.

A pinned table of common sizes, and a reading of the names of all others. Hardware of pinned sizes
is Microsoft's documentation; prices are plausible pay-as-you-go Linux prices of eastus in 2025,
good enough to order sizes by. What Azure itself says of sizes is read by its backend.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.quantity import NVIDIA

_SPOT_PRICE_SHARE = 0.2
"""Spot prices move between a tenth and half of pay-as-you-go; most sizes stand near a fifth."""

BANDS = (0.025, 0.075, 0.125, 0.175, 0.25)
"""Midpoints of Azure's hourly eviction bands: 0-5, 5-10, 10-15, 15-20 and over 20 %."""

_UNKNOWN_BAND = 2
"""Band of sizes not in the table (contract section 16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware and the price of a VM size.

    Attributes:
        vcpus: those that the guest sees.
        price_usd_per_hour: pay-as-you-go, Linux.
        eviction_band: index into Azure's five bands of hourly spot eviction rates.
        gpu_resource: what their device plugin calls the GPUs in Kubernetes.
        accelerator: value of the label `bigfleet.io/accelerator`; empty without NVIDIA GPUs.
    """

    vcpus: int
    memory_gib: float
    price_usd_per_hour: float
    eviction_band: int = _UNKNOWN_BAND
    arm: bool = False
    gpus: int = 0
    gpu_resource: str = NVIDIA
    accelerator: str = ""


_PINNED = {
    "Standard_B2ms": Hardware(vcpus=2, memory_gib=8, price_usd_per_hour=0.0832, eviction_band=0),
    "Standard_B4ms": Hardware(vcpus=4, memory_gib=16, price_usd_per_hour=0.166, eviction_band=0),
    "Standard_D2s_v5": Hardware(vcpus=2, memory_gib=8, price_usd_per_hour=0.096, eviction_band=0),
    "Standard_D4s_v5": Hardware(vcpus=4, memory_gib=16, price_usd_per_hour=0.192, eviction_band=0),
    "Standard_D8s_v5": Hardware(vcpus=8, memory_gib=32, price_usd_per_hour=0.384, eviction_band=0),
    "Standard_D16s_v5": Hardware(
        vcpus=16, memory_gib=64, price_usd_per_hour=0.768, eviction_band=1
    ),
    "Standard_D32s_v5": Hardware(
        vcpus=32, memory_gib=128, price_usd_per_hour=1.536, eviction_band=1
    ),
    "Standard_D4as_v5": Hardware(vcpus=4, memory_gib=16, price_usd_per_hour=0.172, eviction_band=0),
    "Standard_D8as_v5": Hardware(vcpus=8, memory_gib=32, price_usd_per_hour=0.344, eviction_band=0),
    "Standard_D4ps_v5": Hardware(
        vcpus=4, memory_gib=16, price_usd_per_hour=0.154, eviction_band=0, arm=True
    ),
    "Standard_D8ps_v5": Hardware(
        vcpus=8, memory_gib=32, price_usd_per_hour=0.308, eviction_band=0, arm=True
    ),
    "Standard_E4s_v5": Hardware(vcpus=4, memory_gib=32, price_usd_per_hour=0.252, eviction_band=1),
    "Standard_E8s_v5": Hardware(vcpus=8, memory_gib=64, price_usd_per_hour=0.504, eviction_band=1),
    "Standard_F4s_v2": Hardware(vcpus=4, memory_gib=8, price_usd_per_hour=0.169, eviction_band=1),
    "Standard_F8s_v2": Hardware(vcpus=8, memory_gib=16, price_usd_per_hour=0.338, eviction_band=1),
    "Standard_F16s_v2": Hardware(
        vcpus=16, memory_gib=32, price_usd_per_hour=0.677, eviction_band=1
    ),
    "Standard_NC4as_T4_v3": Hardware(
        vcpus=4,
        memory_gib=28,
        price_usd_per_hour=0.526,
        eviction_band=3,
        gpus=1,
        accelerator="nvidia",
    ),
    "Standard_NC24ads_A100_v4": Hardware(
        vcpus=24,
        memory_gib=220,
        price_usd_per_hour=3.673,
        eviction_band=4,
        gpus=1,
        accelerator="nvidia-a100",
    ),
    "Standard_NC40ads_H100_v5": Hardware(
        vcpus=40,
        memory_gib=320,
        price_usd_per_hour=6.98,
        eviction_band=4,
        gpus=1,
        accelerator="nvidia-h100",
    ),
}
_BY_LOWER_NAME = {name.lower(): size for name, size in _PINNED.items()}

_NAME = re.compile(
    r"standard_(?P<family>[a-z]+)(?P<vcpus>[0-9]+)(?:-(?P<active>[0-9]+))?(?P<features>[a-z]*)"
    r"(?:_(?!v[0-9])(?P<accelerator>[a-z]+[0-9]+x?))?(?:_(?:cc_)?v[0-9]+)?"
)
"""Microsoft's naming convention: family, vCPUs, constrained vCPUs, additive features,
accelerator type, version (learn.microsoft.com/azure/virtual-machines/vm-naming-conventions)."""

_MEMORY_GIB_PER_VCPU = {"a": 2, "b": 4, "d": 4, "e": 8, "f": 2, "g": 14, "h": 4, "l": 8, "m": 28}
_PRICE_PER_VCPU = {
    "a": 0.043,
    "b": 0.042,
    "d": 0.048,
    "e": 0.063,
    "f": 0.042,
    "g": 0.245,
    "h": 0.03,
    "l": 0.078,
    "m": 0.104,
}
"""Guesses by the first letter of the family, from its usual members. N is guessed by its GPUs."""

_LOW_MEMORY_GIB_PER_VCPU = 2
"""Feature letter l, "low memory": half of D's, as Dls_v5 has."""

_ARM_PRICE_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accelerator:
    """A GPU model: what usually comes with one of it."""

    vcpus: int
    memory_gib_per_vcpu: float
    price_usd_per_hour: float
    label: str


_ACCELERATORS = {
    "t4": _Accelerator(vcpus=16, memory_gib_per_vcpu=7, price_usd_per_hour=0.5, label="nvidia"),
    "a10": _Accelerator(vcpus=36, memory_gib_per_vcpu=12, price_usd_per_hour=3.2, label="nvidia"),
    "a100": _Accelerator(
        vcpus=24, memory_gib_per_vcpu=9, price_usd_per_hour=3.673, label="nvidia-a100"
    ),
    "h100": _Accelerator(
        vcpus=40, memory_gib_per_vcpu=8, price_usd_per_hour=6.98, label="nvidia-h100"
    ),
}
_ANY_GPU = _Accelerator(vcpus=6, memory_gib_per_vcpu=18, price_usd_per_hour=0.9, label="nvidia")
"""N sizes that do not name their GPU are mostly old ones with 6 vCPUs to each."""


def pinned(name: str) -> Hardware | None:
    """Hardware and price of a size in the table; None for others."""
    return _BY_LOWER_NAME.get(name.lower())


@cache
def size_of(name: str) -> Hardware:
    """Hardware and price of an Azure VM size, pinned or read from its name.

    Raises:
        ValueError: `name` is not formed like the name of an Azure VM size.
    """
    known = pinned(name)
    if known is not None:
        return known
    match = _NAME.fullmatch(name.lower())
    family = match["family"] if match else ""
    if match is None or family[0] not in {*_MEMORY_GIB_PER_VCPU, "n"}:
        raise ValueError(f"{name!r} is not an Azure VM size such as Standard_D4s_v5")
    vcpus = int(match["vcpus"])
    if not vcpus:
        raise ValueError(f"{name!r} has no vCPUs")
    if family[0] == "n":
        return _gpu_size(vcpus, match["accelerator"] or "")
    return _plain_size(family[0], vcpus, int(match["active"] or vcpus), match["features"])


def _plain_size(family: str, vcpus: int, active: int, features: str) -> Hardware:
    """Constrained sizes keep the memory and the price of the whole size."""
    memory = _LOW_MEMORY_GIB_PER_VCPU if "l" in features else _MEMORY_GIB_PER_VCPU[family]
    arm = "p" in features
    price = vcpus * _PRICE_PER_VCPU[family] * (_ARM_PRICE_SHARE if arm else 1)
    return Hardware(
        vcpus=active, memory_gib=vcpus * memory, price_usd_per_hour=round(price, 4), arm=arm
    )


def _gpu_size(vcpus: int, accelerator: str) -> Hardware:
    model = _ACCELERATORS.get(accelerator, _ANY_GPU)
    gpus = max(1, vcpus // model.vcpus)
    if accelerator.startswith("mi"):
        # AMD's: a price, but no NVIDIA resource or label.
        return Hardware(
            vcpus=vcpus,
            memory_gib=vcpus * model.memory_gib_per_vcpu,
            price_usd_per_hour=gpus * model.price_usd_per_hour,
        )
    return Hardware(
        vcpus=vcpus,
        memory_gib=vcpus * model.memory_gib_per_vcpu,
        price_usd_per_hour=gpus * model.price_usd_per_hour,
        gpus=gpus,
        accelerator=model.label,
    )


def price_of(name: str, *, vcpus: int, gpus: int) -> tuple[float, int]:
    """Price in USD per hour and eviction band of a size whose hardware is known."""
    try:
        known = size_of(name)
    except ValueError:
        return dearest(vcpus=vcpus, gpus=gpus), _UNKNOWN_BAND
    return known.price_usd_per_hour, known.eviction_band


def dearest(*, vcpus: int, gpus: int) -> float:
    """What the dearest families take for such hardware, USD per hour.

    Published where no price is known: a guess may make a size look worse than it is, never better,
    and no size is refused for lack of a price.
    """
    gpu = max(model.price_usd_per_hour for model in _ACCELERATORS.values())
    return round(vcpus * max(_PRICE_PER_VCPU.values()) + gpus * gpu, 4)


def usual_price(size: Hardware, capacity_type: CapacityType) -> float:
    """A price of the table as it is for that capacity type, USD per hour."""
    spot = capacity_type is CapacityType.SPOT
    return round(size.price_usd_per_hour * (_SPOT_PRICE_SHARE if spot else 1), 5)


def usual_rate(size: Hardware, capacity_type: CapacityType) -> float:
    """Probability of an eviction within an hour by the table's band; 0 for all but Spot."""
    return BANDS[size.eviction_band] if capacity_type is CapacityType.SPOT else 0.0


def facts(
    offer: Offer,
    size: Hardware,
    *,
    region: str,
    allocatable: Mapping[str, str],
    price: float | None = None,
    probability: float | None = None,
) -> Facts:
    """What is published about an offer of this size.

    Args:
        price, probability: of `offer`; None for the table's.
    """
    capacity = offer.capacity_type
    return Facts(
        price_usd_per_hour=usual_price(size, capacity) if price is None else price,
        interruption_probability=usual_rate(size, capacity) if probability is None else probability,
        allocatable=allocatable,
        labels=_labels(offer, size, region),
    )


def _labels(offer: Offer, size: Hardware, region: str) -> dict[str, str]:
    spot = offer.capacity_type is CapacityType.SPOT
    labels = {
        "kubernetes.io/arch": "arm64" if size.arm else "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": region,
        "kubernetes.azure.com/scalesetpriority": "spot" if spot else "regular",
        "bigfleet.io/capacity": offer.capacity_type.tag,
    }
    if size.accelerator:
        labels["bigfleet.io/accelerator"] = size.accelerator
    return labels
