"""What is born with a VM, what goes with it, and what stays in the way."""

import pytest

from tests.arm.client import NETWORK, vm_body
from tests.support.arm.faults import Fault
from tests.support.arm.ledger import DISK, NIC, PUBLIC_IP


async def test_interface_address_and_disk_are_born_and_end_with_the_vm(arm, client):
    seen = await client.created(body=vm_body(arm, public=True))
    for kind in (NIC, PUBLIC_IP, DISK):
        assert len(arm.ledger.alive(kind)) == 1
    [reference] = seen.body["properties"]["networkProfile"]["networkInterfaces"]
    nic = (await client.get(reference["id"], version=NETWORK)).body
    assert nic["properties"]["virtualMachine"]["id"] == client.vm()
    [configuration] = nic["properties"]["ipConfigurations"]
    address = configuration["properties"]["publicIPAddress"]["id"]
    assert (await client.get(address, version=NETWORK)).body["properties"]["ipAddress"]
    disk = seen.body["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"]
    assert (await client.get(disk)).body["managedBy"] == client.vm()
    await client.deleted()
    arm.ledger.assert_nothing_leaked(keep=())
    for identity in (reference["id"], address, disk):
        assert (await client.get(identity)).status == 404


async def test_an_interface_is_not_called_like_its_configuration(arm, client):
    seen = await client.created()
    [reference] = seen.body["properties"]["networkProfile"]["networkInterfaces"]
    name = reference["id"].rsplit("/", 1)[1]
    assert name != "m-1-nic-a1"
    assert "networkInterfaceConfigurations" not in seen.body["properties"]["networkProfile"]


async def test_tags_go_to_the_disk_once_and_to_the_interface_from_its_configuration(arm, client):
    seen = await client.created()
    disk = seen.body["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"]
    tags = {"bigfleet-machine-id": "m-1", "bigfleet-owner": "us"}
    assert (await client.get(disk)).body["tags"] == tags
    await client.send("PATCH", client.vm(), {"tags": {"new": "tag"}})
    assert (await client.get(disk)).body["tags"] == tags
    [reference] = seen.body["properties"]["networkProfile"]["networkInterfaces"]
    assert (await client.get(reference["id"])).body["tags"] == {"part-of": "m-1"}


async def test_without_a_delete_option_parts_stay(arm, client):
    body = vm_body(arm)
    [nic] = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    del nic["properties"]["deleteOption"]
    del body["properties"]["storageProfile"]["osDisk"]["deleteOption"]
    await client.created(body=body)
    await client.deleted()
    assert len(arm.ledger.leaks()) == 2


@pytest.mark.parametrize(("part", "kind"), [("nic", NIC), ("ip", PUBLIC_IP), ("disk", DISK)])
async def test_a_fault_leaves_a_part_that_can_then_be_deleted(arm, client, part, kind):
    arm.faults.add(Fault("vm.delete", leave=(part,)))
    await client.created(body=vm_body(arm, public=True))
    await client.deleted()
    [left] = arm.ledger.alive(kind)
    assert left.id in str(arm.ledger.leaks())
    answer = await client.send("DELETE", left.id)
    assert answer.status == 202
    assert (await client.ended(answer))["status"] == "Succeeded"
    arm.ledger.assert_nothing_leaked(keep=())


async def test_parts_of_a_living_vm_cannot_be_deleted(arm, client):
    await client.created(body=vm_body(arm, public=True))
    [nic], [address] = arm.ledger.alive(NIC), arm.ledger.alive(PUBLIC_IP)
    [disk] = arm.ledger.alive(DISK)
    answer = await client.send("DELETE", nic.id)
    assert (answer.status, answer.code) == (400, "NicInUse")
    answer = await client.send("DELETE", address.id)
    assert (answer.status, answer.code) == (400, "PublicIPAddressCannotBeDeleted")
    answer = await client.send("DELETE", disk.id)
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")
    assert "is attached to VM" in answer.message


async def test_a_disk_that_is_left_bars_its_name(arm, client):
    arm.faults.add(Fault("vm.delete", leave=("disk",)))
    await client.created()
    await client.deleted()
    answer = await client.put_vm(body=vm_body(arm))
    assert (answer.status, answer.code) == (409, "ConflictingUserInput")
    assert "already exists" in answer.message
    assert (await client.put_vm(body=vm_body(arm, attempt="a2"))).status == 201


async def test_an_interface_made_beforehand_is_used_and_let_go(arm, client):
    nic = client.id(NIC, "mine")
    inner = {"subnet": {"id": arm.cloud.subnet_id}}
    body = {
        "location": "eastus",
        "properties": {"ipConfigurations": [{"name": "main", "properties": inner}]},
    }
    answer = await client.send("PUT", nic, body, version=NETWORK)
    assert answer.status == 201
    assert "Azure-AsyncOperation" not in answer.headers
    vm = vm_body(arm)
    vm["properties"]["networkProfile"] = {"networkInterfaces": [{"id": nic}]}
    await client.created(body=vm)
    other = vm_body(arm, "m-2")
    other["properties"]["networkProfile"] = {"networkInterfaces": [{"id": nic}]}
    assert (await client.put_vm("m-2", other)).code == "NicInUse"
    await client.deleted()
    assert (await client.send("DELETE", nic)).status == 202


async def test_addresses_are_made_polled_and_counted(arm, client):
    arm.capacity.quotas["PublicIPAddresses"] = 1
    body = {"location": "eastus", "sku": {"name": "Standard"}, "properties": {}}
    answer = await client.send("PUT", client.id(PUBLIC_IP, "one"), body)
    assert (answer.status, answer.headers["Retry-After"]) == (201, "1")
    assert await client.ended(answer) == {"status": "Succeeded"}
    answer = await client.send("PUT", client.id(PUBLIC_IP, "two"), body)
    assert (answer.status, answer.code) == (400, "PublicIPCountLimitReached")
    answer = await client.put_vm(body=vm_body(arm, public=True))
    assert (answer.status, answer.code) == (400, "PublicIPCountLimitReached")
    answer = await client.send("DELETE", client.id(PUBLIC_IP, "one"))
    assert answer.headers["Retry-After"] == "10"
    await client.ended(answer)
    assert (await client.get(answer.headers["Location"])).status == 204
