"""Which row of the price list is a size's price, on the recorded answers and on traps."""

import json
import random
from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from bigfleet_azure.backends.azure.meters import Chosen, Meter, by_size, choose
from tests.support.arm.truth.recordings import WIRE

NOW = 1_790_000_000.0
"""2026-09-21: after every recorded price came into force."""


def recorded(name: str) -> list[dict[str, Any]]:
    exchanges = json.loads((WIRE / name).read_text())["exchanges"]
    return [row for one in exchanges for row in one["response"]["body"].get("Items", ())]


def row(**changes: Any) -> dict[str, Any]:
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 0.192,
        "unitPrice": 0.192,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2021-11-01T00:00:00Z",
        "meterId": "m-1",
        "meterName": "D4s v5",
        "productName": "Virtual Machines Dsv5 Series",
        "skuId": "s-1",
        "skuName": "D4s v5",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "Standard_D4s_v5",
        **changes,
    }


def chosen(rows: Iterable[dict[str, Any]], size: str = "Standard_D4s_v5") -> Chosen:
    return choose(rows, size=size, region="eastus", now=NOW)


def test_the_recorded_answer_of_a_size_gives_its_linux_prices_and_terms():
    found = chosen(recorded("retail-d2als-v7-eastus.json"), "Standard_D2als_v7")
    assert found.prices == {
        Meter.ON_DEMAND: 0.0804,
        Meter.SPOT: 0.015598,
        Meter.ONE_YEAR: round(416 / 8760, 6),
        Meter.THREE_YEARS: round(803 / 26280, 6),
    }
    assert found.ambiguous == ()


def test_a_linux_row_outside_its_meters_primary_region_is_found():
    found = chosen(recorded("retail-d2s-v3-eastus.json"), "Standard_D2s_v3")
    assert found.prices == {Meter.ON_DEMAND: 0.096, Meter.SPOT: 0.018816}


@pytest.mark.parametrize(
    "trap",
    [
        {"productName": "Virtual Machines Dsv5 Series Windows", "retailPrice": 0.376},
        {"skuName": "D4s v5 Low Priority", "meterName": "D4s v5 Low Priority"},
        {"type": "DevTestConsumption"},
        {"type": "Reservation", "reservationTerm": "5 Years", "retailPrice": 5000.0},
        {"productName": "Dsv5 Series Cloud Services"},
        {"serviceName": "Cloud Services"},
        {"productName": "Dsv5 Series Dedicated Host"},
        {"retailPrice": 0.0},
        {"retailPrice": -1},
        {"retailPrice": "0.1"},
        {"retailPrice": True},
        {"retailPrice": float("nan")},
        {"retailPrice": None},
        {"unitOfMeasure": "100 Hours"},
        {"unitOfMeasure": "1 Hour/Month"},
        {"tierMinimumUnits": 1000.0},
        {"currencyCode": "EUR"},
        {"armRegionName": "eastus2"},
        {"armSkuName": "Standard_D4s_v50"},
        {"armSkuName": "Standard_D4s_v5_Promo"},
        {"effectiveEndDate": "2025-01-01T00:00:00Z"},
        {"effectiveStartDate": "2031-01-01T00:00:00Z"},
        {"effectiveStartDate": "soon"},
    ],
)
def test_a_row_that_is_not_the_price_here_and_now_is_left_and_says_why(trap: dict[str, Any]):
    found = chosen([row(retailPrice=0.01) | trap, row()])
    assert found.prices == {Meter.ON_DEMAND: 0.192}
    assert chosen([row(**trap)]).prices == {}
    (winner, loser) = found.judgements
    assert (winner.rejected, winner.row) == ("", row())
    assert loser.rejected


@pytest.mark.parametrize("names", [("D4s v5 Spot", "D4s v5"), ("D4s v5", "D4s v5 Spot")])
def test_spot_is_known_by_the_end_of_a_name(names: tuple[str, str]):
    sku, meter = names
    spot = row(skuName=sku, meterName=meter, retailPrice=0.04)
    assert chosen([spot, row()]).prices == {Meter.ON_DEMAND: 0.192, Meter.SPOT: 0.04}


def test_of_several_rows_the_newest_counts_then_the_primary_region_then_the_dearest():
    older = row(effectiveStartDate="2020-01-01T00:00:00Z", retailPrice=0.9)
    secondary = row(isPrimaryMeterRegion=False, retailPrice=0.8, skuId="s-2")
    dearer = row(retailPrice=0.2, skuId="s-3")
    for order in permutations((older, secondary, row(), dearer)):
        found = chosen(order)
        assert found.prices == {Meter.ON_DEMAND: 0.2}
        assert found.ambiguous == (Meter.ON_DEMAND,)


def test_equal_prices_are_not_ambiguous():
    assert chosen([row(), row(skuId="s-2")]).ambiguous == ()


def test_an_old_name_of_a_size_and_odd_keys_are_no_trouble():
    rows = recorded("retail-mixed-older.json")
    grouped = by_size([*rows, {}, {"armSkuName": None}])
    found = choose(grouped["standard_b1s"], size="standard_b1s", region="eastus", now=NOW)
    assert found.prices == {Meter.ON_DEMAND: 0.0104}
    assert chosen([{}]).prices == {}


def test_the_order_of_the_rows_never_matters():
    rows = [*recorded("retail-d2als-v7-eastus.json"), *recorded("retail-d2s-v3-eastus.json")]
    results = set()
    for seed in range(24):
        shuffled = list(rows)
        random.Random(seed).shuffle(shuffled)
        grouped = by_size(shuffled)
        for size in ("Standard_D2als_v7", "Standard_D2s_v3"):
            found = choose(grouped[size.lower()], size=size, region="eastus", now=NOW)
            results.add((size, *found.prices.items()))
    assert len(results) == 2
