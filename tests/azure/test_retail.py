"""Reading the price list of the double: groups, pages, refusals; and what became of it."""

import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from bigfleet_azure.backends.azure.meters import Meter, by_size, choose
from bigfleet_azure.backends.azure.retail import RetailPrices
from bigfleet_azure.domain.errors import BackendError, FailureKind
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import AFTER, BEFORE, Fault
from tests.support.arm.price_filter import price_error
from tests.support.arm.truth.holding import Truth
from tests.support.arm.wire import Answer

D4S = "Standard_D4s_v5"


@pytest.fixture
async def arm() -> AsyncIterator[ArmDouble]:
    async with ArmDouble(speed=100) as double:
        yield double
        if not double.faults.all and double.market.limits.status != 414:
            Truth().assert_held(double.exchanges)


@pytest.fixture
async def retail(arm: ArmDouble) -> AsyncIterator[RetailPrices]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=arm.ca_file))
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        yield RetailPrices(session, endpoint=arm.prices_endpoint, region="eastus", clock=arm.clock)


def sizes(count: int) -> list[str]:
    """Names of sizes that the double has a price of."""
    return [f"Standard_D{number}s_v5" for number in range(1, count + 1)]


def sell(arm: ArmDouble, names: list[str]) -> None:
    for position, name in enumerate(names):
        arm.market.price(name, on_demand=0.1 + position / 100, spot=0.02 + position / 1000)


async def test_sixty_sizes_cost_four_requests_and_all_are_priced(
    arm: ArmDouble, retail: RetailPrices
):
    names = sizes(60)
    sell(arm, names)
    rows = by_size(await retail.rows(names))
    assert arm.ledger.count("prices") == 4
    for position, name in enumerate(names):
        found = choose(rows[name.lower()], size=name, region="eastus", now=arm.clock.now())
        assert found.prices[Meter.ON_DEMAND] == pytest.approx(0.1 + position / 100)
        assert found.prices[Meter.SPOT] == pytest.approx(0.02 + position / 1000)


async def test_each_further_page_costs_one_request(arm: ArmDouble, retail: RetailPrices):
    whole = await retail.rows([D4S])
    asked = arm.ledger.count("prices")
    assert asked == 1
    arm.market.page = -(-len(whole) // 3)
    assert await retail.rows([D4S]) == whole
    assert arm.ledger.count("prices") == asked + 3


async def test_pages_in_any_order_give_one_result(arm: ArmDouble, retail: RetailPrices):
    arm.market.page = 4
    results = set()
    for seed in range(24):
        arm.market.shuffle(seed)
        rows = by_size(await retail.rows([D4S]))
        found = choose(rows[D4S.lower()], size=D4S, region="eastus", now=arm.clock.now())
        results.add(tuple(sorted(found.prices.items())))
    assert len(results) == 1


@pytest.mark.parametrize("status", [400, 414])
async def test_a_filter_that_is_too_long_is_halved(
    arm: ArmDouble, retail: RetailPrices, status: int
):
    names = sizes(15)
    sell(arm, names)
    arm.market.limits.terms, arm.market.limits.status = 7, status
    rows = by_size(await retail.rows(names))
    assert set(rows) == {name.lower() for name in names}


async def test_a_single_size_that_is_refused_is_not_halved_for_ever(
    arm: ArmDouble, retail: RetailPrices
):
    arm.faults.add(Fault("prices", answer=price_error(400), times=9))
    with pytest.raises(BackendError, match="status 400") as refusal:
        await retail.rows([D4S])
    assert refusal.value.kind is FailureKind.TRANSIENT
    assert arm.ledger.count("prices") == 1


@pytest.mark.parametrize(
    "trouble",
    [
        Fault("prices", answer=price_error(429, Retry_After="30"), times=2),
        Fault("prices", answer=price_error(429), times=3),
        Fault("prices", answer=price_error(503), times=3),
        Fault("prices", drop=BEFORE, times=3),
        Fault("prices", drop=AFTER, times=3),
        Fault("prices", answer=Answer(200, '{"Items": [{"curr'), times=1),
    ],
    ids=["429-retry-after", "429", "503", "dropped", "answer-lost", "cut-short"],
)
async def test_trouble_that_passes_is_waited_out(
    arm: ArmDouble, retail: RetailPrices, trouble: Fault
):
    whole = await retail.rows([D4S])
    arm.faults.add(trouble)
    assert await retail.rows([D4S]) == whole
    assert trouble.struck == trouble.times


@pytest.mark.parametrize(
    "trouble",
    [
        Fault("prices", answer=price_error(429), times=None),
        Fault("prices", answer=Answer(200, "<html>maintenance</html>"), times=None),
        Fault("prices", answer=Answer(200, "[]"), times=None),
        Fault("prices", rewrite=lambda body: body | {"Items": None}, times=None),
        Fault("prices", drop=BEFORE, times=None),
    ],
    ids=["429", "html", "array", "no-items", "dropped"],
)
async def test_trouble_that_stays_ends_the_attempt_after_a_few_tries(
    arm: ArmDouble, retail: RetailPrices, trouble: Fault
):
    arm.faults.add(trouble)
    with pytest.raises(BackendError, match="price service did not answer") as refusal:
        await retail.rows([D4S])
    assert refusal.value.kind is FailureKind.TRANSIENT
    assert trouble.struck <= 8


async def test_a_list_that_breaks_off_gives_nothing(arm: ArmDouble, retail: RetailPrices):
    arm.market.page = 4
    arm.faults.add(Fault("prices", answer=price_error(500), skip=1, times=None))
    with pytest.raises(BackendError):
        await retail.rows([D4S])


async def test_a_list_that_leads_back_to_a_page_it_told_ends(arm: ArmDouble, retail: RetailPrices):
    link = f"{arm.prices_endpoint}?$skip=0"
    arm.faults.add(Fault("prices", rewrite=lambda body: body | {"NextPageLink": link}, times=None))
    with pytest.raises(BackendError, match="does not end"):
        await retail.rows([D4S])


async def test_a_link_to_another_host_is_asked_of_ours(arm: ArmDouble, retail: RetailPrices):
    """A mirror's pages name Microsoft's host."""
    whole = await retail.rows([D4S])
    arm.market.page = 4
    arm.faults.add(
        Fault(
            "prices",
            rewrite=lambda body: (
                body
                | {
                    "NextPageLink": body["NextPageLink"]
                    and body["NextPageLink"].replace("127.0.0.1", "prices.example")
                }
            ),
            times=None,
        )
    )
    assert await retail.rows([D4S]) == whole


async def test_one_request_is_sent_at_a_time(arm: ArmDouble, retail: RetailPrices):
    names = sizes(40)
    sell(arm, names)
    arm.faults.add(Fault("prices", delay=0.5, times=None))
    await retail.rows(names)
    assert arm.ledger.count("prices") == 3
    assert arm.ledger.most_at_once["prices"] == 1
