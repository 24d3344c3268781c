"""What the operators' guides need of a machine, through the whole daemon: by flag and by offering.

Each need is asked for in both ways, a machine is made, and what Azure was sent and has is looked
at. The Site holds every exchange to Azure's own descriptions.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.arm.cloud import GROUP, SUBSCRIPTION
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.arm.images import ImageTraits, PlatformImage
from tests.support.arm.ledger import NIC, PUBLIC_IP
from tests.support.arm.resources import Resource, resource_id
from tests.support.arm.truth.holding import Truth
from tests.support.arm.vms import Vm
from tests.support.azure import KEY, Site, until

pytestmark = pytest.mark.slow

Json = dict[str, Any]

BINARY = bytes(range(256)) * 3
"""User data that is no text: it has to arrive as it is."""


def rid(kind: str, *names: str, group: str = GROUP) -> str:
    return resource_id(SUBSCRIPTION, group, kind, *names)


MANAGED = rid("Microsoft.Compute/images", "talos")
GALLERY = rid("Microsoft.Compute/galleries/images", "gallery", "talos-linux")
VERSION = f"{GALLERY}/versions/1.12.5"
SUBNET = rid("Microsoft.Network/virtualNetworks/subnets", "vnet", "workers", group="net")
NSG = rid("Microsoft.Network/networkSecurityGroups", "nsg", group="net")
ASGS = [rid("Microsoft.Network/applicationSecurityGroups", name) for name in ("web", "db")]
POOL = rid("Microsoft.Network/loadBalancers/backendAddressPools", "lb", "nodes")
SET = rid("Microsoft.Compute/availabilitySets", "ha-avset")
IDENTITIES = [
    rid("Microsoft.ManagedIdentity/userAssignedIdentities", name) for name in ("pull", "dns")
]
RESERVATION = rid("Microsoft.Compute/capacityReservationGroups", "kept")
ENCRYPTION = rid("Microsoft.Compute/diskEncryptionSets", "keys")
MARKET = PlatformImage("vendor", "hardened", "gen2", plan=True)
SEALED = PlatformImage("vendor", "sealed", "gen2", confidential=True)


def furnish(arm: ArmDouble) -> None:
    """All that VMs of these tests refer to."""
    images = arm.cloud.images
    images.add_managed(GROUP, "talos")
    images.add_gallery_version(GROUP, "gallery", "talos-linux", "1.12.5")
    images.add(MARKET)
    images.add(SEALED)
    sealed = arm.cloud.catalogue.sizes["standard_d4as_v5"]
    sealed.capabilities["ConfidentialComputingType"] = "SNP"
    arm.cloud.add_group("net")
    arm.cloud.add_subnet("net", "vnet", "workers")
    for identity in (NSG, *ASGS, POOL, SET, *IDENTITIES, RESERVATION, ENCRYPTION):
        kinds = identity.split("/providers/")[1].split("/")
        arm.cloud.seed(identity, "/".join([kinds[0], *kinds[1::2]]))


@dataclass(frozen=True)
class Seen:
    """What Azure was sent for a machine, and what it has."""

    sent: Json
    vm: Json
    nic: Json
    address: Resource | None
    guest: Vm

    @property
    def properties(self) -> Json:
        found: Json = self.sent["properties"]
        return found

    @property
    def disk(self) -> Json:
        found: Json = self.properties["storageProfile"]["osDisk"]
        return found

    @property
    def image(self) -> Json:
        found: Json = self.properties["storageProfile"]["imageReference"]
        return found

    @property
    def security(self) -> Json:
        found: Json = self.vm["properties"]["securityProfile"]
        return found

    @property
    def primary(self) -> Json:
        """The interface's one IP configuration."""
        [found] = self.nic["properties"]["ipConfigurations"]
        properties: Json = found["properties"]
        return properties


def look(site: Site, machine: str) -> Seen:
    """What there is of a machine."""
    puts = [each for each in site.arm.exchanges if each.route == "vm.put" and each.name == machine]
    assert len(puts) == 1
    assert puts[0].request_headers["If-None-Match"] == "*"
    vm = site.arm.vm(machine)
    [reference] = vm.nics
    nic = site.arm.world.get(reference["id"])
    assert nic is not None
    public = nic.properties["ipConfigurations"][0]["properties"].get("publicIPAddress")
    return Seen(
        sent=puts[0].request,
        vm=vm.view(),
        nic=nic.view(),
        address=site.arm.world.get(public["id"]) if public else None,
        guest=vm,
    )


@dataclass(frozen=True)
class Need:
    """Something that a guide needs.

    Attributes:
        keys: as an offering says it.
        flags: as flags say it; {folder} is where the files are.
        holds: whether a machine is made so.
        entry: further keys of the offering in both ways.
    """

    keys: Json
    flags: tuple[str, ...]
    holds: Callable[[Seen], object]
    entry: Json = field(default_factory=dict)


ENTRY: Json = {"vm_size": "Standard_D4ds_v5", "zone": "eastus-1", "count": 2}
SPOT = {"capacity_type": "spot"}

NEEDS = {
    "a marketplace image": Need(
        {"image": "Canonical:ubuntu-24_04-lts:server-gen1:latest"},
        ("--image=Canonical:ubuntu-24_04-lts:server-gen1:latest",),
        lambda seen: seen.image["sku"] == "server-gen1" and seen.guest.generation == "V1",
    ),
    "a managed image": Need(
        {"image": MANAGED}, (f"--image={MANAGED}",), lambda seen: seen.image == {"id": MANAGED}
    ),
    "a gallery version": Need(
        {"image": VERSION}, (f"--image={VERSION}",), lambda seen: seen.image == {"id": VERSION}
    ),
    "a marketplace plan": Need(
        {"image": "vendor:hardened:gen2:latest", "plan": "vendor:hardened:gen2"},
        ("--image=vendor:hardened:gen2:latest", "--plan=vendor:hardened:gen2"),
        lambda seen: (
            seen.vm.get("plan") == {"publisher": "vendor", "product": "hardened", "name": "gen2"}
        ),
    ),
    "an admin user": Need(
        {"admin_username": "talos"},
        ("--admin-username=talos",),
        lambda seen: (
            seen.vm["properties"]["osProfile"]["adminUsername"] == "talos"
            and _ssh(seen)["path"] == "/home/talos/.ssh/authorized_keys"
        ),
    ),
    "an SSH key": Need(
        {"ssh_public_key": "id.pub"},
        ("--ssh-public-key={folder}/id.pub",),
        lambda seen: _ssh(seen)["keyData"] == KEY,
    ),
    "binary user data": Need(
        {"base_user_data": "data.bin"},
        ("--base-user-data={folder}/data.bin",),
        lambda seen: seen.guest.custom_bytes == BINARY,
    ),
    "the size of the OS disk": Need(
        {"os_disk_gib": 100},
        ("--os-disk-gib=100",),
        lambda seen: seen.vm["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] == 100,
    ),
    "the type of the OS disk": Need(
        {"os_disk_type": "Standard_LRS"},
        ("--os-disk-type=Standard_LRS",),
        lambda seen: seen.disk["managedDisk"]["storageAccountType"] == "Standard_LRS",
    ),
    "an ephemeral OS disk": Need(
        {"ephemeral_os_disk": "on"},
        ("--ephemeral-os-disk=on",),
        lambda seen: (
            seen.disk.get("diffDiskSettings") == {"option": "Local", "placement": "CacheDisk"}
            and seen.disk["caching"] == "ReadOnly"
        ),
    ),
    "an ephemeral OS disk where it fits": Need(
        {"ephemeral_os_disk": "auto", "os_disk_gib": 120},
        ("--ephemeral-os-disk=auto", "--os-disk-gib=120"),
        lambda seen: (seen.disk.get("diffDiskSettings") or {}).get("placement") == "ResourceDisk",
    ),
    "trusted launch": Need(
        {"security_type": "TrustedLaunch"},
        ("--security-type=TrustedLaunch",),
        lambda seen: (
            seen.security["securityType"] == "TrustedLaunch"
            and seen.security["uefiSettings"] == {"secureBootEnabled": True, "vTpmEnabled": True}
        ),
    ),
    "a confidential VM": Need(
        {"security_type": "ConfidentialVM", "image": "vendor:sealed:gen2:latest"},
        ("--security-type=ConfidentialVM", "--image=vendor:sealed:gen2:latest"),
        lambda seen: (
            seen.security["securityType"] == "ConfidentialVM"
            and seen.disk["managedDisk"]["securityProfile"]
        ),
        {"vm_size": "Standard_D4as_v5"},
    ),
    "encryption at host": Need(
        {"encryption_at_host": True},
        ("--encryption-at-host",),
        lambda seen: seen.security.get("encryptionAtHost") is True,
    ),
    "a disk encryption set": Need(
        {"disk_encryption_set_id": ENCRYPTION},
        (f"--disk-encryption-set-id={ENCRYPTION}",),
        lambda seen: seen.disk["managedDisk"].get("diskEncryptionSet") == {"id": ENCRYPTION},
    ),
    "a disk controller": Need(
        {"disk_controller": "SCSI"},
        ("--disk-controller=SCSI",),
        lambda seen: seen.properties["storageProfile"].get("diskControllerType") == "SCSI",
    ),
    "no accelerated networking": Need(
        {"accelerated_networking": "off"},
        ("--accelerated-networking=off",),
        lambda seen: seen.nic["properties"]["enableAcceleratedNetworking"] is False,
    ),
    "a subnet of another group": Need(
        {"subnet_id": SUBNET},
        (f"--subnet-id={SUBNET}",),
        lambda seen: seen.primary["subnet"] == {"id": SUBNET},
    ),
    "a security group": Need(
        {"nsg_id": NSG},
        (f"--nsg-id={NSG}",),
        lambda seen: seen.nic["properties"].get("networkSecurityGroup") == {"id": NSG},
    ),
    "application security groups": Need(
        {"asg_ids": ASGS},
        (f"--asg-ids={','.join(ASGS)}",),
        lambda seen: (
            seen.primary.get("applicationSecurityGroups") == [{"id": each} for each in ASGS]
        ),
    ),
    "a load balancer's pool": Need(
        {"lb_backend_pool_ids": [POOL]},
        (f"--lb-backend-pool-ids={POOL}",),
        lambda seen: seen.primary.get("loadBalancerBackendAddressPools") == [{"id": POOL}],
    ),
    "a public IP address": Need(
        {"public_ip": True},
        ("--public-ip",),
        lambda seen: (
            seen.address is not None
            and seen.address.extra["sku"]["name"] == "Standard"
            and seen.address.properties["publicIPAllocationMethod"] == "Static"
        ),
    ),
    "IP forwarding": Need(
        {"ip_forwarding": True},
        ("--ip-forwarding",),
        lambda seen: seen.nic["properties"]["enableIPForwarding"] is True,
    ),
    "an availability set": Need(
        {"availability_set_id": SET, "azure_zone": "none"},
        (f"--availability-set-id={SET}",),
        lambda seen: (
            seen.vm["properties"].get("availabilitySet") == {"id": SET} and "zones" not in seen.sent
        ),
        {"azure_zone": "none"},
    ),
    "identities": Need(
        {"identity_ids": IDENTITIES},
        (f"--identity-ids={','.join(IDENTITIES)}",),
        lambda seen: (
            set((seen.vm.get("identity") or {}).get("userAssignedIdentities", ()))
            == set(IDENTITIES)
        ),
    ),
    "tags": Need(
        {"tags": {"butler.butlerlabs.dev/team": "search"}},
        ("--tags=butler.butlerlabs.dev/team=search",),
        lambda seen: all(
            tags.get("butler.butlerlabs.dev_team") == "search"
            for tags in (seen.vm["tags"], seen.nic["tags"])
        ),
    ),
    "an eviction policy": Need(
        {"spot_eviction_policy": "Deallocate"},
        ("--spot-eviction-policy=Deallocate",),
        lambda seen: seen.vm["properties"]["evictionPolicy"] == "Deallocate",
        SPOT,
    ),
    "a price limit": Need(
        {"spot_max_price": 0.25},
        ("--spot-max-price=0.25",),
        lambda seen: seen.vm["properties"]["billingProfile"] == {"maxPrice": 0.25},
        SPOT,
    ),
    "a capacity reservation": Need(
        {"capacity_reservation_group_id": RESERVATION},
        (f"--capacity-reservation-group-id={RESERVATION}",),
        lambda seen: (
            seen.vm["properties"].get("capacityReservation")
            == {"capacityReservationGroup": {"id": RESERVATION}}
        ),
        {"capacity_type": "reserved"},
    ),
    "no boot diagnostics": Need(
        {"boot_diagnostics": False},
        ("--boot-diagnostics=false",),
        lambda seen: (
            seen.vm["properties"]["diagnosticsProfile"] == {"bootDiagnostics": {"enabled": False}}
        ),
    ),
}


def _ssh(seen: Seen) -> Json:
    [key] = seen.vm["properties"]["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"]
    found: Json = key
    return found


def site_of(folder: Path, *flags: str, offerings: list[Json] | None = None, **more: Any) -> Site:
    """A furnished Site; its files lie in `folder`."""
    (folder / "id.pub").write_text(f"{KEY}\n")
    (folder / "data.bin").write_bytes(BINARY)
    if offerings is not None:
        (folder / "offerings.json").write_text(json.dumps(offerings))
        flags = (*flags, f"--offerings={folder}/offerings.json")
    site = Site(folder, *(flag.format(folder=folder) for flag in flags), **more)
    furnish(site.arm)
    return site


async def made(site: Site) -> dict[str, Seen]:
    """Make one machine of each place, and look at all of them, by zone."""
    chosen = {machine.zone: machine.id for machine in (await site.machines()).values()}
    await asyncio.gather(*(site.idle(machine) for machine in chosen.values()))
    return {zone: look(site, machine) for zone, machine in chosen.items()}


def assert_true(site: Site, need: Need) -> None:
    """As the Site does; but no recording has an ephemeral disk, which is no resource."""
    apart = "osDisk.managedDisk.id: missing" if "ephemeral_os_disk" in need.keys else "nothing"
    untrue = [fault for fault in Truth().hold(site.arm.exchanges) if apart not in fault]
    assert not untrue, untrue


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
async def test_a_flag_is_how_all_machines_are_made(tmp_path, need):
    entries = [ENTRY | need.entry]
    async with site_of(tmp_path, *need.flags, offerings=entries, true=False) as site:
        [seen] = (await made(site)).values()
        assert need.holds(seen), seen
    assert_true(site, need)


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
async def test_an_offering_says_so_for_its_own_machines_only(tmp_path, need):
    plain = ENTRY | need.entry
    if need.entry.get("azure_zone") == "none":
        plain = {key: value for key, value in plain.items() if key != "azure_zone"}
    own = ENTRY | need.entry | {"zone": "eastus-2"} | need.keys
    async with site_of(tmp_path, offerings=[plain, own], true=False) as site:
        seen = await made(site)
        assert need.holds(seen["eastus-2"]), seen["eastus-2"]
        assert not need.holds(seen["eastus-1"]), seen["eastus-1"]
    assert_true(site, need)


async def test_an_offering_takes_back_what_flags_say(tmp_path):
    flags = [
        *(f"--nsg-id={NSG}", f"--asg-ids={ASGS[0]}", f"--lb-backend-pool-ids={POOL}"),
        *("--public-ip", "--ip-forwarding", "--base-user-data={folder}/data.bin"),
        *(f"--identity-ids={IDENTITIES[0]}", "--tags=Team=a,other=b"),
        "--ssh-public-key={folder}/id.pub",
    ]
    keys: Json = {"nsg_id": "", "asg_ids": [], "lb_backend_pool_ids": [], "public_ip": False}
    keys |= {"ip_forwarding": False, "base_user_data": "", "identity_ids": [], "ssh_public_key": ""}
    keys |= {"tags": {"team": "mine"}}
    async with site_of(tmp_path, *flags, offerings=[ENTRY | keys]) as site:
        [seen] = (await made(site)).values()
        assert "networkSecurityGroup" not in seen.nic["properties"]
        assert "applicationSecurityGroups" not in seen.primary
        assert "loadBalancerBackendAddressPools" not in seen.primary
        assert seen.address is None
        assert not seen.nic["properties"]["enableIPForwarding"]
        assert "customData" not in seen.properties["osProfile"]
        assert "identity" not in seen.sent
        assert _ssh(seen)["keyData"] != KEY
        tags = {k: v for k, v in seen.vm["tags"].items() if not k.startswith("bigfleet-")}
        assert tags == {"team": "mine", "other": "b"}


async def test_what_nobody_asked_for_is_safe_and_said_to_azure(tmp_path):
    """No address, no identity, security type and diagnostics named, parts that go with the VM."""
    async with site_of(tmp_path) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        seen = look(site, machine)
        assert seen.sent["zones"] == ["1"]
        assert seen.security == {"securityType": "Standard"}
        assert seen.properties["diagnosticsProfile"] == {"bootDiagnostics": {"enabled": True}}
        assert seen.disk["deleteOption"] == "Delete"
        [nic] = seen.properties["networkProfile"]["networkInterfaceConfigurations"]
        assert nic["properties"]["deleteOption"] == "Delete"
        assert seen.address is None
        assert "identity" not in seen.sent
        assert seen.properties["osProfile"]["computerName"] == machine
        assert "customData" not in seen.properties["osProfile"]
        assert seen.image["version"] == "latest"


async def test_without_a_key_each_machine_has_a_throw_away_one(tmp_path):
    """Azure makes no Linux VM without one, and Talos ignores it."""
    async with site_of(tmp_path) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        key = load_ssh_public_key(_ssh(look(site, machine))["keyData"].encode())
        assert isinstance(key, RSAPublicKey)
        assert key.key_size >= 2048


async def test_user_data_of_an_offering_is_read_anew_for_each_machine(tmp_path):
    """Azure never gives customData back: the file is the one source."""
    async with site_of(tmp_path, offerings=[ENTRY | {"base_user_data": "data.bin"}]) as site:
        first, second = await site.ids(2)
        await site.idle(first)
        (tmp_path / "data.bin").write_bytes(b"machine: {}\n")
        await site.idle(second)
        assert site.arm.vm(first).custom_bytes == BINARY
        assert site.arm.vm(second).custom_bytes == b"machine: {}\n"
        assert BINARY not in site.state.read_bytes()


async def test_the_longest_user_data_arrives_whole(tmp_path):
    (tmp_path / "long").write_bytes(b"\xff" * 65_535)
    async with site_of(tmp_path, "--base-user-data={folder}/long") as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        assert site.arm.vm(machine).custom_bytes == b"\xff" * 65_535


@pytest.mark.parametrize(
    ("size", "disk", "fast"),
    [
        ("Standard_D4ds_v5", "Premium_LRS", True),
        ("Standard_E4d_v5", "StandardSSD_LRS", True),
        ("Standard_B1s", "Premium_LRS", False),
    ],
)
async def test_auto_takes_what_the_size_can(tmp_path, size, disk, fast):
    async with site_of(tmp_path, offerings=[ENTRY | {"vm_size": size}]) as site:
        [seen] = (await made(site)).values()
        assert seen.disk["managedDisk"]["storageAccountType"] == disk
        assert seen.nic["properties"]["enableAcceleratedNetworking"] is fast


async def test_a_size_with_nothing_but_nvme_gets_that_controller(tmp_path):
    async with site_of(tmp_path, offerings=[ENTRY | {"vm_size": "Standard_D4s_v6"}]) as site:
        [seen] = (await made(site)).values()
        assert seen.properties["storageProfile"]["diskControllerType"] == "NVMe"


async def test_an_ephemeral_disk_that_does_not_fit_is_managed_with_auto(tmp_path):
    own = {"ephemeral_os_disk": "auto", "os_disk_gib": 2000}
    async with site_of(tmp_path, offerings=[ENTRY | own]) as site:
        [seen] = (await made(site)).values()
        assert "diffDiskSettings" not in seen.disk
        assert seen.disk["managedDisk"]["storageAccountType"] == "Premium_LRS"


@pytest.mark.parametrize(
    ("zone", "own", "sent"),
    [
        ("eastus-2", {}, ["2"]),
        ("eastus-1", {"azure_zone": "3"}, ["3"]),
        ("rack-seven", {"azure_zone": 1}, ["1"]),
        ("azure", {"azure_zone": "none"}, None),
    ],
)
async def test_a_machine_is_where_its_zone_says_or_where_azure_zone_does(tmp_path, zone, own, sent):
    async with site_of(tmp_path, offerings=[ENTRY | {"zone": zone} | own]) as site:
        seen = (await made(site))[zone]
        assert seen.sent.get("zones") == sent


async def test_an_address_carries_the_tags_and_goes_with_its_machine(tmp_path):
    async with site_of(tmp_path, "--public-ip", "--tags=a/b=c", keep=()) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        address = look(site, machine).address
        assert address is not None
        assert address.tags["a_b"] == "c"
        assert address.tags["bigfleet-machine-id"] == machine
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        assert not site.arm.ledger.alive(PUBLIC_IP)
        assert not site.arm.ledger.alive(NIC)


async def test_spot_is_deleted_at_eviction_and_paid_up_to_the_usual_price(tmp_path):
    async with site_of(tmp_path) as site:
        [machine] = await site.ids(1, "spot")
        await site.idle(machine)
        sent = look(site, machine).properties
        assert (sent["priority"], sent["evictionPolicy"]) == ("Spot", "Delete")
        assert sent["billingProfile"] == {"maxPrice": -1}


async def test_a_vm_of_another_security_type_than_asked_for_is_not_taken(tmp_path):
    """Some subscriptions turn TrustedLaunch into Standard without a word."""
    async with site_of(tmp_path, "--security-type=TrustedLaunch") as site:
        [machine] = await site.ids(1)
        site.arm.quirks.security_type = "Standard"
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "has security type Standard, and TrustedLaunch was asked for" in failed.last_error


# The guides, each as a whole


async def test_cozystack_a_talos_worker_joins_from_its_user_data(tmp_path):
    """Talos has no guest agent: no extension may be sent, then or ever."""
    config = b"machine:\n  nodeAnnotations:\n    kilo.squat.ai/location: azure\n"
    (tmp_path / "azure.yaml").write_bytes(config)
    (tmp_path / "kube").mkdir()
    flags = [
        *("--bootstrap-method=none", "--readiness=kubernetes", "--drain-method=kubernetes"),
        *("--kubeconfig-dir={folder}/kube", "--cluster-id=cozystack"),
        *(f"--image={MANAGED}", f"--subnet-id={SUBNET}", "--security-type=Standard"),
        *("--public-ip", "--ip-forwarding", "--admin-username=talos"),
        "--base-user-data={folder}/azure.yaml",
    ]
    entry = ENTRY | {"vm_size": "Standard_D2s_v3", "zone": "azure", "azure_zone": "none"}
    async with site_of(tmp_path, *flags, offerings=[entry]) as site:
        [seen] = (await made(site)).values()
        os_profile = seen.properties["osProfile"]
        assert base64.b64decode(os_profile["customData"]) == config
        assert os_profile["allowExtensionOperations"] is False
        assert os_profile["linuxConfiguration"]["provisionVMAgent"] is False
        assert os_profile["adminUsername"] == "talos"
        assert seen.image == {"id": MANAGED}
        assert seen.address is not None
        assert seen.nic["properties"]["enableIPForwarding"] is True
        assert "zones" not in seen.sent
        await site.configure(seen.guest.name, "cozystack")
        await site.passes(120)
        assert site.arm.vm(seen.guest.name).tags["bigfleet-cluster"] == "cozystack"
        assert not [call for call in site.arm.ledger.calls if call.route.startswith("extension")]


async def test_butler_a_high_availability_worker(tmp_path):
    """Size of generation 2, gallery image, availability set, pool, security group, address."""
    entry = ENTRY | {
        "vm_size": "Standard_DC8s_v3",
        "azure_zone": "none",
        "count": 5,
        "image": VERSION,
        "os_disk_gib": 100,
        "availability_set_id": SET,
        "nsg_id": NSG,
        "lb_backend_pool_ids": [POOL],
        "public_ip": True,
        "tags": {"butler.butlerlabs.dev/managed-by": "butler"},
    }
    async with site_of(tmp_path, offerings=[entry], keep=None) as site:
        machines = await site.ids(5)
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        for seen in (look(site, machine) for machine in machines):
            assert seen.vm["properties"]["availabilitySet"] == {"id": SET}
            assert seen.primary["loadBalancerBackendAddressPools"] == [{"id": POOL}]
            assert seen.nic["properties"]["networkSecurityGroup"] == {"id": NSG}
            assert seen.address is not None
            assert seen.vm["tags"]["butler.butlerlabs.dev_managed-by"] == "butler"
        assert len(site.arm.ledger.alive(PUBLIC_IP)) == 5


async def test_bigfleets_own_page_a_region_with_the_flags_that_it_names(tmp_path):
    flags = [
        *("--provider=azure-eastus", "--location=East US", f"--subnet-id={SUBNET}"),
        *("--image=Canonical:ubuntu-24_04-lts:server:latest", "--admin-username=bigfleet"),
        *("--ssh-public-key={folder}/id.pub", "--base-user-data={folder}/data.bin"),
        *("--bootstrap-hook=/opt/bigfleet/join", "--reconcile-interval=2m"),
    ]
    async with site_of(tmp_path, *flags) as site:
        [machine] = await site.ids(1)
        found = await site.configured(machine)
        assert found.host.provider == "azure-eastus"
        seen = look(site, machine)
        assert seen.sent["location"] == "eastus"
        assert seen.vm["tags"]["bigfleet-owner"] == "azure-eastus/eastus"
        [run] = site.arm.ledger.scripts
        assert "hook=/opt/bigfleet/join\n" in run.script


# CAPZ: what a failed machine says of its cause


class Broken(Guest):
    """A guest whose hook fails as cloud-init does."""

    def run(self, vm: Vm, script: str) -> ScriptResult:
        return ScriptResult(
            exit_code=22,
            stdout="fetching kubeadm",
            stderr="curl: (22) The requested URL returned error: 404\nkubeadm join: not run",
        )


async def test_a_failed_bootstrap_names_the_cause_in_the_guest(tmp_path):
    """Never only `VMExtensionProvisioningError`, which is a symptom."""
    async with site_of(tmp_path, guest=Broken()) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        await site.configure(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "/opt/bigfleet/bootstrap failed with exit 22" in failed.last_error
        assert "The requested URL returned error: 404 | kubeadm join: not run" in failed.last_error
        assert failed.cluster == "blue"


async def test_a_silent_agent_is_named_with_what_to_do(tmp_path):
    traits = ImageTraits(agent=False)
    flags = (f"--image={rid('Microsoft.Compute/images', 'mute')}", "--configure-timeout=45m")
    site = site_of(tmp_path, *flags, speed=1000)
    site.arm.cloud.images.add_managed(GROUP, "mute", traits)
    async with site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        await site.configure(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "no guest agent answers" in failed.last_error
        assert "--bootstrap-method none" in failed.last_error


async def test_a_guest_that_never_reports_is_named_at_the_deadline(tmp_path):
    async with site_of(tmp_path, "--create-timeout=20m") as site:
        [machine] = await site.ids(1)
        late = operation_error(
            "OSProvisioningTimedOut",
            f"OS Provisioning for VM '{machine}' did not finish in the allotted time.",
        )
        site.arm.faults.add(Fault("vm.put", times=None, operation=late))
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "OSProvisioningTimedOut" in failed.last_error
        assert "did not finish in the allotted time" in failed.last_error
        await until(lambda: not site.arm.vms())


async def test_a_machine_that_quota_kept_out_tells_limit_and_usage(tmp_path):
    async with site_of(tmp_path, "--create-timeout=30m") as site:
        first, second = await site.ids(2)
        await site.idle(first)
        site.arm.capacity.quotas["standardDSv5Family"] = 4
        await site.create(second)
        await site.shows("offerings withheld", "4 of 4 used")
        failed = await site.reaches(second, "FAILED")
        assert "create deadline exceeded" in failed.last_error
        assert "Current Limit: 4, Current Usage: 4" in failed.last_error


async def test_too_few_addresses_are_waited_out(tmp_path):
    """Butler: PublicIPCountLimitReached, 3 by default in small subscriptions."""
    async with site_of(tmp_path, "--public-ip") as site:
        first, second = await site.ids(2)
        await site.idle(first)
        site.arm.capacity.quotas["PublicIPAddresses"] = 1
        await site.create(second)
        await site.shows("offerings withheld", "PublicIPCountLimitReached")
        assert (await site.get(second)).state == pb.MACHINE_STATE_CREATING
        site.arm.capacity.quotas["PublicIPAddresses"] = 5
        await site.reaches(second, "IDLE")


async def test_a_policy_that_forbids_a_vm_is_told_at_once(tmp_path):
    async with site_of(tmp_path) as site:
        [machine] = await site.ids(1)
        refused = error(403, "RequestDisallowedByPolicy", "Resource was disallowed by policy.")
        site.arm.faults.add(Fault("vm.put", answer=refused))
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "RequestDisallowedByPolicy" in failed.last_error
