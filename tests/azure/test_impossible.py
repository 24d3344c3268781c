"""What cannot be had is found before any VM is asked for, through the whole daemon.

Impossible offerings are withheld and named, never fail a machine and never send a PUT; quota that
is used up is seen in the usages; settings that Azure does not agree with end the start, all at
once.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.daemon.app import Daemon, StartError
from bigfleet_azure.daemon.settings import SettingsError, resolve
from tests.azure.test_guides import ENTRY, GALLERY, MANAGED, SET, Json, rid, site_of
from tests.support.arm.double import ArmDouble
from tests.support.arm.images import PlatformImage
from tests.support.azure import Site, azure_flags, environment

pytestmark = pytest.mark.slow

FAST = 3000.0
"""Azure seconds in a real one, where a test waits for surveys or for sizes to be read anew."""

SURVEYS = "bigfleet_azure_capacity_surveys_total"

BUILT_IN = ("Standard_D4s_v5", "Standard_F8s_v2")

GOOD: Json = {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 2}


@dataclass(frozen=True)
class Case:
    """An impossible offering, and what is said about it."""

    keys: Json
    says: str
    flags: tuple[str, ...] = ()
    before: Callable[[ArmDouble], object] = field(default=lambda arm: None)


def _restrict(*zones: str) -> Callable[[ArmDouble], object]:
    return lambda arm: arm.cloud.catalogue.restrict("Standard_D4ds_v5", *zones)


CASES = {
    "generation": Case(
        {"vm_size": "Standard_D2_v2"},
        "the image is of Hyper-V generation V2, and the size boots V1",
    ),
    "generation of the gallery image": Case(
        {"vm_size": "Standard_D2_v2", "image": f"{GALLERY}/versions/latest"},
        "the image is of Hyper-V generation V2, and the size boots V1",
    ),
    "architecture": Case(
        {"vm_size": "Standard_D4ps_v5"}, "the image is for x64, and the size is Arm64"
    ),
    "zone without the size": Case(
        {"vm_size": "Standard_DC8s_v3", "zone": "eastus-2"},
        "zone 2 does not have this size; zones that do: 1",
    ),
    "size restricted in the zone": Case(
        {},
        "the subscription may not have this size in zone 1 (NotAvailableForSubscription)",
        (),
        _restrict("1"),
    ),
    "size restricted everywhere": Case(
        {},
        "the subscription may not have this size in eastus (NotAvailableForSubscription)",
        (),
        _restrict(),
    ),
    "ephemeral disk too large": Case(
        {"ephemeral_os_disk": "on", "os_disk_gib": 512},
        "an ephemeral OS disk of 512 GiB does not fit, the size has room for 150 GiB",
    ),
    "no ephemeral disks": Case(
        {"vm_size": "Standard_D8s_v5", "ephemeral_os_disk": "on"},
        "this size has no room for an ephemeral OS disk",
    ),
    "Spot on a B size": Case(
        {"vm_size": "Standard_B1s", "capacity_type": "spot"}, "this size cannot be Spot"
    ),
    "premium disk": Case(
        {"vm_size": "Standard_E4d_v5", "os_disk_type": "Premium_LRS"},
        "this size has no premium storage",
    ),
    "accelerated networking": Case(
        {"vm_size": "Standard_B1s", "accelerated_networking": "on"},
        "this size has no accelerated networking",
    ),
    "encryption at host": Case(
        {
            "vm_size": "Standard_D2_v2",
            "image": "Canonical:ubuntu-24_04-lts:server-gen1:latest",
            "encryption_at_host": True,
        },
        "this size has no encryption at host",
    ),
    "disk controller of the size": Case(
        {"disk_controller": "NVMe"}, "this size has no disk controller NVMe"
    ),
    "disk controller of the image": Case(
        {"vm_size": "Standard_D4s_v6", "image": "vendor:old:gen2:latest"},
        "the disk controller would be NVMe, and the image is marked for SCSI",
        (),
        lambda arm: arm.cloud.images.add(
            PlatformImage("vendor", "old", "gen2", controllers="SCSI")
        ),
    ),
    "trusted launch": Case(
        {"vm_size": "Standard_M8-2ms", "zone": "eastus-2", "security_type": "TrustedLaunch"},
        "this size cannot be TrustedLaunch",
    ),
    "confidential image": Case(
        {"vm_size": "Standard_D4as_v5", "security_type": "ConfidentialVM"},
        "the image is not marked for ConfidentialVM",
    ),
    "marketplace plan": Case(
        {"image": "vendor:hardened:gen2:latest"},
        "the image needs the marketplace plan vendor:hardened:gen2",
    ),
    "disk smaller than the image": Case(
        {"os_disk_gib": 16}, "an OS disk of 16 GiB is smaller than the image's"
    ),
}


async def surveyed(site: Site, times: int = 1) -> None:
    """Wait until the daemon has looked at what is short so many times more."""
    before = await site.metric(SURVEYS, outcome="success")
    async with asyncio.timeout(20):
        while await site.metric(SURVEYS, outcome="success") < before + times:
            await site.passes(30)


async def offered(site: Site) -> list[tuple[str, str]]:
    """Size and zone of the machines in List."""
    found = {(each.instance_type, each.zone) for each in (await site.machines()).values()}
    return sorted(found)


async def offers(site: Site, *places: tuple[str, str], within: float = 20) -> None:
    """Wait until List has these sizes in these zones, and nothing else."""
    async with asyncio.timeout(within):
        while await offered(site) != sorted(places):
            await site.passes(30)


async def of_size(site: Site, size: str) -> str:
    """The id of some slot of that size."""
    return next(each for each in await site.machines() if f"-{size}-" in each)


def rewrite(folder: Path, *entries: Json) -> None:
    """Change the offerings file and tell the daemon, which runs in this process."""
    (folder / "offerings.json").write_text(json.dumps(entries))
    os.kill(os.getpid(), signal.SIGHUP)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What the planner logs; the daemon puts its own handlers in place of pytest's."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("bigfleet_azure.backends.azure.planning")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_impossible_offering_is_withheld_and_named_once(tmp_path, told, case):
    bad = ENTRY | case.keys
    site = site_of(tmp_path, *case.flags, offerings=[GOOD, bad], speed=FAST, keep=None)
    case.before(site.arm)
    async with site:
        where = f"{bad['vm_size']} {bad.get('capacity_type', 'on_demand')} in {bad['zone']}: "
        text = await site.shows("capacity: 1 offerings withheld", where + case.says)
        assert text.startswith("ready\n")
        await offers(site, (GOOD["vm_size"], GOOD["zone"]))
        await surveyed(site, 2)
        assert len(told) == 1, told
        assert where + case.says in told[0]
        [good] = await site.ids(1)
        await site.idle(good)
        assert {vm.size for vm in site.arm.vms()} == {GOOD["vm_size"]}
        assert site.arm.ledger.count("vm.put") == 1


async def test_a_machine_that_is_asked_for_all_the_same_waits_and_sends_nothing(tmp_path):
    """A shard may know the slot from before; the cause may go while the machine waits."""
    async with site_of(tmp_path, offerings=[ENTRY], speed=FAST) as site:
        site.arm.cloud.catalogue.restrict("Standard_D4ds_v5", "1")
        machine = await of_size(site, "d4ds")
        await offers(site)
        await site.create(machine)
        await site.passes(300)
        assert (await site.get(machine)).state == pb.MACHINE_STATE_CREATING
        assert site.arm.ledger.count("vm.put") == 0
        site.arm.cloud.catalogue.sizes["standard_d4ds_v5"].restrictions.clear()
        await site.reaches(machine, "IDLE")


async def test_an_offering_comes_back_when_its_restriction_ends(tmp_path):
    """Sizes are read anew every hour."""
    site = site_of(tmp_path, offerings=[GOOD, ENTRY], speed=FAST, keep=None)
    site.arm.cloud.catalogue.restrict("Standard_D4ds_v5", "1")
    async with site:
        await offers(site, (GOOD["vm_size"], "eastus-1"))
        site.arm.cloud.catalogue.sizes["standard_d4ds_v5"].restrictions.clear()
        await offers(site, (GOOD["vm_size"], "eastus-1"), (ENTRY["vm_size"], "eastus-1"))
        assert "withheld" not in (await site.page("/readyz?verbose"))[1]


async def test_an_offering_that_is_mended_in_the_file_comes_back(tmp_path):
    bad: Json = {"vm_size": "Standard_DC8s_v3", "zone": "eastus-2", "count": 1}
    async with site_of(tmp_path, offerings=[GOOD, bad], speed=FAST) as site:
        await offers(site, (GOOD["vm_size"], "eastus-1"))
        rewrite(tmp_path, GOOD, bad | {"zone": "eastus-1"})
        await offers(site, (GOOD["vm_size"], "eastus-1"), (bad["vm_size"], "eastus-1"))
        await surveyed(site, 2)
        assert "withheld" not in (await site.page("/readyz?verbose"))[1]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("image", "vendor:gone:gen2:latest", "image vendor:gone:gen2:latest does not exist"),
        (
            "subnet_id",
            rid("Microsoft.Network/virtualNetworks/subnets", "vnet", "gone", group="net"),
            "does not exist",
        ),
    ],
)
async def test_what_a_changed_file_names_in_vain_is_withheld_until_it_exists(
    tmp_path, key, value, says
):
    async with site_of(tmp_path, offerings=[GOOD], speed=FAST, keep=None) as site:
        await offers(site, (GOOD["vm_size"], "eastus-1"))
        rewrite(tmp_path, GOOD, ENTRY | {key: value})
        await site.shows("capacity: 1 offerings withheld", says)
        await offers(site, (GOOD["vm_size"], "eastus-1"))
        if key == "image":
            site.arm.cloud.images.add(PlatformImage("vendor", "gone", "gen2"))
        else:
            site.arm.cloud.add_subnet("net", "vnet", "gone")
        await offers(site, (GOOD["vm_size"], "eastus-1"), (ENTRY["vm_size"], "eastus-1"))
        machine = await of_size(site, "d4ds")
        await site.idle(machine)
        assert site.arm.ledger.count("vm.put") == 1


GONE: Json = {"vm_size": "Standard_F8s_v2", "zone": "eastus-1", "count": 2}
NAMED = "Standard_F8s_v2 on_demand in eastus-1: eastus has no size Standard_F8s_v2"


def unlist(site: Site) -> Callable[[], None]:
    """Take a size out of Azure's list; returns how it comes back."""
    sizes = site.arm.cloud.catalogue.sizes
    taken = sizes.pop("standard_f8s_v2")
    return lambda: sizes.update({"standard_f8s_v2": taken})


async def test_a_size_that_azure_does_not_list_withholds_its_offering_alone_at_a_first_start(
    tmp_path, told
):
    site = site_of(tmp_path, offerings=[GOOD, GONE], speed=FAST, keep=None)
    comes_back = unlist(site)
    async with site:
        assert await offered(site) == [(GOOD["vm_size"], "eastus-1")]
        assert (await site.shows("capacity: 1 offerings withheld", NAMED)).startswith("ready\n")
        await surveyed(site, 2)
        assert len(told) == 1, told
        [good] = await site.ids(1)
        await site.idle(good)
        comes_back()
        await offers(site, (GOOD["vm_size"], "eastus-1"), (GONE["vm_size"], "eastus-1"))
        await site.idle(await of_size(site, "f8s"))


async def test_a_size_that_azure_does_not_list_any_more_withholds_it_at_a_restart_and_a_reload(
    tmp_path,
):
    async with site_of(tmp_path, offerings=[GOOD, GONE], speed=FAST, keep=None) as site:
        used = await of_size(site, "f8s")
        published = await site.idle(used)
        await site.kill()
        unlist(site)
        await site.boot()
        await site.shows("capacity: 1 offerings withheld", NAMED)
        await offers(site, (GOOD["vm_size"], "eastus-1"), (GONE["vm_size"], "eastus-1"))
        assert await site.get(used) == published
        rewrite(tmp_path, GOOD | {"count": 5}, GONE)
        async with asyncio.timeout(20):
            while len(await site.ids(1)) < 1 or len(await site.machines()) != 5 + 1:
                await site.passes(30)
        assert "\noffer" not in await site.shows(NAMED)
        await site.configure(used)
        await site.reaches(used, "CONFIGURED")


async def test_a_bound_machine_of_a_size_that_azure_does_not_list_comes_back_after_a_lost_store(
    tmp_path,
):
    async with site_of(tmp_path, offerings=[GOOD, GONE], speed=FAST, keep=None) as site:
        bound = await of_size(site, "f8s")
        before = await site.configured(bound, note="kept")
        await site.wipe()
        unlist(site)
        await site.boot()
        found = await site.get(bound)
        assert (found.state, found.cluster) == (pb.MACHINE_STATE_CONFIGURED, before.cluster)
        assert found.shard_metadata == before.shard_metadata
        assert {one.id for one in (await site.machines()).values() if "-f8s-" in one.id} == {bound}
        await site.shows("capacity: 1 offerings withheld", NAMED)
        await site.drain(bound)
        await site.reaches(bound, "IDLE")
        await site.delete(bound)
        await site.reaches(bound, "SPECULATIVE")


async def test_what_is_no_size_ends_a_first_start(tmp_path):
    (tmp_path / "offerings.json").write_text(json.dumps([GOOD, GONE | {"vm_size": "m5.large"}]))
    async with ArmDouble(speed=300) as arm:
        text = await refusal(tmp_path, f"--offerings={tmp_path}/offerings.json", arm=arm)
    assert "Azure offers no VM size 'm5.large' in eastus" in text


async def test_what_is_no_longer_offered_is_not_asked_about_any_more(tmp_path, told):
    old = ENTRY | {"image": "vendor:gone:gen2:latest"}
    async with site_of(tmp_path, offerings=[GOOD], speed=FAST) as site:
        rewrite(tmp_path, GOOD, old)
        await site.shows("capacity: 1 offerings withheld", "vendor:gone")
        rewrite(tmp_path, GOOD)
        async with asyncio.timeout(20):
            while "withheld" in (await site.page("/readyz?verbose"))[1]:
                await site.passes(30)
        await surveyed(site)
        asked = len(site.arm.ledger.calls)
        await surveyed(site, 2)
        routes = {call.route for call in site.arm.ledger.calls[asked:]}
        assert routes
        assert not {route for route in routes if route.startswith("platform-image")}


async def test_what_is_no_longer_offered_is_not_named_any_more(tmp_path):
    old = ENTRY | {"vm_size": "Standard_D2_v2"}
    still = ENTRY | {"vm_size": "Standard_D4ps_v5"}
    async with site_of(tmp_path, offerings=[GOOD, old, still], speed=FAST) as site:
        await site.shows("capacity: 2 offerings withheld", old["vm_size"], still["vm_size"])
        rewrite(tmp_path, GOOD, still)
        text = await site.shows("capacity: 1 offerings withheld", still["vm_size"])
        assert old["vm_size"] not in text


async def test_an_image_that_vanished_leaves_the_other_machines_alone(tmp_path):
    """Old versions are cleaned out of galleries; a restart must not hold everything for that."""
    entries = [GOOD, ENTRY | {"image": MANAGED}]
    async with site_of(tmp_path, offerings=entries, keep=()) as site:
        machine = await of_size(site, "d4s")
        await site.idle(machine)
        await site.kill()
        image = site.arm.world.get(MANAGED)
        assert image is not None
        site.arm.world.remove(image)
        await site.boot()
        await site.shows("substrate", MANAGED)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        text = await site.shows("capacity: 1 offerings withheld", f"image {MANAGED} does not exist")
        assert "substrate" not in text


async def test_an_image_that_only_a_changed_file_names_is_held_against_its_size(tmp_path):
    async with site_of(tmp_path, offerings=[GOOD], speed=FAST) as site:
        rewrite(tmp_path, GOOD, ENTRY | {"image": "Canonical:ubuntu-24_04-lts:server-arm64:latest"})
        await site.shows("capacity: 1 offerings withheld", "the image is for Arm64")
        await offers(site, (GOOD["vm_size"], "eastus-1"))


# Quota


async def test_quota_that_is_used_up_withholds_before_any_put(tmp_path):
    site = site_of(tmp_path, speed=FAST, keep=None)
    site.arm.capacity.quotas |= {"standardDSv5Family": 3, "PublicIPAddresses": 0}
    async with site:
        await site.shows("offerings withheld", "quota standardDSv5Family: 0 of 3 used")
        assert {each.instance_type for each in (await site.machines()).values()} == {
            "Standard_F8s_v2"
        }
        _, metrics = await site.page("/metrics")
        assert 'bigfleet_azure_quota_limit{quota="standardDSv5Family"} 3.0' in metrics
        assert site.arm.ledger.count("vm.put") == 0
        site.arm.capacity.quotas["standardDSv5Family"] = 100
        await offers(
            site, *((size, zone) for size in BUILT_IN for zone in ("eastus-1", "eastus-2"))
        )


async def test_spot_has_a_quota_of_its_own(tmp_path):
    site = site_of(tmp_path, speed=FAST)
    site.arm.capacity.quotas["lowPriorityCores"] = 7
    async with site:
        await site.shows("capacity: 2 offerings withheld", "quota lowPriorityCores: 0 of 7 used")
        assert {each[0] for each in await offered(site)} == {"Standard_D4s_v5"}


async def test_the_quota_of_addresses_withholds_only_machines_with_one(tmp_path):
    """Butler: small subscriptions have 3."""
    own = ENTRY | {"public_ip": True}
    site = site_of(tmp_path, offerings=[GOOD, own], speed=FAST, keep=None)
    site.arm.capacity.quotas["PublicIPAddresses"] = 1
    async with site:
        await surveyed(site)
        [first, second] = [each for each in await site.machines() if "-d4ds-" in each]
        await site.idle(first)
        await site.shows("1 offerings withheld", "quota PublicIPAddresses: 1 of 1 used")
        listed = await site.machines()
        assert first in listed
        assert second not in listed
        [plain] = (await site.ids(1))[:1]
        await site.idle(plain)


# The subscription and the network


@pytest.mark.parametrize("namespace", ["Microsoft.Compute", "Microsoft.Network"])
async def test_an_unregistered_provider_is_a_condition_and_never_registered(tmp_path, namespace):
    site = site_of(tmp_path, speed=FAST)
    site.arm.access.unregistered.add(namespace)
    async with site:
        await site.shows("resource-providers", namespace, "az provider register --namespace")
        site.arm.access.unregistered.clear()
        await surveyed(site, 2)
        assert "resource-providers" not in (await site.page("/readyz?verbose"))[1]
        assert site.arm.ledger.count("provider.register") == 0


async def test_a_subnet_without_a_way_out_is_reported_and_used(tmp_path):
    """Reported, not refused: a peered network may be all that machines need."""
    closed = rid("Microsoft.Network/virtualNetworks/subnets", "vnet", "closed", group="net")
    entry = ENTRY | {"subnet_id": closed}
    site = site_of(tmp_path, offerings=[GOOD, entry], keep=None)
    site.arm.cloud.add_subnet("net", "vnet", "closed", way_out=False)
    async with site:
        await site.shows("subnet-egress", closed, "no NAT gateway")
        machine = await of_size(site, "d4ds")
        await site.idle(machine)


async def test_machines_with_addresses_need_no_other_way_out(tmp_path):
    closed = rid("Microsoft.Network/virtualNetworks/subnets", "vnet", "closed", group="net")
    site = site_of(tmp_path, offerings=[ENTRY | {"subnet_id": closed, "public_ip": True}])
    site.arm.cloud.add_subnet("net", "vnet", "closed", way_out=False)
    async with site:
        await surveyed(site)
        assert "subnet-egress" not in (await site.page("/readyz?verbose"))[1]


# Settings that Azure does not agree with


async def refusal(folder: Path, *flags: str, arm: ArmDouble) -> str:
    """Why a daemon with these settings does not start."""
    settings = resolve(
        [
            *azure_flags(arm),
            *("--addr=127.0.0.1:0", "--metrics-addr=", f"--state={folder}/state.db"),
            *flags,
        ],
        environment(arm),
        lambda path: Path(path).read_bytes(),
    )
    with pytest.raises(StartError) as caught:
        async with asyncio.timeout(20):
            await Daemon(settings, arm.clock).serve()
    return str(caught.value)


async def test_all_that_azure_does_not_know_is_told_at_once(tmp_path):
    async with ArmDouble(speed=300) as arm:
        subnet = arm.cloud.subnet_id.replace("fleet-net", "no-net")
        text = await refusal(
            tmp_path,
            "--resource-group=nowhere",
            f"--subnet-id={subnet}",
            "--image=Canonical:ubuntu-24_04-lts:serverr:latest",
            arm=arm,
        )
    assert "resource group nowhere does not exist in subscription" in text
    assert f"subnet {subnet} does not exist; correct --subnet-id" in text
    assert "image Canonical:ubuntu-24_04-lts:serverr:latest does not exist in eastus" in text
    assert arm.ledger.count(method="PUT") == 0


async def test_an_image_of_an_offering_that_does_not_exist_ends_the_start(tmp_path):
    entry = ENTRY | {"image": rid("Microsoft.Compute/images", "gone")}
    (tmp_path / "offerings.json").write_text(json.dumps([GOOD, entry]))
    async with ArmDouble(speed=300) as arm:
        text = await refusal(tmp_path, f"--offerings={tmp_path}/offerings.json", arm=arm)
    assert entry["image"] in text


async def test_a_location_that_azure_does_not_have_ends_the_start(tmp_path):
    async with ArmDouble(speed=300) as arm:
        text = await refusal(tmp_path, "--location=eastuss", arm=arm)
    assert "Azure knows no sizes in eastuss; correct --location" in text


async def test_a_default_image_that_no_offering_uses_need_not_exist(tmp_path):
    entry = ENTRY | {"image": "Canonical:ubuntu-24_04-lts:server-gen1:latest"}
    flags = "--image=Canonical:not-in-this-cloud:server:latest"
    async with site_of(tmp_path, flags, offerings=[entry]) as site:
        await offers(site, (ENTRY["vm_size"], "eastus-1"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--admin-username=root"], "is a name that Azure refuses"),
        (["--image=ubuntu"], "'ubuntu' is no image"),
        (["--tags=a/b=1,a_b=2"], "which are one to Azure"),
        (["--tags=azure-cost=1"], "names that begin with azure are Azure's own"),
        (["--base-user-data={folder}/huge"], "the most that Azure takes is 65535"),
        (["--spot-max-price=0"], "is no price"),
        ([f"--availability-set-id={SET}"], "a Spot machine cannot be in an availability set"),
        (["--bootstrap-method=none"], "needs --readiness=kubernetes, --drain-method=kubernetes"),
        (["--subnet-id=nodes"], "is not the id of a subnet"),
    ],
)
async def test_settings_that_cannot_be_are_refused_before_azure_is_asked(tmp_path, flags, says):
    (tmp_path / "huge").write_bytes(bytes(65_536))
    async with ArmDouble(speed=300) as arm:
        with pytest.raises(SettingsError) as caught:
            await refusal(tmp_path, *(each.format(folder=tmp_path) for each in flags), arm=arm)
    assert says in str(caught.value)
    assert not arm.exchanges


async def test_a_spot_offering_in_an_availability_set_changes_nothing(tmp_path):
    """The file is refused as a whole, and what was offered stays."""
    async with site_of(tmp_path, offerings=[GOOD]) as site:
        await offers(site, (GOOD["vm_size"], "eastus-1"))
        own = {"capacity_type": "spot", "availability_set_id": SET, "azure_zone": "none"}
        rewrite(tmp_path, ENTRY | own)
        await site.shows("offerings (", "[0]: a Spot machine cannot be in an availability set")
        assert await offered(site) == [(GOOD["vm_size"], "eastus-1")]
