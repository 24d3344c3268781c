"""What is published as price and probability, from all that is known of a size."""

import json
from typing import Any

import pytest

from bigfleet_azure.backends import sizes as table
from bigfleet_azure.backends.azure.market import Market, Source, price_file
from bigfleet_azure.backends.azure.meters import Chosen, Meter
from bigfleet_azure.backends.azure.options import MarketOptions, RateBasis, ReservedTerm
from bigfleet_azure.domain.lifecycle import CapacityType

D4S = "Standard_D4s_v5"
ODD = "Standard_Zz96_new"
NOW = 1_790_000_000.0
SPOT, ON_DEMAND, RESERVED = CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.RESERVED
HARDWARE = table.size_of(D4S)


def market(**options: Any) -> Market:
    return Market(MarketOptions(**options), "eastus")


def learn(one: Market, size: str = D4S, at: float = NOW, **prices: float) -> Any:
    chosen = Chosen(prices={Meter(name): price for name, price in prices.items()})
    return one.learn_prices({size: chosen}, at)


def price(one: Market, capacity: CapacityType, size: str = D4S) -> float:
    return one.quote(size, capacity, HARDWARE).usd_per_hour


def source(one: Market, capacity: CapacityType = ON_DEMAND, size: str = D4S) -> Source:
    return one.quote(size, capacity, HARDWARE).source


def test_before_the_first_answer_common_sizes_cost_what_the_table_says():
    one = market()
    assert (price(one, ON_DEMAND), source(one)) == (0.192, Source.TABLE)
    assert source(one, size=ODD) is Source.ESTIMATE


def test_an_answer_takes_the_tables_place_for_every_size():
    one = market()
    learn(one, on_demand=0.2, spot=0.05)
    assert (price(one, ON_DEMAND), price(one, SPOT)) == (0.2, 0.05)
    assert source(one) is source(one, SPOT) is Source.RETAIL
    # The table is not believed beside an API that knows better and says nothing.
    assert source(one, size="Standard_E4s_v5") is Source.ESTIMATE


def test_a_size_without_a_price_costs_what_the_dearest_hardware_does():
    one = market()
    assert price(one, ON_DEMAND, ODD) == table.dearest(vcpus=4, gpus=0)
    assert table.dearest(vcpus=4, gpus=0) > HARDWARE.price_usd_per_hour * 4


def test_spot_without_a_price_costs_what_on_demand_does_and_is_flagged():
    one = market()
    learn(one, on_demand=0.2)
    assert (price(one, SPOT), source(one, SPOT)) == (0.2, Source.ESTIMATE)


@pytest.mark.parametrize("spot", [0.0039, 0.21])
def test_a_spot_price_far_from_on_demand_keeps_the_last_one_and_is_counted(spot: float):
    one = market()
    learn(one, on_demand=0.2, spot=0.05)
    learned = learn(one, on_demand=0.2, spot=spot, at=NOW + 60)
    assert (price(one, SPOT), learned.odd) == (0.05, 1)
    assert one.quote(D4S, SPOT, HARDWARE).read_at == NOW


@pytest.mark.parametrize("spot", [0.004, 0.2])
def test_a_spot_price_at_the_edge_is_believed(spot: float):
    one = market()
    assert (learn(one, on_demand=0.2, spot=spot).odd, price(one, SPOT)) == (0, spot)


def test_a_spot_price_is_judged_by_the_last_on_demand_price_when_the_answer_has_none():
    one = market()
    learn(one, on_demand=0.2)
    assert learn(one, spot=0.5).odd == 1


def test_an_empty_answer_empties_nothing_and_does_not_count_as_an_answer():
    one = market()
    learn(one, on_demand=0.2, spot=0.05)
    learned = learn(one, at=NOW + 60)
    assert (learned.priced, learned.missing) == (0, (D4S,))
    assert (price(one, ON_DEMAND), price(one, SPOT), one.prices_at) == (0.2, 0.05, NOW)


def test_reserved_capacity_costs_the_on_demand_price_unless_a_term_was_bought():
    for term, expected in (
        (ReservedTerm.NONE, 0.2),
        (ReservedTerm.ONE_YEAR, 0.12),
        (ReservedTerm.THREE_YEARS, 0.08),
    ):
        one = market(reserved_term=term)
        learn(one, on_demand=0.2, reserved_1y=0.12, reserved_3y=0.08)
        assert price(one, RESERVED) == expected
    one = market(reserved_term=ReservedTerm.ONE_YEAR)
    learn(one, on_demand=0.2)
    assert (price(one, RESERVED), source(one, RESERVED)) == (0.2, Source.ESTIMATE)


def test_a_discount_is_taken_off_on_demand_and_reserved_prices_only():
    one = market(discount=0.25, reserved_term=ReservedTerm.ONE_YEAR)
    learn(one, on_demand=0.2, spot=0.05, reserved_1y=0.12)
    assert (price(one, ON_DEMAND), price(one, SPOT), price(one, RESERVED)) == (0.15, 0.05, 0.09)
    # What has no price of its own costs what on-demand costs us.
    other = market(discount=0.25)
    learn(other, on_demand=0.2)
    assert price(other, SPOT) == 0.15


def test_the_operators_prices_stand_above_all_and_get_no_discount():
    own = {D4S.lower(): {"on_demand": 0.11, "spot": 0.9}}
    one = market(prices=own, discount=0.5)
    learn(one, on_demand=0.2, spot=0.05)
    assert (price(one, ON_DEMAND), price(one, SPOT), price(one, RESERVED)) == (0.11, 0.9, 0.11)
    assert source(one) is Source.FILE


def test_only_spot_is_ever_evicted_and_always_may_be():
    one = market()
    for band, rate in enumerate((0.025, 0.075, 0.125, 0.175, 0.25)):
        one.learn_rates({D4S.lower(): band}, NOW)
        assert one.probability(D4S, SPOT, HARDWARE) == rate
        assert one.probability(D4S, ON_DEMAND, HARDWARE) == 0
        assert one.probability(D4S, RESERVED, HARDWARE) == 0
    assert (
        one.probability(ODD, SPOT, table.Hardware(vcpus=1, memory_gib=1, price_usd_per_hour=1))
        == 0.125
    )


@pytest.mark.parametrize(
    ("band", "expected"),
    [(0, 0.0000352), (1, 0.000108), (2, 0.000185), (3, 0.000267), (4, 0.000399)],
)
def test_rates_read_by_the_month_are_the_go_providers(band: int, expected: float):
    one = market(rate_basis=RateBasis.MONTH)
    one.learn_rates({D4S.lower(): band}, NOW)
    assert one.probability(D4S, SPOT, HARDWARE) == pytest.approx(expected, rel=0.01)


def test_rates_that_an_answer_does_not_name_stay():
    one = market()
    one.learn_rates({D4S.lower(): 4}, NOW)
    one.learn_rates({"standard_e4s_v5": 0}, NOW + 60)
    one.learn_rates({}, NOW + 120)
    assert one.probability(D4S, SPOT, HARDWARE) == 0.25
    assert one.rates_at == NOW + 60


def test_what_was_learnt_outlives_a_process_with_its_age():
    one = market()
    learn(one, on_demand=0.2, spot=0.05, reserved_1y=0.12)
    learn(one, "Standard_E4s_v5", at=NOW + 60, on_demand=0.3)
    one.learn_rates({D4S.lower(): 4}, NOW + 30)
    other = market()
    other.load(one.dump())
    assert other.dump() == one.dump()
    assert other.quote(D4S, SPOT, HARDWARE) == one.quote(D4S, SPOT, HARDWARE)
    assert (other.prices_at, other.rates_at) == (NOW + 60, NOW + 30)
    assert other.probability(D4S, SPOT, HARDWARE) == 0.25


@pytest.mark.parametrize(
    "kept", ["", "{}", "[]", "null", '{"region":"eastus","prices":{"a":{"b":1}}}', "\x00"]
)
def test_what_cannot_be_read_of_an_earlier_process_is_learnt_anew(kept: str):
    one = market()
    one.load(kept)
    assert source(one) is Source.TABLE


def test_prices_of_another_region_are_not_ours():
    one = market()
    learn(one, on_demand=0.2)
    elsewhere = Market(MarketOptions(), "westeurope")
    elsewhere.load(one.dump())
    assert elsewhere.prices_at == 0


def test_a_price_file_is_read_whatever_the_case_of_its_sizes():
    content = json.dumps({D4S: {"on_demand": 0.1, "spot": 1}, "STANDARD_E4S_V5": {"reserved": 2.5}})
    assert price_file(content.encode()) == {
        "standard_d4s_v5": {"on_demand": 0.1, "spot": 1.0},
        "standard_e4s_v5": {"reserved": 2.5},
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["is not JSON"]),
        ("[]", ["must be an object"]),
        ("{}", ["must be an object"]),
        ('{"D4s": {"on_demand": 1}}', ["'D4s'", "no VM size"]),
        ('{"Standard_A": {}}', ["no prices for Standard_A"]),
        ('{"Standard_A": 3}', ["no prices for Standard_A"]),
        ('{"Standard_A": {"ondemand": 1}}', ["'ondemand'", "on_demand, spot, reserved"]),
        ('{"Standard_A": {"spot": 0}, "Standard_B": {"spot": "1"}}', ["0 as spot", "'1' as spot"]),
        ('{"Standard_A": {"spot": true}}', ["True as spot"]),
        ('{"Standard_A": {"spot": NaN}}', ["nan as spot"]),
        ('{"Standard_A": {"spot": 1}, "standard_a": {"spot": 2}}', ["standard_a twice"]),
    ],
)
def test_a_faulty_price_file_is_refused_with_every_fault(content: str, words: list[str]):
    with pytest.raises(ValueError, match=words[0]) as refusal:
        price_file(content.encode())
    assert all(word in str(refusal.value) for word in words)
