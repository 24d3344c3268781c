"""Prices and eviction rates through the whole daemon: read, published, kept, and their bad days."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.offering import built_in_mix
from tests.azure.test_guides import ENTRY
from tests.support.arm.faults import Fault, error
from tests.support.arm.market import PATH
from tests.support.arm.price_filter import price_error
from tests.support.arm.wire import Answer
from tests.support.azure import Site

pytestmark = pytest.mark.slow

D4S, F8S = "Standard_D4s_v5", "Standard_F8s_v2"
OFTEN = "--price-refresh=10m"
"""Two seconds at the site's usual speed."""

SUCCESS = "bigfleet_azure_price_last_success_timestamp_seconds"
RATES = "bigfleet_azure_eviction_rate_last_success_timestamp_seconds"
REFRESHES = "bigfleet_azure_price_refresh_total"


def costs(machines: dict[str, pb.Machine]) -> dict[str, set[tuple[float, float]]]:
    """Price and probability by size."""
    found: dict[str, set[tuple[float, float]]] = {}
    for one in machines.values():
        cost = one.price_per_hour, one.interruption_probability
        found.setdefault(one.instance_type, set()).add(cost)
    return found


async def refreshed(site: Site, times: int = 1) -> None:
    """Wait for so many more refreshes."""
    before = await both(site)
    async with asyncio.timeout(30):
        while await both(site) < before + times:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def both(site: Site) -> float:
    found = [await site.metric(REFRESHES, outcome=o) for o in ("success", "error")]
    return sum(found)


async def published(site: Site, size: str, cost: tuple[float, float]) -> None:
    """Wait until every machine of a size has that cost."""
    async with asyncio.timeout(30):
        while costs(await site.machines()).get(size) != {cost}:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


@pytest.mark.behaviour(46)
async def test_what_is_first_served_has_azures_prices_and_rates(tmp_path: Path):
    site = Site(tmp_path)
    site.arm.market.price(D4S, on_demand=0.211, spot=0.05)
    site.arm.market.price(F8S, on_demand=0.4, spot=0.077)
    site.arm.graph.rate(F8S, "15-20")
    async with site:
        assert costs(await site.machines()) == {D4S: {(0.211, 0.0)}, F8S: {(0.077, 0.175)}}
        assert await site.metric(SUCCESS) > 0
        assert await site.metric(RATES) > 0
        # Two sizes are one request each.
        assert site.arm.ledger.count("prices") == 1
        assert site.arm.ledger.count("graph.query") == 1


@pytest.mark.parametrize("seed", range(3))
async def test_no_order_of_rows_and_no_trap_among_them_changes_a_price(tmp_path: Path, seed: int):
    """Field case I1: Windows, Low Priority, DevTest and placeholder rows are all there."""
    site = Site(tmp_path)
    site.arm.market.price(D4S, on_demand=0.211)
    site.arm.market.price(F8S, spot=0.077)
    site.arm.market.shuffle(seed)
    site.arm.market.page = 7
    async with site:
        found = costs(await site.machines())
        assert {price for price, _ in found[D4S]} == {0.211}
        assert {price for price, _ in found[F8S]} == {0.077}


@pytest.mark.behaviour(55)
async def test_refreshes_without_a_change_move_no_revision(tmp_path: Path):
    async with Site(tmp_path, OFTEN) as site:
        await refreshed(site)
        before = await site.listed()
        await refreshed(site, 2)
        assert (await site.listed()).revision == before.revision


async def test_a_new_price_and_a_new_rate_are_published_and_reach_a_shard(tmp_path: Path):
    async with Site(tmp_path, OFTEN, seed_count=40) as site:
        known = set(await site.machines())
        site.arm.market.price(F8S, spot=0.15)
        site.arm.graph.rate(F8S, "20+")
        fewest = len(known)
        async with asyncio.timeout(30):
            await published(site, F8S, (0.15, 0.25))
            # A tenth of its slots at a time is left out of a List.
            for _ in range(200):
                fewest = min(fewest, len(await site.machines()))
                await asyncio.sleep(0.005)
        assert len(known) - 4 <= fewest < len(known)
        assert set(await site.machines()) == known


async def test_a_start_without_a_price_service_serves_the_table_and_says_so(tmp_path: Path):
    site = Site(tmp_path, OFTEN, true=False)
    fault = site.arm.faults.add(Fault("prices", answer=price_error(400), times=None))
    async with site:
        assert costs(await site.machines())[D4S] == {(0.192, 0.0)}
        await site.shows("prices (for", "the price service did not answer")
        assert await site.metric(SUCCESS) == 0
        # The other source is not held up.
        assert await site.metric(RATES) > 0
        site.arm.market.price(D4S, on_demand=0.3)
        fault.times = 0
        await published(site, D4S, (0.3, 0.0))
        assert "prices (for" not in (await site.page("/readyz?verbose"))[1]


async def test_the_last_good_prices_are_served_with_their_age_after_a_restart(tmp_path: Path):
    site = Site(tmp_path, OFTEN, true=False)
    site.arm.market.price(D4S, on_demand=0.3)
    site.arm.graph.rate(F8S, "20+")
    async with site:
        learnt = await site.metric(SUCCESS), await site.metric(RATES)
        await site.kill()
        for route in ("prices", "graph.query"):
            site.arm.faults.add(Fault(route, answer=price_error(503), times=None))
        site.arm.market.price(D4S, on_demand=9.9)
        await site.boot()
        served = costs(await site.machines())
        assert served[D4S] == {(0.3, 0.0)}
        assert {probability for _, probability in served[F8S]} == {0.25}
        assert (await site.metric(SUCCESS), await site.metric(RATES)) == learnt


@pytest.mark.parametrize("answer", ["empty", "partial", "broken"])
async def test_an_answer_that_lacks_prices_changes_none(tmp_path: Path, answer: str):
    """Field cases I1 and I6."""
    site = Site(tmp_path, OFTEN, true=answer != "broken")
    async with site:
        before = costs(await site.machines())
        if answer == "empty":
            site.arm.market.empty = site.arm.graph.empty = True
        elif answer == "partial":
            site.arm.market.partial = 0
        else:
            cut = Answer(200, '{"Items": [{"curr')
            site.arm.faults.add(Fault("prices", answer=cut, times=None))
        await refreshed(site, 2)
        assert costs(await site.machines()) == before
        await site.shows("prices (for")


async def test_a_size_that_is_new_in_the_offerings_is_priced_before_it_is_shown(tmp_path: Path):
    file = tmp_path / "offerings.json"
    file.write_text(json.dumps([ENTRY | {"vm_size": D4S}]))
    site = Site(tmp_path, f"--offerings={file}")
    site.arm.market.price("Standard_D4ds_v5", on_demand=0.31, spot=0.06)
    async with site:
        seen: set[float] = set()
        file.write_text(json.dumps([ENTRY | {"vm_size": s} for s in (D4S, "Standard_D4ds_v5")]))
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(20):
            while not seen:
                seen = {
                    one.price_per_hour
                    for one in (await site.machines()).values()
                    if one.instance_type == "Standard_D4ds_v5"
                }
                await asyncio.sleep(0.01)
        assert seen == {0.31}


async def test_a_size_that_nobody_prices_is_offered_and_named(tmp_path: Path):
    site = Site(tmp_path)
    site.arm.market.drop(lambda row: row["armSkuName"] == D4S)
    async with site:
        assert costs(await site.machines())[D4S] == {(0.98, 0.0)}
        await site.shows(f"prices: guessed, since none is known: {D4S}")
        assert await site.metric("bigfleet_azure_guessed_prices") == 1
        machine = (await site.ids(1))[0]
        await site.idle(machine)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")


async def test_the_operators_prices_are_read_again_at_each_refresh(tmp_path: Path):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({D4S: {"on_demand": 0.11}}))
    async with Site(tmp_path, OFTEN, f"--price-file={file}") as site:
        assert costs(await site.machines())[D4S] == {(0.11, 0.0)}
        file.write_text(json.dumps({D4S: {"on_demand": 0.12}}))
        await published(site, D4S, (0.12, 0.0))
        file.write_text("{")
        await site.shows("prices (for", "its last prices stay")
        assert costs(await site.machines())[D4S] == {(0.12, 0.0)}


@pytest.mark.parametrize(("term", "hours"), [("1y", 8760), ("3y", 26280)])
async def test_reserved_capacity_costs_the_term_that_was_bought(
    tmp_path: Path, term: str, hours: int
):
    file = tmp_path / "offerings.json"
    file.write_text(json.dumps([ENTRY | {"vm_size": D4S, "capacity_type": "reserved"}]))
    site = Site(tmp_path, f"--offerings={file}", f"--reserved-term={term}")
    site.arm.market.price(D4S, on_demand=0.2, **{f"reserved_{term}": 0.1 * hours})  # type: ignore[arg-type]
    async with site:
        assert costs(await site.machines()) == {D4S: {(0.1, 0.0)}}


async def test_without_the_right_to_ask_for_rates_those_of_the_table_stand(tmp_path: Path):
    site = Site(tmp_path)
    refusal = error(403, "AuthorizationFailed", "The client may not.")
    site.arm.faults.add(Fault("graph.query", answer=refusal, times=None))
    async with site:
        assert {p for _, p in costs(await site.machines())[F8S]} == {0.075}
        await site.shows("prices (for", "AuthorizationFailed")
        assert await site.metric(RATES) == 0
        assert await site.metric(SUCCESS) > 0


async def test_no_refresh_means_that_nobody_is_asked(tmp_path: Path):
    async with Site(tmp_path, "--price-refresh=0") as site:
        await site.passes(4000)
        assert site.arm.ledger.count("prices") == site.arm.ledger.count("graph.query") == 0
        assert costs(await site.machines())[D4S] == {(0.192, 0.0)}


async def test_where_there_is_no_price_service_nobody_asks_for_one(tmp_path: Path):
    """US Government and China."""
    site = Site(tmp_path, "--cloud=usgov", "--prices-endpoint=", OFTEN)
    async with site:
        await refreshed(site)
        assert site.arm.ledger.count("prices") == 0
        assert len(await site.machines()) == sum(
            each.count for each in built_in_mix(8, ("eastus-1", "eastus-2"))
        )
    assert PATH in site.arm.prices_endpoint
