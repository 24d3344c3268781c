"""The body of the one PUT that makes a VM, its interface, its disk and its address.

Wire casing, as the compute API of 2026-04-01 reads it. What an offering's settings come to for a
size and an image is decided before (`fitting.resolve`); which tags are written is `tags`'.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.backends.azure.fitting import Resolved
from bigfleet_azure.backends.azure.images import plan_of, reference_of
from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer

Json = dict[str, Any]

NETWORK_API_VERSION = "2022-11-01"
"""The newest that `networkInterfaceConfigurations` may name (azure-facts section 1.6)."""

_SUFFIX_CHARACTERS = 8

_MARK_GROUP = "~"
"""Stands in stored notes for the ARM path of our resource group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a VM is and what belongs to it, as Azure told it.

    Attributes:
        vm_id: the VM's `vmId`, which no other VM ever has.
        ids: ARM ids of its interfaces, OS disk and addresses.
    """

    vm_id: str = ""
    ids: tuple[str, ...] = ()

    def text(self, group_path: str) -> str:
        """The form in which the daemon stores it; short, since every machine has one."""
        ids = (
            _MARK_GROUP + one[len(group_path) :]
            if one.lower().startswith(group_path.lower() + "/")
            else one
            for one in self.ids
        )
        return " ".join((*([self.vm_id] if self.vm_id else []), *ids))

    @staticmethod
    def read(text: str, group_path: str) -> "Parts":
        """The parts in a stored text; none in an empty one."""
        words = text.split()
        ids = [one for one in words if one.startswith((_MARK_GROUP, "/"))]
        return Parts(
            vm_id=next((one for one in words if one not in ids), ""),
            ids=tuple(group_path + one[1:] if one.startswith(_MARK_GROUP) else one for one in ids),
        )


def suffix_of(operation_id: str, attempt: int) -> str:
    """What sets the parts' names of one try apart from those of every other."""
    text = f"{operation_id}/{attempt}".encode()
    return hashlib.blake2b(text, digest_size=_SUFFIX_CHARACTERS // 2).hexdigest()


def parts_of(vm: Json) -> Parts:
    """The parts that a VM's JSON names; addresses hang on interfaces and are not among them."""
    properties = vm.get("properties") or {}
    nics = (properties.get("networkProfile") or {}).get("networkInterfaces") or []
    disk = ((properties.get("storageProfile") or {}).get("osDisk") or {}).get("managedDisk") or {}
    ids = [nic.get("id") for nic in nics] + [disk.get("id")]
    return Parts(vm_id=str(properties.get("vmId") or ""), ids=tuple(one for one in ids if one))


def addresses_of(nic: Json) -> tuple[str, ...]:
    """ARM ids of the public IP addresses of an interface."""
    configurations = (nic.get("properties") or {}).get("ipConfigurations") or []
    found = (
        ((one.get("properties") or {}).get("publicIPAddress") or {}).get("id")
        for one in configurations
    )
    return tuple(one for one in found if one)


def vm_body(
    *,
    name: str,
    suffix: str,
    offer: Offer,
    location: str,
    profile: VmProfile,
    resolved: Resolved,
    tags: Mapping[str, str],
    ssh_public_key: str,
    extensions: bool,
) -> Json:
    """The PUT's body.

    Args:
        name: machine id; becomes the name of VM, host and node.
        suffix: tells the parts' names of this try from those of others.
        profile, resolved: what is wanted, and what that comes to for this size and image.
        tags: for VM, interface and address; Azure copies the VM's to the disk.
        ssh_public_key: the operator's or a throw-away one: Azure makes no Linux VM without.
        extensions: whether extensions may be sent; False for images without a guest agent.
    """
    properties: Json = {
        "hardwareProfile": {"vmSize": offer.vm_size},
        "storageProfile": _storage(f"{name}-{suffix}-os", profile, resolved),
        "osProfile": _os(name, profile, ssh_public_key, extensions=extensions),
        "networkProfile": {
            "networkApiVersion": NETWORK_API_VERSION,
            "networkInterfaceConfigurations": [_nic(f"{name}-{suffix}", profile, resolved, tags)],
        },
        "securityProfile": _security(profile, resolved),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": profile.boot_diagnostics}},
    }
    if offer.capacity_type is CapacityType.SPOT:
        properties["priority"] = "Spot"
        properties["evictionPolicy"] = profile.eviction_policy
        properties["billingProfile"] = {"maxPrice": profile.max_price}
    if offer.capacity_type is CapacityType.RESERVED and profile.capacity_reservation_group_id:
        properties["capacityReservation"] = {
            "capacityReservationGroup": {"id": profile.capacity_reservation_group_id}
        }
    if profile.availability_set_id:
        properties["availabilitySet"] = {"id": profile.availability_set_id}
    body: Json = {"location": location, "tags": dict(tags), "properties": properties}
    if resolved.zone:
        body["zones"] = [resolved.zone]
    if profile.plan:
        body["plan"] = plan_of(profile.plan)
    if profile.identity_ids:
        body["identity"] = {
            "type": "UserAssigned",
            "userAssignedIdentities": {one: {} for one in profile.identity_ids},
        }
    return body


def _storage(disk_name: str, profile: VmProfile, resolved: Resolved) -> Json:
    managed: Json = {"storageAccountType": resolved.os_disk_type}
    if profile.disk_encryption_set_id:
        managed["diskEncryptionSet"] = {"id": profile.disk_encryption_set_id}
    if resolved.security_type == "ConfidentialVM":
        managed["securityProfile"] = {"securityEncryptionType": "VMGuestStateOnly"}
    disk: Json = {
        "name": disk_name,
        "osType": "Linux",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "caching": "ReadOnly" if resolved.ephemeral_placement else "ReadWrite",
        "managedDisk": managed,
    }
    if profile.os_disk_gib:
        disk["diskSizeGB"] = profile.os_disk_gib
    if resolved.ephemeral_placement:
        disk["diffDiskSettings"] = {"option": "Local", "placement": resolved.ephemeral_placement}
    storage: Json = {"imageReference": reference_of(profile.image), "osDisk": disk}
    if resolved.disk_controller:
        storage["diskControllerType"] = resolved.disk_controller
    return storage


def _os(name: str, profile: VmProfile, ssh_public_key: str, *, extensions: bool) -> Json:
    key = {
        "path": f"/home/{profile.admin_username}/.ssh/authorized_keys",
        "keyData": ssh_public_key,
    }
    os_profile: Json = {
        "computerName": name,
        "adminUsername": profile.admin_username,
        "allowExtensionOperations": extensions,
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "provisionVMAgent": extensions,
            "ssh": {"publicKeys": [key]},
        },
    }
    if profile.base_user_data:
        os_profile["customData"] = base64.b64encode(profile.base_user_data).decode()
    return os_profile


def _nic(name: str, profile: VmProfile, resolved: Resolved, tags: Mapping[str, str]) -> Json:
    configuration: Json = {"primary": True, "subnet": {"id": profile.subnet_id}}
    if profile.asg_ids:
        configuration["applicationSecurityGroups"] = [{"id": one} for one in profile.asg_ids]
    if profile.lb_pool_ids:
        configuration["loadBalancerBackendAddressPools"] = [
            {"id": one} for one in profile.lb_pool_ids
        ]
    if profile.public_ip:
        configuration["publicIPAddressConfiguration"] = {
            "name": f"{name}-ip",
            "sku": {"name": "Standard"},
            "tags": dict(tags),
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        }
    properties: Json = {
        "primary": True,
        "deleteOption": "Delete",
        "enableAcceleratedNetworking": resolved.accelerated_networking,
        "enableIPForwarding": profile.ip_forwarding,
        "ipConfigurations": [{"name": "primary", "properties": configuration}],
    }
    if profile.nsg_id:
        properties["networkSecurityGroup"] = {"id": profile.nsg_id}
    return {"name": f"{name}-nic", "tags": dict(tags), "properties": properties}


def _security(profile: VmProfile, resolved: Resolved) -> Json:
    security: Json = {"securityType": resolved.security_type}
    if resolved.security_type != "Standard":
        security["uefiSettings"] = {"secureBootEnabled": True, "vTpmEnabled": True}
    if profile.encryption_at_host:
        security["encryptionAtHost"] = True
    return security


def security_type_of(vm: Json) -> str:
    """The security type that a VM really has."""
    security = (vm.get("properties") or {}).get("securityProfile") or {}
    return str(security.get("securityType") or "Standard")
