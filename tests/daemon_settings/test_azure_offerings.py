"""What an offering may say about how its machines are made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.azure import fitting
from bigfleet_azure.backends.azure.options import AzureOptions, Choice, VmProfile
from bigfleet_azure.backends.azure.profiles import OFFERING_KEYS, profile_of
from bigfleet_azure.backends.simulated.backend import facts
from bigfleet_azure.daemon.offering_keys import VmKeys
from bigfleet_azure.daemon.offerings_file import OfferingsError, load
from bigfleet_azure.domain.offering import Offer
from tests.daemon_settings.azure import (
    ASG,
    ENCRYPTION,
    IDENTITY,
    NSG,
    POOL,
    RESERVATION,
    SET,
    SUBNET,
    azure_of,
)
from tests.daemon_settings.test_azure_settings import ED25519, PRIVATE, public_line

PLAIN = {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 3}
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "offerings.md"

Load = Callable[..., list[Offer]]
Faults = Callable[..., list[str]]


@pytest.fixture
def offers_of(tmp_path: Path) -> Load:
    """Loads entries for the Azure backend."""

    def offers(*entries: dict[str, Any], azure: AzureOptions | None = None) -> list[Offer]:
        path = tmp_path / "offerings.json"
        path.write_text(json.dumps([PLAIN | entry for entry in entries]))
        found, warnings = load(path, facts, azure or azure_of())
        assert warnings == []
        return found

    return offers


@pytest.fixture
def faults_of(offers_of: Load, tmp_path: Path) -> Faults:
    """What is wrong with entries, without the file's name."""

    def faults(*entries: dict[str, Any], azure: AzureOptions | None = None) -> list[str]:
        with pytest.raises(OfferingsError) as caught:
            offers_of(*entries, azure=azure)
        return [fault.removeprefix(f"{tmp_path}/offerings.json: ") for fault in caught.value.faults]

    return faults


FULL: dict[str, Any] = {
    "capacity_type": "spot",
    "image": "a:b:c:1.2.3",
    "plan": "a:b:c",
    "admin_username": "talos",
    "ssh_public_key": "id.pub",
    "base_user_data": "talos.yaml",
    "os_disk_gib": 128,
    "os_disk_type": "premium_lrs",
    "ephemeral_os_disk": "AUTO",
    "security_type": "TrustedLaunch",
    "disk_controller": "nvme",
    "accelerated_networking": "off",
    "subnet_id": f"{SUBNET}-2",
    "nsg_id": NSG,
    "asg_ids": [ASG, f"{ASG}2"],
    "lb_backend_pool_ids": [POOL],
    "public_ip": True,
    "ip_forwarding": True,
    "azure_zone": 3,
    "identity_ids": [IDENTITY],
    "tags": {"example.com/team": "a", "Env": "test"},
    "spot_eviction_policy": "Deallocate",
    "spot_max_price": 1,
    "encryption_at_host": True,
    "disk_encryption_set_id": ENCRYPTION,
    "boot_diagnostics": False,
}


def test_every_setting_of_a_machine_can_be_an_offerings_own(
    offers_of: Load, tmp_path: Path
) -> None:
    (tmp_path / "id.pub").write_text(public_line(ED25519))
    (tmp_path / "talos.yaml").write_text("planted")
    azure = azure_of("--tags=env=prod,cost=1", "--base-user-data=d", files={"d": "cloud-init"})
    (offer,) = offers_of(FULL, azure=azure)
    assert profile_of(azure.profile, offer) == VmProfile(
        image="a:b:c:1.2.3",
        plan="a:b:c",
        admin_username="talos",
        ssh_public_key=public_line(ED25519),
        base_user_data=b"",
        base_user_data_file=tmp_path / "talos.yaml",
        os_disk_gib=128,
        os_disk_type="Premium_LRS",
        ephemeral_os_disk=Choice.AUTO,
        security_type="TrustedLaunch",
        disk_controller="NVMe",
        accelerated_networking=Choice.OFF,
        subnet_id=f"{SUBNET}-2",
        nsg_id=NSG,
        asg_ids=(ASG, f"{ASG}2"),
        lb_pool_ids=(POOL,),
        public_ip=True,
        ip_forwarding=True,
        azure_zone="3",
        identity_ids=(IDENTITY,),
        tags={"cost": "1", "example.com_team": "a", "Env": "test"},
        eviction_policy="Deallocate",
        max_price=1.0,
        encryption_at_host=True,
        disk_encryption_set_id=ENCRYPTION,
        boot_diagnostics=False,
    )
    others = {"availability_set_id": SET, "azure_zone": "none"}
    (offer,) = offers_of(others)
    assert profile_of(VmProfile(), offer) == VmProfile(availability_set_id=SET, azure_zone="none")
    (offer,) = offers_of(
        {"capacity_type": "reserved", "capacity_reservation_group_id": RESERVATION}
    )
    assert profile_of(VmProfile(), offer).capacity_reservation_group_id == RESERVATION


def test_what_an_offering_says_can_be_stored_as_json_and_holds_no_secret(
    offers_of: Load, tmp_path: Path
) -> None:
    (tmp_path / "id.pub").write_text(public_line(ED25519))
    (tmp_path / "talos.yaml").write_text("planted")
    (offer,) = offers_of(FULL)
    stored = json.dumps(offer.settings)
    assert json.loads(stored) == offer.settings
    assert "planted" not in stored


def test_the_keys_of_the_file_are_those_that_the_backend_reads_and_all_are_documented() -> None:
    assert set(VmKeys.model_fields) == set(OFFERING_KEYS)
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert [key for key in VmKeys.model_fields if f"`{key}`" not in text] == []


def test_absent_and_null_are_as_the_flags_say_and_empty_is_none_at_all(offers_of: Load) -> None:
    flags = (f"--nsg-id={NSG}", f"--asg-ids={ASG}", "--base-user-data=d")
    azure = azure_of(*flags, files={"d": "x"})
    absent, null, empty = offers_of(
        {"vm_size": "Standard_D2s_v5"},
        {"vm_size": "Standard_D8s_v5", "nsg_id": None, "tags": None, "public_ip": None},
        {"nsg_id": "", "asg_ids": [], "base_user_data": "", "plan": "", "ssh_public_key": ""},
        azure=azure,
    )
    assert profile_of(azure.profile, absent) == azure.profile
    assert profile_of(azure.profile, null) == azure.profile
    assert (absent.settings, null.settings) == ({}, {})
    bare = profile_of(azure.profile, empty)
    assert (bare.nsg_id, bare.asg_ids, bare.base_user_data) == ("", (), b"")


def test_offerings_that_differ_in_how_they_are_made_stay_apart(offers_of: Load) -> None:
    offers = offers_of({}, {"os_disk_gib": 64}, {"count": 4}, {"os_disk_gib": 64, "count": 5})
    assert [(offer.settings, offer.count) for offer in offers] == [
        ({}, 7),
        ({"os_disk_gib": 64}, 8),
    ]


@pytest.mark.behaviour(93)
@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("image", "ubuntu", "'ubuntu' is no image; give publisher:offer:sku:version"),
        ("image", "", "'' is no image"),
        ("plan", "x", "'x' is no marketplace plan"),
        ("admin_username", "root", "'root' is a name that Azure refuses"),
        ("os_disk_gib", 5000, "is too large; the most is 4095"),
        ("os_disk_gib", "64", "must be a whole number without quotes"),
        ("os_disk_type", "UltraSSD_LRS", "'UltraSSD_LRS' is unknown; write one of auto, Premium_"),
        ("ephemeral_os_disk", True, "must be a string in quotes"),
        ("security_type", "secure", "'secure' is unknown"),
        ("subnet_id", "", "must not be empty; remove the key"),
        ("subnet_id", NSG, "is not the id of a subnet"),
        ("asg_ids", ASG, "must be a list of strings"),
        ("asg_ids", [NSG], "the list has "),
        ("public_ip", "yes", "must be true or false, without quotes"),
        ("azure_zone", 4, "'4' is unknown; write one of 1, 2, 3, none"),
        ("azure_zone", True, "must be a string in quotes"),
        ("tags", {"a?": "b"}, "the object has the tag 'a?', which must not contain ?"),
        ("tags", {"a": 1}, "must be a string in quotes"),
        ("spot_max_price", 0, "0 is no price"),
        ("spot_max_price", "1", "must be a number without quotes"),
        ("ssh_public_key", "gone.pub", "gone.pub' cannot be read: No such file"),
        ("ssh_public_key", "private", "private' holds a private key"),
        ("base_user_data", "gone", "gone' cannot be read: No such file"),
        ("base_user_data", "big", "big' has 65536 bytes; the most that Azure takes is 65535"),
    ],
)
def test_a_bad_value_is_one_fault_with_its_path(
    faults_of: Faults, tmp_path: Path, key: str, value: Any, fault: str
) -> None:
    (tmp_path / "private").write_bytes(PRIVATE)
    (tmp_path / "big").write_bytes(b"x" * 65_536)
    (found,) = faults_of({}, {key: value, "capacity_type": "spot"})
    assert found.startswith(f"[1].{key}")
    assert fault in found


@pytest.mark.behaviour(93)
@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"zone": "westus-1"}, "zone 'westus-1' is none of eastus;"),
        ({"zone": "eastus-4"}, "zone 'eastus-4' is none of eastus;"),
        ({"availability_set_id": SET}, "a machine cannot be in zone 1 and in an availability set"),
        (
            {"availability_set_id": SET, "capacity_type": "spot", "azure_zone": "none"},
            "a Spot machine cannot be in an availability set",
        ),
        (
            {"capacity_reservation_group_id": RESERVATION},
            "capacity_reservation_group_id is for capacity_type reserved only",
        ),
        ({"spot_max_price": -1}, "spot_max_price is for capacity_type spot only"),
        ({"spot_eviction_policy": "Delete"}, "spot_eviction_policy is for capacity_type spot only"),
        (
            {
                "capacity_type": "spot",
                "ephemeral_os_disk": "on",
                "spot_eviction_policy": "Deallocate",
            },
            "an ephemeral OS disk does not survive a deallocation",
        ),
        ({"tags": {f"k{n}": "" for n in range(41)}}, "there are 41 tags"),
    ],
)
def test_values_that_are_right_alone_and_wrong_together_are_refused(
    faults_of: Faults, entry: dict[str, Any], fault: str
) -> None:
    (found,) = faults_of({}, entry)
    assert found.startswith(f"[1]: {fault}")


def test_tags_of_flags_and_offering_are_counted_together(faults_of: Faults) -> None:
    azure = azure_of(f"--tags={','.join(f'k{n}=v' for n in range(40))}")
    assert "there are 41 tags" in faults_of({"tags": {"more": "v"}}, azure=azure)[0]


def test_a_zone_of_elsewhere_is_an_offerings_own_business_once_it_says_so(offers_of: Load) -> None:
    (offer,) = offers_of({"zone": "edge-7", "azure_zone": "2"})
    assert (offer.zone, offer.settings) == ("edge-7", {"azure_zone": "2"})


def test_the_flag_gives_all_offerings_their_zone_but_those_that_say_another(
    offers_of: Load,
) -> None:
    azure = azure_of("--azure-zone=none")
    zones = [
        fitting.zone_of(offer, profile_of(azure.profile, offer), azure.location)
        for offer in offers_of({"zone": "edge-7"}, {"zone": "edge-8", "azure_zone": 2}, azure=azure)
    ]
    assert zones == [None, "2"]


def test_faults_of_all_kinds_and_entries_are_told_at_once(faults_of: Faults) -> None:
    faults = faults_of(
        {"image": "x", "colour": 1}, {"zone": "westus-1"}, {"base_user_data": "gone"}
    )
    assert [fault.split(":")[0] for fault in faults] == [
        "[0].image",
        "[0].colour",
        "[1]",
        "[2].base_user_data",
    ]


def test_the_simulated_region_ignores_them_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "offerings.json"
    own = {"tags": {"a": "b"}, "ssh_public_key": "gone.pub", "zone": "anywhere"}
    path.write_text(json.dumps([PLAIN | own, PLAIN | {"image": "a:b:c:latest"}]))
    offers, warnings = load(path, facts)
    assert [offer.settings for offer in offers] == [{}, {}]
    assert warnings == [
        f"{path}: without effect on the simulated region: image, ssh_public_key, tags"
    ]
    path.write_text(json.dumps([PLAIN | {"image": "nonsense"}]))
    with pytest.raises(OfferingsError):
        load(path, facts)
