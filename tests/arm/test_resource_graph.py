"""Resource Graph: Spot eviction rates, asked for with little of its language, under its quota."""

import pytest

from tests.support.arm.faults import Fault
from tests.support.arm.graph import BANDS, EVICTION_RATE, PRICE_HISTORY, graph_row
from tests.support.arm.truth.holding import Truth
from tests.support.arm.truth.recordings import of_file
from tests.support.arm.wire import Answer

PATH = "/providers/Microsoft.ResourceGraph/resources"
VERSION = "2022-10-01"
ACTION = "Microsoft.ResourceGraph/resources/read"
TYPE = f"SpotResources | where type =~ '{EVICTION_RATE}'"
HERE = f"{TYPE} and location =~ 'eastus'"
D4S = f"{HERE} and sku.name in~ ('Standard_D4s_v5')"
TRUTH = Truth()


@pytest.fixture
def ask(client):
    async def post(query, *, version=VERSION, scope=None, **options):
        body = {"query": query, "options": options} | (scope or {})
        return await client.send("POST", PATH, body, version=version)

    return post


async def names(ask, query):
    answer = await ask(query)
    assert answer.status == 200, answer
    return {each["sku"]["name"] for each in answer.body["data"]}


async def test_a_size_has_its_rate_in_lower_case(arm, ask):
    for band in BANDS:
        arm.graph.rate("Standard_D4s_v5", band)
        answer = await ask(D4S)
        [found] = answer.body["data"]
        assert found["type"] == "microsoft.compute/skuspotevictionrate/location"
        assert found["location"] == "eastus"
        assert found["sku"] == {"name": "standard_d4s_v5"}
        assert found["properties"] == {"evictionRate": band}
        assert (answer.body["totalRecords"], answer.body["count"]) == (1, 1)
    assert TRUTH.hold(arm.exchanges) == []


def test_a_row_has_the_keys_that_were_recorded():
    recorded = of_file("resourcegraph-objectarray.json")[0].response["data"][0]
    assert list(graph_row("t", "eastus", "n", {})) == list(recorded)


async def test_every_size_that_spot_takes_has_a_rate(arm, ask):
    spot = {
        key for key, size in arm.cloud.catalogue.sizes.items() if size.can("LowPriorityCapable")
    }
    assert await names(ask, HERE) == spot
    arm.graph.rate("Standard_D4s_v5", None)
    assert await names(ask, HERE) == spot - {"standard_d4s_v5"}
    arm.graph.usual = None
    arm.graph.rate("Standard_New_v9", "20+", region="westus2")
    assert await names(ask, "SpotResources") == {"standard_new_v9"}


async def test_other_rows_are_there_for_whoever_asks_for_too_much(arm, ask):
    assert {each["type"] for each in (await ask("SpotResources")).body["data"]} == {
        EVICTION_RATE,
        PRICE_HISTORY,
    }
    everywhere = (await ask(f"{TYPE} | where sku.name == 'standard_d4s_v5'")).body["data"]
    assert {each["location"]: each["properties"]["evictionRate"] for each in everywhere} == {
        "eastus": "5-10",
        "westeurope": "20+",
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sku.name == 'standard_d4s_v5'", 1),
        ("sku.name == 'Standard_D4s_v5'", 0),
        ("sku.name =~ 'Standard_D4s_v5'", 1),
        ("sku.name in ('standard_d4s_v5', 'standard_d2s_v5')", 2),
        ("sku.name in ('Standard_D4s_v5', 'standard_d2s_v5')", 1),
        ('sku.name in~ ("Standard_D4s_v5","STANDARD_D2S_V5",\'standard_none\')', 2),
        ("sku.name =~ 'standard_d4s_v5' | where location == 'westus'", 0),
    ],
)
async def test_texts_are_compared_as_the_operator_says(ask, query, found):
    assert len(await names(ask, f"{HERE} and {query}")) == found


@pytest.mark.parametrize(("way", "first"), [(" asc", "2"), (" desc", "4"), ("", "4")])
async def test_rows_come_in_the_order_asked_for_which_is_descending_by_itself(ask, way, first):
    two = f"{HERE} and sku.name in~ ('Standard_D4s_v5', 'Standard_D2s_v5')"
    answer = await ask(f"{two} | sort by name{way}")
    assert answer.body["data"][0]["name"] == f"standard_d{first}s_v5"


async def test_columns_may_be_chosen_and_put_in_order(arm, ask):
    arm.graph.rate("Standard_D2s_v5", "20+")
    answer = await ask(
        f"{HERE} and sku.name in~ ('Standard_D4s_v5', 'Standard_D2s_v5')\n"
        "| project skuName = tostring(sku.name), location, rate = tostring(properties.evictionRate)"
        "\n| order by location desc, skuName asc"
    )
    assert answer.body["data"] == [
        {"skuName": "standard_d2s_v5", "location": "eastus", "rate": "20+"},
        {"skuName": "standard_d4s_v5", "location": "eastus", "rate": "5-10"},
    ]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "SpotResources | take 5",
        "SpotResources | where",
        "SpotResources | where type has 'spot'",
        "SpotResources | where type == 'x' or type == 'y'",
        "SpotResources | where type == 'x' and",
        "SpotResources | where type == x",
        "SpotResources | where sku.name in~ ()",
        "SpotResources | where sku.name in~ ('a' 'b')",
        "SpotResources | where properties.evictionRate == '20+'",
        "SpotResources | where type == 'x",
        "SpotResources | project a + b",
        "SpotResources | order by",
        "where type == 'x'",
        "Resources",
        None,
    ],
)
async def test_a_query_beyond_the_language_is_refused(arm, ask, query):
    answer = await ask(query)
    assert (answer.status, answer.code) == (400, "BadRequest")
    assert answer.body["error"]["details"][0]["code"] == "InvalidQuery"
    assert list(TRUTH.answer_faults(arm.exchanges[-1], typed=False)) == []


async def test_spot_rows_are_for_the_whole_tenant_only(arm, ask):
    for scope in (
        {"subscriptions": [arm.cloud.subscription]},
        {"managementGroups": ["fleet"]},
    ):
        assert (await ask(D4S, scope=scope)).body["count"] == 0
    arm.graph.tenant_only = False
    assert (await ask(D4S, scope={"subscriptions": [arm.cloud.subscription]})).body["count"] == 1
    arm.graph.empty = True
    answer = await ask(D4S)
    assert (answer.status, answer.body["totalRecords"], answer.body["data"]) == (200, 0, [])


async def test_pages_go_on_with_a_token(arm, ask):
    whole = (await ask(HERE)).body["data"]
    first = await ask(HERE, **{"$top": 3})
    assert (first.body["totalRecords"], first.body["count"]) == (len(whole), 3)
    found, token = first.body["data"], first.body["$skipToken"]
    while token is not None:
        answer = await ask(HERE, **{"$skipToken": token})
        found += answer.body["data"]
        token = answer.body.get("$skipToken")
    assert found == whole
    assert (await ask(HERE, **{"$skip": len(whole) - 1})).body["data"] == whole[-1:]
    arm.graph.page = 2
    assert (await ask(HERE, **{"$top": 1000})).body["count"] == 2
    assert TRUTH.hold(arm.exchanges) == []


async def test_without_ids_there_is_no_next_page(ask):
    answer = await ask(f"{HERE} | project location", **{"$top": 3})
    assert answer.body["resultTruncated"] == "true"
    assert "$skipToken" not in answer.body


@pytest.mark.parametrize(
    "options", [{"$top": 0}, {"$top": 1001}, {"$skip": -1}, {"$skipToken": "x"}, {"$top": "5"}]
)
async def test_paging_that_cannot_be_is_refused(ask, options):
    assert (await ask(D4S, **options)).status == 400


async def test_the_form_is_a_table_where_asked_for_or_in_the_oldest_version(arm, ask):
    for answer in (
        await ask(D4S, resultFormat="table"),
        await ask(D4S, version="2019-04-01"),
    ):
        data = answer.body["data"]
        kinds = {column["name"]: column["type"] for column in data["columns"]}
        assert (kinds["type"], kinds["sku"], kinds["properties"]) == ("string", "object", "object")
        [found] = [dict(zip(kinds, each, strict=True)) for each in data["rows"]]
        assert found["properties"] == {"evictionRate": "5-10"}
    assert isinstance((await ask(D4S, version="2021-03-01")).body["data"], list)
    assert (await ask(D4S, resultFormat="csv")).status == 400
    assert (await ask(D4S, version="2022-01-01")).code == "InvalidApiVersionParameter"
    assert [fault for fault in TRUTH.hold(arm.exchanges) if "csv" not in fault] == []


async def test_each_caller_has_a_quota_of_its_own(arm, client, ask):
    for left in reversed(range(15)):
        answer = await ask(D4S)
        assert answer.headers["x-ms-user-quota-remaining"] == str(left)
        assert answer.headers["x-ms-user-quota-resets-after"] == "00:00:05"
    await arm.clock.sleep(2)
    answer = await ask(D4S)
    assert (answer.status, answer.code) == (429, "RateLimiting")
    assert answer.headers["x-ms-user-quota-remaining"] == "0"
    assert answer.headers["x-ms-user-quota-resets-after"] == "00:00:03"
    assert "Retry-After" not in answer.headers
    arm.graph.retry_after = True
    assert (await ask(D4S)).headers["Retry-After"] == "3"
    other = arm.identity.issue("another")
    body = {"query": D4S}
    answer = await client.send("POST", PATH, body, version=VERSION, token=other)
    assert answer.status == 200
    await arm.clock.sleep(3)
    assert (await ask(D4S)).status == 200
    assert TRUTH.hold(arm.exchanges) == []


async def test_it_is_counted_apart_and_takes_nothing_from_arm(arm, client, ask):
    await ask(D4S)
    assert arm.ledger.by_bucket() == {"ResourceGraph": 1}
    assert not [name for name in arm.exchanges[-1].headers if "subscription" in name]


async def test_it_needs_a_token_and_the_right_to_read(arm, client, ask):
    assert (await client.send("POST", PATH, {"query": D4S}, version=None)).status == 400
    arm.access.allowed = set()
    answer = await ask(D4S)
    assert (answer.status, answer.code) == (403, "AuthorizationFailed")
    assert ACTION in answer.message
    arm.access.allowed = {ACTION}
    arm.access.read_only_subscription = True
    assert (await ask(D4S)).status == 200
    bad = await client.send("POST", PATH, {"query": D4S}, version=VERSION, token="nobody's")
    assert bad.status == 401


async def test_faults_strike_it_by_its_name(arm, ask):
    arm.faults.add(Fault("graph.query", answer=Answer(502, "<html>")))
    arm.faults.add(Fault("graph.query", skip=1, rewrite=lambda body: body | {"data": None}))
    with pytest.raises(ValueError, match="Expecting value"):
        await ask(D4S)
    assert (await ask(D4S)).body["data"] is None
