"""The list of Azure actions against the code's calls, and each action that comes with an option."""

import inspect
import json
import re

import pytest

from bigfleet_azure.backends.azure import clients, images, surveying
from bigfleet_azure.backends.azure.actions import CALLS, LINKED, Reach, actions
from tests.support.arm.cloud import LOCATION
from tests.support.arm.routes import ROUTES
from tests.support.azure import Site

EVERYTHING = {action.name for action in actions()}


def test_the_list_names_each_call_that_the_code_makes_and_no_other():
    source = "".join(map(inspect.getsource, (clients, images, surveying)))
    prefixes = "|".join(sorted({route.name.partition(".")[0] for route in ROUTES}))
    named = set(re.findall(rf'"((?:{prefixes})\.[a-z-]+)"', source))
    # The parts of a VM are read and deleted by one method each.
    named |= {f"{part}.{verb}" for part in ("nic", "ip", "disk") for verb in ("get", "delete")}
    assert named | {"skus"} == set(CALLS)


def test_each_call_needs_the_action_that_azure_asks_for():
    asked = {route.name: route.action for route in ROUTES}
    assert {call: action.name for call, action in CALLS.items()} == {
        call: asked[call] for call in CALLS
    }


def test_an_action_of_several_calls_has_its_widest_reach():
    reach = {action.name: action.reach for action in actions()}
    assert reach["Microsoft.Compute/virtualMachines/read"] is Reach.SUBSCRIPTION
    assert reach["Microsoft.Compute/virtualMachines/write"] is Reach.GROUP
    assert reach["Microsoft.Network/virtualNetworks/subnets/join/action"] is Reach.LINKED


KINDS = {
    "--nsg-id": ("Microsoft.Network/networkSecurityGroups", "guard"),
    "--asg-ids": ("Microsoft.Network/applicationSecurityGroups", "nodes"),
    "--lb-backend-pool-ids": (
        "Microsoft.Network/loadBalancers/backendAddressPools",
        "front",
        "all",
    ),
    "--identity-ids": ("Microsoft.ManagedIdentity/userAssignedIdentities", "node"),
    "--capacity-reservation-group-id": ("Microsoft.Compute/capacityReservationGroups", "kept"),
    "--disk-encryption-set-id": ("Microsoft.Compute/diskEncryptionSets", "keys"),
    "--availability-set-id": ("Microsoft.Compute/availabilitySets", "spread"),
}
"""What an option refers to: type and names."""


def offering(site: Site, option: str) -> dict[str, object]:
    """An offering that needs what the option is about."""
    key = option.removeprefix("--").replace("-", "_")
    value: object = True
    if option in KINDS:
        identity = site.arm.cloud.seed_named(*KINDS[option])
        value = [identity] if key.endswith("_ids") else identity
    return {
        "vm_size": "Standard_D4s_v5",
        "zone": f"{LOCATION}-1",
        "capacity_type": "reserved" if "reservation" in option else "on_demand",
        "count": 2,
        "azure_zone": "none" if "availability" in option else "1",
        **({key: value} if option else {}),
    }


@pytest.mark.parametrize("action", LINKED, ids=lambda action: action.name)
async def test_an_action_that_is_missing_fails_a_create_with_its_name(tmp_path, action):
    async with Site(tmp_path) as site:
        await site.kill()
        file = tmp_path / "offerings.json"
        file.write_text(json.dumps([offering(site, action.option)]))
        await site.boot(f"--offerings={file}")
        first, second = sorted(m for m in await site.machines() if "-d4s-v5-" in m)[-2:]
        await site.idle(first)
        site.arm.access.allowed = EVERYTHING - {action.name}
        await site.create(second)
        failed = await site.reaches(second, "FAILED")
        assert action.name.lower() in failed.last_error.lower()
        used = {name.lower() for name in site.arm.access.used}
        assert used <= {name.lower() for name in EVERYTHING}
