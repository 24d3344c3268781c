"""Quota that is left, read from recorded and from modelled usages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.quota import Level, levels, quota_shortages, shown
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from tests.azure.things import (
    D4S,
    LOCATION,
    RESERVATION,
    Json,
    offer,
    on_demand,
    profile,
    recording,
    reserved,
    spot,
    table,
)
from tests.support.arm.double import ArmDouble
from tests.support.arm.wire import Call

SIZES = table()
DSV5 = "standardDSv5Family"
D2S, D8S, F8S = "Standard_D2s_v5", "Standard_D8s_v5", "Standard_F8s_v2"


def row(name: str, used: int, limit: int) -> Json:
    shown_name = {"value": name, "localizedValue": f"{name} vCPUs"}
    return {"limit": limit, "currentValue": used, "unit": "Count", "name": shown_name}


def closed(
    asked: Offer,
    *,
    compute: tuple[Json, ...] = (),
    network: tuple[Json, ...] = (),
    look: VmProfile | None = None,
) -> set[str]:
    """Keys of the shortages that an offer meets."""
    found = quota_shortages(compute, network, SIZES, lambda _: look or profile())
    return {short.key for short in found if short.covers(asked)}


def recorded(name: str) -> list[Json]:
    exchange = recording(name)["exchanges"][0]
    rows: list[Json] = exchange["response"]["body"]["value"]
    return rows


@pytest.mark.parametrize(
    ("size", "left", "short"),
    [(D2S, 4, False), (D4S, 4, False), (D4S, 3, True), (D8S, 4, True), (F8S, 0, False)],
)
def test_a_family_is_short_for_sizes_with_more_cores_than_are_left(
    size: str, left: int, short: bool
) -> None:
    met = closed(offer(size), compute=(row(DSV5.upper(), 100 - left, 100),))
    assert bool(met) == short


def test_quota_of_spot_and_of_on_demand_are_two() -> None:
    no_spot, no_cores = row("lowPriorityCores", 97, 100), row("cores", 97, 100)
    no_family = row(DSV5, 97, 100)
    assert closed(offer(capacity=spot), compute=(no_spot, no_cores, no_family)) == {
        "quota lowPriorityCores"
    }
    assert closed(offer(capacity=on_demand), compute=(no_spot, no_cores, no_family)) == {
        "quota cores",
        f"quota {DSV5}",
    }


def test_reserved_capacity_needs_cores_unless_it_lies_in_a_reservation_group() -> None:
    rows = (row("cores", 100, 100), row(DSV5, 100, 100))
    assert len(closed(offer(capacity=reserved), compute=rows)) == 2
    held = profile(capacity_reservation_group_id=RESERVATION)
    assert closed(offer(capacity=reserved), compute=rows, look=held) == set()
    assert len(closed(offer(capacity=on_demand), compute=rows, look=held)) == 2


def test_the_number_of_machines_and_of_interfaces_concerns_all() -> None:
    for capacity in (on_demand, spot, reserved):
        asked = offer(F8S, capacity)
        assert closed(asked, compute=(row("virtualMachines", 10, 10),))
        assert closed(asked, network=(row("NetworkInterfaces", 10, 10),))
        assert not closed(asked, compute=(row("virtualMachines", 9, 10),))


@pytest.mark.parametrize(
    "name", ["PublicIPAddresses", "StaticPublicIPAddresses", "StandardSkuPublicIpAddresses"]
)
def test_public_addresses_are_short_only_for_machines_that_get_one(name: str) -> None:
    full = (row(name, 50, 50),)
    assert closed(offer(), network=full, look=profile(public_ip=True)) == {f"quota {name}"}
    assert not closed(offer(), network=full)
    assert not closed(offer(), network=(row(name, 49, 50),), look=profile(public_ip=True))


def test_a_limit_below_zero_is_no_limit_and_overdrawn_quota_leaves_nothing() -> None:
    assert not closed(offer(), compute=(row("cores", 5, -1),))
    assert closed(offer(), compute=(row("cores", 120, 100),))
    assert not closed(offer(), network=(row("NetworkInterfaces", -44, 10),))


def test_a_reading_is_believed_for_a_quarter_of_an_hour_and_tells_its_figures() -> None:
    (found,) = quota_shortages([row("cores", 98, 100)], [], SIZES, lambda _: profile())
    assert found.seconds == 900
    assert "98 of 100" in found.text


def test_an_offer_whose_size_is_not_known_meets_no_quota_of_cores() -> None:
    unread = SizeTable(LOCATION)
    rows = [row("cores", 100, 100), row(DSV5, 100, 100), row("lowPriorityCores", 100, 100)]
    for short in quota_shortages(rows, [], unread, lambda _: profile()):
        assert not short.covers(offer())


def test_recorded_usages_close_what_the_subscription_had_no_quota_for() -> None:
    compute = recorded("compute-usages-westus.json")
    network = recorded("network-usages-westus.json")
    found = quota_shortages(compute, network, SIZES, lambda _: profile(public_ip=True))
    met = {short.key for short in found}
    assert met >= {"quota StandardNCADSA100v4Family", "quota Standard NCASv3_T4 Family"}
    for size, short in (("Standard_NC16as_T4_v3", True), (D4S, False), ("Standard_E4d_v5", False)):
        assert any(one.covers(offer(size)) for one in found) == short
    # Spot has one quota for all families, also where a family has none.
    assert not any(one.covers(offer("Standard_NC16as_T4_v3", spot)) for one in found)


def test_a_whole_answer_of_the_double_is_read() -> None:
    cloud = ArmDouble().cloud
    call = Call("GET", "usages", "/", {"location": LOCATION}, {}, {}, None)
    compute = cloud.usages.compute(call).body["value"]
    network = cloud.usages.network(call).body["value"]
    assert len(levels(compute)) == len(compute)
    assert len(levels(network)) == len(network)
    assert quota_shortages(compute, network, SIZES, lambda _: profile(public_ip=True)) == []
    cloud.capacity.quotas[DSV5] = 6
    (found,) = quota_shortages(
        cloud.usages.compute(call).body["value"], network, SIZES, lambda _: profile()
    )
    assert found.covers(offer(D8S))
    assert not found.covers(offer(D4S))


def test_only_quotas_that_matter_to_the_offers_are_shown() -> None:
    compute = recorded("compute-usages-westus.json")
    network = recorded("network-usages-westus.json")
    found = shown(compute, network, [offer("Standard_D4s_v3"), offer(D4S)], SIZES)
    assert found["standardDSv3Family"] == Level(name="standardDSv3Family", limit=100, used=2)
    assert found["cores"].left == 95
    assert found.keys() == {
        "cores",
        "lowPriorityCores",
        "virtualMachines",
        "standardDSv3Family",
        DSV5,
        "NetworkInterfaces",
        "PublicIPAddresses",
        "StaticPublicIPAddresses",
        "StandardSkuPublicIpAddresses",
    }


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "cores",
        {},
        {"name": None, "limit": 1, "currentValue": 1},
        {"name": {"value": "cores"}, "limit": "many", "currentValue": 1},
        {"name": {"value": "cores"}, "limit": 1, "currentValue": None},
        {"name": {"value": "cores"}, "limit": float("inf"), "currentValue": 1},
    ],
)
def test_an_odd_row_closes_nothing_and_does_not_lose_the_rest(odd: Any) -> None:
    assert levels([odd, row("cores", 1, 2)]) == [Level(name="cores", limit=2, used=1)]


@given(
    used=st.integers(-50, 200),
    limit=st.integers(-1, 200),
    size=st.sampled_from([size for size in SIZES if size.family == DSV5]),
    capacity=st.sampled_from([on_demand, spot, reserved]),
)
def test_an_offer_is_closed_exactly_when_it_needs_more_than_is_left(
    used: int, limit: int, size: Any, capacity: CapacityType
) -> None:
    met = closed(offer(size.name, capacity), compute=(row(DSV5, used, limit),))
    needs = 0 if capacity is spot else size.vcpus
    assert bool(met) == (limit >= 0 and needs > max(0, limit - max(0, used)))
