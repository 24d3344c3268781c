"""The Azure actions that a principal needs to run this daemon: one list, for roles and documents.

Two sources: what each call of `clients` does, and what Azure checks along with a VM's PUT for what
the PUT refers to or gives birth to. Scopes say where a role assignment has to reach.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reach(StrEnum):
    """Where an action is needed."""

    GROUP = "resource group"
    SUBSCRIPTION = "subscription"
    LINKED = "the linked resource, which may lie in another group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action.

    Attributes:
        name: as role definitions write it.
        reach: where it is needed.
        why: what the daemon does with it.
        option: what has to be set for it to be needed; "" = always.
    """

    name: str
    reach: Reach
    why: str
    option: str = ""


_COMPUTE = "Microsoft.Compute"
_NETWORK = "Microsoft.Network"

CALLS: dict[str, Action] = {
    call: Action(name=name, reach=reach, why=why, option=option)
    for call, name, reach, why, option in (
        ("vm.put", f"{_COMPUTE}/virtualMachines/write", Reach.GROUP, "create machines", ""),
        ("vm.get", f"{_COMPUTE}/virtualMachines/read", Reach.GROUP, "look at machines", ""),
        ("vm.list", f"{_COMPUTE}/virtualMachines/read", Reach.GROUP, "list machines", ""),
        (
            "vm.list-all",
            f"{_COMPUTE}/virtualMachines/read",
            Reach.SUBSCRIPTION,
            "read all power states in one list",
            "",
        ),
        ("vm.delete", f"{_COMPUTE}/virtualMachines/delete", Reach.GROUP, "delete machines", ""),
        (
            "vm.start",
            f"{_COMPUTE}/virtualMachines/start/action",
            Reach.GROUP,
            "start a stopped machine before it is bound",
            "",
        ),
        (
            "extension.put",
            f"{_COMPUTE}/virtualMachines/extensions/write",
            Reach.GROUP,
            "run the bootstrap hook",
            "--bootstrap-method extension",
        ),
        (
            "extension.get",
            f"{_COMPUTE}/virtualMachines/extensions/read",
            Reach.GROUP,
            "see how the hook ended",
            "--bootstrap-method extension",
        ),
        (
            "extension.list",
            f"{_COMPUTE}/virtualMachines/extensions/read",
            Reach.GROUP,
            "name another CustomScript extension",
            "--bootstrap-method extension",
        ),
        (
            "compute.operation",
            f"{_COMPUTE}/locations/operations/read",
            Reach.SUBSCRIPTION,
            "follow what was begun",
            "",
        ),
        (
            "network.operation",
            f"{_NETWORK}/locations/operations/read",
            Reach.SUBSCRIPTION,
            "follow the deletion of leftovers",
            "",
        ),
        (
            "tags.patch",
            "Microsoft.Resources/tags/write",
            Reach.GROUP,
            "write and remove the tags of a binding",
            "",
        ),
        ("disk.get", f"{_COMPUTE}/disks/read", Reach.GROUP, "see that disks are gone", ""),
        ("disk.list", f"{_COMPUTE}/disks/read", Reach.GROUP, "find leftover disks", ""),
        ("disk.delete", f"{_COMPUTE}/disks/delete", Reach.GROUP, "delete leftover disks", ""),
        (
            "nic.get",
            f"{_NETWORK}/networkInterfaces/read",
            Reach.GROUP,
            "see that interfaces are gone",
            "",
        ),
        (
            "nic.list",
            f"{_NETWORK}/networkInterfaces/read",
            Reach.GROUP,
            "find leftover interfaces",
            "",
        ),
        (
            "nic.delete",
            f"{_NETWORK}/networkInterfaces/delete",
            Reach.GROUP,
            "delete leftover interfaces",
            "",
        ),
        (
            "ip.get",
            f"{_NETWORK}/publicIPAddresses/read",
            Reach.GROUP,
            "see that addresses are gone",
            "",
        ),
        (
            "ip.list",
            f"{_NETWORK}/publicIPAddresses/read",
            Reach.GROUP,
            "find leftover addresses",
            "",
        ),
        (
            "ip.delete",
            f"{_NETWORK}/publicIPAddresses/delete",
            Reach.GROUP,
            "delete leftover addresses",
            "",
        ),
        (
            "graph.query",
            "Microsoft.ResourceGraph/resources/read",
            Reach.SUBSCRIPTION,
            "know how often Spot machines are evicted",
            "",
        ),
        ("skus", f"{_COMPUTE}/skus/read", Reach.SUBSCRIPTION, "know what sizes can do", ""),
        (
            "compute.usages",
            f"{_COMPUTE}/locations/usages/read",
            Reach.SUBSCRIPTION,
            "withhold what quota does not allow",
            "",
        ),
        (
            "network.usages",
            f"{_NETWORK}/locations/usages/read",
            Reach.SUBSCRIPTION,
            "withhold what quota does not allow",
            "",
        ),
        (
            "provider.get",
            "Microsoft.Resources/subscriptions/providers/read",
            Reach.SUBSCRIPTION,
            "report resource providers that are not registered",
            "",
        ),
        (
            "group.get",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
            Reach.GROUP,
            "check the settings at start",
            "",
        ),
        (
            "subnet.get",
            f"{_NETWORK}/virtualNetworks/subnets/read",
            Reach.LINKED,
            "check the subnet at start",
            "",
        ),
        (
            "platform-image.list",
            f"{_COMPUTE}/locations/publishers/artifacttypes/offers/skus/versions/read",
            Reach.SUBSCRIPTION,
            "know what the image needs",
            "--image is a marketplace URN",
        ),
        (
            "platform-image.get",
            f"{_COMPUTE}/locations/publishers/artifacttypes/offers/skus/versions/read",
            Reach.SUBSCRIPTION,
            "know what the image needs",
            "--image is a marketplace URN",
        ),
        (
            "image.get",
            f"{_COMPUTE}/images/read",
            Reach.LINKED,
            "know what the image needs, and make machines of it",
            "--image is a managed image",
        ),
        (
            "gallery-image.get",
            f"{_COMPUTE}/galleries/images/read",
            Reach.LINKED,
            "know what the image needs, and make machines of it",
            "--image is in a compute gallery",
        ),
        (
            "gallery-version.get",
            f"{_COMPUTE}/galleries/images/versions/read",
            Reach.LINKED,
            "know what the image needs, and make machines of it",
            "--image is in a compute gallery",
        ),
    )
}
"""By the name of the call in `clients`."""

LINKED: tuple[Action, ...] = tuple(
    Action(name=name, reach=reach, why=why, option=option)
    for name, reach, why, option in (
        (
            f"{_NETWORK}/networkInterfaces/write",
            Reach.GROUP,
            "the interface is born inside the VM's PUT",
            "",
        ),
        (
            f"{_NETWORK}/networkInterfaces/join/action",
            Reach.GROUP,
            "the interface is attached to the VM",
            "",
        ),
        (f"{_COMPUTE}/disks/write", Reach.GROUP, "the OS disk is born inside the VM's PUT", ""),
        (
            f"{_NETWORK}/virtualNetworks/subnets/join/action",
            Reach.LINKED,
            "interfaces are put into the subnet",
            "",
        ),
        (
            f"{_NETWORK}/publicIPAddresses/write",
            Reach.GROUP,
            "the address is born inside the VM's PUT",
            "--public-ip",
        ),
        (
            f"{_NETWORK}/publicIPAddresses/join/action",
            Reach.GROUP,
            "the address is attached to the interface",
            "--public-ip",
        ),
        (
            f"{_NETWORK}/networkSecurityGroups/join/action",
            Reach.LINKED,
            "the interface gets the security group",
            "--nsg-id",
        ),
        (
            f"{_NETWORK}/applicationSecurityGroups/joinIpConfiguration/action",
            Reach.LINKED,
            "the interface joins the application security groups",
            "--asg-ids",
        ),
        (
            f"{_NETWORK}/loadBalancers/backendAddressPools/join/action",
            Reach.LINKED,
            "the interface joins the backend pools",
            "--lb-backend-pool-ids",
        ),
        (
            "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
            Reach.LINKED,
            "the VM gets the identities",
            "--identity-ids",
        ),
        (
            f"{_COMPUTE}/capacityReservationGroups/deploy/action",
            Reach.LINKED,
            "reserved machines are made in the group",
            "--capacity-reservation-group-id",
        ),
        (
            f"{_COMPUTE}/diskEncryptionSets/read",
            Reach.LINKED,
            "the OS disk is encrypted with the set's key",
            "--disk-encryption-set-id",
        ),
        (
            f"{_COMPUTE}/availabilitySets/read",
            Reach.LINKED,
            "machines are made in the availability set",
            "--availability-set-id",
        ),
    )
)
"""What Azure checks along with the PUT of a VM; LinkedAuthorizationFailed names a missing one."""


def actions() -> list[Action]:
    """Every action once, by name, with the widest reach and the plainest condition."""
    reaches = list(Reach)
    found: dict[str, Action] = {}
    for action in (*CALLS.values(), *LINKED):
        known = found.get(action.name)
        if known is None:
            found[action.name] = action
            continue
        wider = max(known, action, key=lambda each: reaches.index(each.reach))
        option = "" if not known.option or not action.option else wider.option
        found[action.name] = Action(
            name=action.name, reach=wider.reach, why=known.why, option=option
        )
    return [found[name] for name in sorted(found)]
