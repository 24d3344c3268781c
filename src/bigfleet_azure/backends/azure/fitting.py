"""What an offering's settings come to for its size and its image: the values for the VM's PUT.

Every choice that is left to `auto` is decided here, by what is known; `preflight` says what cannot
work whatever is decided. A size or an image that is not known leaves the choice to what works
everywhere.
"""

from dataclasses import dataclass

from bigfleet_azure.backends.azure.images import ImageFacts
from bigfleet_azure.backends.azure.options import Choice, VmProfile
from bigfleet_azure.backends.azure.sizes import PLACEMENTS, Size
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.quantity import GIB

AZURE_ZONES = ("1", "2", "3")

PREMIUM = "Premium_LRS"
PLAIN_DISK = "StandardSSD_LRS"
"""What an OS disk is where premium storage is not to be had: every size takes it."""

EPHEMERAL_DISK = "Standard_LRS"
"""Named for a disk that lies on the host and in no storage account, as Azure's own tools do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Decided values, as the VM's PUT spells them.

    Attributes:
        zone: None for a regional VM.
        ephemeral_placement: None for a managed disk.
        disk_controller: None to leave it to Azure, which means SCSI.
    """

    zone: str | None
    os_disk_type: str
    ephemeral_placement: str | None
    accelerated_networking: bool
    disk_controller: str | None
    security_type: str


def resolve(
    offer: Offer, profile: VmProfile, size: Size | None, image: ImageFacts | None, location: str
) -> Resolved:
    """The values for the PUT.

    Raises:
        ValueError: the offering's zone is none of the location's.
    """
    placement = ephemeral_placement(offer, profile, size, image)
    return Resolved(
        zone=zone_of(offer, profile, location),
        os_disk_type=EPHEMERAL_DISK if placement else _disk_type(profile, size),
        ephemeral_placement=placement,
        accelerated_networking=_accelerated(profile, size, image),
        disk_controller=disk_controller(profile, size, image),
        security_type=profile.security_type,
    )


def zone_of(offer: Offer, profile: VmProfile, location: str) -> str | None:
    """Azure's number of the zone; None for a regional VM.

    Raises:
        ValueError: it cannot be told from the published zone, and the profile does not tell it.
    """
    if profile.azure_zone:
        return None if profile.azure_zone == "none" else profile.azure_zone
    region, _, number = offer.zone.lower().rpartition("-")
    if region == location.lower() and number in AZURE_ZONES:
        return number
    raise ValueError(
        f"zone {offer.zone!r} is none of {location}; name it {location}-1, {location}-2 or "
        f"{location}-3, or set azure_zone to 1, 2, 3 or none"
    )


def disk_gib(profile: VmProfile, image: ImageFacts | None) -> int:
    """Size of the OS disk; 0 while it is not known."""
    return profile.os_disk_gib or (image.os_disk_gib if image is not None else 0)


def ephemeral_room(profile: VmProfile, size: Size, image: ImageFacts | None) -> str | None:
    """The placement that an ephemeral OS disk fits in; None when it fits in none.

    While the disk's size is not known: the placement with the most room.
    """
    wanted = disk_gib(profile, image) * GIB
    if not wanted:
        return max(size.ephemeral, key=size.ephemeral.__getitem__, default=None)
    return next((place for place, room in size.ephemeral.items() if room >= wanted), None)


def ephemeral_placement(
    offer: Offer, profile: VmProfile, size: Size | None, image: ImageFacts | None
) -> str | None:
    """Where the OS disk goes; None for a managed one.

    ON never comes to a managed disk (field case F5); AUTO has to know that the disk fits.
    """
    if profile.ephemeral_os_disk is Choice.OFF:
        return None
    room = ephemeral_room(profile, size, image) if size is not None else None
    if profile.ephemeral_os_disk is Choice.ON:
        return room or PLACEMENTS[0]
    # Such a disk is lost at a deallocation, so Azure refuses the two together.
    deallocated = (
        offer.capacity_type is CapacityType.SPOT and profile.eviction_policy == "Deallocate"
    )
    return room if disk_gib(profile, image) and not deallocated else None


def disk_controller(profile: VmProfile, size: Size | None, image: ImageFacts | None) -> str | None:
    """The controller to ask for; None for Azure's default.

    NVMe where the size has nothing else, or where the size can and the image says that it can.
    """
    if profile.disk_controller != "auto":
        return profile.disk_controller
    if size is None or "NVMe" not in size.controllers:
        return None
    if "SCSI" not in size.controllers:
        return "NVMe"
    if image is None or "NVMe" not in (image.controllers or ()):
        return None
    # NVMe needs generation 2, whatever the marks say.
    return None if image.generation == "V1" else "NVMe"


def _disk_type(profile: VmProfile, size: Size | None) -> str:
    if profile.os_disk_type != "auto":
        return profile.os_disk_type
    return PREMIUM if size is not None and size.premium_io else PLAIN_DISK


def _accelerated(profile: VmProfile, size: Size | None, image: ImageFacts | None) -> bool:
    if profile.accelerated_networking is not Choice.AUTO:
        return profile.accelerated_networking is Choice.ON
    refused = image is not None and image.accelerated_networking is False
    return size is not None and size.accelerated_networking and not refused
