"""The list of Resource SKUs: what is read from recorded entries, and what odd entries do."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.sizes import Size, SizeTable, read_size
from bigfleet_azure.domain.quantity import GIB, MIB
from tests.azure.things import LOCATION, Json, recording, sku, table

RECORDED = [
    "resource-skus-2017-api.json",
    "resource-skus-2020.json",
    "resource-skus-2020-b.json",
    "resource-skus-eastus-skewer.json",
    "resource-skus-southcentralus-2025.json",
    "resource-skus-westcentralus-2024.json",
]


def entries(name: str) -> list[Json]:
    """The SKU entries of a recording, wherever its form has them."""

    def walk(value: object) -> Iterator[Json]:
        if isinstance(value, dict):
            if "resourceType" in value:
                yield value
                return
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from walk(each)

    return list(walk(recording(name)))


def read(name: str, location: str) -> SizeTable:
    sizes = SizeTable(location)
    sizes.replace(entries(name))
    return sizes


def found(sizes: SizeTable, name: str) -> Size:
    size = sizes.get(name)
    assert size is not None
    return size


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_size_is_read_in_each_of_its_locations(name: str) -> None:
    machines = [one for one in entries(name) if one["resourceType"] == "virtualMachines"]
    assert machines
    for entry in machines:
        for location in entry["locations"]:
            sizes = SizeTable(location)
            sizes.replace(entries(name))
            assert sizes.known
            assert sizes.odd == 0
            size = found(sizes, entry["name"].upper())
            assert size.name == entry["name"]
            assert 0 < size.vcpus_available <= size.vcpus
            assert size.memory_bytes >= GIB // 2


def test_a_size_of_today_is_read_whole() -> None:
    size = found(
        read("resource-skus-southcentralus-2025.json", "southcentralus"), "standard_d64s_v3"
    )
    assert size == Size(
        name="Standard_D64s_v3",
        family="standardDSv3Family",
        vcpus=64,
        vcpus_available=64,
        memory_bytes=256 * GIB,
        generations=frozenset({"V1", "V2"}),
        premium_io=True,
        accelerated_networking=True,
        ephemeral={"CacheDisk": 1717986918400, "ResourceDisk": 524288 * MIB},
        spot_capable=True,
        encryption_at_host=True,
        zones=frozenset({"1", "2", "3"}),
    )


def test_arm_nvme_and_constrained_cores_are_told_from_the_entry() -> None:
    sizes = read("resource-skus-southcentralus-2025.json", "southcentralus")
    arm = found(sizes, "Standard_D16plds_v5")
    assert (arm.architecture, arm.trusted_launch) == ("Arm64", False)
    nvme = found(sizes, "Standard_D128ds_v6")
    assert nvme.controllers == {"NVMe"}
    assert nvme.generations == {"V2"}
    assert nvme.ephemeral == {"NvmeDisk": 7208960 * MIB}
    gpu = found(sizes, "Standard_NC16as_T4_v3")
    assert (gpu.gpus, gpu.family) == (1, "Standard NCASv3_T4 Family")
    constrained = found(read("resource-skus-2020-b.json", "westus2"), "Standard_M32-8ms")
    assert (constrained.vcpus, constrained.vcpus_available) == (32, 8)


def test_zones_that_are_barred_to_us_are_told_from_those_that_lack_the_size() -> None:
    sizes = read("resource-skus-2020-b.json", "westus2")
    partly = found(sizes, "Standard_M208ms_v2")
    assert partly.zones == {"1", "2"}
    assert partly.restricted_zones == {"3"}
    assert (partly.restricted, partly.reason) == (False, "NotAvailableForSubscription")
    wholly = found(sizes, "Standard_PB6s")
    assert wholly.restricted
    assert wholly.reason == "NotAvailableForSubscription"


def test_a_restriction_of_another_location_is_none_of_ours() -> None:
    elsewhere = {
        "type": "Location",
        "values": ["westus"],
        "restrictionInfo": {"locations": ["westus"]},
        "reasonCode": "NotAvailableForSubscription",
    }
    size = found(table({**sku(), "restrictions": [elsewhere]}), "Standard_D4s_v5")
    assert (size.restricted, size.reason) == (False, "")


@pytest.mark.parametrize("spelling", ["eastus", "EastUS", "East US"])
def test_the_location_is_found_in_any_spelling(spelling: str) -> None:
    entry = sku()
    entry["locations"] = [spelling]
    entry["locationInfo"][0]["location"] = spelling
    for ours in ("eastus", "East US"):
        sizes = SizeTable(ours)
        sizes.replace([entry])
        assert found(sizes, "Standard_D4s_v5").zones == {"1", "2", "3"}


@pytest.mark.parametrize("name", ["Standard_B2ms", "Standard_NC6_Promo"])
def test_sizes_that_spot_does_not_take_are_not_spot_whatever_the_list_says(name: str) -> None:
    entry = {**sku(LowPriorityCapable="True"), "name": name}
    assert not found(table(entry), name).spot_capable
    assert found(table(sku(LowPriorityCapable="True")), "Standard_D4s_v5").spot_capable


def test_an_entry_without_newer_capabilities_keeps_what_was_usual_before_them() -> None:
    size = found(
        table(
            sku(
                CpuArchitectureType=None,
                DiskControllerTypes=None,
                vCPUsAvailable=None,
                HyperVGenerations=None,
                EncryptionAtHostSupported=None,
                EphemeralOSDiskSupported="True",
                SupportedEphemeralOSDiskPlacements=None,
                CachedDiskBytes=str(100 * GIB),
                MaxResourceVolumeMB="2048",
            )
        ),
        "Standard_D4s_v5",
    )
    assert (size.architecture, size.vcpus_available) == ("x64", 4)
    assert size.controllers == {"SCSI"}
    assert not size.generations
    assert not size.encryption_at_host
    assert size.ephemeral == {"CacheDisk": 100 * GIB, "ResourceDisk": 2 * GIB}


def test_a_part_of_a_gpu_is_one_device() -> None:
    assert found(table(sku(GPUs="0.5")), "Standard_D4s_v5").gpus == 1


def test_one_odd_entry_does_not_lose_the_rest_and_is_counted() -> None:
    odd: list[object] = [
        None,
        "text",
        {**sku(), "name": None, "capabilities": None},
        sku(vCPUs="many"),
        sku(MemoryGB="nan"),
        sku(MemoryGB="inf"),
        sku(vCPUs="0"),
        {**sku(), "restrictions": ["text"]},
    ]
    sizes = SizeTable(LOCATION)
    sizes.replace([*odd, sku("Standard_B1s")])
    assert sizes.odd == len(odd)
    assert [size.name for size in sizes] == ["Standard_B1s"]


def test_a_list_without_sizes_does_not_empty_the_table() -> None:
    sizes = table(sku())
    sizes.replace([{"resourceType": "disks", "locations": [LOCATION]}, None])
    assert sizes.known
    assert sizes.get("STANDARD_d4s_V5") is not None
    sizes.replace([sku("Standard_B1s")])
    assert sizes.get("Standard_D4s_v5") is None


def test_a_table_knows_whether_it_was_read() -> None:
    assert table(sku()).known
    unread = SizeTable(LOCATION)
    unread.replace([])
    assert not unread.known


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "value", "zones", "location", "locations", "type", "values"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["name", "family", "locationInfo", "capabilities", "restrictions"]),
        anything,
    )
)
def test_whatever_an_entry_holds_it_is_read_or_counted(changed: Json) -> None:
    sizes = SizeTable(LOCATION)
    sizes.replace([{**sku(), **changed}, sku("Standard_B1s")])
    assert sizes.get("Standard_B1s") is not None
    assert len(list(sizes)) + sizes.odd == 2 or changed.get("name") == "Standard_B1s"


@given(
    cores=st.integers(1, 1000),
    shown=st.integers(1, 1000),
    memory=st.floats(0.5, 30_000),
    zones=st.sets(st.sampled_from("123")),
    barred=st.sets(st.sampled_from("123")),
)
def test_what_is_written_is_read_back(
    cores: int, shown: int, memory: float, zones: set[str], barred: set[str]
) -> None:
    entry = sku(vCPUs=str(cores), vCPUsAvailable=str(shown), MemoryGB=str(memory))
    entry["locationInfo"][0]["zones"] = sorted(zones)
    entry["restrictions"] = [
        {
            "type": "Zone",
            "values": [LOCATION],
            "restrictionInfo": {"locations": [LOCATION], "zones": sorted(barred)},
            "reasonCode": "NotAvailableForSubscription",
        }
    ]
    size = read_size(entry, LOCATION)
    assert size is not None
    assert (size.vcpus, size.vcpus_available) == (cores, min(cores, shown))
    assert size.memory_bytes == pytest.approx(memory * GIB, abs=1)
    assert size.zones == zones - barred
    assert size.restricted_zones == barred
