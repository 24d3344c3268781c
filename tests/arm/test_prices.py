"""The price list: its filters, pages and refusals as recorded, its rows with all their traps."""

import asyncio
import re
from collections import Counter
from datetime import UTC, datetime

import aiohttp
import pytest

from tests.support.arm.faults import AFTER, BEFORE, Fault
from tests.support.arm.price_filter import price_error
from tests.support.arm.price_rows import TRAPS, Calendar, rows
from tests.support.arm.truth.holding import Truth
from tests.support.arm.truth.recordings import of_file
from tests.support.arm.wire import Answer

PREVIEW = "2023-01-01-preview"
HERE = "armRegionName eq 'eastus'"
D4S = f"{HERE} and armSkuName eq 'Standard_D4s_v5'"
TRUTH = Truth()


@pytest.fixture
def ask(arm, client):
    async def get(wanted=None, **query):
        query = {} if wanted is None else {"$filter": wanted, **query}
        answer = await client.get(arm.prices_endpoint, version=None, query=query)
        return answer.status, answer.body

    return get


@pytest.fixture
def all_pages(client, ask):
    async def get(wanted, **query):
        status, page = await ask(wanted, **query)
        assert status == 200
        found = page["Items"]
        while page["NextPageLink"] is not None:
            page = (await client.get(page["NextPageLink"], version=None)).body
            found += page["Items"]
        return found

    return get


def kind(item):
    """What tells rows apart, but for their dates and prices."""
    found = re.search(r"Spot|Low Priority", item["skuName"])
    label = found[0] if found else ""
    windows = item["productName"].endswith(" Windows")
    return item["type"], windows, label, item.get("reservationTerm", "")


def shared(items, key):
    """Which kinds of rows have one id in common."""
    groups: dict[str, set[tuple[object, ...]]] = {}
    for item in items:
        groups.setdefault(item[key], set()).add(kind(item))
    return sorted(map(sorted, groups.values()))


async def test_nobody_has_to_say_who_they_are_and_arm_charges_nothing(arm, client):
    async with client.session.get(arm.prices_endpoint) as answer:
        assert answer.status == 200
        assert not [name for name in answer.headers if name.lower().startswith("x-ms-")]
    assert arm.ledger.count("prices") == 1
    assert arm.ledger.by_bucket() == {"RetailPrices": 1}


@pytest.mark.parametrize("file", ["retail-d2als-v7-eastus.json", "retail-d2s-v3-eastus.json"])
async def test_a_size_has_the_rows_that_were_recorded(arm, all_pages, file):
    recorded = of_file(file)[0].response["Items"]
    size = recorded[0]["armSkuName"]
    arm.market.traps = frozenset({"devtest", "low priority"} if "v3" in size else {"devtest"})
    arm.market.price(size, on_demand=0.1)
    ours = await all_pages(f"{HERE} and armSkuName eq '{size}'", **{"api-version": PREVIEW})
    assert Counter(map(kind, ours)) == Counter(map(kind, recorded))
    for key in ("meterId", "skuId", "productId"):
        assert shared(ours, key) == shared(recorded, key)
    linux = ("Consumption", False, "", "")
    [theirs], [mine] = [[each for each in rows if kind(each) == linux] for rows in (recorded, ours)]
    assert theirs["isPrimaryMeterRegion"] == mine["isPrimaryMeterRegion"]
    assert list(theirs) == list(mine)


async def test_every_size_of_the_sku_list_is_sold_in_two_regions(arm, all_pages):
    found = await all_pages("priceType eq 'Consumption'")
    sold = {(each["armRegionName"], each["armSkuName"]) for each in found}
    sizes = {size.name for size in arm.cloud.catalogue.sizes.values()}
    assert sold == {(region, size) for region in ("eastus", "westeurope") for size in sizes}
    linux = [each for each in found if kind(each)[1:3] == (False, "Spot")]
    assert {each["armSkuName"] for each in linux} == sizes - {"Standard_B1s"}


async def test_prices_are_those_that_were_set(arm, ask):
    arm.market.traps = frozenset()
    arm.market.price("standard_d4s_V5", on_demand=1.5, spot=0.25, reserved_1y=9000)
    arm.market.price("Standard_D4s_v5", reserved_3y=None)
    _, page = await ask(D4S)
    assert {kind(each): each["retailPrice"] for each in page["Items"] if not kind(each)[1]} == {
        ("Consumption", False, "", ""): 1.5,
        ("Consumption", False, "Spot", ""): 0.25,
        ("Reservation", False, "", "1 Year"): 9000,
    }
    arm.market.price("Standard_New_v9", region="westus2", on_demand=2.0)
    _, page = await ask("armSkuName eq 'Standard_New_v9' and priceType eq 'Reservation'")
    assert {each["armRegionName"] for each in page["Items"]} == {"westus2"}


async def test_only_one_row_of_each_kind_survives_the_full_predicate(arm, ask):
    now = arm.clock.now()
    _, page = await ask(D4S)
    assert len(page["Items"]) == 18
    good = [
        each
        for each in page["Items"]
        if each["type"] == "Consumption"
        and each["unitOfMeasure"] == "1 Hour"
        and each["retailPrice"] > 0
        and "Low Priority" not in each["skuName"]
        and not re.search("Windows|Cloud Services", each["productName"])
        and instant(each["effectiveStartDate"]) <= now
        and now <= instant(each.get("effectiveEndDate", "2999-01-01T00:00:00Z"))
    ]
    assert [(each["skuName"], each["retailPrice"]) for each in good] == [
        ("D4s v5", 0.192),
        ("D4s v5 Spot", 0.0384),
    ]


def instant(text):
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("trap", sorted(TRAPS - {"elsewhere"}))
def test_each_trap_is_a_row_that_can_be_left_out(arm, trap):
    offer = arm.market.offer("Standard_D4s_v5")
    calendar = Calendar.at(arm.clock.now())
    with_it = len(rows(offer, calendar, TRAPS))
    assert len(rows(offer, calendar, TRAPS - {trap})) < with_it


async def test_spot_prices_are_published_anew_every_month(arm, ask):
    spot = f"{D4S} and meterName eq 'D4s v5 Spot'"
    arm.market.traps = frozenset()
    _, page = await ask(spot)
    first = page["Items"][0]
    assert instant(first["effectiveStartDate"]) <= arm.clock.now()
    await arm.clock.sleep(instant(first["effectiveEndDate"]) + 2 - arm.clock.now())
    _, page = await ask(spot)
    then = datetime.fromtimestamp(arm.clock.now(), UTC)
    assert page["Items"][0]["effectiveStartDate"] == f"{then:%Y-%m}-01T00:00:00Z"


@pytest.mark.parametrize(
    "wanted",
    [
        "priceType eq 'OnDemand'",
        "priceType eq 'Spot'",
        "savingsPlan/any(t: t/term eq '1 Year')",
        "type eq 'Consumption'",
        "contains(skuName, 'Spot')",
        "armSkuName ne 'x'",
        "armSkuName eq 'x' and",
        "(armSkuName eq 'x'",
        "armSkuName eq 'x')",
        "armSkuName eq x",
        "isPrimaryMeterRegion eq true",
        "armSkuName eq 'x' armSkuName eq 'y'",
    ],
)
async def test_a_filter_beyond_the_language_is_refused_in_capitals(arm, ask, wanted):
    status, body = await ask(wanted)
    assert (status, body["Error"]["Code"]) == (400, "BadRequest")
    assert TRUTH.hold(arm.exchanges) == []


async def test_and_binds_closer_than_or(all_pages):
    two = "armSkuName eq 'Standard_D2s_v5' or armSkuName eq 'Standard_D4s_v5'"
    loose = await all_pages(f"{two} and armRegionName eq 'eastus'")
    assert {(each["armSkuName"][9:12], each["armRegionName"]) for each in loose} == {
        ("D2s", "eastus"),
        ("D2s", "westeurope"),
        ("D4s", "eastus"),
    }
    assert {each["armRegionName"] for each in await all_pages(f"({two}) and ({HERE})")} == {
        "eastus"
    }


async def test_only_the_preview_regards_case_and_tells_savings_plans(ask):
    wanted = "armRegionName eq 'EastUS' and armSkuName eq 'standard_d4s_v5'"
    _, page = await ask(wanted)
    assert page["Count"] == 18
    assert not any("savingsPlan" in each for each in page["Items"])
    assert (await ask(wanted, **{"api-version": PREVIEW}))[1]["Count"] == 0
    _, page = await ask(D4S, **{"api-version": PREVIEW})
    [plans] = [each["savingsPlan"] for each in page["Items"] if "savingsPlan" in each]
    assert [each["term"] for each in plans] == ["3 Years", "1 Year"]
    status, body = await ask(D4S, **{"api-version": "2023-01-01"})
    assert (status, body["Error"]["Message"]) == (400, "Unsupported API version")


async def test_nothing_found_is_no_error(ask):
    for wanted in ("armSkuName eq 'Standard_None'", "priceType eq 'SavingsPlan'"):
        status, page = await ask(wanted)
        assert status == 200
        assert (page["Items"], page["NextPageLink"], page["Count"]) == ([], None, 0)


async def test_pages_are_linked_and_complete(arm, ask, all_pages):
    arm.market.page = 7
    _, page = await ask(D4S, **{"api-version": PREVIEW})
    assert page["Count"] == len(page["Items"]) == 7
    link = page["NextPageLink"]
    assert re.match(r"https://127\.0\.0\.1:\d+/api/retail/prices\?", link)
    assert f"api-version={PREVIEW}&" in link
    assert "$filter=armRegionName%20eq%20%27eastus%27%20and" in link
    assert link.endswith("&$skip=7")
    before = arm.ledger.count("prices")
    found = await all_pages(D4S)
    assert arm.ledger.count("prices") - before == 3
    arm.market.page = 1000
    assert found == (await ask(D4S))[1]["Items"]
    assert TRUTH.hold(arm.exchanges) == []


async def test_full_pages_hold_a_thousand_rows(arm, ask):
    arm.market.add(*(arm.market.row("Standard_Extra", meterId=str(n)) for n in range(1001)))
    _, page = await ask("armSkuName eq 'Standard_Extra'")
    assert page["Count"] == 1000
    assert page["NextPageLink"].endswith("$skip=1000")
    assert (await ask("armSkuName eq 'Standard_Extra'", **{"$skip": "1000"}))[1]["Count"] == 1
    assert (await ask(D4S, **{"$skip": "x"}))[0] == 400


async def test_another_order_is_the_same_rows_on_every_page(arm, all_pages):
    def plain(found):
        return sorted(found, key=str)

    usual = await all_pages(D4S)
    arm.market.page = 5
    orders = []
    for seed in range(3):
        arm.market.shuffle(seed)
        orders.append(await all_pages(D4S))
        assert plain(orders[-1]) == plain(usual)
        assert orders[-1] == await all_pages(D4S)
    assert orders[0] != orders[1] != orders[2]
    arm.market.shuffle(None)
    assert await all_pages(D4S) == usual


async def test_rows_may_be_added_dropped_and_cut_short(arm, ask):
    twin = arm.market.row("Standard_D4s_v5", retailPrice=0.2, meterId="twin")
    arm.market.add(twin)
    assert (await ask(D4S))[1]["Items"][-1] == twin
    arm.market.drop(lambda each: each["type"] != "Reservation")
    assert {each["type"] for each in (await ask(D4S))[1]["Items"]} == {"Reservation"}
    arm.market.partial = 1
    _, page = await ask(D4S)
    assert (page["Count"], page["NextPageLink"]) == (1, None)
    arm.market.empty = True
    assert (await ask(D4S))[1]["Count"] == 0


async def test_the_primary_region_leaves_out_the_linux_rows_of_old_sizes(ask):
    wanted = f"{HERE} and armSkuName eq 'Standard_D2s_v3'"
    query = {"api-version": PREVIEW, "meterRegion": "'primary'"}
    assert {kind(each)[2] for each in (await ask(wanted, **query))[1]["Items"]} == {"Spot"}


async def test_an_old_version_finds_reservations_among_consumption(arm, ask):
    arm.market.loose = True
    _, page = await ask(f"{D4S} and priceType eq 'Consumption'")
    assert {each["type"] for each in page["Items"]} == {"Consumption", "Reservation"}


@pytest.mark.parametrize("status", [400, 414])
@pytest.mark.parametrize("limit", ["terms", "length"])
async def test_a_filter_that_is_too_long_is_refused(arm, client, limit, status):
    arm.market.limits.status = status
    setattr(arm.market.limits, limit, {"terms": 3, "length": 120}[limit])
    for count, expected in ((2, 200), (3, status)):
        wanted = " or ".join(f"armSkuName eq 'Standard_D{n}s_v5'" for n in range(count))
        query = {"$filter": f"{HERE} and ({wanted})"}
        async with client.session.get(arm.prices_endpoint, params=query) as answer:
            assert answer.status == expected
            assert ("json" in answer.headers["Content-Type"]) is (expected != 414)


async def test_faults_are_scripted_as_for_other_calls(arm, client, ask):
    arm.faults.add(Fault("prices", answer=price_error(429, Retry_After="30")))
    answer = await client.get(arm.prices_endpoint, version=None)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "30")
    assert answer.body["Error"]["Code"] == "TooManyRequests"
    arm.faults.add(Fault("prices", answer=price_error(503)))
    assert (await ask(D4S))[0] == 503
    arm.faults.add(Fault("prices", answer=Answer(200, '{"Items": [{"curr')))
    async with client.session.get(arm.prices_endpoint) as raw:
        assert (raw.status, await raw.text()) == (200, '{"Items": [{"curr')
    arm.faults.add(Fault("prices", rewrite=lambda body: body | {"Items": "none"}))
    assert (await ask(D4S))[1]["Items"] == "none"
    for drop in (BEFORE, AFTER):
        arm.faults.add(Fault("prices", drop=drop, times=2))  # The transport asks again by itself.
        with pytest.raises(aiohttp.ClientError):
            await ask(D4S)
    assert (await ask(D4S))[0] == 200
    assert arm.ledger.throttled()[0].route == "prices"


async def test_the_ledger_tells_how_many_asked_at_once(arm, ask):
    arm.faults.add(Fault("prices", delay=0.05, times=None))
    await ask(D4S)
    assert arm.ledger.most_at_once["prices"] == 1
    await asyncio.gather(*(ask(D4S) for _ in range(4)))
    assert arm.ledger.most_at_once["prices"] > 1


async def test_all_answers_are_true_to_the_recordings(arm, all_pages):
    await all_pages(None)
    await all_pages(D4S, **{"api-version": PREVIEW})
    arm.market.page = 7
    await all_pages(D4S)
    assert TRUTH.hold(arm.exchanges) == []
    assert TRUTH.unheld(arm.exchanges) == set()
