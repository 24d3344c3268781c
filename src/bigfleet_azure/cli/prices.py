"""`bigfleet-azure prices …`: look at Azure's price list as the daemon reads it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from bigfleet_azure.backends.azure.meters import Chosen, Judgement, Meter
from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import Format, columns, fail, note, output_option, show_data, write
from bigfleet_azure.daemon import market_values, values
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.domain.errors import BackendError

_SERVE = {option.name: option for option in OPTIONS}


def _text(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Reads a value as the daemon's flag of that name does."""

    def read(_context: click.Context, _parameter: click.Parameter, text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}") from error

    return read


def _asked(command: Callable[..., None]) -> Callable[..., None]:
    """What every command here is told: where, and of whom."""
    for option in (
        click.option(
            "--location",
            envvar=_SERVE["location"].env,
            show_envvar=True,
            required=True,
            callback=_text(values.location),
            help="Azure region, such as eastus.",
        ),
        click.option(
            "--prices-endpoint",
            envvar=_SERVE["prices-endpoint"].env,
            show_envvar=True,
            default="",
            callback=_text(market_values.prices_endpoint),
            help="Address of the Retail Prices API; Microsoft's public one by default.",
        ),
        click.option(
            "--arm-ca",
            envvar=_SERVE["arm-ca"].env,
            show_envvar=True,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="CA bundle (PEM) that is trusted beside the system's.",
        ),
        output_option(Format.TABLE, Format.JSON, Format.YAML),
    ):
        command = option(command)
    return command


@click.group()
def prices() -> None:
    """Look at Azure's prices as the daemon reads them."""


@prices.command("show")
@click.argument("sizes", nargs=-1, required=True)
@_asked
def show(
    sizes: tuple[str, ...],
    location: str,
    prices_endpoint: str,
    arm_ca: Path | None,
    output: Format,
) -> None:
    """Show the retail prices of SIZES in USD an hour, as Azure lists them now."""
    found = _read(sizes, location, prices_endpoint, arm_ca)
    if output is not Format.TABLE:
        show_data([{"vm_size": size, **one.prices} for size, one in found.items()], output)
    else:
        head = ("SIZE", "ON DEMAND", "SPOT", "SPOT %", "1 YEAR", "3 YEARS")
        write(columns(head, [_row(size, one) for size, one in found.items()]))
    missing = [size for size, one in found.items() if Meter.ON_DEMAND not in one.prices]
    if missing:
        fail(
            Exit.NOT_FOUND,
            f"Azure lists no on-demand price in {location} for {', '.join(missing)}; "
            "`prices explain SIZE` shows what it lists",
        )


def _row(size: str, one: Chosen) -> list[str]:
    on_demand, spot = one.prices.get(Meter.ON_DEMAND), one.prices.get(Meter.SPOT)
    share = f"{spot / on_demand:.0%}" if spot and on_demand else "-"
    return [
        size,
        _usd(on_demand),
        _usd(spot),
        share,
        _usd(one.prices.get(Meter.ONE_YEAR)),
        _usd(one.prices.get(Meter.THREE_YEARS)),
    ]


def _usd(price: float | None) -> str:
    return "-" if price is None else f"{price:.5f}"


@prices.command("explain")
@click.argument("size")
@_asked
def explain(
    size: str, location: str, prices_endpoint: str, arm_ca: Path | None, output: Format
) -> None:
    """Show every row that Azure lists for SIZE, which one was chosen, and why the others not."""
    chosen = _read((size,), location, prices_endpoint, arm_ca)[size]
    rows = [_explained(one) for one in chosen.judgements]
    if not rows:
        fail(
            Exit.NOT_FOUND,
            f"Azure lists nothing for {size} in {location}; `az vm list-skus --location "
            f"{location}` lists the sizes that there are",
        )
    if output is not Format.TABLE:
        show_data(rows, output)
        return
    head = ("VERDICT", "USD", "TYPE", "TERM", "PRODUCT", "SKU", "FROM")
    names = ("verdict", "retail_price", "type", "term", "product", "sku", "from")
    write(columns(head, [[str(row[name] or "-") for name in names] for row in rows]))
    for meter in chosen.ambiguous:
        note(f"Several rows fitted as {meter}; the newest, then the dearest was taken.")


def _explained(one: Judgement) -> dict[str, Any]:
    row = one.row
    verdict = one.rejected or f"is the price: {one.meter}, {one.price_usd_per_hour:.5f} an hour"
    return {
        "verdict": verdict,
        "retail_price": row.get("retailPrice"),
        "type": row.get("type"),
        "term": row.get("reservationTerm", ""),
        "product": row.get("productName"),
        "sku": row.get("skuName"),
        "from": str(row.get("effectiveStartDate", ""))[:10],
        "meter_id": row.get("meterId"),
    }


def _read(sizes: Sequence[str], location: str, endpoint: str, ca: Path | None) -> dict[str, Chosen]:
    """What the price list says of each size, in the order in which they were asked for."""
    from bigfleet_azure.backends.azure.retail import PUBLIC_ENDPOINT

    if sys.stderr.isatty():
        note(f"Asking {endpoint or PUBLIC_ENDPOINT} ...")
    try:
        return asyncio.run(_asked_of(sizes, location, endpoint or PUBLIC_ENDPOINT, ca))
    except BackendError as error:
        fail(Exit.UNREACHABLE, f"{error}; --prices-endpoint names another one")


async def _asked_of(
    sizes: Sequence[str], location: str, endpoint: str, ca: Path | None
) -> dict[str, Chosen]:
    from bigfleet_azure.backends.azure.meters import by_size, choose
    from bigfleet_azure.backends.azure.retail import RetailPrices, open_session
    from bigfleet_azure.kit.clock import SystemClock

    clock = SystemClock()
    async with open_session(ca) as session:
        retail = RetailPrices(session, endpoint=endpoint, region=location, clock=clock)
        rows = by_size(await retail.rows(sizes))
    return {
        size: choose(rows.get(size.lower(), ()), size=size, region=location, now=clock.now())
        for size in dict.fromkeys(sizes)
    }
