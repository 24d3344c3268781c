"""What Compute checks of a VM's size against its image and against what is asked of it.

Codes and texts on record are quoted; those of capacity reservations are deduced (see README.md).
"""

from tests.support.arm.images import ImageTraits
from tests.support.arm.skus import Size
from tests.support.arm.wire import Json, invalid


def check_fit(properties: Json, size: Size, traits: ImageTraits) -> None:
    """Disk controllers, security types, encryption at host, capacity reservations."""
    _check_controllers(properties, size, traits)
    _check_security(properties.get("securityProfile") or {}, size, traits)
    _check_reservation(properties)


def _check_controllers(properties: Json, size: Size, traits: ImageTraits) -> None:
    offered = _names(size.capabilities.get("DiskControllerTypes", "SCSI"))
    chosen = properties["storageProfile"].get("diskControllerType")
    if chosen and chosen.lower() not in offered:
        message = f"The VM size '{size.name}' does not support the disk controller '{chosen}'."
        raise invalid("InvalidParameter", message, "storageProfile.diskControllerType")
    wanted = {chosen.lower()} if chosen else offered
    if not wanted & _names(traits.controllers):
        raise invalid(
            "InvalidParameter",
            f"The VM size '{size.name}' cannot boot with OS image or disk. Please check that disk "
            "controller types supported by the OS image or disk is one of the supported disk "
            f"controller types for the VM size '{size.name}'. Please query sku api at "
            "https://aka.ms/azure-compute-skus to determine supported disk controller types for "
            "the VM size.",
            "vmSize",
        )


def _check_security(profile: Json, size: Size, traits: ImageTraits) -> None:
    kind = profile.get("securityType")
    if kind in {"TrustedLaunch", "ConfidentialVM"}:
        image_can = traits.confidential if kind == "ConfidentialVM" else traits.trusted_launch
        if traits.generation != "V2" or not image_can:
            raise invalid(
                "BadRequest",
                f"Use of {kind} setting is not supported for the provided image. Please select "
                "Trusted Launch Supported Gen2 OS Image. For more information, see "
                "https://aka.ms/TrustedLaunch-FAQ.",
            )
        if not _size_can(kind, size):
            raise invalid(
                "BadRequest",
                f"The VM size '{size.name}' is not supported for creation of VMs and Virtual "
                f"Machine Scale Set with '{kind}' security type.",
            )
    if profile.get("encryptionAtHost") and not size.can("EncryptionAtHostSupported"):
        raise invalid(
            "InvalidParameter",
            f"Encryption at host is not supported for the VM size '{size.name}'.",
            "securityProfile.encryptionAtHost",
        )


def _size_can(kind: str, size: Size) -> bool:
    if kind == "ConfidentialVM":
        return size.capabilities.get("ConfidentialComputingType", "") in {"SNP", "TDX"}
    return not size.can("TrustedLaunchDisabled")


def _check_reservation(properties: Json) -> None:
    if properties.get("capacityReservation") and properties.get("priority") in {"Spot", "Low"}:
        message = "A Spot virtual machine cannot be associated with a capacity reservation group."
        raise invalid("InvalidParameter", message, "capacityReservation")


def _names(listed: str) -> set[str]:
    return {each.strip().lower() for each in listed.split(",")}
