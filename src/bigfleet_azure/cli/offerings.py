"""`bigfleet-azure offerings …`: look at an offerings file before a daemon reads it."""

from pathlib import Path
from typing import Any

import click

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import Format, columns, fail, note, output_option, show_data, write
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.domain.offering import Assignment, Offering, assign

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
@output_option(*Format)
def check(file: Path, provider: str, location: str, output: Format) -> None:
    """Check FILE and show what a daemon with a new state would offer.

    Every fault is listed. Prices are those of the simulated region.
    """
    from bigfleet_azure.backends.simulated.backend import facts
    from bigfleet_azure.daemon.offerings_file import OfferingsError, load

    try:
        offers, warnings = load(file, facts)
    except OfferingsError as error:
        fail(Exit.USAGE, "\n       ".join(error.faults))
    for warning in warnings:
        note(f"Warning: {warning}")
    rows = [_row(each) for each in assign(offers, (), provider=provider, region=location)]
    if output is Format.TABLE:
        head = ("FIRST ID", "SIZE", "ZONE", "CAPACITY", "SLOTS", "USD/HOUR")
        write(columns(head, [[str(cell) for cell in row.values()] for row in rows]))
        note(f"{file}: {len(rows)} offerings, {sum(row['slots'] for row in rows)} slots")
    elif output is Format.NAME:
        write("".join(f"{row['first_id']}\n" for row in rows))
    else:
        show_data(rows, output)


def _row(each: Assignment) -> dict[str, Any]:
    """What is shown of an offering."""
    from bigfleet_azure.backends.simulated.backend import facts

    offer = each.offer
    published = facts(offer)
    offering = Offering(number=each.number, prefix=each.prefix, offer=offer, facts=published)
    return {
        "first_id": offering.machine_id(0),
        "vm_size": offer.vm_size,
        "zone": offer.zone,
        "capacity_type": offer.capacity_type.name,
        "slots": offer.count,
        "price_usd_per_hour": published.price_usd_per_hour,
    }
