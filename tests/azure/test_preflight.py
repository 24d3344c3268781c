"""Impossible offerings are found before any PUT, and possible ones come to a PUT that is taken.

The double's own checks of a VM's body are the judge of both.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from bigfleet_azure.backends.azure.fitting import resolve, zone_of
from bigfleet_azure.backends.azure.images import ImageFacts, image_of
from bigfleet_azure.backends.azure.options import Choice, VmProfile
from bigfleet_azure.backends.azure.preflight import faults
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.backends.azure.vm import vm_body
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from tests.azure.things import (
    D4S,
    LOCATION,
    RESERVATION,
    SET,
    offer,
    on_demand,
    profile,
    recording,
    reserved,
    sku,
    spot,
    table,
)
from tests.support.arm import rules
from tests.support.arm.cloud import Cloud
from tests.support.arm.double import ArmDouble
from tests.support.arm.wire import Call, Refusal

UBUNTU = ImageFacts(
    generation="V2",
    architecture="x64",
    controllers=frozenset({"SCSI", "NVMe"}),
    security=frozenset({"trustedlaunchsupported"}),
    accelerated_networking=True,
    os_disk_gib=30,
)
IMAGES = ("server", "server-gen1", "server-arm64")


def only_fault(
    asked: Offer,
    look: VmProfile | None = None,
    sizes: SizeTable | None = None,
    image: ImageFacts | None = UBUNTU,
) -> str:
    """The one fault of an offering."""
    found = faults(asked, look or profile(), sizes or table(), image)
    assert len(found) == 1, found
    assert found[0].startswith(f"{asked.vm_size} {asked.capacity_type.tag} in {asked.zone}: ")
    return found[0]


def none(asked: Offer, look: VmProfile | None = None, image: ImageFacts | None = UBUNTU) -> bool:
    return faults(asked, look or profile(), table(), image) == []


# Against the double's judgement


def _looks() -> Iterator[dict[str, Any]]:
    yield {}
    yield {"os_disk_type": "Premium_LRS"}
    yield {"os_disk_type": "Standard_LRS", "os_disk_gib": 64}
    yield {"os_disk_gib": 16}
    yield {"accelerated_networking": Choice.ON}
    yield {"accelerated_networking": Choice.OFF, "azure_zone": "none"}
    yield {"ephemeral_os_disk": Choice.ON}
    yield {"ephemeral_os_disk": Choice.ON, "os_disk_gib": 512}
    yield {"ephemeral_os_disk": Choice.ON, "os_disk_gib": 2048}
    yield {"ephemeral_os_disk": Choice.AUTO, "os_disk_gib": 100}
    yield {"ephemeral_os_disk": Choice.AUTO, "os_disk_type": "Premium_LRS"}
    yield {"disk_controller": "SCSI"}
    yield {"disk_controller": "NVMe", "azure_zone": "3"}
    yield {"availability_set_id": SET}
    yield {"availability_set_id": SET, "azure_zone": "none"}


def _image(cloud: Cloud, name: str) -> ImageFacts:
    names = {"publisherName": "Canonical", "offer": "ubuntu-24_04-lts", "skus": name}
    call = Call("GET", "platform-image.list", "/", dict(names), {}, {}, None)
    version = cloud.images.list_platform(call).body[0]["name"]
    call = Call("GET", "platform-image.get", "/", {**names, "version": version}, {}, {}, None)
    return image_of(cloud.images.get_platform(call).body)


def _refusal(
    cloud: Cloud, asked: Offer, look: VmProfile, sizes: SizeTable, image: ImageFacts
) -> str:
    body = vm_body(
        name="m",
        suffix="s",
        offer=asked,
        location=LOCATION,
        profile=look,
        resolved=resolve(asked, look, sizes.get(asked.vm_size), image, LOCATION),
        tags={},
        ssh_public_key="ssh-rsa AAAA",
        extensions=True,
    )
    try:
        rules.check_vm(cloud, "m", body)
    except Refusal as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("name", IMAGES)
def test_an_offering_is_impossible_exactly_where_azure_would_refuse_its_vm(name: str) -> None:
    cloud = ArmDouble().cloud
    cloud.seed(SET, "Microsoft.Compute/availabilitySets")
    sizes, image = table(), _image(cloud, name)
    refused = taken = 0
    for size, settings, capacity in itertools.product(sizes, _looks(), (on_demand, spot)):
        look = profile(
            image=f"Canonical:ubuntu-24_04-lts:{name}:latest",
            subnet_id=cloud.subnet_id,
            **settings,
        )
        asked = offer(size.name, capacity)
        refusal = _refusal(cloud, asked, look, sizes, image)
        found = faults(asked, look, sizes, image)
        assert bool(found) == bool(refusal), (size.name, settings, capacity, found, refusal)
        refused += bool(refusal)
        taken += not refusal
    assert refused > 100
    assert taken > 30


# Size, zone and availability


def test_a_size_that_the_location_lacks_is_named() -> None:
    assert "eastus has no size Standard_D4s_v9" in only_fault(offer("Standard_D4s_v9"))


def test_while_the_list_was_not_read_no_size_is_at_fault() -> None:
    unread = SizeTable(LOCATION)
    assert faults(offer("Standard_D4s_v9", spot), profile(), unread, UBUNTU) == []
    assert faults(offer(zone="westus-1"), profile(), unread, None) != []


def test_a_size_that_is_barred_in_the_location_or_the_zone_is_named_with_the_reason() -> None:
    sizes = SizeTable("westus2")
    sizes.replace(recording("resource-skus-2020-b.json")["response"]["body"]["value"])
    wholly = only_fault(offer("Standard_PB6s", zone="westus2-1"), sizes=sizes, image=None)
    assert "may not have this size in westus2 (NotAvailableForSubscription)" in wholly
    barred = offer("Standard_M208ms_v2", zone="westus2-3")
    partly = only_fault(barred, sizes=sizes, image=None)
    assert "in zone 3 (NotAvailableForSubscription); zones where it may: 1, 2" in partly
    other = offer("Standard_M208ms_v2", zone="westus2-2")
    assert faults(other, profile(), sizes, None) == []
    assert faults(barred, profile(azure_zone="none"), sizes, None) == []


def test_a_zone_that_does_not_have_the_size_is_named_with_those_that_do() -> None:
    fault = only_fault(offer("Standard_D2as_v6", zone="eastus-1"))
    assert "zone 1 does not have this size; zones that do: 2, 3" in fault
    assert none(offer("Standard_D2as_v6", zone="eastus-2"))
    assert none(offer("Standard_D2as_v6", zone="eastus-1"), profile(azure_zone="3"))


@pytest.mark.parametrize(
    ("zone", "override", "number"),
    [
        ("eastus-1", "", "1"),
        ("EastUS-3", "", "3"),
        ("eastus-1", "2", "2"),
        ("eastus-1", "none", None),
        ("rack", "1", "1"),
    ],
)
def test_the_zone_comes_from_its_name_or_from_the_override(
    zone: str, override: str, number: str | None
) -> None:
    assert zone_of(offer(zone=zone), profile(azure_zone=override), LOCATION) == number


@pytest.mark.parametrize(
    "zone", ["westus-1", "eastus", "eastus-0", "eastus-4", "eastus2-1", "rack"]
)
def test_a_zone_foreign_to_the_location_is_a_fault_that_names_the_override(zone: str) -> None:
    fault = only_fault(offer(zone=zone))
    assert repr(zone) in fault
    assert "azure_zone" in fault


def test_an_availability_set_excludes_zones_and_spot() -> None:
    assert "set azure_zone to none" in only_fault(offer(), profile(availability_set_id=SET))
    regional = profile(availability_set_id=SET, azure_zone="none")
    assert none(offer(), regional)
    assert "C12" in only_fault(offer(capacity=spot), regional)


def test_reserved_capacity_is_possible_with_and_without_a_reservation_group() -> None:
    assert none(offer(capacity=reserved))
    assert none(offer(capacity=reserved), profile(capacity_reservation_group_id=RESERVATION))


@pytest.mark.parametrize(
    ("settings", "capacity", "size", "words"),
    [
        ({}, spot, "Standard_B1s", "cannot be Spot"),
        ({"os_disk_type": "Premium_ZRS"}, on_demand, "Standard_D2_v5", "not Premium_ZRS"),
        ({"accelerated_networking": Choice.ON}, on_demand, "Standard_B1s", "accelerated"),
        ({"encryption_at_host": True}, on_demand, "Standard_D2_v2", "encryption at host"),
        ({"disk_controller": "NVMe"}, on_demand, D4S, "no disk controller NVMe"),
    ],
)
def test_what_the_size_cannot_do_is_named(
    settings: dict[str, Any], capacity: CapacityType, size: str, words: str
) -> None:
    fault = only_fault(offer(size, capacity), profile(**settings), image=None)
    assert words in fault


# Image


@pytest.mark.parametrize(
    ("image", "settings", "words"),
    [
        (ImageFacts(linux=False), {}, "Windows"),
        (ImageFacts(generalized=False), {}, "specialized"),
        (ImageFacts(plan="a:b:c"), {}, "marketplace plan a:b:c"),
        (ImageFacts(plan="a:b:c"), {"plan": "a:b:d"}, "marketplace plan a:b:c"),
        (ImageFacts(os_disk_gib=30), {"os_disk_gib": 20}, "30 GiB or more"),
        (ImageFacts(architecture="Arm64"), {}, "use an image for x64"),
        (
            ImageFacts(accelerated_networking=False),
            {"accelerated_networking": Choice.ON},
            "marked as without accelerated networking",
        ),
    ],
)
def test_an_image_that_no_vm_can_be_made_from_is_named(
    image: ImageFacts, settings: dict[str, Any], words: str
) -> None:
    assert words in only_fault(offer(), profile(**settings), image=image)


def test_the_plan_of_an_image_is_compared_without_case() -> None:
    assert none(offer(), profile(plan="A:b:C"), ImageFacts(plan="a:B:c"))


def test_an_image_of_which_nothing_is_known_is_never_a_fault() -> None:
    for size in table():
        zone = f"{LOCATION}-{min(size.zones)}"
        assert none(offer(size.name, zone=zone), image=None)
        assert none(offer(size.name, zone=zone), image=ImageFacts())


def test_generations_are_named_on_both_sides() -> None:
    fault = only_fault(offer("Standard_D2_v2"))
    assert "generation V2, and the size boots V1" in fault


def test_an_image_for_scsi_only_does_not_boot_on_a_size_with_nvme_only() -> None:
    scsi = ImageFacts(generation="V2", controllers=frozenset({"SCSI"}))
    assert "would be NVMe" in only_fault(offer("Standard_D4s_v6"), image=scsi)
    assert none(offer(D4S), image=scsi)


# Security


@pytest.mark.parametrize(
    ("size", "image", "words"),
    [
        ("Standard_D2_v2", None, "cannot be TrustedLaunch"),
        ("Standard_D16plds_v5", None, "cannot be TrustedLaunch"),
        (D4S, ImageFacts(generation="V1"), "generation V2"),
        (D4S, ImageFacts(security=frozenset()), "not marked for TrustedLaunch"),
        (D4S, ImageFacts(security=frozenset({"confidentialvm"})), "not marked for TrustedLaunch"),
    ],
)
def test_trusted_launch_needs_size_generation_and_mark(
    size: str, image: ImageFacts | None, words: str
) -> None:
    look = profile(security_type="TrustedLaunch")
    assert words in only_fault(offer(size), look, image=image)


@pytest.mark.parametrize("mark", ["trustedlaunchsupported", "trustedlaunch", None])
def test_trusted_launch_is_possible_where_all_is_given_or_nothing_said(mark: str | None) -> None:
    image = ImageFacts(security=None if mark is None else frozenset({mark}))
    assert none(offer(), profile(security_type="TrustedLaunch"), image)


def test_a_confidential_vm_needs_a_size_and_an_image_made_for_it() -> None:
    look = profile(security_type="ConfidentialVM")
    assert "cannot be ConfidentialVM" in only_fault(offer(), look, image=None)
    able = table(sku(ConfidentialComputingType="SNP"))
    marked = ImageFacts(
        generation="V2", security=frozenset({"trustedlaunchandconfidentialvmsupported"})
    )
    assert faults(offer(), look, able, marked) == []
    assert "not marked for ConfidentialVM" in only_fault(offer(), look, able, UBUNTU)


# What the settings come to


def resolved(size: str = D4S, image: ImageFacts | None = UBUNTU, **settings: Any) -> Any:
    return resolve(offer(size), profile(**settings), table().get(size), image, LOCATION)


def test_premium_storage_is_chosen_only_where_the_size_has_it() -> None:
    assert resolved("Standard_D2s_v5").os_disk_type == "Premium_LRS"
    assert resolved("Standard_D2_v5").os_disk_type == "StandardSSD_LRS"
    assert resolved("Standard_D2s_v5", os_disk_type="Standard_LRS").os_disk_type == "Standard_LRS"


def test_an_ephemeral_disk_goes_to_the_first_place_with_room() -> None:
    size = "Standard_D4ds_v5"
    ephemeral = table().get(size)
    assert ephemeral is not None
    cache, resource = (ephemeral.ephemeral[k] // 2**30 for k in ("CacheDisk", "ResourceDisk"))
    assert cache < resource
    assert (
        resolved(size, ephemeral_os_disk=Choice.AUTO, os_disk_gib=cache).ephemeral_placement
        == "CacheDisk"
    )
    assert (
        resolved(size, ephemeral_os_disk=Choice.AUTO, os_disk_gib=cache + 1).ephemeral_placement
        == "ResourceDisk"
    )
    too_large = resolved(size, ephemeral_os_disk=Choice.AUTO, os_disk_gib=resource + 1)
    assert (too_large.ephemeral_placement, too_large.os_disk_type) == (None, "Premium_LRS")
    assert resolved(size, ephemeral_os_disk=Choice.AUTO).ephemeral_placement == "CacheDisk"
    assert resolved(size, ephemeral_os_disk=Choice.AUTO).os_disk_type == "Standard_LRS"
    assert (
        resolved("Standard_D128ds_v6", ephemeral_os_disk=Choice.AUTO).ephemeral_placement
        == "NvmeDisk"
    )
    assert resolved(D4S, ephemeral_os_disk=Choice.AUTO).ephemeral_placement is None
    assert resolved(size).ephemeral_placement is None


def test_an_image_of_unknown_size_gets_an_ephemeral_disk_only_on_demand() -> None:
    size = "Standard_D4ds_v5"
    assert resolved(size, None, ephemeral_os_disk=Choice.AUTO).ephemeral_placement is None
    on = resolved(size, None, ephemeral_os_disk=Choice.ON)
    assert on.ephemeral_placement == "ResourceDisk"


def test_an_ephemeral_disk_that_must_be_never_becomes_a_managed_one() -> None:
    assert resolved(D4S, ephemeral_os_disk=Choice.ON).ephemeral_placement == "CacheDisk"
    unknown = resolve(offer(), profile(ephemeral_os_disk=Choice.ON), None, None, LOCATION)
    assert unknown.ephemeral_placement == "CacheDisk"


def test_an_ephemeral_disk_is_not_chosen_for_spot_that_is_deallocated() -> None:
    look = profile(ephemeral_os_disk=Choice.AUTO, eviction_policy="Deallocate")
    size = table().get("Standard_D4ds_v5")
    for capacity, placement in ((spot, None), (on_demand, "CacheDisk")):
        asked = offer("Standard_D4ds_v5", capacity)
        assert resolve(asked, look, size, UBUNTU, LOCATION).ephemeral_placement == placement


def test_an_ephemeral_disk_without_room_is_a_fault_that_tells_the_room() -> None:
    look = profile(ephemeral_os_disk=Choice.ON, os_disk_gib=500)
    assert "of 500 GiB does not fit, the size has room for 150 GiB" in only_fault(
        offer("Standard_D4ds_v5"), look
    )
    assert "no room for an ephemeral OS disk" in only_fault(offer(), look)


def test_accelerated_networking_follows_size_and_image() -> None:
    assert resolved().accelerated_networking
    assert not resolved("Standard_B1s").accelerated_networking
    assert not resolved(image=ImageFacts(accelerated_networking=False)).accelerated_networking
    assert not resolved(accelerated_networking=Choice.OFF).accelerated_networking
    assert resolved("Standard_B1s", accelerated_networking=Choice.ON).accelerated_networking


def test_the_disk_controller_follows_size_and_image() -> None:
    assert resolved(D4S).disk_controller is None
    assert resolved("Standard_D4s_v6").disk_controller == "NVMe"
    assert resolved("Standard_D4s_v6", None).disk_controller == "NVMe"
    assert resolved(D4S, disk_controller="SCSI").disk_controller == "SCSI"
    both = table(sku(DiskControllerTypes="SCSI, NVMe")).get(D4S)
    for image, controller in (
        (UBUNTU, "NVMe"),
        (None, None),
        (ImageFacts(controllers=frozenset({"SCSI"})), None),
        (ImageFacts(controllers=frozenset({"SCSI", "NVMe"}), generation="V1"), None),
    ):
        chosen = resolve(offer(), profile(), both, image, LOCATION).disk_controller
        assert chosen == controller


def test_a_size_that_is_not_known_gets_what_every_size_takes() -> None:
    look = profile(ephemeral_os_disk=Choice.AUTO)
    assert resolve(offer(), look, None, None, LOCATION) == resolve(
        offer(), profile(), None, UBUNTU, LOCATION
    )
    plain = resolve(offer(), look, None, None, LOCATION)
    assert (plain.zone, plain.os_disk_type, plain.disk_controller) == ("1", "StandardSSD_LRS", None)
    assert not plain.accelerated_networking
    assert plain.security_type == "Standard"
