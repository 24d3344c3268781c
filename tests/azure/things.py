"""Builders for what the Azure backend reads and decides by: sizes, images, offers, profiles."""

import json
from pathlib import Path
from typing import Any

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from tests.support.arm import skus

Json = dict[str, Any]

LOCATION = "eastus"
D4S = "Standard_D4s_v5"
GROUP = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
RESERVATION = f"{GROUP}/capacityReservationGroups/r"
SET = f"{GROUP}/availabilitySets/a"

_WIRE = Path(__file__).parents[1] / "support" / "arm" / "truth" / "data" / "wire"

on_demand = CapacityType.ON_DEMAND
spot = CapacityType.SPOT
reserved = CapacityType.RESERVED


def recording(name: str) -> Json:
    """A file of recorded traffic."""
    document: Json = json.loads((_WIRE / name).read_text(encoding="utf-8"))
    return document


def sku(name: str = D4S, **capabilities: str | None) -> Json:
    """An entry of the SKU list, as the double writes it; capabilities of None are left out."""
    size = skus.Catalogue(LOCATION).get(name)
    assert size is not None
    entry = size.entry(LOCATION)
    known: dict[str, str | None] = {**size.capabilities, **capabilities}
    entry["capabilities"] = [
        {"name": key, "value": value} for key, value in known.items() if value is not None
    ]
    return entry


def table(*entries: Json) -> SizeTable:
    """A table that was read; without entries the double's whole list."""
    catalogue = skus.Catalogue(LOCATION)
    listed = entries or [size.entry(LOCATION) for size in catalogue.sizes.values()]
    sizes = SizeTable(LOCATION)
    sizes.replace(listed)
    return sizes


def offer(
    size: str = D4S, capacity: CapacityType = on_demand, zone: str = f"{LOCATION}-1"
) -> Offer:
    """One offering."""
    return Offer(vm_size=size, zone=zone, capacity_type=capacity, count=1)


def profile(**settings: Any) -> VmProfile:
    """How VMs look; the subnet is given unless it is among the settings."""
    return VmProfile(**{"subnet_id": SUBNET, **settings})
