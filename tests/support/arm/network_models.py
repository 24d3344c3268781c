"""Interfaces and public addresses as Network answers them, made from what was sent."""

from tests.support.arm.cloud import Cloud
from tests.support.arm.ledger import NIC, PUBLIC_IP
from tests.support.arm.resources import Nic, Resource, guid
from tests.support.arm.wire import Json


class NetworkModels:
    """Gives out addresses, and takes room in subnets."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._addresses = 3

    def nic(self, identity: str, location: str, properties: Json, tags: dict[str, str]) -> Nic:
        """An interface from its own PUT or from an inline configuration."""
        nic = Nic(id=identity, type=NIC, location=location, tags=tags)
        configurations = [
            self._ip_configuration(identity, each) for each in properties["ipConfigurations"]
        ]
        nic.properties = {
            "resourceGuid": guid(),
            "ipConfigurations": configurations,
            "dnsSettings": {
                "dnsServers": [],
                "appliedDnsServers": [],
                "internalDomainNameSuffix": "internal.cloudapp.net",
            },
            "enableAcceleratedNetworking": properties.get("enableAcceleratedNetworking", False),
            "vnetEncryptionSupported": False,
            "enableIPForwarding": properties.get("enableIPForwarding", False),
            "disableTcpStateTracking": properties.get("disableTcpStateTracking", False),
            "hostedWorkloads": [],
            "tapConfigurations": [],
            "nicType": "Standard",
            "allowPort25Out": True,
            "auxiliaryMode": "None",
            "auxiliarySku": "None",
        }
        if properties.get("networkSecurityGroup"):
            nic.properties["networkSecurityGroup"] = properties["networkSecurityGroup"]
        nic.extra["kind"] = "Regular"
        return nic

    def address(self, identity: str, location: str, body: Json, tags: dict[str, str]) -> Resource:
        self._addresses += 1
        sent = body.get("properties") or {}
        sku = {"name": "Standard", "tier": "Regional", **(body.get("sku") or {})}
        number = self._addresses
        properties: Json = {
            "resourceGuid": guid(),
            "ipAddress": f"203.0.{113 + number // 250}.{number % 250}",
            "publicIPAddressVersion": sent.get("publicIPAddressVersion", "IPv4"),
            "publicIPAllocationMethod": sent.get("publicIPAllocationMethod", "Static"),
            "idleTimeoutInMinutes": sent.get("idleTimeoutInMinutes", 4),
            "ipTags": sent.get("ipTags", []),
        }
        return Resource(
            id=identity,
            type=PUBLIC_IP,
            location=location,
            tags=tags,
            properties=properties,
            extra={"sku": sku} | ({"zones": body["zones"]} if body.get("zones") else {}),
        )

    def _ip_configuration(self, nic: str, sent: Json) -> Json:
        self._addresses += 1
        inner = dict(sent.get("properties") or {})
        inner.pop("privateIPAddressPrefixLength", None)
        subnet = self._cloud.subnets.get((inner.get("subnet") or {}).get("id", "").lower())
        if subnet is not None:
            subnet.room -= 1
        number = self._addresses
        return {
            "name": sent["name"],
            "id": f"{nic}/ipConfigurations/{sent['name']}",
            "type": "Microsoft.Network/networkInterfaces/ipConfigurations",
            "properties": {
                "provisioningState": "Succeeded",
                "privateIPAddress": f"10.{number // 62500}.{number // 250 % 250}.{number % 250}",
                "privateIPAllocationMethod": "Dynamic",
                "primary": True,
                "privateIPAddressVersion": "IPv4",
                **inner,
            },
        }
