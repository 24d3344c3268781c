"""VM sizes: the pinned table, the reading of names, and what is published from them."""

import math
import re

import pytest

from bigfleet_azure.backends.simulated.sizes import facts
from bigfleet_azure.backends.sizes import _PINNED, size_of
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import FORBIDDEN_LABELS, Offer
from bigfleet_azure.domain.quantity import parse
from tests.backends.harness import offer


def test_the_sizes_of_the_built_in_mix_have_their_retail_price_and_band() -> None:
    assert facts(offer(size="Standard_D4s_v5")).price_usd_per_hour == 0.192
    assert facts(offer(size="Standard_F8s_v2")).price_usd_per_hour == 0.338
    spot = facts(offer(CapacityType.SPOT, "Standard_D4s_v5"))
    assert spot.price_usd_per_hour == pytest.approx(0.2 * 0.192)
    assert spot.interruption_probability == 0.025


def test_a_reservation_costs_what_it_would_cost_on_demand() -> None:
    reserved = facts(offer(CapacityType.RESERVED))
    assert reserved.price_usd_per_hour == facts(offer()).price_usd_per_hour
    assert reserved.interruption_probability == 0


def test_an_unknown_size_is_in_the_third_eviction_band() -> None:
    assert facts(offer(CapacityType.SPOT, "Standard_E20s_v5")).interruption_probability == 0.125


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gib"),
    [
        ("Standard_D2_v3", 2, 8),
        ("Standard_D64ds_v6", 64, 256),
        ("Standard_D8ls_v5", 8, 16),
        ("Standard_E96ias_v5", 96, 768),
        ("Standard_F72s_v2", 72, 144),
        ("Standard_B8ms", 8, 32),
        ("Standard_L8s_v3", 8, 64),
        ("Standard_M128ms", 128, 3584),
        ("Standard_M64-16ms", 16, 1792),
        ("Standard_E8-4s_v5", 4, 64),
        ("Standard_DC4s_v3", 4, 16),
        ("Standard_DC16eds_cc_v5", 16, 64),
        ("standard_d4S_V5", 4, 16),
    ],
)
def test_hardware_of_other_sizes_is_read_from_the_name(
    name: str, vcpus: int, memory_gib: int
) -> None:
    size = size_of(name)
    assert (size.vcpus, size.memory_gib, size.gpus, size.arm) == (vcpus, memory_gib, 0, False)


@pytest.mark.parametrize("name", ["Standard_D4ps_v5", "Standard_E8pds_v6", "Standard_D2pls_v5"])
def test_the_letter_p_means_arm(name: str) -> None:
    assert facts(offer(size=name)).labels["kubernetes.io/arch"] == "arm64"
    assert facts(offer()).labels["kubernetes.io/arch"] == "amd64"


@pytest.mark.parametrize(
    ("name", "gpus", "label"),
    [
        ("Standard_NC4as_T4_v3", "1", "nvidia"),
        ("Standard_NC64as_T4_v3", "4", "nvidia"),
        ("Standard_NC24ads_A100_v4", "1", "nvidia-a100"),
        ("Standard_NC96ads_A100_v4", "4", "nvidia-a100"),
        ("Standard_NC40ads_H100_v5", "1", "nvidia-h100"),
        ("Standard_NC80adis_H100_v5", "2", "nvidia-h100"),
        ("Standard_NV36ads_A10_v5", "1", "nvidia"),
        ("Standard_NC24s_v3", "4", "nvidia"),
    ],
)
@pytest.mark.behaviour(50)
def test_gpus_are_published_as_a_resource_and_a_label(name: str, gpus: str, label: str) -> None:
    published = facts(offer(size=name))
    assert published.allocatable["nvidia.com/gpu"] == gpus
    assert published.labels["bigfleet.io/accelerator"] == label


@pytest.mark.parametrize("name", ["Standard_D4s_v5", "Standard_ND96isr_MI300X_v5"])
def test_sizes_without_nvidia_gpus_publish_none(name: str) -> None:
    published = facts(offer(size=name))
    assert "nvidia.com/gpu" not in published.allocatable
    assert "bigfleet.io/accelerator" not in published.labels


@pytest.mark.parametrize(
    "name",
    ["", "D4s_v5", "Standard_", "Standard_D", "Standard_D0s_v5", "Standard_X4_v1", "m5.large"],
)
def test_what_is_no_azure_size_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=repr(name)):
        size_of(name)


@pytest.mark.behaviour(50, 51)
@pytest.mark.parametrize("capacity", CapacityType)
@pytest.mark.parametrize("name", [*_PINNED, "Standard_E20s_v5", "Standard_L80s_v3"])
def test_published_facts_are_complete_and_below_the_hardware(
    name: str, capacity: CapacityType
) -> None:
    size, published = size_of(name), facts(offer(capacity, name))
    assert math.isfinite(published.price_usd_per_hour)
    assert published.price_usd_per_hour > 0
    assert (published.interruption_probability > 0) == (capacity is CapacityType.SPOT)
    assert 0 < parse(published.allocatable["cpu"]) < size.vcpus
    assert 0 < parse(published.allocatable["memory"]) < size.memory_gib * 2**30
    assert published.allocatable["pods"] == "110"
    assert parse(published.allocatable["ephemeral-storage"]) > 0
    assert not published.labels.keys() & FORBIDDEN_LABELS
    assert published.labels["kubernetes.io/os"] == "linux"
    assert published.labels["topology.kubernetes.io/region"] == "eastus"
    assert published.labels["bigfleet.io/capacity"] == capacity.tag
    priority = "spot" if capacity is CapacityType.SPOT else "regular"
    assert published.labels["kubernetes.azure.com/scalesetpriority"] == priority


def test_labels_do_not_depend_on_the_zone() -> None:
    def labels(zone: str) -> dict[str, str]:
        asked = Offer(
            vm_size="Standard_D4s_v5", zone=zone, capacity_type=CapacityType.SPOT, count=1
        )
        return dict(facts(asked).labels)

    assert labels("westeurope-1") == labels("westeurope-2")


@pytest.mark.parametrize("name", _PINNED)
def test_pinned_sizes_agree_with_the_reading_of_their_names(name: str) -> None:
    # No pinned size has version 9, so this one is read.
    read, pinned = size_of(re.sub(r"(_v\d)?$", "_v9", name, count=1)), size_of(name)
    assert (read.vcpus, read.arm, read.gpus) == (pinned.vcpus, pinned.arm, pinned.gpus)
    assert read.accelerator == pinned.accelerator
    assert read.memory_gib == pytest.approx(pinned.memory_gib, rel=0.05)
    assert read.price_usd_per_hour == pytest.approx(pinned.price_usd_per_hour, rel=0.15)
