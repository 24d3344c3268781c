"""What is refused before any provider looks: tokens, versions, rights, policies, locks."""

import pytest

from tests.arm.client import vm_body
from tests.support.arm.access import Lock, Policy

NETWORK = "Microsoft.Network"
MISSING = "InvalidResourceReference"
JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action"


async def test_no_token_or_a_wrong_one_is_a_401(arm, client):
    answer = await client.get(client.vm(), token="wrong")
    assert (answer.status, answer.code) == (401, "InvalidAuthenticationToken")
    async with client.session.get(arm.endpoint + client.vm()) as bare:
        assert bare.status == 401
        assert bare.headers["WWW-Authenticate"].startswith("Bearer ")


async def test_an_expired_token_says_so(arm, client):
    answer = await client.get(client.vm(), token=arm.identity.issue("somebody", seconds=-1))
    assert (answer.status, answer.code) == (401, "ExpiredAuthenticationToken")
    assert "The access token has expired." in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(None, "MissingApiVersionParameter"), ("latest", "InvalidApiVersionParameter")],
)
async def test_a_call_needs_an_api_version(client, version, code):
    answer = await client.get(client.vm(), version=version)
    assert (answer.status, answer.code) == (400, code)


async def test_an_unknown_subscription_or_group_is_a_404(arm, client):
    other = client.vm().replace(arm.cloud.subscription, "44444444-4444-4444-8444-444444444444")
    assert (await client.get(other)).code == "SubscriptionNotFound"
    path = client.vm().replace("/fleet/", "/nowhere/")
    assert (await client.get(path)).code == "ResourceGroupNotFound"
    answer = await client.send("PUT", path, vm_body(arm))
    assert (answer.status, answer.code) == (404, "ResourceGroupNotFound")


async def test_what_the_double_does_not_speak_is_told(client):
    answer = await client.get(client.subscription + "/providers/Microsoft.Web/sites/a/b")
    assert answer.status == 404
    assert (await client.send("POST", client.vm())).status == 405


async def test_a_denied_action_is_named(arm, client):
    arm.access.denied.append("Microsoft.Compute/virtualMachines/write")
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (403, "AuthorizationFailed")
    assert "'Microsoft.Compute/virtualMachines/write'" in answer.message
    assert (await client.get(client.vm())).status == 404


async def test_a_denied_linked_action_is_named_with_its_scope(arm, client):
    arm.access.denied.append(JOIN)
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (403, "LinkedAuthorizationFailed")
    assert JOIN in answer.message
    assert arm.cloud.subnet_id in answer.message
    assert arm.vms() == []


def referring(arm, kind, identity):
    body = vm_body(arm)
    properties = body["properties"]
    nic = properties["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
    inner = nic["ipConfigurations"][0]["properties"]
    match kind.rpartition("/")[2]:
        case "networkSecurityGroups":
            nic["networkSecurityGroup"] = {"id": identity}
        case "applicationSecurityGroups":
            inner["applicationSecurityGroups"] = [{"id": identity}]
        case "backendAddressPools":
            inner["loadBalancerBackendAddressPools"] = [{"id": identity}]
        case "availabilitySets":
            properties["availabilitySet"] = {"id": identity}
        case "capacityReservationGroups":
            properties["capacityReservation"] = {"capacityReservationGroup": {"id": identity}}
        case "diskEncryptionSets":
            disk = properties["storageProfile"]["osDisk"]
            disk["managedDisk"]["diskEncryptionSet"] = {"id": identity}
        case "userAssignedIdentities":
            body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {identity: {}}}
    return body


@pytest.mark.parametrize(
    ("kind", "names", "code", "action"),
    [
        (f"{NETWORK}/networkSecurityGroups", ["a"], MISSING, "join/action"),
        (f"{NETWORK}/applicationSecurityGroups", ["a"], MISSING, "joinIpConfiguration/action"),
        (f"{NETWORK}/loadBalancers/backendAddressPools", ["a", "b"], MISSING, "join/action"),
        ("Microsoft.Compute/availabilitySets", ["a"], "NotFound", "read"),
        ("Microsoft.Compute/capacityReservationGroups", ["a"], "NotFound", "deploy/action"),
        ("Microsoft.Compute/diskEncryptionSets", ["a"], "NotFound", "read"),
        (
            "Microsoft.ManagedIdentity/userAssignedIdentities",
            ["a"],
            "FailedIdentityOperation",
            "assign/action",
        ),
    ],
)
async def test_what_a_vm_refers_to_must_be_there_and_may_be_denied(
    client, kind, names, code, action
):
    arm = client.arm
    body = referring(arm, kind, client.id(kind, *names))
    assert (await client.put_vm(body=body)).code == code
    arm.cloud.seed_named(kind, *names)
    arm.access.denied.append(f"{kind}/{action}")
    refused = await client.put_vm(body=body)
    assert (refused.status, refused.code) == (403, "LinkedAuthorizationFailed")
    assert f"{kind}/{action}" in refused.message
    arm.access.denied.clear()
    assert (await client.put_vm(body=body)).status == 201


async def test_a_put_asks_for_every_action_of_its_parts(arm, client):
    body = vm_body(arm, public=True)
    identity = arm.cloud.seed_named("Microsoft.ManagedIdentity/userAssignedIdentities", "node")
    body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {identity: {}}}
    await client.created(body=body)
    assert {
        "Microsoft.Compute/virtualMachines/write",
        "Microsoft.Compute/disks/write",
        JOIN,
        "Microsoft.Network/networkInterfaces/write",
        "Microsoft.Network/networkInterfaces/join/action",
        "Microsoft.Network/publicIPAddresses/write",
        "Microsoft.Network/publicIPAddresses/join/action",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    } <= arm.access.used


async def test_only_listed_actions_may_be_allowed(arm, client):
    arm.access.allowed = {"Microsoft.Compute/virtualMachines/read"}
    assert (await client.get(client.vm())).status == 404
    assert (await client.put_vm()).code == "AuthorizationFailed"


async def test_a_policy_refuses_what_it_applies_to(arm, client):
    arm.access.policies.append(
        Policy("needs-cost-center", lambda call: "cost-center" not in str(call.body))
    )
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (403, "RequestDisallowedByPolicy")
    [info] = answer.body["error"]["additionalInfo"]
    assert info["info"]["policyDefinitionDisplayName"] == "needs-cost-center"
    assert (await client.put_vm(body=vm_body(arm, tags={"cost-center": "1"}))).status == 201


async def test_a_lock_bars_deletions_and_a_read_only_one_all_writes(arm, client):
    await client.created()
    arm.access.locks.append(Lock(client.group))
    answer = await client.send("DELETE", client.vm())
    assert (answer.status, answer.code) == (409, "ScopeLocked")
    assert (await client.send("PATCH", client.vm(), {"tags": {}})).status == 200
    arm.access.locks[0].level = "ReadOnly"
    answer = await client.send("PATCH", client.vm(), {"tags": {}})
    assert (answer.status, answer.code) == (409, "ScopeLocked")
    assert (await client.get(client.vm())).status == 200


async def test_a_group_that_is_being_deleted_takes_nothing_new(arm, client):
    arm.access.deleting_groups.add("fleet")
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (409, "ResourceGroupBeingDeleted")
    group = await client.get(client.group)
    assert group.body["properties"]["provisioningState"] == "Deleting"


async def test_a_read_only_subscription_answers_reads(arm, client):
    await client.created()
    arm.access.read_only_subscription = True
    answer = await client.send("DELETE", client.vm())
    assert (answer.status, answer.code) == (409, "ReadOnlyDisabledSubscription")
    assert (await client.get(client.vm())).status == 200


async def test_an_unregistered_provider_is_told_and_refuses(arm, client):
    arm.access.unregistered.add("Microsoft.Compute")
    path = client.subscription + "/providers/Microsoft.Compute"
    assert (await client.get(path)).body["registrationState"] == "NotRegistered"
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (409, "MissingSubscriptionRegistration")


async def test_a_registration_that_nobody_may_make_is_counted(arm, client):
    arm.access.unregistered.add("Microsoft.Compute")
    path = client.subscription + "/providers/Microsoft.Compute"
    answer = await client.send("POST", f"{path}/register", version="2021-04-01")
    assert answer.body["registrationState"] == "Registered"
    assert arm.ledger.count("provider.register") == 1
    arm.access.allowed = {"Microsoft.Compute/virtualMachines/read"}
    assert (await client.send("POST", f"{path}/register")).code == "AuthorizationFailed"


async def test_what_was_used_is_compared_with_a_list(arm, client):
    await client.get(client.vm())
    await client.get(arm.cloud.subnet_id)
    assert arm.access.unlisted({"microsoft.compute/virtualmachines/read"}) == {
        "Microsoft.Network/virtualNetworks/subnets/read"
    }


@pytest.mark.parametrize(
    ("ways", "shown"),
    [
        ({"way_out": False, "route_table": True}, {"routeTable"}),
        ({"way_out": False, "default_outbound": True}, {"defaultOutboundAccess"}),
        ({"way_out": False, "default_outbound": None}, set()),
    ],
)
async def test_a_subnet_shows_its_ways_out(arm, client, ways, shown):
    identity = arm.cloud.add_subnet("fleet", "fleet-net", "other", **ways)
    properties = (await client.get(identity)).body["properties"]
    told = {"natGateway", "routeTable", "defaultOutboundAccess"}
    assert {key for key in told if properties.get(key)} == shown


async def test_subnets_and_other_seeded_resources_are_read(arm, client):
    subnet = (await client.get(arm.cloud.subnet_id)).body
    assert subnet["properties"]["natGateway"]
    shut = arm.cloud.add_subnet("fleet", "fleet-net", "shut", way_out=False)
    assert "natGateway" not in (await client.get(shut)).body["properties"]
    group = arm.cloud.seed_named("Microsoft.Network/networkSecurityGroups", "rules")
    assert (await client.get(group)).body["name"] == "rules"
    answer = await client.get(group + "-not")
    assert (answer.status, answer.code) == (404, "ResourceNotFound")
