"""The unmodified SDK drives the double from one end to the other."""

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.core.rest import HttpRequest
from azure.identity.aio import ClientSecretCredential

from tests.arm.client import encoded, script_body, spot, vm_body
from tests.support.arm.cloud import GROUP
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.arm.identity import CLIENT, TENANT


@pytest.fixture
async def arm():
    """The SDK sleeps on its own clock, so the double's runs with it, only faster."""
    async with ArmDouble(speed=300) as double:
        yield double


async def test_a_machine_is_created_read_listed_changed_and_deleted(arm, compute):
    poller = await compute.virtual_machines.begin_create_or_update(
        GROUP, "m-1", vm_body(arm, public=True), headers={"If-None-Match": "*"}
    )
    vm = await poller.result()
    assert vm.provisioning_state == "Succeeded"
    assert vm.tags["bigfleet-machine-id"] == "m-1"
    [nic] = vm.network_profile.network_interfaces
    assert nic.delete_option == "Delete"

    view = await compute.virtual_machines.instance_view(GROUP, "m-1")
    assert view.statuses[-1].code == "PowerState/running"
    assert [each.name async for each in compute.virtual_machines.list(GROUP)] == ["m-1"]
    [status] = [each async for each in compute.virtual_machines.list_all(status_only="true")]
    assert status.instance_view.statuses[-1].code == "PowerState/running"
    assert not status.tags

    patched = await (
        await compute.virtual_machines.begin_update(GROUP, "m-1", {"tags": {"a": "b"}})
    ).result()
    assert patched.tags == {"a": "b"}
    for action in ("begin_deallocate", "begin_start", "begin_power_off", "begin_restart"):
        await (await getattr(compute.virtual_machines, action)(GROUP, "m-1")).result()
    await (await compute.virtual_machines.begin_delete(GROUP, "m-1")).result()
    with pytest.raises(ResourceNotFoundError):
        await compute.virtual_machines.get(GROUP, "m-1")
    arm.ledger.assert_nothing_leaked(keep=())
    arm.ledger.assert_nothing_doubled()


async def test_a_failed_create_is_raised_from_an_answer_of_200(arm, compute):
    arm.shortage(zone="1")
    poller = await compute.virtual_machines.begin_create_or_update(
        GROUP, "m-1", vm_body(arm, zone="1")
    )
    with pytest.raises(HttpResponseError) as caught:
        await poller.result()
    assert caught.value.status_code == 200
    assert caught.value.error is not None
    assert caught.value.error.code == "ZonalAllocationFailed"
    assert (await compute.virtual_machines.get(GROUP, "m-1")).provisioning_state == "Failed"


async def test_a_create_is_taken_up_again_from_its_token_without_another_put(arm, compute):
    poller = await compute.virtual_machines.begin_create_or_update(GROUP, "m-1", vm_body(arm))
    token = poller.continuation_token()
    again = await compute.virtual_machines.begin_create_or_update(
        GROUP, "m-1", {}, continuation_token=token
    )
    assert (await again.result()).provisioning_state == "Succeeded"
    await poller.wait()
    assert arm.ledger.count("vm.put") == 1


async def test_quota_arrives_as_resource_exists(arm, compute):
    arm.capacity.quotas["standardDSv5Family"] = 2
    with pytest.raises(ResourceExistsError) as caught:
        await compute.virtual_machines.begin_create_or_update(GROUP, "m-1", vm_body(arm))
    assert caught.value.error is not None
    assert caught.value.error.code == "OperationNotAllowed"


async def test_a_script_runs_and_its_failure_is_told(arm, compute):
    class Fails(Guest):
        def run(self, vm, script):
            return ScriptResult(7, "out", "no such cluster")

    await (
        await compute.virtual_machines.begin_create_or_update(GROUP, "m-1", vm_body(arm))
    ).result()
    poller = await compute.virtual_machine_extensions.begin_create_or_update(
        GROUP, "m-1", "bigfleet-hook", script_body()
    )
    assert (await poller.result()).provisioning_state == "Succeeded"
    arm.cloud.guest = Fails()
    poller = await compute.virtual_machine_extensions.begin_create_or_update(
        GROUP, "m-1", "bigfleet-hook", script_body("exit 7")
    )
    with pytest.raises(HttpResponseError) as caught:
        await poller.result()
    assert caught.value.error is not None
    assert caught.value.error.code == "VMExtensionProvisioningError"
    extension = await compute.virtual_machine_extensions.get(
        GROUP, "m-1", "bigfleet-hook", expand="instanceView"
    )
    assert "no such cluster" in extension.instance_view.statuses[0].message
    assert extension.protected_settings is None
    await (
        await compute.virtual_machine_extensions.begin_delete(GROUP, "m-1", "bigfleet-hook")
    ).result()
    found = await compute.virtual_machine_extensions.list(GROUP, "m-1")
    assert list(found.value) == []


async def test_tags_usages_and_subnets_are_read_through_the_compute_pipeline(arm, compute):
    await (
        await compute.virtual_machines.begin_create_or_update(GROUP, "m-1", vm_body(arm))
    ).result()
    scope = arm.endpoint + arm.vm("m-1").id
    body = {"operation": "Merge", "properties": {"tags": {"bigfleet-cluster": "blue"}}}
    path = "/providers/Microsoft.Resources/tags/default?api-version=2024-03-01"
    answer = await compute._client.send_request(HttpRequest("PATCH", scope + path, json=body))
    assert answer.status_code == 200
    assert answer.json()["properties"]["tags"]["bigfleet-cluster"] == "blue"
    usages = {each.name.value: each async for each in compute.usage.list("eastus")}
    assert usages["cores"].current_value == 4
    skus = [each async for each in compute.resource_skus.list(filter="location eq 'eastus'")]
    assert {"Standard_D4s_v5", "Standard_F8s_v2", "Standard_D4ps_v5"} <= {s.name for s in skus}


async def test_leftovers_are_listed_and_deleted_with_the_network_client(arm, compute, network):
    await (
        await compute.virtual_machines.begin_create_or_update(
            GROUP, "m-1", vm_body(arm, public=True)
        )
    ).result()
    arm.faults.add(Fault("vm.delete", leave=("nic",)))
    await (await compute.virtual_machines.begin_delete(GROUP, "m-1")).result()
    [nic] = [each async for each in network.network_interfaces.list(GROUP)]
    assert nic.virtual_machine is None
    await (await network.network_interfaces.begin_delete(GROUP, nic.name)).result()
    assert [each async for each in network.public_ip_addresses.list(GROUP)] == []
    arm.ledger.assert_nothing_leaked(keep=())


async def test_an_evicted_machine_is_gone_for_the_sdk(arm, compute):
    await (
        await compute.virtual_machines.begin_create_or_update(GROUP, "m-1", vm_body(arm, **spot()))
    ).result()
    await compute.virtual_machines.simulate_eviction(GROUP, "m-1")
    await arm.clock.sleep(40)
    with pytest.raises(ResourceNotFoundError):
        await compute.virtual_machines.get(GROUP, "m-1")


async def test_a_wrong_secret_and_an_outage_raise_the_same_class(arm):
    for fault, marker in (
        (None, "AADSTS7000215"),
        (Fault("token", times=None, answer=error(503, "Unavailable")), ""),
    ):
        if fault is not None:
            arm.faults.add(fault)
        async with ClientSecretCredential(
            TENANT,
            CLIENT,
            "wrong",
            authority=arm.authority,
            disable_instance_discovery=True,
            connection_verify=arm.ca_file,
            retry_total=0,
        ) as wrong:
            with pytest.raises(ClientAuthenticationError) as caught:
                await wrong.get_token(f"{arm.endpoint}/.default")
        assert marker in str(caught.value)


async def test_a_scripted_operation_error_reaches_the_sdk_with_its_details(arm, compute):
    arm.faults.add(
        Fault(
            "vm.put",
            operation=operation_error(
                "ResourceOperationFailure",
                details=[{"code": "AllocationFailed", "message": "none"}],
            ),
        )
    )
    poller = await compute.virtual_machines.begin_create_or_update(
        GROUP, "m-1", vm_body(arm, data=encoded("x"))
    )
    with pytest.raises(HttpResponseError) as caught:
        await poller.result()
    assert caught.value.error is not None
    assert caught.value.error.details[0].code == "AllocationFailed"
