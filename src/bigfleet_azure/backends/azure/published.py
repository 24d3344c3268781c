"""What is published about an offering (contract section 11), from the list of sizes and the image.

Price and eviction rate are the market's; what is taken off the hardware is `domain.quantity`'s
formula or the operator's figures.
"""

from dataclasses import replace

from bigfleet_azure.backends import sizes as table
from bigfleet_azure.backends.azure.images import ImageFacts
from bigfleet_azure.backends.azure.market import Market
from bigfleet_azure.backends.azure.options import Reservation, VmProfile
from bigfleet_azure.backends.azure.sizes import Size, SizeTable
from bigfleet_azure.backends.sizes import Hardware
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.quantity import GIB, NVIDIA, allocatable

AMD = "amd.com/gpu"
"""Resource name of AMD's device plugin."""

USUAL_DISK_GIB = 30
"""OS disk of most Linux images of the marketplace; taken while the image's is not known."""

_SIZE_NAMES = ("standard_", "basic_")
"""How the names of all sizes begin, in lower case."""

_AMD_MARKS = ("_mi300x", "_v620", "_v710")
"""Accelerator part of the names of sizes with AMD GPUs; NVv4 names none (Microsoft's pages on
sizes)."""


def facts(
    offer: Offer,
    *,
    sizes: SizeTable,
    profile: VmProfile,
    image: ImageFacts | None,
    reservation: Reservation,
    market: Market,
) -> Facts:
    """What is published about `offer`.

    Raises:
        BackendError: as `hardware`.
    """
    known = hardware(offer, sizes)
    usable = allocatable(
        vcpus=known.vcpus,
        memory_bytes=round(known.memory_gib * GIB),
        disk_bytes=(profile.os_disk_gib or (image and image.os_disk_gib) or USUAL_DISK_GIB) * GIB,
        max_pods=reservation.pods,
        gpus=known.gpus,
        gpu_resource=known.gpu_resource,
        reserved_millicores=reservation.cpu_millicores,
        reserved_memory_bytes=reservation.memory_bytes,
        reserved_disk_bytes=reservation.ephemeral_storage_bytes,
    )
    found = table.facts(
        offer,
        known,
        region=sizes.location,
        allocatable=usable,
        price=market.quote(offer.vm_size, offer.capacity_type, known).usd_per_hour,
        probability=market.probability(offer.vm_size, offer.capacity_type, known),
    )
    return replace(found, guessed=sizes.known and sizes.get(offer.vm_size) is None)


def hardware(offer: Offer, sizes: SizeTable) -> Hardware:
    """The hardware of an offer's size; of one that the list lacks, what its name tells.

    Azure makes no new machines of such a size, which `preflight` tells; older ones are described.

    Raises:
        BackendError: INVALID, the list was read and this is no size's name; TRANSIENT, the list was
            not read yet and the pinned table lacks the size.
    """
    size = sizes.get(offer.vm_size)
    if size is not None:
        return _read(size)
    if sizes.known:
        return _guessed(offer.vm_size, sizes.location)
    pinned = table.pinned(offer.vm_size)
    if pinned is None:
        raise BackendError(
            FailureKind.TRANSIENT,
            f"the list of VM sizes of {sizes.location} was not read yet, so nothing is known of "
            f"{offer.vm_size}",
            code="SizesUnknown",
        )
    return pinned


def _guessed(name: str, location: str) -> Hardware:
    if not name.lower().startswith(_SIZE_NAMES):
        raise BackendError(
            FailureKind.INVALID,
            f"Azure offers no VM size {name!r} in {location}; "
            f"`az vm list-skus --location {location}` lists those that it does",
            code="UnknownSize",
        )
    try:
        return table.size_of(name)
    except ValueError:
        return Hardware(vcpus=1, memory_gib=1, price_usd_per_hour=table.dearest(vcpus=1, gpus=0))


def _read(size: Size) -> Hardware:
    price, band = table.price_of(size.name, vcpus=size.vcpus, gpus=size.gpus)
    amd = _is_amd(size.name.lower())
    return Hardware(
        vcpus=size.vcpus_available,
        memory_gib=size.memory_bytes / GIB,
        price_usd_per_hour=price,
        eviction_band=band,
        arm=size.architecture.lower() == "arm64",
        gpus=size.gpus,
        gpu_resource=AMD if amd else NVIDIA,
        accelerator="" if amd or not size.gpus else _accelerator(size),
    )


def _is_amd(name: str) -> bool:
    return any(mark in name for mark in _AMD_MARKS) or (
        name.startswith("standard_nv") and name.endswith("_v4")
    )


def _accelerator(size: Size) -> str:
    """Value of the accelerator label; the model may stand in the name or in the family's only."""
    named = f"{size.name} {size.family}".lower()
    for model in ("a100", "h100"):
        if model in named:
            return f"nvidia-{model}"
    return "nvidia"
