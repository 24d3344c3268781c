"""`bigfleet-azure offerings …`: look at an offerings file before a daemon reads it."""

from pathlib import Path
from typing import Any

import click

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.live import described, outlooks
from bigfleet_azure.cli.output import Format, columns, fail, note, output_option, show_data, write
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.domain.offering import assign

_SERVE = {option.name: option for option in OPTIONS}


@click.group()
def offerings() -> None:
    """Look at an offerings file."""


@offerings.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--provider",
    envvar=_SERVE["provider"].env,
    show_envvar=True,
    default=_SERVE["provider"].default,
    show_default=True,
    help="As the daemon will be given.",
)
@click.option(
    "--location",
    envvar=_SERVE["location"].env,
    show_envvar=True,
    default=_SERVE["location"].default,
    help="As the daemon will be given.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Ask Azure, with the settings in the daemon's variables and --config: what each offering "
    "costs, how often it is evicted, what quota leaves, and why it cannot be had.",
)
@click.option(
    "--config",
    envvar=_SERVE["config"].env,
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="The daemon's YAML file, for --live.",
)
@output_option(*Format)
def check(  # noqa: PLR0917 - click gives them by name
    file: Path, provider: str, location: str, live: bool, config: Path | None, output: Format
) -> None:
    """Check FILE and show what a daemon with a new state would offer.

    Every fault is listed. Without --live nobody is asked: prices and rates are those of the
    simulated region.
    """
    if live:
        rows = outlooks(file, provider=provider, location=location, config=config)
    else:
        rows = _simulated(file, provider, location)
    if output is Format.TABLE:
        write(columns(_HEAD, [_cells(row) for row in rows]))
        note(f"{file}: {len(rows)} offerings, {sum(row['slots'] for row in rows)} slots")
    elif output is Format.NAME:
        write("".join(f"{row['first_id']}\n" for row in rows))
    else:
        show_data(rows, output)


_HEAD = (
    "FIRST ID",
    "SIZE",
    "ZONE",
    "CAPACITY",
    "SLOTS",
    "USD/HOUR",
    "PRICE FROM",
    "EVICTED/HOUR",
    "QUOTA LEAVES",
    "CANNOT BE HAD",
)


def _cells(row: dict[str, Any]) -> list[str]:
    price, rate = row["price_usd_per_hour"], row["interruption_probability"]
    shown_rate = "-" if rate is None else f"{rate:.2%}" if rate else "0"
    if rate and row["rate_source"] == "table":
        shown_rate += " (table)"
    return [
        row["first_id"],
        row["vm_size"],
        row["zone"],
        row["capacity_type"],
        str(row["slots"]),
        "-" if price is None else f"{price:.5f}",
        row["price_source"] or "-",
        shown_rate,
        _room(row),
        "; ".join(row["restrictions"]) or "-",
    ]


def _room(row: dict[str, Any]) -> str:
    if row["quota_leaves"] is None:
        return "-"
    return f"{row['quota_leaves']} ({row['quota']})"


def _simulated(file: Path, provider: str, location: str) -> list[dict[str, Any]]:
    from bigfleet_azure.backends.simulated.backend import facts
    from bigfleet_azure.daemon.offerings_file import OfferingsError, load

    try:
        offers, warnings = load(file, facts)
    except OfferingsError as error:
        fail(Exit.USAGE, "\n       ".join(error.faults))
    for warning in warnings:
        note(f"Warning: {warning}")
    rows = []
    for each in assign(offers, (), provider=provider, region=location):
        published = facts(each.offer)
        rows.append(
            described(each)
            | {
                "price_usd_per_hour": published.price_usd_per_hour,
                "price_source": "table",
                "interruption_probability": published.interruption_probability,
                "rate_source": "table",
                "quota": None,
                "quota_leaves": None,
                "restrictions": [],
            }
        )
    return rows
