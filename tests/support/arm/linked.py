"""The actions that Azure checks along with a write: joining networks, reading images, and so on."""

from collections.abc import Iterator

from tests.support.arm.resources import type_of
from tests.support.arm.rules import ids_in
from tests.support.arm.wire import Call, Json

_BY_TYPE = {
    "microsoft.network/virtualnetworks/subnets": "Microsoft.Network/virtualNetworks/subnets/join",
    "microsoft.network/networksecuritygroups": "Microsoft.Network/networkSecurityGroups/join",
    "microsoft.network/applicationsecuritygroups": "Microsoft.Network/applicationSecurityGroups/"
    "joinIpConfiguration",
    "microsoft.network/loadbalancers/backendaddresspools": "Microsoft.Network/loadBalancers/"
    "backendAddressPools/join",
    "microsoft.network/networkinterfaces": "Microsoft.Network/networkInterfaces/join",
    "microsoft.network/publicipaddresses": "Microsoft.Network/publicIPAddresses/join",
    "microsoft.managedidentity/userassignedidentities": "Microsoft.ManagedIdentity/"
    "userAssignedIdentities/assign",
    "microsoft.compute/capacityreservationgroups": "Microsoft.Compute/capacityReservationGroups/"
    "deploy",
}
_READ = {
    "microsoft.compute/images": "Microsoft.Compute/images/read",
    "microsoft.compute/galleries/images/versions": "Microsoft.Compute/galleries/images/versions/"
    "read",
    "microsoft.compute/galleries/images": "Microsoft.Compute/galleries/images/read",
    "microsoft.compute/diskencryptionsets": "Microsoft.Compute/diskEncryptionSets/read",
    "microsoft.compute/availabilitysets": "Microsoft.Compute/availabilitySets/read",
}


def linked_actions(call: Call) -> Iterator[tuple[str, str]]:
    """Pairs of action and scope for a VM's or an interface's PUT."""
    if call.route not in {"vm.put", "nic.put"} or not isinstance(call.body, dict):
        return
    group = call.path[: call.path.lower().index("/providers/")]
    for identity in dict.fromkeys(ids_in(call.body)):
        kind = type_of(identity).lower()
        if kind in _BY_TYPE:
            yield f"{_BY_TYPE[kind]}/action", identity
        elif kind in _READ:
            yield _READ[kind], identity
    if call.route == "vm.put":
        yield from _of_parts(call.body, group)


def _of_parts(body: Json, group: str) -> Iterator[tuple[str, str]]:
    """What is born inside the PUT is written in the caller's name."""
    properties = body.get("properties") or {}
    network = properties.get("networkProfile") or {}
    configurations = network.get("networkInterfaceConfigurations") or []
    if configurations:
        yield "Microsoft.Network/networkInterfaces/write", group
        yield "Microsoft.Network/networkInterfaces/join/action", group
    if "publicIPAddressConfiguration" in str(configurations):
        yield "Microsoft.Network/publicIPAddresses/write", group
        yield "Microsoft.Network/publicIPAddresses/join/action", group
    yield "Microsoft.Compute/disks/write", group
