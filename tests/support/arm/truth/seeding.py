"""What must exist before recorded requests can be sent again, worked out from the recordings.

A recorded answer that shows a resource is turned back into the request that makes it; every id that
a request mentions is found, so that the things behind it can be made first. Sending is up to
`replay`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.arm.truth.documents import Document, document

_MODELS = {
    "virtualMachines": ("compute-sdk-39.0.0.schema.json", "VirtualMachine"),
    "extensions": ("compute-sdk-39.0.0.schema.json", "VirtualMachineExtension"),
    "networkInterfaces": ("network-sdk-33.1.0.schema.json", "NetworkInterface"),
    "publicIPAddresses": ("network-sdk-33.1.0.schema.json", "PublicIPAddress"),
}
# Settable by the letter of the model, but an answer's values are not fit for a new resource.
_NOT_SENT = frozenset(
    {
        "$.id",
        "$.identity",
        "$.plan",
        "$.properties.availabilitySet",
        "$.properties.osProfile.requireGuestProvisionSignal",
        "$.properties.storageProfile.osDisk.managedDisk.id",
        "$.properties.storageProfile.osDisk.name",
        "$.properties.storageProfile.dataDisks",
        "$.properties.ipConfigurations[].id",
        "$.properties.ipConfigurations[].properties.privateIPAddress",
        "$.properties.ipConfigurations[].properties.loadBalancerBackendAddressPools",
        "$.properties.ipConfigurations[].properties.loadBalancerInboundNatRules",
        "$.properties.dnsSettings",
        "$.properties.ipAddress",
        "$.properties.diagnosticsProfile.bootDiagnostics.storageUri",
    }
)

ARM_ID = re.compile(r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/.+", re.IGNORECASE)


def kind_of_id(arm_id: str) -> str:
    """The last type of an id: `networkInterfaces`, `subnets`."""
    parts = arm_id.strip("/").split("/")
    return parts[-2] if len(parts) > 1 else ""


def ids_in(value: Any) -> Iterator[str]:
    """Every ARM id that a body mentions, in order."""
    if isinstance(value, str):
        if ARM_ID.fullmatch(value):
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from ids_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from ids_in(inner)


def as_request(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a resource as Azure showed it into the body of the PUT that makes one like it."""
    name, model = _MODELS[answer["type"].rpartition("/")[2]]
    doc = document(name)
    body = _settable(doc, doc.model(f"$defs/{model}"), answer, "$")
    profile = body.get("properties", {}).get("osProfile")
    if profile is not None and not profile.get("linuxConfiguration", {}).get("ssh"):
        profile["adminPassword"] = "Placeholder-0"
        profile.get("linuxConfiguration", {}).pop("disablePasswordAuthentication", None)
    return body


def _settable(doc: Document, schema: Mapping[str, Any], value: Any, place: str) -> Any:
    flat = doc.flat(schema)
    if isinstance(value, list) and flat.items is not None:
        return [_settable(doc, flat.items, item, f"{place}[]") for item in value]
    if not isinstance(value, dict) or not flat.properties:
        return value
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        here = f"{place}.{key}"
        known = flat.properties.get(key)
        if known is None or here in _NOT_SENT or doc.flat(known).read_only:
            continue
        kept[key] = _settable(doc, known, inner, here)
    return kept


def nic_body(location: str, subnet: str, ip: str | None = None) -> dict[str, Any]:
    """The least that makes a network interface."""
    inner: dict[str, Any] = {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic"}
    if ip is not None:
        inner["publicIPAddress"] = {"id": ip}
    configuration = {"name": "ipconfig1", "properties": inner}
    return {"location": location, "properties": {"ipConfigurations": [configuration]}}


def ip_body(location: str) -> dict[str, Any]:
    """The least that makes a public address."""
    return {
        "location": location,
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"},
    }


def vm_body(location: str, nic: str, **more: Any) -> dict[str, Any]:
    """The least that makes a virtual machine, on a network interface that is there."""
    return {
        "location": location,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_DS1_v2"},
            "networkProfile": {"networkInterfaces": [{"id": nic}]},
            "osProfile": {
                "adminUsername": "azureuser",
                "adminPassword": "Placeholder-0",
                "computerName": "vm",
            },
            "storageProfile": {
                "imageReference": {
                    "publisher": "Canonical",
                    "offer": "UbuntuServer",
                    "sku": "18.04-LTS",
                    "version": "latest",
                }
            },
            **more,
        },
    }
