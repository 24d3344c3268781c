"""Two writes to one VM, deletions, and evictions."""

import pytest

from tests.arm.client import script_body, spot, vm_body
from tests.support.arm.faults import Fault, operation_error


@pytest.mark.parametrize(
    "code", ["ConflictingConcurrentWriteNotAllowed", "AnotherOperationInProgress", "Conflict"]
)
async def test_a_newer_write_conflicts_with_the_running_one(arm, client, code):
    arm.quirks.conflict = code
    accepted = await client.put_vm()
    for answer in (
        await client.put_vm(),
        await client.send("PATCH", client.vm(), {"tags": {}}),
        await client.send("POST", client.vm(rest="/start")),
        await client.send("PUT", client.vm(rest="/extensions/hook"), script_body()),
    ):
        assert (answer.status, answer.code) == (409, code)
    assert (await client.ended(accepted))["status"] == "Succeeded"


async def test_a_newer_write_may_win_and_the_create_is_told_preempted(arm, client):
    arm.quirks.conflict = "preempt"
    created = await client.put_vm()
    patched = await client.send("PATCH", client.vm(), {"tags": {"a": "b"}})
    assert (await client.ended(created))["error"]["code"] == "OperationPreempted"
    assert (await client.ended(patched))["status"] == "Succeeded"
    assert arm.vm("m-1").power == "running"


async def test_a_deletion_wins_over_a_running_create(arm, client):
    created = await client.put_vm()
    await client.deleted()
    assert (await client.ended(created))["error"]["code"] == "OperationPreempted"
    arm.ledger.assert_nothing_leaked(keep=())


async def test_a_second_deletion_joins_the_first(arm, client):
    await client.created()
    first = await client.send("DELETE", client.vm())
    assert first.headers["Retry-After"] == "10"
    second = await client.send("DELETE", client.vm(), query={"forceDeletion": "true"})
    assert second.status == 202
    assert (await client.ended(first))["name"] == (await client.ended(second))["name"]


async def test_a_vm_marked_for_deletion_takes_deletions_only(arm, client):
    await client.created()
    await client.send("DELETE", client.vm())
    for answer in (
        await client.put_vm(),
        await client.send("POST", client.vm(rest="/start")),
        await client.send("PUT", client.vm(rest="/extensions/hook"), script_body()),
    ):
        assert (answer.status, answer.code) == (409, "OperationNotAllowed")
        assert "marked for deletion" in answer.message
    assert (await client.get(client.vm())).body["properties"]["provisioningState"] == "Deleting"


async def test_a_deletion_may_fail(arm, client):
    await client.created()
    arm.faults.add(Fault("vm.delete", operation=operation_error("InternalExecutionError")))
    ended = await client.ended(await client.send("DELETE", client.vm()))
    assert ended["error"]["code"] == "InternalExecutionError"
    assert (await client.get(client.vm())).body["properties"]["provisioningState"] == "Failed"
    await client.deleted()


async def test_an_evicted_vm_with_policy_delete_is_gone_with_its_parts(arm, client):
    await client.created(body=vm_body(arm, **spot()))
    assert (await client.send("POST", client.vm(rest="/simulateEviction"))).status == 204
    await arm.clock.sleep(31)
    assert (await client.get(client.vm())).status == 404
    arm.ledger.assert_nothing_leaked(keep=())


async def test_an_evicted_vm_with_policy_deallocate_looks_like_any_other(arm, client):
    await client.created(body=vm_body(arm, **spot("Deallocate")))
    arm.evict("m-1")
    vm = (await client.get(client.vm(), query={"$expand": "instanceView"})).body["properties"]
    assert vm["provisioningState"] == "Succeeded"
    assert vm["instanceView"]["statuses"][-1]["code"] == "PowerState/deallocated"
    disk = vm["storageProfile"]["osDisk"]
    assert "diskSizeGB" not in disk
    assert "storageAccountType" not in disk["managedDisk"]


async def test_only_spot_vms_can_be_evicted(client):
    await client.created()
    answer = await client.send("POST", client.vm(rest="/simulateEviction"))
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"evictionPolicy": "Delete"}, "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"),
        (spot() | {"size": "Standard_B1s"}, "AzureSpotIsNotSupportedForThisVMSize"),
        (spot() | {"billingProfile": {"maxPrice": 0}}, "MaxPriceValueInvalid"),
    ],
)
async def test_what_spot_does_not_know_is_refused(arm, client, more, code):
    answer = await client.put_vm(body=vm_body(arm, **more))
    assert (answer.status, answer.code) == (400, code)


async def test_guests_hear_of_start_and_end(arm, client):
    heard = []

    def note(what):
        return lambda vm: heard.append((what, vm.name))

    arm.cloud.guest.booted, arm.cloud.guest.stopped = note("booted"), note("stopped")
    await client.created()
    await client.ended(await client.send("POST", client.vm(rest="/deallocate")))
    await client.ended(await client.send("POST", client.vm(rest="/start")))
    await client.deleted()
    assert [what for what, _ in heard] == ["booted", "stopped", "booted", "stopped"]


async def test_starting_what_runs_does_nothing_and_a_restart_boots_again(arm, client):
    heard = []
    arm.cloud.guest.booted = lambda vm: heard.append(vm.name)
    await client.created()
    await client.ended(await client.send("POST", client.vm(rest="/start")))
    assert heard == ["m-1"]
    await client.ended(await client.send("POST", client.vm(rest="/restart")))
    assert heard == ["m-1", "m-1"]
