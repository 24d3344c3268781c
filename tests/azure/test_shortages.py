"""What a refusal closes, and what it leaves open."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.shortages import shortage
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.backends.azure.verdict import Quota, Scope
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.shortage import Shortage
from tests.azure.things import (
    D4S,
    LOCATION,
    RESERVATION,
    SUBNET,
    offer,
    on_demand,
    profile,
    reserved,
    spot,
    table,
)

SIZES = table()
D2S, D8S, F8S = "Standard_D2s_v5", "Standard_D8s_v5", "Standard_F8s_v2"
REGIONAL = f"{LOCATION}-9"
"""A published zone whose offers are made as regional VMs, by `profile_of` below."""


def profile_of(asked: Offer) -> VmProfile:
    return profile(azure_zone="none" if asked.zone == REGIONAL else "")


def short(
    scope: Scope,
    refused: Offer,
    *,
    profiles: Callable[[Offer], VmProfile] = profile_of,
    sizes: SizeTable = SIZES,
    quota: Quota | None = None,
) -> Shortage:
    found = shortage(scope, 600, refused, "SomeCode", sizes=sizes, profile_of=profiles, quota=quota)
    assert found is not None
    assert found.seconds == 600
    assert found.text.startswith("SomeCode")
    return found


REFUSED = offer(D4S, spot, f"{LOCATION}-1")
OTHERS = {
    "same": REFUSED,
    "other casing": offer(D4S.upper(), spot, f"{LOCATION}-1"),
    "on demand": offer(D4S, on_demand, f"{LOCATION}-1"),
    "other zone": offer(D4S, spot, f"{LOCATION}-2"),
    "on demand in other zone": offer(D4S, on_demand, f"{LOCATION}-2"),
    "regional": offer(D4S, spot, REGIONAL),
    "regional on demand": offer(D4S, on_demand, REGIONAL),
    "larger": offer(D8S, spot, f"{LOCATION}-1"),
    "smaller": offer(D2S, spot, f"{LOCATION}-1"),
    "other family": offer(F8S, spot, f"{LOCATION}-1"),
}


@pytest.mark.parametrize(
    ("scope", "closed"),
    [
        (
            Scope.SIZE,
            {
                "same",
                "other casing",
                "on demand",
                "other zone",
                "on demand in other zone",
                "regional",
                "regional on demand",
            },
        ),
        (Scope.SIZE_PRIORITY, {"same", "other casing", "other zone"}),
        (Scope.SIZE_ZONE, {"same", "other casing", "on demand"}),
        (Scope.SIZE_ZONE_PRIORITY, {"same", "other casing"}),
        (Scope.REGIONAL, {"same", "other casing", "on demand"}),
        (Scope.FAMILY, {"same", "other casing", "other zone", "regional", "larger"}),
        (
            Scope.REGION_SPOT,
            {"same", "other casing", "other zone", "regional", "larger", "smaller", "other family"},
        ),
    ],
)
def test_a_refusal_closes_what_needs_the_same_and_nothing_else(
    scope: Scope, closed: set[str]
) -> None:
    found = short(scope, REFUSED)
    assert {name for name, other in OTHERS.items() if found.covers(other)} == closed


@pytest.mark.parametrize(
    ("scope", "closed"),
    [
        (Scope.REGIONAL, {"regional", "regional on demand"}),
        (Scope.SIZE_ZONE, {"regional", "regional on demand"}),
        (Scope.SIZE_PRIORITY, {"regional"}),
        (Scope.SIZE_ZONE_PRIORITY, {"regional"}),
    ],
)
def test_a_region_without_room_says_nothing_about_its_zones(scope: Scope, closed: set[str]) -> None:
    found = short(scope, OTHERS["regional"])
    assert {name for name, other in OTHERS.items() if found.covers(other)} == closed


def test_the_region_s_cores_on_demand_leave_spot_open() -> None:
    found = short(Scope.REGION_ON_DEMAND, OTHERS["on demand"])
    assert found.covers(offer(F8S, on_demand, f"{LOCATION}-3"))
    assert found.covers(offer(F8S, reserved))
    assert not found.covers(REFUSED)


def test_each_number_of_cores_of_a_family_is_a_block_of_its_own() -> None:
    small, large = short(Scope.FAMILY, offer(D2S)), short(Scope.FAMILY, offer(D8S))
    assert small.key != large.key
    assert small.key == short(Scope.FAMILY, offer(D2S, zone=f"{LOCATION}-2")).key
    assert small.covers(offer(D8S))
    assert not large.covers(offer(D2S))


def test_a_family_is_not_known_before_the_list_of_sizes() -> None:
    found = shortage(
        Scope.FAMILY, 600, REFUSED, "c", sizes=SizeTable(LOCATION), profile_of=profile_of
    )
    assert found is None


def test_no_scope_is_no_shortage() -> None:
    assert shortage(Scope.NONE, 600, REFUSED, "c", sizes=SIZES, profile_of=profile_of) is None


def test_capacity_in_a_reservation_group_is_apart_from_all_other() -> None:
    def profiles(asked: Offer) -> VmProfile:
        return profile(capacity_reservation_group_id=RESERVATION)

    held = offer(D4S, reserved)
    for scope in (Scope.SIZE_ZONE, Scope.SIZE_ZONE_PRIORITY, Scope.FAMILY, Scope.REGION_ON_DEMAND):
        assert not short(scope, offer(D4S, on_demand), profiles=profiles).covers(held)
        assert not short(scope, held, profiles=profiles).covers(offer(D4S, on_demand))
        assert short(scope, offer(D4S, on_demand)).covers(held)
    assert short(Scope.SIZE, offer(D4S), profiles=profiles).covers(held)


def test_a_full_subnet_closes_what_lies_in_it() -> None:
    def profiles(asked: Offer) -> VmProfile:
        return profile(subnet_id=f"{SUBNET}-2") if asked.vm_size == F8S else profile()

    found = short(Scope.SUBNET, offer(D4S), profiles=profiles)
    assert found.covers(offer(D8S, spot, f"{LOCATION}-2"))
    assert not found.covers(offer(F8S))
    shouted = short(Scope.SUBNET, offer(D4S), profiles=lambda _: profile(subnet_id=SUBNET.upper()))
    assert shouted.key == found.key


def test_a_lack_of_public_addresses_closes_only_what_needs_one() -> None:
    def profiles(asked: Offer) -> VmProfile:
        return profile(public_ip=asked.vm_size != F8S)

    found = short(Scope.PUBLIC_IP, offer(D4S), profiles=profiles)
    assert found.covers(offer(D8S, spot))
    assert not found.covers(offer(F8S))


def test_the_figures_of_a_quota_are_told() -> None:
    known = short(Scope.FAMILY, REFUSED, quota=Quota(limit=100, usage=96, required=4))
    assert "96 of 100 used" in known.text
    assert "standarddsv5family" in known.text
    assert "None" not in short(Scope.FAMILY, REFUSED, quota=Quota()).text


offers = st.builds(
    offer,
    st.sampled_from([size.name for size in SIZES]),
    st.sampled_from([on_demand, spot, reserved]),
    st.sampled_from([f"{LOCATION}-1", f"{LOCATION}-2", REGIONAL, "rack"]),
)


@given(st.sampled_from(Scope), offers, offers)
def test_a_shortage_covers_what_was_refused_and_equal_keys_cover_the_same(
    scope: Scope, one: Offer, other: Offer
) -> None:
    if scope is Scope.NONE:
        return
    first, second = short(scope, one), short(scope, other)
    assert first.covers(one)
    if first.key == second.key:
        assert first.covers(other)
        assert second.covers(one)
    if scope is not Scope.FAMILY:
        assert first.covers(other) == (first.key == second.key)
