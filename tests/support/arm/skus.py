"""Sizes: the SKU list, what a size can do, and the usages of Compute and Network.

`sku_data.json` holds recorded entries (`from: recorded`) and others modelled on one of them.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.arm.faults import Capacity
from tests.support.arm.ledger import NIC, PUBLIC_IP
from tests.support.arm.resources import Resource, World
from tests.support.arm.vms import Vm
from tests.support.arm.wire import Answer, Call, Json, refusal

_DATA = Path(__file__).parent / "sku_data.json"
DEFAULT_CORES = 100_000
DEFAULT_COUNT = 50_000


@dataclass
class Size:
    """One VM size in the double's location."""

    name: str
    family: str
    zones: list[str]
    capabilities: dict[str, str]
    restrictions: list[Json] = field(default_factory=list)

    @property
    def cores(self) -> int:
        return int(self.capabilities["vCPUs"])

    def can(self, capability: str) -> bool:
        return self.capabilities.get(capability) == "True"

    def entry(self, location: str) -> Json:
        """As the SKU list writes it."""
        info: Json = {"location": location, "zones": list(self.zones), "zoneDetails": []}
        return {
            "resourceType": "virtualMachines",
            "name": self.name,
            "tier": "Standard",
            "size": self.name.removeprefix("Standard_"),
            "family": self.family,
            "locations": [location],
            "locationInfo": [info],
            "capabilities": [
                {"name": name, "value": value} for name, value in self.capabilities.items()
            ],
            "restrictions": list(self.restrictions),
        }


class Catalogue:
    """All sizes of the location."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.spelling = location
        """How the list writes the location: its casing varies between sizes in real lists."""
        data: Json = json.loads(_DATA.read_text(encoding="utf-8"))
        self.sizes = {
            name.lower(): Size(name, each["family"], each["zones"], each["capabilities"])
            for name, each in data.items()
        }

    def get(self, name: str) -> Size | None:
        return self.sizes.get(name.lower())

    def restrict(self, name: str, *zones: str) -> None:
        """Bar the subscription from a size, in some zones or altogether."""
        info: Json = {"locations": [self.location]}
        if zones:
            info["zones"] = list(zones)
        self.sizes[name.lower()].restrictions.append(
            {
                "type": "Zone" if zones else "Location",
                "values": [self.location],
                "restrictionInfo": info,
                "reasonCode": "NotAvailableForSubscription",
            }
        )

    def listed(self, call: Call) -> Answer:
        """GET of the SKUs; the only filter that the service knows is by location."""
        wanted = call.query.get("$filter", "")
        entries = [size.entry(self.spelling) for size in self.sizes.values()]
        if wanted and f"'{self.location}'" not in wanted.lower().replace(" ", ""):
            entries = []
        return Answer(200, {"value": entries})


class Usages:
    """What is used of which quota."""

    def __init__(self, world: World, catalogue: Catalogue, capacity: Capacity) -> None:
        self._world = world
        self._catalogue = catalogue
        self._capacity = capacity
        self._used: Counter[str] = Counter()
        self._shares: dict[str, Counter[str]] = {}
        world.watchers.append(self._count)

    def compute_used(self) -> Counter[str]:
        """By name; every VM counts until it is deleted, deallocated or not."""
        return self._used

    def recount(self, vm: Vm) -> None:
        """A VM may have another size now."""
        self._count(vm, -1)
        self._count(vm, 1)

    def _count(self, resource: Resource, change: int) -> None:
        if not isinstance(resource, Vm):
            return
        if change < 0:
            self._used -= self._shares.pop(resource.key)
            return
        size = self._catalogue.get(resource.size)
        assert size is not None, resource.size
        names = ("lowPriorityCores",) if resource.spot else ("cores", size.family)
        share = Counter({"virtualMachines": 1, **dict.fromkeys(names, size.cores)})
        self._shares[resource.key] = share
        self._used += share

    def network_used(self) -> Counter[str]:
        return Counter(
            {
                "PublicIPAddresses": self._world.count(PUBLIC_IP),
                "NetworkInterfaces": self._world.count(NIC),
            }
        )

    def limit(self, name: str) -> int:
        wanted = name.lower()
        for key, value in self._capacity.quotas.items():
            if key.lower() == wanted:
                return value
        return DEFAULT_CORES if "core" in wanted or "family" in wanted else DEFAULT_COUNT

    def compute(self, call: Call) -> Answer:
        self._check_location(call)
        used = self.compute_used()
        families = dict.fromkeys(size.family for size in self._catalogue.sizes.values())
        names = {
            "availabilitySets": "Availability Sets",
            "cores": "Total Regional vCPUs",
            "virtualMachines": "Virtual Machines",
            "lowPriorityCores": "Total Regional Low-priority vCPUs",
            **{family: f"{family} vCPUs" for family in families},
        }
        value = [
            {
                "limit": self.limit(name),
                "unit": "Count",
                "currentValue": used[name],
                "name": {"value": name, "localizedValue": shown},
            }
            for name, shown in names.items()
        ]
        return Answer(200, {"value": value})

    def network(self, call: Call) -> Answer:
        self._check_location(call)
        base = call.path.rstrip("/")
        names = {
            "VirtualNetworks": "Virtual Networks",
            "NetworkInterfaces": "Network Interfaces",
            "PublicIPAddresses": "Public IP Addresses",
        }
        used = self.network_used()
        value = [
            {
                "currentValue": used[name],
                "id": f"{base}/{name}",
                "limit": self.limit(name),
                "name": {"localizedValue": shown, "value": name},
                "unit": "Count",
                "isAdjustable": True,
            }
            for name, shown in names.items()
        ]
        return Answer(200, {"value": value})

    def _check_location(self, call: Call) -> None:
        if call.parameters["location"].lower() != self._catalogue.location:
            raise refusal(
                400,
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location "
                f"'{call.parameters['location']}'.",
                gateway=True,
            )
