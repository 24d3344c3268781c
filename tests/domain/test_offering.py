"""Offers, their stable numbers and ids, and the change numbers of untouched slots."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import (
    Assignment,
    Facts,
    Offer,
    Offering,
    assign,
    built_in_mix,
    derived_prefix,
    merge,
)

LABEL = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
SIZES = [
    "Standard_D4s_v5",
    "standard_d4s_v5",
    "Standard_D4s-v5",
    "Standard_D4s.v5",
    "Standard_F8s_v2",
    "X" * 80,
    "X" * 79 + "Y",
    "Größe",
]
ZONES = ["eastus-1", "eastus-2", "1", "EastUS-1", "zone" * 20]

OFFERS = st.builds(
    Offer,
    vm_size=st.sampled_from(SIZES),
    zone=st.sampled_from(ZONES),
    capacity_type=st.sampled_from(CapacityType),
    count=st.integers(1, 5),
    resources=st.sampled_from([{}, {"cpu": "1"}, {"cpu": "2"}]),
    labels=st.sampled_from([{}, {"team": "red"}]),
    settings=st.sampled_from([{}, {"image": "a"}, {"image": "b", "tags": {"x": "1"}}]),
)


def plain(**changes: object) -> Offer:
    fields: dict[str, object] = {
        "vm_size": "Standard_D4s_v5",
        "zone": "eastus-1",
        "capacity_type": CapacityType.ON_DEMAND,
        "count": 4,
        **changes,
    }
    return Offer(**fields)  # type: ignore[arg-type]


def assigned(offers: list[Offer], known: list[Offering] | None = None) -> list[Assignment]:
    return assign(offers, known or [], provider="azure", region="eastus")


def kept(assignments: list[Assignment]) -> list[Offering]:
    facts = Facts(
        price_usd_per_hour=1, interruption_probability=0.1, allocatable={"cpu": "1"}, labels={}
    )
    return [
        Offering(number=a.number, prefix=a.prefix, offer=a.offer, facts=facts) for a in assignments
    ]


def by_offer(assignments: list[Assignment]) -> dict[object, str]:
    return {(*a.offer.place, a.offer.shape_digest): a.prefix for a in assignments}


@pytest.mark.behaviour(49)
@given(st.lists(OFFERS, max_size=8).flatmap(lambda o: st.tuples(st.just(o), st.permutations(o))))
def test_ids_do_not_depend_on_the_order_of_the_offers(
    orders: tuple[list[Offer], list[Offer]],
) -> None:
    assert by_offer(assigned(orders[0])) == by_offer(assigned(orders[1]))


@pytest.mark.behaviour(49)
@given(st.lists(OFFERS, max_size=12))
def test_prefixes_and_numbers_are_unique_and_ids_are_short_labels(offers: list[Offer]) -> None:
    result = assigned(offers)
    assert len({a.prefix for a in result}) == len({a.number for a in result}) == len(result)
    assert len(result) == len(merge(offers))
    for offering in kept(result):
        for index in (0, 999, 2**20 - 1):
            for generation in (0, 9999):
                name = offering.machine_id(index, generation)
                assert LABEL.fullmatch(name)
                assert len(name) <= 60


@pytest.mark.behaviour(49)
@given(st.lists(OFFERS, max_size=6), st.lists(OFFERS, max_size=6), st.randoms())
def test_known_offers_keep_their_ids_whatever_else_comes(
    first: list[Offer], more: list[Offer], random: object
) -> None:
    before = assigned(first)
    offers = [*first, *more]
    random.shuffle(offers)  # type: ignore[attr-defined]
    after = by_offer(assigned(offers, kept(before)))
    for key, prefix in by_offer(before).items():
        assert after[key] == prefix
    again = assigned(offers, kept(assigned(offers, kept(before))))
    assert by_offer(again) == after


@pytest.mark.behaviour(49)
def test_sizes_that_collide_in_a_label_are_told_apart() -> None:
    names = ["Standard_D4s_v5", "standard_d4s_v5", "Standard_D4s-v5", "Standard_D4s.v5"]
    prefixes = [a.prefix for a in assigned([plain(vm_size=name) for name in names])]
    assert len(set(prefixes)) == 4
    assert "azure-eastus-od-d4s-v5-1" in prefixes


@pytest.mark.behaviour(49, 74)
def test_an_offer_whose_shape_was_edited_keeps_its_ids() -> None:
    (before,) = assigned([plain()])
    (after,) = assigned([plain(labels={"team": "red"}, count=9)], kept([before]))
    assert (after.number, after.prefix) == (before.number, before.prefix)


@pytest.mark.behaviour(49)
@pytest.mark.parametrize(
    ("provider", "region", "zone", "prefix"),
    [
        ("azure", "eastus", "eastus-1", "azure-eastus-od-d4s-v5-1"),
        ("azure-eastus", "eastus", "eastus-1", "azure-eastus-od-d4s-v5-1"),
        ("azure", "", "eastus-1", "azure-eastus-od-d4s-v5-1"),
        ("azure", "eastus", "EastUS-1", "azure-eastus-od-d4s-v5-1"),
        ("azure", "EastUS", "eastus-1", "azure-eastus-od-d4s-v5-1"),
        ("azure-eastus", "EastUS", "EastUS-1", "azure-eastus-od-d4s-v5-1"),
        ("Azure_EastUS", "eastus", "eastus-1", "azure-eastus-od-d4s-v5-1"),
        ("azure-lab-3", "lab-3", "lab-3-1", "azure-lab-3-od-d4s-v5-1"),
        ("eastus2", "eastus", "eastus-2", "eastus2-eastus-od-d4s-v5-2"),
        ("9lives", "eastus", "eastus-1", "m-9lives-eastus-od-d4s-v5-1"),
    ],
)
def test_the_region_is_named_once(provider: str, region: str, zone: str, prefix: str) -> None:
    assert derived_prefix(plain(zone=zone), provider=provider, region=region) == prefix


@pytest.mark.behaviour(49)
def test_a_long_provider_name_is_cut_and_told_apart_by_a_digest() -> None:
    names = {
        derived_prefix(plain(zone=zone), provider="p" * 100, region="eastus")
        for zone in ("eastus-1", "eastus-2")
    }
    assert len(names) == 2
    for name in names:
        assert LABEL.fullmatch(name)
        assert len(f"{name}-1048575-r9999") <= 60


@given(st.integers(0, 2**20 - 1), st.sampled_from(["", "faultcreate"]))
def test_the_index_behind_an_id_is_found_again(index: int, fixed: str) -> None:
    (offering,) = kept(assigned([plain(fixed_prefix=fixed)]))
    name = offering.machine_id(index)
    assert offering.index_of(name) == index
    assert offering.index_of(offering.machine_id(index, 1)) is None


@given(
    st.integers(0, 2**20 - 1), st.integers(0, 9999), st.sampled_from(["", "faultcreate", "x-r2"])
)
def test_the_slot_behind_an_id_of_any_generation_is_found_again(
    index: int, generation: int, fixed: str
) -> None:
    (offering,) = kept(assigned([plain(fixed_prefix=fixed)]))
    assert offering.slot_of(offering.machine_id(index, generation)) == (index, generation)


@pytest.mark.parametrize(
    "end", ["-r0", "-r01", "-r", "-r-1", "-rx", "-r1-r2", "-r٣", "-r9999999999"]
)
def test_what_looks_like_a_generation_and_is_none_names_no_slot(end: str) -> None:
    (offering,) = kept(assigned([plain()]))
    assert offering.slot_of(offering.machine_id(1) + end) is None


@given(st.text(max_size=12))
def test_no_other_text_is_taken_for_an_id(text: str) -> None:
    (offering,) = kept(assigned([plain()]))
    index = offering.index_of(f"{offering.prefix}-{text}")
    assert index is None or offering.machine_id(index) == f"{offering.prefix}-{text}"


def test_equal_offers_add_up_and_different_ones_do_not() -> None:
    spot = plain(capacity_type=CapacityType.SPOT)
    assert merge([plain(), spot, plain(count=3)]) == [plain(count=7), spot]
    assert len(merge([plain(), plain(labels={"a": "b"}), plain(resources={"cpu": "1"})])) == 3


@pytest.mark.parametrize(
    ("asked", "total"), [(32, 32), (1, 1), (5, 5), (30, 30), (0, 16), (-3, 16), (8000, 8000)]
)
def test_the_built_in_mix_has_as_many_slots_as_asked_spread_evenly(asked: int, total: int) -> None:
    counts = [offer.count for offer in built_in_mix(asked, ("a-1", "a-2"))]
    assert sum(counts) == total
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


class TestSegments:
    """Change numbers of untouched slots over any history of resizes."""

    @given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12))
    def test_they_cover_exactly_the_offered_slots_each_with_a_number_of_its_own(
        self, history: list[tuple[int, bool]]
    ) -> None:
        (offering,) = kept(assigned([plain(count=0)]))
        following, expected = 1, dict[int, int]()
        for count, anew in history:
            before = offering.offer.count
            if anew:
                offering = offering.resized(count, following).rebased(following)
                expected = {index: following + index for index in range(count)}
                following += max(1, count)
            else:
                offering = offering.resized(count, following)
                expected = {i: n for i, n in expected.items() if i < count} | {
                    index: following + index - before for index in range(before, count)
                }
                following += max(0, count - before)
            assert offering.offer.count == count
            assert {index: offering.change_of(index) for index in range(count)} == expected
            assert sum(segment.count for segment in offering.segments) == count
            assert offering.head == max(expected.values(), default=0)
            assert len(set(expected.values())) == count
            with pytest.raises(LookupError):
                offering.change_of(count)

    def test_resizing_changes_nothing_else(self) -> None:
        (offering,) = kept(assigned([plain()]))
        grown = offering.resized(6, 1)
        assert replace(grown, offer=offering.offer, segments=()) == offering


def test_the_shape_of_an_offer_without_settings_is_what_it_has_always_been() -> None:
    before = plain(resources={"cpu": "1"}, labels={"team": "a"})
    assert before.shape_digest == "d7ec88"  # as stored before there were settings
    assert plain(settings={}).shape_digest == plain().shape_digest


def test_offers_that_are_made_differently_are_told_apart_whatever_the_order_of_their_keys() -> None:
    settings = {"image": "a:b:c:1", "tags": {"x": "1", "y": "2"}, "asg_ids": ["1", "2"]}
    turned = {"asg_ids": ["1", "2"], "tags": {"y": "2", "x": "1"}, "image": "a:b:c:1"}
    one, same, other = (
        plain(settings=each) for each in (settings, turned, {**settings, "asg_ids": ["2", "1"]})
    )
    assert one.shape_digest == same.shape_digest
    assert len({plain().shape_digest, one.shape_digest, other.shape_digest}) == 3
    assert [offer.count for offer in merge([one, other, same])] == [8, 4]
