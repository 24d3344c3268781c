"""No room: refused at once, or accepted and failed later with everything left behind."""

import pytest

from tests.arm.client import spot, vm_body
from tests.support.arm.faults import Fault, operation_error
from tests.support.arm.ledger import DISK, NIC


async def test_a_failed_allocation_is_accepted_and_leaves_shell_interface_and_disk(arm, client):
    arm.shortage()
    answer = await client.put_vm()
    assert answer.status == 201
    ended = await client.ended(answer)
    assert list(ended) == ["startTime", "endTime", "status", "error", "name"]
    assert ended["status"] == "Failed"
    assert ended["error"]["code"] == "AllocationFailed"
    shell = await client.get(client.vm())
    assert shell.body["properties"]["provisioningState"] == "Failed"
    assert len(arm.ledger.alive(NIC)) == len(arm.ledger.alive(DISK)) == 1
    assert "shell of a failed create" in str(arm.ledger.leaks())
    assert arm.ledger.vm_seconds(arm.clock.now()) == 0


@pytest.mark.parametrize(
    ("zone", "code", "expected"),
    [
        (None, None, "AllocationFailed"),
        ("1", None, "ZonalAllocationFailed"),
        ("1", "OverconstrainedZonalAllocationRequest", "OverconstrainedZonalAllocationRequest"),
        (None, "OverconstrainedAllocationRequest", "OverconstrainedAllocationRequest"),
    ],
)
async def test_each_kind_of_shortage_has_its_code(arm, client, zone, code, expected):
    arm.shortage(code)
    ended = await client.ended(await client.put_vm(body=vm_body(arm, zone=zone)))
    assert ended["error"]["code"] == expected


async def test_spot_without_room_is_refused_at_the_put(arm, client):
    arm.shortage(priority="Spot")
    answer = await client.put_vm(body=vm_body(arm, **spot()))
    assert (answer.status, answer.code) == (409, "SkuNotAvailable")
    assert "Capacity Restrictions" in answer.message
    assert (await client.put_vm(body=vm_body(arm))).status == 201


async def test_room_is_per_size_and_zone_and_comes_back(arm, client):
    arm.shortage(size="Standard_D4s_v5", zone="1", room=1)
    await client.created("m-1", vm_body(arm, zone="1"))
    await client.created("m-2", vm_body(arm, "m-2", zone="2"))
    ended = await client.ended(await client.put_vm("m-3", vm_body(arm, "m-3", zone="1")))
    assert ended["status"] == "Failed"
    await client.deleted("m-1")
    await client.created("m-4", vm_body(arm, "m-4", zone="1"))


async def test_the_names_of_a_failed_attempt_cannot_be_used_again_at_once(arm, client):
    shortage = arm.shortage()
    await client.ended(await client.put_vm())
    [nic] = arm.ledger.alive(NIC)
    answer = await client.send("DELETE", nic.id)
    assert (answer.status, answer.code) == (400, "NicReservedForAnotherVm")
    assert "180 seconds" in answer.message
    arm.capacity.shortages.remove(shortage)
    await client.deleted()
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (400, "NicReservedForAnotherVm")
    assert client.vm() in answer.message
    await client.created(body=vm_body(arm, attempt="a2"))
    await client.deleted()
    await arm.clock.sleep(180)
    await client.created(body=vm_body(arm))


async def test_deleting_the_shell_takes_its_parts_along(arm, client):
    arm.shortage()
    await client.ended(await client.put_vm(body=vm_body(arm, public=True)))
    await client.deleted()
    arm.ledger.assert_nothing_leaked(keep=())
    arm.ledger.assert_nothing_doubled()


async def test_a_shell_that_is_put_again_is_provisioned_again(arm, client):
    shortage = arm.shortage()
    await client.ended(await client.put_vm())
    arm.capacity.shortages.remove(shortage)
    answer = await client.put_vm()
    assert answer.status == 200
    assert (await client.ended(answer))["status"] == "Succeeded"
    assert arm.vm("m-1").power == "running"


@pytest.mark.parametrize(
    ("quota", "properties", "marker"),
    [
        ("standardDSv5Family", {}, "standardDSv5Family Cores quota"),
        ("cores", {}, "Total Regional Cores quota"),
        ("lowPriorityCores", spot(), "LowPriorityCores quota"),
    ],
)
async def test_quota_is_refused_at_the_put_in_the_recorded_words(
    arm, client, quota, properties, marker
):
    arm.capacity.quotas[quota] = 6
    await client.created("m-1", vm_body(arm, "m-1", **properties))
    answer = await client.put_vm("m-2", vm_body(arm, "m-2", **properties))
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")
    assert marker in answer.message
    assert "Current Limit: 6, Current Usage: 4, Additional Required: 4" in answer.message


async def test_the_older_words_of_a_quota_are_known_too(arm, client):
    arm.capacity.quotas["cores"] = 2
    arm.capacity.old_quota_wording = True
    answer = await client.put_vm()
    assert "Maximum allowed: 2, Current in use: 0, Additional requested: 4" in answer.message


async def test_a_deallocated_vm_keeps_its_quota(arm, client):
    arm.capacity.quotas["cores"] = 4
    await client.created()
    await client.ended(await client.send("POST", client.vm(rest="/deallocate")))
    assert (await client.put_vm("m-2", vm_body(arm, "m-2"))).status == 409


async def test_a_restricted_size_is_listed_and_refused(arm, client):
    arm.cloud.catalogue.restrict("Standard_D4s_v5", "1")
    answer = await client.put_vm(body=vm_body(arm, zone="1"))
    assert (answer.status, answer.code) == (409, "SkuNotAvailable")
    listed = await client.get(
        f"{client.subscription}/providers/Microsoft.Compute/skus",
        version="2021-07-01",
        query={"$filter": "location eq 'eastus'"},
    )
    [entry] = [each for each in listed.body["value"] if each["name"] == "Standard_D4s_v5"]
    assert entry["restrictions"][0]["restrictionInfo"]["zones"] == ["1"]


async def test_skus_of_another_location_are_not_listed(client):
    listed = await client.get(
        f"{client.subscription}/providers/Microsoft.Compute/skus",
        query={"$filter": "location eq 'westus'"},
    )
    assert listed.body["value"] == []


async def test_usages_follow_what_is_there(arm, client):
    arm.capacity.quotas["cores"] = 10
    await client.created(body=vm_body(arm, public=True))
    path = f"{client.subscription}/providers/Microsoft.Compute/locations/eastus/usages"
    answer = await client.get(path)
    used = {each["name"]["value"]: each for each in answer.body["value"]}
    assert (used["cores"]["currentValue"], used["cores"]["limit"]) == (4, 10)
    assert used["standardDSv5Family"]["currentValue"] == 4
    assert "GetSubscriptionInfoSubscriptionMaximum" in str(answer.headers)
    answer = await client.get(path.replace("Compute", "Network"))
    used = {each["name"]["value"]: each for each in answer.body["value"]}
    assert used["PublicIPAddresses"]["currentValue"] == 1


async def test_slow_provisioning_is_scripted_per_machine(arm, client):
    arm.faults.add(Fault("vm.put", name="m-2", seconds=600))
    slow = await client.put_vm("m-2", vm_body(arm, "m-2"))
    await client.created("m-1")
    assert (await client.get(slow.headers["Azure-AsyncOperation"])).body["status"] == "InProgress"


async def test_times_are_the_same_for_the_same_seed(arm):
    arm.operations.durations.spread = 0.5
    first = [arm.operations.durations.of("vm.create", f"m-{each}") for each in range(20)]
    again = [arm.operations.durations.of("vm.create", f"m-{each}") for each in range(19, -1, -1)]
    assert first == again[::-1]
    assert len(set(first)) == 20
    assert min(first) >= 67 * 0.5


async def test_a_guest_that_never_reports_fails_the_create_although_it_may_run(arm, client):
    arm.faults.add(
        Fault("vm.put", operation=operation_error("OSProvisioningTimedOut", "OS Provisioning."))
    )
    ended = await client.ended(await client.put_vm())
    assert ended["error"]["code"] == "OSProvisioningTimedOut"
