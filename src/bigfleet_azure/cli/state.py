"""`bigfleet-azure state …`: look at a state file, copy it, prove that it is sound, begin one.

The first three also work while a daemon uses the file; `import` makes a new one. The store's code
is imported when it is needed.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import (
    Format,
    columns,
    described,
    fail,
    note,
    output_option,
    show_data,
    write,
)
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.domain.operation import operation_id

if TYPE_CHECKING:
    from bigfleet_azure.cli.go_state import GoState
    from bigfleet_azure.cli.imports import Slots
    from bigfleet_azure.store.base import Snapshot

_PATH = click.Path(path_type=Path)
_SERVE = {option.name: option for option in OPTIONS}


@click.group()
def state() -> None:
    """Look at a state file, also while a daemon uses it, or begin one."""


@state.command()
@click.argument("path", type=_PATH)
@output_option(Format.TABLE, Format.JSON, Format.YAML)
def show(path: Path, output: Format) -> None:
    """Show what the state file PATH holds: offerings, machines, operations, debts."""
    from bigfleet_azure.store.base import StoreError
    from bigfleet_azure.store.inspect import read_only_snapshot

    try:
        snapshot = read_only_snapshot(path)
    except StoreError as error:
        fail(Exit.STATE_UNUSABLE, str(error))
    facts = _facts(snapshot)
    if output is Format.TABLE:
        _write_tables(facts)
    else:
        show_data(facts, output)


def _facts(snapshot: "Snapshot") -> dict[str, Any]:
    states = Counter(record.state for record in snapshot.records)
    return {
        "incarnation": snapshot.incarnation,
        "newest_change": snapshot.head,
        "fence_marks_beside_machines": len(snapshot.marks),
        "machines_by_state": {state.name: states[state] for state in sorted(states)},
        "offerings": [
            {
                "prefix": offering.prefix,
                "size": offering.offer.vm_size,
                "zone": offering.offer.zone,
                "capacity": offering.offer.capacity_type.name,
                "slots": offering.offer.count,
            }
            for offering in snapshot.offerings
        ],
        "operations": [
            {
                "machine": record.id,
                "operation": operation_id(snapshot.incarnation, record.operation.number),
                "kind": str(record.operation.kind),
                "accepted": _time(record.operation.accepted_at),
                "deadline": _time(record.operation.deadline),
            }
            for record in snapshot.records
            if record.operation
        ],
        "debts": [
            {
                "machine": debt.machine_id,
                "host": debt.host,
                "reason": debt.reason,
                "since": _time(debt.since),
                "attempts": debt.attempts,
                "last_error": debt.last_error,
            }
            for debt in snapshot.debts
        ],
    }


def _time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _write_tables(facts: dict[str, Any]) -> None:
    write(described({name: fact for name, fact in facts.items() if not isinstance(fact, list)}))
    for name, rows in facts.items():
        if isinstance(rows, list) and rows:
            head = [title.replace("_", " ").upper() for title in rows[0]]
            cells = [[str(cell) or "-" for cell in row.values()] for row in rows]
            write(f"\n{name}:\n{columns(head, cells)}")


@state.command()
@click.argument("path", type=_PATH)
@click.argument("target", type=_PATH)
def backup(path: Path, target: Path) -> None:
    """Copy the state file PATH, as it is at one moment, to TARGET, which must not exist.

    Keep the key file beside it elsewhere: with both, bootstrap blobs can be read.
    """
    from bigfleet_azure.store import inspect
    from bigfleet_azure.store.base import StoreError

    try:
        inspect.backup(path, target)
    except StoreError as error:
        fail(Exit.STATE_UNUSABLE, str(error))
    note(f"{path} was copied to {target}")


@state.command()
@click.argument("path", type=_PATH)
def verify(path: Path) -> None:
    """Check every page of the state file PATH and read everything in it."""
    from bigfleet_azure.store import inspect

    problems = inspect.verify(path)
    if problems:
        fail(Exit.STATE_UNUSABLE, "\n       ".join(problems))
    write(f"{path} is sound\n")


def _as_served(_context: click.Context, parameter: click.Parameter, text: str) -> Any:
    """Reads a value as the daemon's flag of that name does; an empty one is left empty."""
    assert parameter.name is not None
    try:
        return _SERVE[parameter.name].parse(text) if text else text
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from error


@state.command("import")
@click.argument("file", type=_PATH)
@click.option(
    "--state",
    "target",
    envvar=_SERVE["state"].env,
    show_envvar=True,
    required=True,
    type=_PATH,
    help="The new state file; nothing must be there.",
)
@click.option(
    "--offerings",
    envvar=_SERVE["offerings"].env,
    show_envvar=True,
    type=_PATH,
    help="The daemon's offerings file: marks of slots that it lacks stay under their old ids only.",
)
@click.option(
    "--provider",
    envvar=_SERVE["provider"].env,
    show_envvar=True,
    default="",
    callback=_as_served,
    help="As the daemon will be given; the old ids' own by default.",
)
@click.option(
    "--location",
    envvar=_SERVE["location"].env,
    show_envvar=True,
    default="",
    callback=_as_served,
    help="As the daemon will be given; taken from the zones by default.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@output_option(Format.TABLE, Format.JSON, Format.YAML)
def import_(  # noqa: PLR0917 - click gives them by name
    file: Path,
    target: Path,
    offerings: Path | None,
    provider: str,
    location: str,
    dry_run: bool,
    output: Format,
) -> None:
    """Carry the fence marks of FILE, a JSON state of the Go provider, into a new state file.

    What is bound is listed: it has to be drained by the Go provider. Every fault is told, and then
    nothing is written.
    """
    from bigfleet_azure.cli.imports import plan
    from bigfleet_azure.kit.clock import SystemClock
    from bigfleet_azure.store import making
    from bigfleet_azure.store.base import StoreError

    now = SystemClock().now()
    planned = plan(_go_state(file), _slots(offerings, provider, location), now)
    try:
        if dry_run:
            making.check_absent(target)
        else:
            making.make(target, planned.marks, now)
    except StoreError as error:
        fail(Exit.STATE_UNUSABLE, str(error))
    if output is Format.TABLE:
        _write_tables(_without_metadata(planned.facts))
    else:
        show_data(planned.facts, output)
    note(f"{target}: {'would be' if dry_run else 'was'} made with {len(planned.marks)} fence marks")
    if bound := len(planned.facts["bound_machines"]):
        note(
            f"Warning: {bound} machines are bound by the Go provider and are not taken over: their "
            "VMs have other names and no tag bigfleet-owner. Let the Go provider drain and delete "
            "them."
        )


def _without_metadata(facts: dict[str, Any]) -> dict[str, Any]:
    """The report as a table: what a shard keeps with a machine is too long for one."""
    columns_kept = ("machine", "slot_here", "cluster", "host")
    bound = [{name: each[name] for name in columns_kept} for each in facts["bound_machines"]]
    return {**facts, "bound_machines": bound}


def _go_state(file: Path) -> "GoState":
    from bigfleet_azure.cli.go_state import GoStateError, read

    try:
        return read(file)
    except GoStateError as error:
        fail(Exit.STATE_UNUSABLE, "\n       ".join(error.faults))


def _slots(offerings: Path | None, provider: str, location: str) -> "Slots":
    from bigfleet_azure.cli.imports import Slots, shared_places

    if offerings is None:
        return Slots(provider=provider, location=location)
    from bigfleet_azure.backends.simulated.backend import facts
    from bigfleet_azure.daemon.offerings_file import OfferingsError, load

    try:
        offers, _ = load(offerings, facts)
    except OfferingsError as error:
        fail(Exit.USAGE, "\n       ".join(error.faults))
    entries = json.loads(offerings.read_bytes().decode("utf-8-sig"))
    return Slots(
        provider=provider,
        location=location,
        offers=offers,
        shared=shared_places(entries, offers),
    )
