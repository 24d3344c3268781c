"""What is published about an offering on Azure, and that it is what the simulated region says."""

import math

import pytest

from bigfleet_azure.backends.azure.images import ImageFacts
from bigfleet_azure.backends.azure.market import Market
from bigfleet_azure.backends.azure.options import MarketOptions, Reservation, VmProfile
from bigfleet_azure.backends.azure.published import facts
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.backends.simulated import sizes as simulated
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import FORBIDDEN_LABELS, Facts, Offer
from bigfleet_azure.domain.quantity import GIB, parse
from tests.azure.things import D4S, LOCATION, offer, profile, sku, spot, table


def published(
    asked: Offer,
    sizes: SizeTable,
    *,
    look: VmProfile | None = None,
    image: ImageFacts | None = None,
    reservation: Reservation | None = None,
) -> Facts:
    return facts(
        asked,
        sizes=sizes,
        profile=look or profile(os_disk_gib=128),
        image=image,
        reservation=reservation or Reservation(),
        market=Market(MarketOptions(), LOCATION),
    )


@pytest.mark.parametrize("capacity", [CapacityType.ON_DEMAND, CapacityType.SPOT])
@pytest.mark.parametrize("known", [True, False])
def test_a_common_size_is_published_as_by_the_simulated_region(
    capacity: CapacityType, known: bool
) -> None:
    sizes = table() if known else SizeTable(LOCATION)
    asked = offer(capacity=capacity)
    assert published(asked, sizes) == simulated.facts(asked)


@pytest.mark.behaviour(50, 51)
def test_every_size_of_the_list_is_published_completely_and_below_its_hardware() -> None:
    sizes = table()
    for size in sizes:
        for capacity in (CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED):
            said = published(offer(size.name, capacity), sizes)
            assert math.isfinite(said.price_usd_per_hour)
            assert said.price_usd_per_hour > 0
            assert (said.interruption_probability > 0) == (capacity is CapacityType.SPOT)
            assert 0 < parse(said.allocatable["cpu"]) < size.vcpus_available
            assert 0 < parse(said.allocatable["memory"]) < size.memory_bytes
            assert 0 < parse(said.allocatable["ephemeral-storage"]) < 128 * GIB
            assert said.allocatable["pods"] == "110"
            assert not said.labels.keys() & FORBIDDEN_LABELS
            assert said.labels["kubernetes.io/os"] == "linux"
            arm = "arm64" if size.architecture == "Arm64" else "amd64"
            assert said.labels["kubernetes.io/arch"] == arm
            assert said.labels["topology.kubernetes.io/region"] == LOCATION
            assert said.labels["bigfleet.io/capacity"] == capacity.tag


def test_the_cores_that_the_guest_sees_are_published_not_those_of_the_hardware() -> None:
    whole = published(offer(), table(sku(vCPUs="32", vCPUsAvailable="32")))
    constrained = published(offer(), table(sku(vCPUs="32", vCPUsAvailable="8")))
    assert parse(whole.allocatable["cpu"]) > 31
    assert 7 < parse(constrained.allocatable["cpu"]) < 8


@pytest.mark.behaviour(50)
@pytest.mark.parametrize(
    ("name", "family", "resource", "label"),
    [
        ("Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", "nvidia.com/gpu", "nvidia-a100"),
        ("Standard_ND96asr_v4", "Standard NDASv4_A100 Family", "nvidia.com/gpu", "nvidia-a100"),
        ("Standard_NC40ads_H100_v5", "StandardNCadsH100v5Family", "nvidia.com/gpu", "nvidia-h100"),
        ("Standard_NC16as_T4_v3", "Standard NCASv3_T4 Family", "nvidia.com/gpu", "nvidia"),
        ("Standard_NV36ads_A10_v5", "StandardNVADSA10v5Family", "nvidia.com/gpu", "nvidia"),
        ("Standard_ND96isr_MI300X_v5", "standardNDISv5MI300XFamily", "amd.com/gpu", None),
        ("Standard_NV4as_v4", "standardNVSv4Family", "amd.com/gpu", None),
        ("Standard_NG8ads_V620_v1", "StandardNGADSV620v1Family", "amd.com/gpu", None),
    ],
)
def test_gpus_are_published_under_the_name_of_their_device_plugin(
    name: str, family: str, resource: str, label: str | None
) -> None:
    entry = {**sku(GPUs="2"), "name": name, "family": family}
    said = published(offer(name), table(entry))
    gpus = {key: value for key, value in said.allocatable.items() if "gpu" in key}
    assert gpus == {resource: "2"}
    assert said.labels.get("bigfleet.io/accelerator") == label


def test_a_size_without_gpus_publishes_none() -> None:
    said = published(offer(), table(sku(GPUs=None)))
    assert not [key for key in said.allocatable if "gpu" in key]
    assert "bigfleet.io/accelerator" not in said.labels


def test_the_disk_that_nodes_get_decides_their_storage() -> None:
    def storage(disk_gib: int, image: ImageFacts | None) -> str:
        look = profile(os_disk_gib=disk_gib)
        return published(offer(), table(), look=look, image=image).allocatable["ephemeral-storage"]

    assert storage(100, ImageFacts(os_disk_gib=50)) == "85Gi"
    assert storage(0, ImageFacts(os_disk_gib=50)) == "42Gi"
    assert storage(0, ImageFacts()) == storage(0, None) == "25Gi"


def test_the_operator_decides_what_is_reserved() -> None:
    own = Reservation(
        cpu_millicores=500, memory_bytes=GIB, ephemeral_storage_bytes=8 * GIB, pods=30
    )
    said = published(offer(), table(), reservation=own)
    assert said.allocatable == {
        "cpu": "3500m",
        "memory": "15360Mi",
        "ephemeral-storage": "120Gi",
        "pods": "30",
    }
    greedy = Reservation(
        cpu_millicores=5000, memory_bytes=17 * GIB, ephemeral_storage_bytes=129 * GIB
    )
    nothing = published(offer(), table(), reservation=greedy).allocatable
    assert [nothing[key] for key in ("cpu", "memory", "ephemeral-storage")] == ["0m", "0Mi", "0Gi"]


def test_a_size_that_the_list_lacks_is_described_by_its_name_and_said_to_be_guessed() -> None:
    said = published(offer("Standard_D4s_v9"), table())
    usual = published(offer(D4S), table())
    assert said.allocatable == usual.allocatable
    assert (said.guessed, usual.guessed) == (True, False)
    strange = published(offer("Standard_PB6s"), table())
    assert strange.guessed
    assert 0 < parse(strange.allocatable["cpu"]) < 1
    assert strange.price_usd_per_hour > 0


def test_what_is_no_size_is_a_fault_and_one_before_the_list_a_matter_of_waiting() -> None:
    with pytest.raises(BackendError, match=r"m5\.large.*eastus") as missing:
        published(offer("m5.large"), table())
    assert missing.value.kind is FailureKind.INVALID
    with pytest.raises(BackendError, match="Standard_D4s_v9") as unread:
        published(offer("Standard_D4s_v9"), SizeTable(LOCATION))
    assert unread.value.kind is FailureKind.TRANSIENT


def test_a_size_whose_name_tells_nothing_is_not_cheaper_than_others_of_its_hardware() -> None:
    entry = {**sku(), "name": "Standard_PB4s"}
    strange = published(offer("Standard_PB4s"), table(entry))
    usual = published(offer(D4S), table())
    assert strange.price_usd_per_hour > usual.price_usd_per_hour
    strange_spot = published(offer("Standard_PB4s", spot), table(entry))
    assert strange_spot.interruption_probability == 0.125
    assert strange_spot.price_usd_per_hour == strange.price_usd_per_hour


def test_the_region_is_the_location_whatever_the_zone_is_called() -> None:
    said = published(offer(zone="elsewhere"), table(), look=profile(azure_zone="none"))
    assert said.labels["topology.kubernetes.io/region"] == LOCATION
