"""One VM: what its PUT does, what its GET shows, and what can never be changed."""

import copy

import pytest

from tests.arm.client import encoded, spot, vm_body
from tests.support.arm.images import PlatformImage

ECHOED = {"hardwareProfile", "provisioningState", "vmId", "storageProfile", "networkProfile"}


async def test_a_put_is_accepted_with_an_operation_that_is_polled(arm, client):
    answer = await client.put_vm()
    assert answer.status == 201
    assert answer.headers["Retry-After"] == "10"
    assert answer.headers["Azure-AsyncNotification"] == "Enabled"
    assert answer.body["properties"]["provisioningState"] == "Creating"
    url = answer.headers["Azure-AsyncOperation"]
    assert len(url) > 2500
    assert not set("{}") & set(url)
    first = await client.get(url)
    assert first.headers["Retry-After"] == "35"
    assert list(first.body) == ["startTime", "status", "name"]
    second = await client.get(url)
    assert "Retry-After" not in second.headers
    ended = await client.ended(answer)
    assert list(ended) == ["startTime", "endTime", "status", "name"]
    vm = await client.get(client.vm())
    assert vm.body["properties"]["provisioningState"] == "Succeeded"
    assert set(vm.body["properties"]) >= ECHOED


@pytest.mark.parametrize(("form", "code"), [(412, "PreconditionFailed"), (409, "Conflict")])
async def test_if_none_match_on_an_existing_vm_is_refused_and_changes_nothing(
    arm, client, form, code
):
    before = await client.created()
    arm.quirks.existing = form
    changed = vm_body(arm, tags={"other": "tags"})
    answer = await client.put_vm("M-1", changed, headers={"If-None-Match": "*"})
    assert (answer.status, answer.code) == (form, code)
    assert (await client.get(client.vm())).body == before.body
    assert len(arm.vms()) == 1


async def test_the_same_put_again_is_an_update_that_changes_nothing(arm, client):
    before = await client.created()
    answer = await client.put_vm()
    assert answer.status == 200
    assert answer.body["properties"]["provisioningState"] == "Updating"
    assert (await client.ended(answer))["status"] == "Succeeded"
    after = await client.get(client.vm())
    assert after.body["properties"] == before.body["properties"]
    assert len(arm.ledger.ever("Microsoft.Network/networkInterfaces")) == 1


async def test_what_a_get_shows_can_be_put_back(arm, client):
    seen = await client.created(body=vm_body(arm, data="secret"))
    body = {key: seen.body[key] for key in ("location", "tags", "properties")}
    assert (await client.put_vm(body=body)).status == 200


@pytest.mark.parametrize(
    ("path", "value", "target"),
    [
        (("properties", "osProfile", "customData"), encoded("other"), "customData"),
        (("properties", "osProfile", "computerName"), "other", "computerName"),
        (("properties", "osProfile", "adminUsername"), "other", "osProfile.adminUsername"),
        (("zones",), ["2"], "zones"),
    ],
)
async def test_a_put_that_changes_what_cannot_change_is_refused(arm, client, path, value, target):
    await client.created(body=vm_body(arm, data="first", zone="1"))
    body = vm_body(arm, data="first", zone="1")
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    answer = await client.put_vm(body=body)
    assert (answer.status, answer.code) == (409, "PropertyChangeNotAllowed")
    assert answer.body["error"]["target"] == target


async def test_custom_data_is_never_echoed(arm, client):
    await client.created(body=vm_body(arm, data="top secret"))
    for answer in (
        await client.get(client.vm(), query={"$expand": "instanceView,userData"}),
        await client.get(client.group + "/providers/Microsoft.Compute/virtualMachines"),
    ):
        assert "customData" not in str(answer.body)
        assert encoded("top secret") not in str(answer.body)
    assert arm.vm("m-1").custom_bytes == b"top secret"


async def test_user_data_is_shown_only_when_asked_for(arm, client):
    await client.created(body=vm_body(arm, userData=encoded("visible")))
    assert "userData" not in (await client.get(client.vm())).body["properties"]
    shown = await client.get(client.vm(), query={"$expand": "userData"})
    assert shown.body["properties"]["userData"] == encoded("visible")


async def test_custom_data_that_is_too_large_is_refused(arm, client):
    answer = await client.put_vm(body=vm_body(arm, data="x" * 65_536))
    assert (answer.status, answer.code) == (400, "InvalidParameter")
    assert answer.body["error"]["target"] == "customData"
    assert (await client.put_vm(body=vm_body(arm, data="x" * 65_535))).status == 201


async def test_a_vm_without_key_or_password_is_refused(arm, client):
    body = vm_body(arm)
    del body["properties"]["osProfile"]["linuxConfiguration"]
    assert (await client.put_vm(body=body)).code == "InvalidParameter"


@pytest.mark.parametrize("user", ["root", "admin", "Administrator", "support_388945a0", "u" * 65])
async def test_reserved_user_names_are_refused(arm, client, user):
    body = vm_body(arm)
    body["properties"]["osProfile"]["adminUsername"] = user
    assert (await client.put_vm(body=body)).body["error"]["target"] == "adminUsername"


@pytest.mark.parametrize("name", ["a" * 65, "under_score", "ends-with-"])
async def test_names_that_no_host_may_have_are_refused(arm, client, name):
    answer = await client.put_vm(name)
    assert (answer.status, answer.code) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("sku", "size", "marker"),
    [
        ("server-gen1", "Standard_D4s_v6", "Hypervisor Generation"),
        ("server-arm64", "Standard_D4s_v5", "CPU Architecture"),
        ("server", "Standard_D4ps_v5", "CPU Architecture"),
    ],
)
async def test_an_image_that_does_not_fit_the_size_is_refused(arm, client, sku, size, marker):
    body = vm_body(arm, size=size)
    body["properties"]["storageProfile"]["imageReference"]["sku"] = sku
    answer = await client.put_vm(body=body)
    assert answer.status == 400
    assert marker in answer.message


async def test_an_image_that_is_not_there_is_a_404_of_the_put(arm, client):
    body = vm_body(arm)
    body["properties"]["storageProfile"]["imageReference"]["sku"] = "gone"
    answer = await client.put_vm(body=body)
    assert (answer.status, answer.code) == (404, "PlatformImageNotFound")


async def test_own_images_are_found_by_their_ids(arm, client):
    managed = arm.cloud.images.add_managed("images", "talos")
    arm.cloud.add_group("images")
    version = arm.cloud.images.add_gallery_version("images", "gallery", "talos", "1.0.0")
    for number, identity in enumerate((managed, version)):
        assert (await client.get(identity)).status == 200
        body = vm_body(arm, f"m-{number}")
        body["properties"]["storageProfile"]["imageReference"] = {"id": identity}
        assert (await client.put_vm(f"m-{number}", body)).status == 201


async def test_the_marketplace_tells_generation_and_architecture(arm, client):
    path = (
        f"{client.subscription}/providers/Microsoft.Compute/locations/eastus/publishers/Canonical"
        "/artifacttypes/vmimage/offers/ubuntu-24_04-lts/skus/server-arm64/versions"
    )
    [named] = (await client.get(path)).body
    image = (await client.get(f"{path}/{named['name']}")).body
    assert image["properties"]["architecture"] == "Arm64"
    assert image["properties"]["hyperVGeneration"] == "V2"


async def test_premium_disks_need_a_size_that_has_them(arm, client):
    answer = await client.put_vm(body=vm_body(arm, size="Standard_D2_v5"))
    assert (answer.status, answer.code) == (400, "InvalidParameter")
    assert "Premium" in answer.message


async def test_size_and_image_must_share_a_disk_controller(arm, client):
    arm.cloud.images.add(PlatformImage("Old", "linux", "old", controllers="SCSI"))
    body = vm_body(arm, size="Standard_D4s_v6")
    storage = body["properties"]["storageProfile"]
    storage["imageReference"] = {
        "publisher": "Old",
        "offer": "linux",
        "sku": "old",
        "version": "latest",
    }
    answer = await client.put_vm(body=body)
    assert (answer.status, answer.code) == (400, "InvalidParameter")
    assert "disk controller types supported by the OS image" in answer.message
    storage["diskControllerType"] = "SCSI"
    answer = await client.put_vm(body=body)
    assert answer.body["error"]["target"] == "storageProfile.diskControllerType"


@pytest.mark.parametrize(
    ("image", "size", "profile", "marker"),
    [
        ("server-gen1", "Standard_D4s_v5", {"securityType": "TrustedLaunch"}, "provided image"),
        ("server", "Standard_D4s_v5", {"securityType": "ConfidentialVM"}, "provided image"),
        ("secret", "Standard_D4s_v5", {"securityType": "ConfidentialVM"}, "The VM size"),
        ("arm", "Standard_D4ps_v5", {"securityType": "TrustedLaunch"}, "The VM size"),
        ("server", "Standard_D2_v5", {"encryptionAtHost": True}, "Encryption at host"),
    ],
)
async def test_security_that_size_or_image_lacks_is_refused(client, image, size, profile, marker):
    arm = client.arm
    offer = "ubuntu-24_04-lts"
    arm.cloud.images.add(PlatformImage("Canonical", offer, "secret", confidential=True))
    arm.cloud.images.add(PlatformImage("Canonical", offer, "arm", architecture="Arm64"))
    arm.cloud.catalogue.sizes["standard_d2_v5"].capabilities["EncryptionAtHostSupported"] = "False"
    body = vm_body(arm, size=size, securityProfile=profile)
    body["properties"]["storageProfile"]["imageReference"]["sku"] = image
    body["properties"]["storageProfile"]["osDisk"]["managedDisk"] = {}
    answer = await client.put_vm(body=body)
    assert answer.status == 400
    assert marker in answer.message


async def test_a_vm_may_get_another_security_type_than_was_asked_for(arm, client):
    arm.quirks.security_type = "TrustedLaunch"
    seen = await client.created(body=vm_body(arm, securityProfile={"securityType": "Standard"}))
    assert seen.body["properties"]["securityProfile"] == {"securityType": "TrustedLaunch"}


async def test_spot_goes_into_no_reservation_and_a_set_goes_into_no_zone(arm, client):
    group = arm.cloud.seed_named("Microsoft.Compute/capacityReservationGroups", "reserved")
    reserved = {"capacityReservationGroup": {"id": group}}
    body = vm_body(arm, **spot(), capacityReservation=reserved)
    assert (await client.put_vm(body=body)).status == 400
    group = arm.cloud.seed_named("Microsoft.Compute/availabilitySets", "together")
    body = vm_body(arm, zone="1", availabilitySet={"id": group})
    assert (await client.put_vm(body=body)).code == "BadRequest"
    answer = await client.put_vm(body=vm_body(arm, **spot(), availabilitySet={"id": group}))
    assert answer.code == "AzureSpotVMNotSupportedInAvailabilitySet"


async def test_an_ephemeral_disk_must_fit(arm, client):
    body = vm_body(arm, size="Standard_D4s_v3")
    disk = body["properties"]["storageProfile"]["osDisk"]
    disk["diffDiskSettings"] = {"option": "Local", "placement": "CacheDisk"}
    disk["diskSizeGB"] = 101
    assert (await client.put_vm(body=body)).code == "NotSupported"
    disk["diskSizeGB"] = 100
    assert (await client.put_vm(body=body)).status == 201


async def test_a_subnet_that_is_not_there_is_an_invalid_reference(arm, client):
    body = vm_body(arm)
    [nic] = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    inner = nic["properties"]["ipConfigurations"][0]["properties"]
    inner["subnet"] = {"id": arm.cloud.subnet_id + "-not"}
    answer = await client.put_vm(body=body)
    assert (answer.status, answer.code) == (400, "InvalidResourceReference")


async def test_a_full_subnet_is_told_at_the_put(arm, client):
    arm.cloud.subnets[arm.cloud.subnet_id.lower()].room = 0
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (400, "SubnetIsFull")


async def test_a_refused_put_leaves_nothing(arm, client):
    arm.capacity.quotas["cores"] = 0
    assert (await client.put_vm()).status == 409
    assert arm.ledger.entries == [each for each in arm.ledger.entries if each.seeded]


async def test_a_missing_vm_is_told_by_arm_and_a_fresh_loss_by_compute(arm, client):
    answer = await client.get(client.vm("never"))
    assert (answer.status, answer.code) == (404, "ResourceNotFound")
    assert answer.headers["x-ms-failure-cause"] == "gateway"
    await client.created()
    await client.deleted()
    answer = await client.get(client.vm())
    assert (answer.status, answer.code) == (404, "NotFound")
    assert (await client.send("DELETE", client.vm())).status == 204


async def test_names_are_found_without_regard_to_case(arm, client):
    await client.created()
    answer = await client.get(client.vm("M-1").replace("resourceGroups", "resourcegroups"))
    assert answer.body["name"] == "m-1"


async def test_a_stopped_vm_is_billed_and_a_deallocated_one_is_not(arm, client):
    await client.created()
    arm.shut_down("m-1")
    before = arm.ledger.vm_seconds(arm.clock.now())
    await arm.clock.sleep(30)
    assert arm.ledger.vm_seconds(arm.clock.now()) >= before + 30
    answer = await client.send("POST", client.vm(rest="/deallocate"))
    assert answer.status == 202
    assert answer.headers["Location"]
    await client.ended(answer)
    after = arm.ledger.vm_seconds(arm.clock.now())
    await arm.clock.sleep(30)
    assert arm.ledger.vm_seconds(arm.clock.now()) == after
    view = await client.get(client.vm(rest="/instanceView"))
    assert view.body["statuses"][-1]["code"] == "PowerState/deallocated"


async def test_the_location_of_an_action_ends_too(arm, client):
    await client.created()
    answer = await client.send("POST", client.vm(rest="/powerOff"))
    url = answer.headers["Location"]
    assert "monitor=true" in url
    assert (await client.get(url)).status == 202
    await client.ended(answer)
    assert (await client.get(url)).status == 200


async def test_boot_diagnostics_point_to_the_serial_log(arm, client):
    await client.created(
        body=vm_body(arm, diagnosticsProfile={"bootDiagnostics": {"enabled": True}})
    )
    answer = await client.send("POST", client.vm(rest="/retrieveBootDiagnosticsData"))
    url = answer.body["serialConsoleLogBlobUri"]
    async with client.session.get(url) as log:
        assert "login:" in await log.text()


async def test_the_security_type_and_controller_are_shown_as_sent(arm, client):
    profile = {"securityType": "TrustedLaunch", "uefiSettings": {"vTpmEnabled": True}}
    body = vm_body(arm, size="Standard_D4s_v6", securityProfile=copy.deepcopy(profile))
    body["properties"]["storageProfile"]["diskControllerType"] = "NVMe"
    seen = (await client.created(body=body)).body["properties"]
    assert seen["securityProfile"] == profile
    assert seen["storageProfile"]["diskControllerType"] == "NVMe"


async def test_an_etag_that_is_no_longer_true_is_refused(arm, client):
    etag = (await client.created()).body["etag"]
    stale = {"If-Match": '"0"'}
    assert (await client.put_vm(headers=stale)).code == "PreconditionFailed"
    answer = await client.send("PATCH", client.vm(), {"tags": {}}, headers=stale)
    assert (answer.status, answer.code) == (412, "PreconditionFailed")
    answer = await client.send("PATCH", client.vm(), {"tags": {}}, headers={"If-Match": etag})
    assert answer.status == 200


async def test_everything_that_a_vm_may_refer_to_is_kept_where_it_belongs(arm, client):
    seed = arm.cloud.seed_named
    rules = seed("Microsoft.Network/networkSecurityGroups", "rules")
    role = seed("Microsoft.Network/applicationSecurityGroups", "role")
    pool = seed("Microsoft.Network/loadBalancers/backendAddressPools", "lb", "pool")
    reserved = seed("Microsoft.Compute/capacityReservationGroups", "reserved")
    body = vm_body(arm, capacityReservation={"capacityReservationGroup": {"id": reserved}})
    [nic] = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    nic["properties"] |= {
        "networkSecurityGroup": {"id": rules},
        "enableAcceleratedNetworking": True,
        "enableIPForwarding": True,
    }
    inner = nic["properties"]["ipConfigurations"][0]["properties"]
    inner["applicationSecurityGroups"] = [{"id": role}]
    inner["loadBalancerBackendAddressPools"] = [{"id": pool}]
    seen = (await client.created(body=body)).body["properties"]
    assert seen["capacityReservation"]["capacityReservationGroup"]["id"] == reserved
    [reference] = seen["networkProfile"]["networkInterfaces"]
    nic = (await client.get(reference["id"], version="2026-03-01")).body["properties"]
    assert nic["networkSecurityGroup"] == {"id": rules}
    assert nic["enableAcceleratedNetworking"] is nic["enableIPForwarding"] is True
    inner = nic["ipConfigurations"][0]["properties"]
    assert inner["applicationSecurityGroups"] == [{"id": role}]
    assert inner["loadBalancerBackendAddressPools"] == [{"id": pool}]
