"""`bigfleet-azure prices …` and `offerings check --live`, against the double."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.azure.retail import PUBLIC_ENDPOINT
from bigfleet_azure.cli.exits import Exit
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault
from tests.support.arm.price_filter import price_error
from tests.support.azure import azure_flags, environment

D4S, F8S = "Standard_D4s_v5", "Standard_F8s_v2"

Run = Callable[..., Awaitable[Any]]


@pytest.fixture
async def arm() -> AsyncIterator[ArmDouble]:
    async with ArmDouble(speed=100) as double:
        yield double


@pytest.fixture
def ask(arm: ArmDouble, run: Callable[..., Any]) -> Run:
    """A command pointed at the double, run beside its loop."""

    async def ask(*arguments: str, **more: Any) -> Any:
        names = ("prices-endpoint", "arm-ca", "location")
        flags = [f for f in azure_flags(arm) if f.removeprefix("--").startswith(names)]
        return await asyncio.to_thread(run, "prices", *arguments, *flags, **more)

    return ask


@pytest.fixture
def check(arm: ArmDouble, run: Callable[..., Any], tmp_path: Path) -> Run:
    """`offerings check --live` with the daemon's settings in the environment."""

    async def check(entries: list[dict[str, Any]], *arguments: str) -> Any:
        path = tmp_path / "offerings.json"
        path.write_text(json.dumps(entries))
        env = environment(arm)
        for flag in azure_flags(arm):
            name, _, value = flag.removeprefix("--").partition("=")
            env["BIGFLEET_AZURE_" + name.replace("-", "_").upper()] = value
        call = ("offerings", "check", str(path), "--live", *arguments)
        return await asyncio.to_thread(run, *call, env=env)

    return check


def table(text: str) -> list[list[str]]:
    return [re.split("  +", line) for line in text.splitlines()]


async def test_show_is_a_table_of_what_azure_lists_now(arm: ArmDouble, ask: Run):
    arm.market.price(
        D4S, on_demand=0.192, spot=0.0384, reserved_1y=0.1 * 8760, reserved_3y=0.05 * 26280
    )
    arm.market.price(F8S, on_demand=0.338, spot=None, reserved_1y=None, reserved_3y=None)
    result = await ask("show", D4S, F8S)
    assert result.exit_code == Exit.OK, result.stderr
    assert table(result.stdout) == [
        ["SIZE", "ON DEMAND", "SPOT", "SPOT %", "1 YEAR", "3 YEARS"],
        [D4S, "0.19200", "0.03840", "20%", "0.10000", "0.05000"],
        [F8S, "0.33800", "-", "-", "-", "-"],
    ]


async def test_show_as_json_has_one_object_a_size(arm: ArmDouble, ask: Run):
    arm.market.price(D4S, on_demand=0.2, spot=0.04, reserved_1y=None, reserved_3y=None)
    result = await ask("show", D4S.upper(), "-o", "json")
    assert json.loads(result.stdout) == [{"vm_size": D4S.upper(), "on_demand": 0.2, "spot": 0.04}]


async def test_a_size_without_a_price_is_named_and_ends_in_its_own_exit_code(ask: Run):
    result = await ask("show", D4S, "Standard_Zz9")
    assert result.exit_code == Exit.NOT_FOUND
    assert "no on-demand price in eastus for Standard_Zz9" in result.stderr
    assert D4S in result.stdout


async def test_explain_says_which_row_was_taken_and_why_each_other_was_not(
    arm: ArmDouble, ask: Run
):
    arm.market.price(D4S, on_demand=0.2, spot=0.04)
    result = await ask("explain", D4S)
    assert result.exit_code == Exit.OK
    head, *rows = table(result.stdout)
    assert head == ["VERDICT", "USD", "TYPE", "TERM", "PRODUCT", "SKU", "FROM"]
    verdicts = [row[0] for row in rows]
    assert "is the price: on_demand, 0.20000 an hour" in verdicts
    assert "is the price: spot, 0.04000 an hour" in verdicts
    assert "it is of Windows" in verdicts
    assert "its type is DevTestConsumption, not Consumption" in verdicts
    assert not [verdict for verdict in verdicts if not verdict.strip()]


async def test_explain_tells_of_a_choice_between_several_rows(arm: ArmDouble, ask: Run):
    arm.market.price(D4S, on_demand=0.2)
    arm.market.add(arm.market.row(D4S, retailPrice=0.21, meterId="twin"))
    result = await ask("explain", D4S)
    assert "is the price: on_demand, 0.21000 an hour" in result.stdout
    assert "another row fits better" in result.stdout
    assert "Several rows fitted as on_demand" in result.stderr


async def test_explain_of_an_unknown_size_says_where_sizes_are_listed(ask: Run):
    result = await ask("explain", "Standard_Zz9")
    assert result.exit_code == Exit.NOT_FOUND
    assert "az vm list-skus --location eastus" in result.stderr


async def test_a_service_that_does_not_answer_is_one_line(arm: ArmDouble, ask: Run):
    arm.faults.add(Fault("prices", answer=price_error(400), times=None))
    result = await ask("show", D4S)
    assert result.exit_code == Exit.UNREACHABLE
    assert "status 400" in result.stderr
    assert "--prices-endpoint" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_faulty_address_is_refused_before_anybody_is_asked(run: Callable[..., Any]):
    result = run("prices", "show", D4S, "--location=eastus", "--prices-endpoint=http://x")
    assert result.exit_code == Exit.USAGE
    assert PUBLIC_ENDPOINT in result.stderr
    assert run("prices", "show", D4S).exit_code == Exit.USAGE, "no location"


async def test_a_live_check_shows_price_rate_quota_and_restrictions(arm: ArmDouble, check: Run):
    arm.market.price(D4S, on_demand=0.21)
    arm.market.price(F8S, on_demand=0.4, spot=0.05)
    arm.graph.rate(F8S, "15-20")
    arm.capacity.quotas["standardDSv5Family"] = 10
    arm.cloud.catalogue.restrict("Standard_D4ds_v5", "1")
    entries = [
        {"vm_size": D4S, "zone": "eastus-1", "count": 2},
        {"vm_size": F8S, "zone": "eastus-2", "count": 3, "capacity_type": "spot"},
        {"vm_size": "Standard_D4ds_v5", "zone": "eastus-1", "count": 1},
    ]
    result = await check(entries, "-o", "json")
    assert result.exit_code == Exit.OK, result.stderr
    plain, spot, restricted = json.loads(result.stdout)
    assert (plain["price_usd_per_hour"], plain["price_source"]) == (0.21, "retail")
    assert (plain["quota_leaves"], plain["restrictions"]) == (2, [])
    assert "standardDSv5Family: 0 of 10 used" in plain["quota"]
    assert (spot["price_usd_per_hour"], spot["interruption_probability"]) == (0.05, 0.175)
    assert spot["rate_source"] == "azure"
    assert "NotAvailableForSubscription" in restricted["restrictions"][0]
    shown = (await check(entries)).stdout
    assert "17.50%" in shown
    assert "2 (standardDSv5Family: 0 of 10 used)" in shown


async def test_a_live_check_writes_nothing(arm: ArmDouble, check: Run):
    await check([{"vm_size": D4S, "zone": "eastus-1", "count": 2}])
    methods = {one.method for one in arm.exchanges if one.route not in ("token", "graph.query")}
    assert methods == {"GET"}


async def test_a_live_check_without_the_daemons_settings_names_what_is_missing(
    run: Callable[..., Any], tmp_path: Path
):
    path = tmp_path / "offerings.json"
    path.write_text(json.dumps([{"vm_size": D4S, "zone": "eastus-1", "count": 2}]))
    result = await asyncio.to_thread(run, "offerings", "check", str(path), "--live")
    assert result.exit_code == Exit.USAGE
    for name in ("--location", "AZURE_SUBSCRIPTION_ID", "--resource-group", "--subnet-id"):
        assert name in result.stderr
