"""`bigfleet-azure state …`: look at a state file, copy it, prove that it is sound.

All three also work while a daemon uses the file. The store's code is imported when it is needed.
"""

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
from bigfleet_azure.domain.operation import operation_id

if TYPE_CHECKING:
    from bigfleet_azure.store.base import Snapshot

_PATH = click.Path(path_type=Path)


@click.group()
def state() -> None:
    """Look at a state file, also while a daemon uses it."""


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
