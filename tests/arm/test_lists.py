"""Lists: their pages, their forms, and how they lie."""

import pytest

from tests.arm.client import script_body, vm_body
from tests.support.arm.faults import Fault


@pytest.fixture
async def many(arm, client):
    for number in range(120):
        name = f"m-{number:03}"
        assert (await client.put_vm(name, vm_body(arm, name))).status == 201
    return client


def everywhere(client):
    return f"{client.subscription}/providers/Microsoft.Compute/virtualMachines"


def in_group(client):
    return f"{client.group}/providers/Microsoft.Compute/virtualMachines"


async def test_lists_come_in_pages_of_fifty_with_a_next_link(arm, many):
    names, url, pages = [], in_group(many), 0
    while url:
        answer = await many.get(url)
        assert "HighCostGetSubscriptionMaximum" in str(answer.headers)
        names += [each["name"] for each in answer.body["value"]]
        url, pages = answer.body.get("nextLink"), pages + 1
    assert pages == 3
    assert names == sorted(names)
    assert len(set(names)) == 120


async def test_what_ends_between_two_pages_moves_nothing(arm, many):
    first = (await many.get(in_group(many))).body
    arm.vanish(first["value"][0]["name"])
    second = (await many.get(first["nextLink"])).body
    assert second["value"][0]["name"] == "m-050"


async def test_expand_without_a_filter_is_refused(client):
    for path in (in_group(client), everywhere(client)):
        answer = await client.get(path, query={"$expand": "instanceView"})
        assert answer.status == 400


async def test_status_only_shows_power_and_no_tags(arm, client):
    await client.created()
    answer = await client.get(everywhere(client), query={"statusOnly": "true"})
    [status] = answer.body["value"]
    assert "tags" not in status
    assert "storageProfile" not in status["properties"]
    assert status["properties"]["instanceView"]["statuses"][-1]["code"] == "PowerState/running"


async def test_a_list_names_extensions_by_their_ids_only(client):
    await client.created()
    path = client.vm(rest="/extensions/hook")
    await client.ended(await client.send("PUT", path, script_body()))
    [vm] = (await client.get(in_group(client))).body["value"]
    assert vm["resources"] == [{"id": path}]
    [shown] = (await client.get(client.vm())).body["resources"]
    assert shown["properties"]["provisioningState"] == "Succeeded"


async def test_a_list_shows_what_machines_are_known_by(client):
    await client.created()
    [vm] = (await client.get(in_group(client))).body["value"]
    shown = vm["properties"]
    assert vm["tags"]["bigfleet-machine-id"] == "m-1"
    assert shown["networkProfile"]["networkInterfaces"][0]["id"].startswith("/subscriptions/")
    assert shown["storageProfile"]["osDisk"]["managedDisk"]["id"].endswith("/disks/m-1-os-a1")
    assert shown.keys() >= {"vmId", "timeCreated", "provisioningState"}
    assert "instanceView" not in shown


async def test_the_list_of_the_subscription_writes_groups_in_capitals(arm, client):
    await client.created()
    [vm] = (await client.get(everywhere(client))).body["value"]
    assert "/resourceGroups/FLEET/" in vm["id"]
    assert (await client.get(vm["id"])).body["id"] == client.vm()


async def test_a_location_has_a_list_of_its_own(arm, client):
    await client.created()
    base = f"{client.subscription}/providers/Microsoft.Compute/locations"
    assert len((await client.get(f"{base}/eastus/virtualMachines")).body["value"]) == 1
    assert (await client.get(f"{base}/westus/virtualMachines")).body["value"] == []


async def test_a_partial_list_hides_what_a_get_shows(arm, client):
    await client.created("m-1")
    await client.created("m-2", vm_body(arm, "m-2"))
    arm.lists.hidden.append("m-1")
    assert [vm["name"] for vm in (await client.get(in_group(client))).body["value"]] == ["m-2"]
    assert (await client.get(client.vm("m-1"))).status == 200


async def test_an_empty_list_is_an_answer_like_any_other(arm, client):
    await client.created()
    arm.lists.empty = True
    assert (await client.get(in_group(client))).body == {"value": []}


async def test_a_stale_list_lacks_the_new_and_shows_the_gone(arm, client):
    await client.created("m-1")
    arm.lists.lag = 60
    await arm.clock.sleep(60)
    await client.put_vm("m-2", vm_body(arm, "m-2"))
    arm.vanish("m-1")
    assert [vm["name"] for vm in (await client.get(in_group(client))).body["value"]] == ["m-1"]
    await arm.clock.sleep(60)
    assert [vm["name"] for vm in (await client.get(in_group(client))).body["value"]] == ["m-2"]


async def test_a_list_can_be_rewritten_once(arm, client):
    await client.created()
    arm.faults.add(Fault("vm.list", rewrite=lambda body: {"value": body["value"][:0]}))
    assert (await client.get(in_group(client))).body["value"] == []
    assert len((await client.get(in_group(client))).body["value"]) == 1


async def test_interfaces_addresses_and_disks_are_listed_too(arm, client):
    await client.created(body=vm_body(arm, public=True))
    for kind in ("Network/networkInterfaces", "Network/publicIPAddresses", "Compute/disks"):
        for base in (client.group, client.subscription):
            answer = await client.get(f"{base}/providers/Microsoft.{kind}")
            assert len(answer.body["value"]) == 1, kind
