"""What makes an offering impossible, found before any VM is asked for.

Many refusals that look like a lack of capacity are faults of the request (field cases F): a size
without the image's generation, a disk that does not fit, a zone that does not have the size. What
is not known is never a fault: Azure then says so itself. What the settings come to is `fitting`'s.
"""

from collections.abc import Iterator

from bigfleet_azure.backends.azure.fitting import (
    AZURE_ZONES,
    disk_controller,
    disk_gib,
    ephemeral_placement,
    ephemeral_room,
    zone_of,
)
from bigfleet_azure.backends.azure.images import ImageFacts
from bigfleet_azure.backends.azure.options import Choice, VmProfile
from bigfleet_azure.backends.azure.sizes import Size, SizeTable
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.quantity import GIB


def faults(
    offer: Offer, profile: VmProfile, sizes: SizeTable, image: ImageFacts | None
) -> list[str]:
    """Why the offering cannot be had, each with what to change; empty when nothing speaks against.

    Args:
        sizes: while its list was not read, nothing about the size is a fault.
        image: None while nothing is known of it.
    """
    size = sizes.get(offer.vm_size)
    found = [*_place(offer, profile, sizes.location)]
    if size is None and sizes.known:
        found.append(
            f"{sizes.location} has no size {offer.vm_size}: "
            f"`az vm list-skus --location {sizes.location}` lists its sizes"
        )
    if size is not None:
        found += _availability(offer, profile, size, sizes.location)
        found += _abilities(offer, profile, size)
    if image is not None:
        found += _image(profile, image)
    if size is not None and image is not None:
        found += _match(profile, size, image)
    if size is not None:
        found += _disk(offer, profile, size, image)
        found += _security(profile, size, image)
    subject = f"{offer.vm_size} {offer.capacity_type.tag} in {offer.zone}"
    return [f"{subject}: {fault}" for fault in found]


def _place(offer: Offer, profile: VmProfile, location: str) -> Iterator[str]:
    """Zone and availability set."""
    if profile.availability_set_id and offer.capacity_type is CapacityType.SPOT:
        yield "a Spot VM cannot be in an availability set: leave the set out (field case C12)"
    try:
        zone = zone_of(offer, profile, location)
    except ValueError as error:
        yield str(error)
        return
    if zone and zone not in AZURE_ZONES:
        yield f"azure_zone is {zone!r}: set it to 1, 2, 3 or none"
    if zone and profile.availability_set_id:
        yield (
            f"a VM cannot be in zone {zone} and in an availability set: set azure_zone to none, or "
            "leave the set out (field case F15)"
        )


def _availability(offer: Offer, profile: VmProfile, size: Size, location: str) -> Iterator[str]:
    """Whether the subscription gets the size there."""
    if size.restricted:
        yield (
            f"the subscription may not have this size in {location} ({size.reason}): ask Azure's "
            "support for access, or offer another size"
        )
        return
    try:
        zone = zone_of(offer, profile, location)
    except ValueError:
        return
    others = ", ".join(sorted(size.zones)) or "none"
    if zone in size.restricted_zones:
        yield (
            f"the subscription may not have this size in zone {zone} ({size.reason}); zones where "
            f"it may: {others}"
        )
    elif zone and zone not in size.zones:
        yield (
            f"zone {zone} does not have this size; zones that do: {others}; azure_zone none asks "
            "for a regional VM"
        )


def _abilities(offer: Offer, profile: VmProfile, size: Size) -> Iterator[str]:
    """What is asked of the size alone."""
    if offer.capacity_type is CapacityType.SPOT and not size.spot_capable:
        yield "this size cannot be Spot: offer it on demand, or another size"
    if profile.accelerated_networking is Choice.ON and not size.accelerated_networking:
        yield "this size has no accelerated networking: set it to auto or off"
    if profile.encryption_at_host and not size.encryption_at_host:
        yield "this size has no encryption at host: switch it off, or offer another size"
    asked = profile.disk_controller
    if asked != "auto" and asked not in size.controllers:
        yield f"this size has no disk controller {asked}: set it to auto"


def _image(profile: VmProfile, image: ImageFacts) -> Iterator[str]:
    """What is wrong with the image by itself."""
    if not image.linux:
        yield f"the image {profile.image} is a Windows image: only Linux machines are made"
    if not image.generalized:
        yield f"the image {profile.image} is specialized: generalize it, so that it takes a name"
    if image.plan and image.plan.lower() != profile.plan.lower():
        yield (
            f"the image needs the marketplace plan {image.plan}: set it as the plan, and accept "
            "its terms once (`az vm image terms accept`)"
        )
    if 0 < profile.os_disk_gib < image.os_disk_gib:
        yield (
            f"an OS disk of {profile.os_disk_gib} GiB is smaller than the image's: ask for "
            f"{image.os_disk_gib} GiB or more"
        )
    if profile.accelerated_networking is Choice.ON and image.accelerated_networking is False:
        yield "the image is marked as without accelerated networking: set it to auto or off"


def _match(profile: VmProfile, size: Size, image: ImageFacts) -> Iterator[str]:
    """Whether the size boots the image."""
    if image.generation and size.generations and image.generation not in size.generations:
        yield (
            f"the image is of Hyper-V generation {image.generation}, and the size boots "
            f"{_any_of(size.generations)}: use an image of that generation"
        )
    if image.architecture and image.architecture.lower() != size.architecture.lower():
        yield (
            f"the image is for {image.architecture}, and the size is {size.architecture}: use an "
            f"image for {size.architecture}"
        )
    controller = disk_controller(profile, size, image) or "SCSI"
    if image.controllers is not None and controller not in image.controllers:
        yield (
            f"the disk controller would be {controller}, and the image is marked for "
            f"{_any_of(image.controllers)}: use an image that is marked for {controller}"
        )


def _disk(offer: Offer, profile: VmProfile, size: Size, image: ImageFacts | None) -> Iterator[str]:
    managed = ephemeral_placement(offer, profile, size, image) is None
    if managed and profile.os_disk_type.startswith("Premium") and not size.premium_io:
        yield (
            "this size has no premium storage: set the OS disk type to auto, not "
            f"{profile.os_disk_type}"
        )
    if profile.ephemeral_os_disk is not Choice.ON:
        return
    if not size.ephemeral:
        yield "this size has no room for an ephemeral OS disk: set it to auto or off"
    elif ephemeral_room(profile, size, image) is None:
        room = max(size.ephemeral.values()) // GIB
        yield (
            f"an ephemeral OS disk of {disk_gib(profile, image)} GiB does not fit, the size has "
            f"room for {room} GiB: ask for a smaller one, or set it to auto or off"
        )


def _security(profile: VmProfile, size: Size, image: ImageFacts | None) -> Iterator[str]:
    """Trusted Launch and confidential VMs need the size, generation 2 and a marked image."""
    wanted = profile.security_type
    if wanted == "Standard":
        return
    able = size.trusted_launch if wanted == "TrustedLaunch" else bool(size.confidential)
    if not able or (size.generations and "V2" not in size.generations):
        yield f"this size cannot be {wanted}: set the security type to Standard"
    if image is None:
        return
    if image.generation == "V1":
        yield f"{wanted} needs an image of Hyper-V generation V2"
    mark = "trustedlaunch" if wanted == "TrustedLaunch" else "confidentialvm"
    if image.security is not None and not any(mark in one for one in image.security):
        yield f"the image is not marked for {wanted}: set the security type to Standard"


def _any_of(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
