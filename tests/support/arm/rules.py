"""What Compute checks in the body of a VM before anything is made: names, profiles, and fit.

Wordings are quoted where one is on record; the others say the same in few words.
"""

import base64
import binascii
import re
from typing import Any

from tests.support.arm.cloud import Cloud
from tests.support.arm.fit import check_fit
from tests.support.arm.images import ImageTraits
from tests.support.arm.skus import Size
from tests.support.arm.wire import Json, invalid, refusal

MAX_CUSTOM_DATA = 65_535
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
_RESERVED_USERS = (
    *("administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1"),
    *("123", "a", "actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest"),
    *("john", "owner", "root", "server", "sql", "support", "support_388945a0", "sys", "test2"),
    *("test3", "user4", "user5"),
)
"""Disallowed values of `adminUsername` (compute API description)."""
_MAX_USER = 64
_GIB = 1 << 30
_ARM_ID = re.compile(r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/.+", re.IGNORECASE)


def check_vm(cloud: Cloud, name: str, body: Json) -> tuple[Size, ImageTraits]:
    """The size and the image of a VM to be; a refusal if it cannot be."""
    if str(body.get("location", "")).replace(" ", "").lower() != cloud.location:
        raise refusal(
            400,
            "InvalidResourceLocation",
            f"The location '{body.get('location')}' is not the location of this double.",
            gateway=True,
        )
    properties = body.get("properties")
    if not isinstance(properties, dict):
        raise invalid("InvalidParameter", "Required parameter 'properties' is missing (null).")
    for key in ("hardwareProfile", "storageProfile", "networkProfile"):
        if not isinstance(properties.get(key), dict):
            message = f"Required parameter '{key}' is missing (null)."
            raise invalid("InvalidParameter", message, key)
    size = cloud.catalogue.get(str(properties["hardwareProfile"].get("vmSize", "")))
    if size is None:
        given = properties["hardwareProfile"].get("vmSize")
        message = f"The value {given} provided for the VM size is not valid."
        raise invalid("InvalidParameter", message, "vmSize")
    _check_names(name, properties)
    _check_zone(body, size)
    _check_spot(properties, size)
    traits = _check_image(cloud, body, properties, size)
    check_fit(properties, size, traits)
    _check_disk(properties, size, traits)
    _check_network(properties, size)
    _check_references(cloud, body, properties)
    return size, traits


def _check_names(name: str, properties: Json) -> None:
    profile: Json = properties.get("osProfile") or {}
    computer = profile.get("computerName", name)
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(computer):
        raise invalid(
            "InvalidParameter",
            "Linux host name cannot exceed 64 characters in length or contain the following "
            "characters: ` ~ ! @ # $ % ^ & * ( ) = + _ [ ] { } \\\\ | ; : ' \" , < > / ?.",
            "computerName",
        )
    if not profile:
        return
    user = profile.get("adminUsername")
    if not user:
        message = "Required parameter 'adminUsername' is missing (null)."
        raise invalid("InvalidParameter", message, "adminUsername")
    if user.lower() in _RESERVED_USERS or len(user) > _MAX_USER:
        message = "The Admin Username specified is not allowed."
        raise invalid("InvalidParameter", message, "adminUsername")
    keys = ((profile.get("linuxConfiguration") or {}).get("ssh") or {}).get("publicKeys")
    if not keys and not profile.get("adminPassword"):
        message = (
            "Authentication using either SSH or by user name and password must be enabled in "
            "Linux profile."
        )
        raise invalid("InvalidParameter", message, "linuxConfiguration")
    check_custom_data(profile.get("customData"))


def check_custom_data(value: Any) -> None:
    if value is None:
        return
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as problem:
        message = "Custom data in OSProfile must be in Base64 encoding and with a maximum length "
        raise invalid("InvalidParameter", message + "of 87380 characters.", "customData") from (
            problem
        )
    if len(decoded) > MAX_CUSTOM_DATA:
        message = "Custom data in OSProfile must be in Base64 encoding and with a maximum length "
        raise invalid("InvalidParameter", message + "of 87380 characters.", "customData")


def _check_zone(body: Json, size: Size) -> None:
    zones = body.get("zones") or []
    if zones and (body.get("properties") or {}).get("availabilitySet"):
        raise invalid("BadRequest", "A VM cannot be in a zone and in an availability set.")
    for zone in zones:
        if zone not in {"1", "2", "3"}:
            message = f"The zone(s) '{zone}' for resource is not supported."
            raise invalid("InvalidAvailabilityZone", message, "zones")
        if zone not in size.zones:
            raise refusal(
                409,
                "SkuNotAvailable",
                f"The requested size {size.name} is not available in zone '{zone}'. See "
                "https://aka.ms/azureskunotavailable for details.",
            )


def _check_spot(properties: Json, size: Size) -> None:
    spot = properties.get("priority") in {"Spot", "Low"}
    if not spot and properties.get("evictionPolicy"):
        raise invalid(
            "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
            "Eviction policy can be set only on Azure Spot Virtual Machines.",
        )
    if not spot:
        return
    if properties.get("availabilitySet"):
        raise invalid(
            "AzureSpotVMNotSupportedInAvailabilitySet",
            "Azure Spot Virtual Machine is not supported in Availability Set.",
        )
    if not size.can("LowPriorityCapable") or size.name.lower().startswith("standard_b"):
        raise invalid(
            "AzureSpotIsNotSupportedForThisVMSize",
            f"Azure Spot is not supported for this VM size {size.name}.",
        )
    price = (properties.get("billingProfile") or {}).get("maxPrice", -1)
    if price != -1 and price <= 0:
        raise invalid("MaxPriceValueInvalid", "Max price value is invalid: it is -1 or above 0.")


def _check_image(cloud: Cloud, body: Json, properties: Json, size: Size) -> ImageTraits:
    disk = properties["storageProfile"].get("osDisk") or {}
    if disk.get("createOption") == "Attach":
        return ImageTraits()
    reference = properties["storageProfile"].get("imageReference")
    if not isinstance(reference, dict):
        message = "Required parameter 'imageReference' is missing (null)."
        raise invalid("InvalidParameter", message, "imageReference")
    traits = cloud.images.traits(reference)
    if traits.generation not in size.capabilities["HyperVGenerations"].split(","):
        raise invalid(
            "BadRequest",
            f"The selected VM size '{size.name}' cannot boot Hypervisor Generation "
            f"'{traits.generation.removeprefix('V')}'. If this was a Create operation please check "
            "that the Hypervisor Generation of the Image matches the Hypervisor Generation of the "
            "selected VM Size.",
        )
    architecture = size.capabilities.get("CpuArchitectureType", "x64")
    if traits.architecture != architecture:
        raise invalid(
            "BadRequest",
            f"Cannot create a VM of size '{size.name}' because this VM size only supports a CPU "
            f"Architecture of '{architecture}', but an image or disk with CPU Architecture "
            f"'{traits.architecture}' was given.",
        )
    if traits.plan and not body.get("plan"):
        raise invalid("VMMarketplaceInvalidInput", "The image needs plan information.")
    return traits


def _check_disk(properties: Json, size: Size, traits: ImageTraits) -> None:
    profile = properties["storageProfile"]
    disk = profile.get("osDisk") or {}
    kind = (disk.get("managedDisk") or {}).get("storageAccountType", "")
    if kind.startswith("Premium") and not size.can("PremiumIO"):
        raise invalid(
            "InvalidParameter",
            "Requested operation cannot be performed because the VM size "
            f"{size.name} does not support the storage account type {kind} of disk "
            f"'{disk.get('name', '')}'. Consider updating the VM to a size that supports Premium "
            "storage.",
            "osDisk.managedDisk.storageAccountType",
        )
    wanted = disk.get("diskSizeGB")
    if wanted is not None and wanted < traits.size_gb:
        message = (
            f"The specified disk size {wanted} GB is smaller than the size of the corresponding "
            f"disk in the VM image: {traits.size_gb} GB."
        )
        raise invalid("InvalidParameter", message, "osDisk.diskSizeGB")
    if disk.get("diffDiskSettings"):
        _check_ephemeral(disk, size, wanted or traits.size_gb)


def _check_ephemeral(disk: Json, size: Size, wanted: int) -> None:
    placement = disk["diffDiskSettings"].get("placement", "CacheDisk")
    room = {
        "CacheDisk": int(size.capabilities.get("CachedDiskBytes", "0")) // _GIB,
        "ResourceDisk": int(size.capabilities.get("MaxResourceVolumeMB", "0")) // 1024,
        "NvmeDisk": int(size.capabilities.get("NvmeDiskSizeInMiB", "0")) // 1024,
    }.get(placement, 0)
    if not size.can("EphemeralOSDiskSupported") or wanted > room:
        raise invalid(
            "NotSupported",
            f"OS disk of Ephemeral VM with size greater than {room} GB is not allowed for VM size "
            f"{size.name} when the DiffDiskPlacement is {placement}.",
        )


def _check_network(properties: Json, size: Size) -> None:
    network = properties["networkProfile"]
    configurations = network.get("networkInterfaceConfigurations") or []
    references = network.get("networkInterfaces") or []
    if not configurations and not references:
        message = "Virtual Machine must have at least one network interface."
        raise invalid("InvalidParameter", message, "networkProfile")
    if configurations and not network.get("networkApiVersion"):
        message = "Required parameter 'networkApiVersion' is missing (null)."
        raise invalid("InvalidParameter", message, "networkProfile.networkApiVersion")
    if configurations and network["networkApiVersion"] not in {"2020-11-01", "2022-11-01"}:
        message = f"The networkApiVersion '{network['networkApiVersion']}' is not known."
        raise invalid("InvalidParameter", message, "networkProfile.networkApiVersion")
    for each in configurations:
        fast = (each.get("properties") or {}).get("enableAcceleratedNetworking")
        if fast and not size.can("AcceleratedNetworkingEnabled"):
            raise invalid(
                "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
                f"The VM size {size.name} is not permitted to enable accelerated networking.",
            )


def _check_references(cloud: Cloud, body: Json, properties: Json) -> None:
    """Everything else that the body names has to be there."""
    image = properties["storageProfile"].get("imageReference") or {}
    skipped = {str(image.get("id", "")).lower()}
    by = str(body.get("id", "the virtual machine"))
    for identity in [*ids_in(properties), *ids_in(body.get("identity"))]:
        if identity.lower() not in skipped:
            cloud.require(identity, by)


def ids_in(value: Any) -> list[str]:
    """The ids of other resources in a body: keys of identities, and values of `id`."""
    if isinstance(value, list):
        return [each for item in value for each in ids_in(item)]
    if not isinstance(value, dict):
        return []
    found = [key for key in value if _ARM_ID.fullmatch(key)]
    for key, item in value.items():
        if key == "id" and isinstance(item, str):
            found.append(item)
        else:
            found += ids_in(item)
    return found
