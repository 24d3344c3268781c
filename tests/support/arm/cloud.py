"""One subscription in one location: all that exists there, and all settings that tests change."""

from dataclasses import dataclass, field

from tests.support.arm.access import Access
from tests.support.arm.buckets import Buckets
from tests.support.arm.clock import ArmClock, Timeline
from tests.support.arm.faults import Capacity, Faults, Lists, Quirks
from tests.support.arm.guests import Guest
from tests.support.arm.images import Images
from tests.support.arm.ledger import Ledger
from tests.support.arm.operations import Operations
from tests.support.arm.resources import Resource, World, resource_id
from tests.support.arm.skus import Catalogue, Usages
from tests.support.arm.wire import Json, refusal

SUBSCRIPTION = "11111111-1111-4111-8111-111111111111"
LOCATION = "eastus"
GROUP = "fleet"
VNET = "fleet-net"
SUBNET = "nodes"


@dataclass
class Subnet:
    """Addresses of one subnet."""

    id: str
    room: int


@dataclass
class Cloud:
    """See the module."""

    clock: ArmClock
    subscription: str = SUBSCRIPTION
    location: str = LOCATION
    faults: Faults = field(default_factory=Faults)
    capacity: Capacity = field(default_factory=Capacity)
    lists: Lists = field(default_factory=Lists)
    quirks: Quirks = field(default_factory=Quirks)
    ledger: Ledger = field(default_factory=Ledger)
    guest: Guest = field(default_factory=Guest)
    small_reads: bool = False

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.clock)
        self.world = World(self.timeline, self.ledger, self.subscription)
        self.operations = Operations(self.timeline, self.subscription)
        self.buckets = Buckets(self.clock.now, small_reads=self.small_reads)
        self.access = Access(self.world)
        self.catalogue = Catalogue(self.location)
        self.images = Images(self.world, self.location)
        self.usages = Usages(self.world, self.catalogue, self.capacity)
        self.subnets: dict[str, Subnet] = {}
        self.add_group(GROUP)
        self.subnet_id = self.add_subnet(GROUP, VNET, SUBNET)

    def add_group(self, name: str) -> Resource:
        return self.world.add_group(name, self.location)

    def add_subnet(
        self,
        group: str,
        vnet: str,
        name: str,
        *,
        room: int = 4000,
        way_out: bool = True,
        route_table: bool = False,
        default_outbound: bool | None = False,
    ) -> str:
        """A subnet that is there from the start; its id.

        `way_out` gives it a NAT gateway; `default_outbound` None leaves the key out, as in subnets
        that are older than it.
        """
        kind = "Microsoft.Network/virtualNetworks"
        network = resource_id(self.subscription, group, kind, vnet)
        identity = f"{network}/subnets/{name}"
        properties: Json = {
            "addressPrefix": "10.0.0.0/20",
            "ipConfigurations": [],
            "delegations": [],
            "privateEndpointNetworkPolicies": "Disabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
        }
        if default_outbound is not None:
            properties["defaultOutboundAccess"] = default_outbound
        if route_table:
            table = resource_id(self.subscription, group, "Microsoft.Network/routeTables", "ways")
            properties["routeTable"] = {"id": table}
        if way_out:
            nat = resource_id(self.subscription, group, "Microsoft.Network/natGateways", "out")
            properties["natGateway"] = {"id": nat}
        self.seed(identity, f"{kind}/subnets", properties)
        if self.world.get(network) is None:
            space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}
            self.seed(network, kind, space)
        self.subnets[identity.lower()] = Subnet(identity, room)
        return identity

    def seed(self, identity: str, kind: str, properties: Json | None = None) -> str:
        """Anything else that VMs refer to: a security group, a pool, an identity ...; its id."""
        resource = Resource(
            id=identity, type=kind, location=self.location, properties=properties or {}
        )
        self.world.add(resource, seeded=True)
        return identity

    def seed_named(self, kind: str, *names: str, group: str = GROUP) -> str:
        return self.seed(resource_id(self.subscription, group, kind, *names), kind)

    def require(self, identity: str, by: str) -> Resource:
        """What a body refers to, or the refusal of the provider that it belongs to."""
        found = self.world.get(identity)
        if found is None and "/microsoft.compute/" in identity.lower():
            raise refusal(404, "NotFound", f"The resource '{identity}' was not found.")
        if found is None and "/microsoft.managedidentity/" in identity.lower():
            raise refusal(
                400,
                "FailedIdentityOperation",
                f"Identity operation for resource '{by}' failed with error 'Failed to perform "
                f"resource identity operation. Resource '{identity}' was not found.'.",
            )
        if found is None:
            raise refusal(
                400,
                "InvalidResourceReference",
                f"Resource {identity} referenced by resource {by} was not found. Please make sure "
                "that the referenced resource exists, and that both resources are in the same "
                "region.",
                details=[],
            )
        return found
