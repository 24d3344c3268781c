"""What commands print: machines and operations as a table, JSON, YAML or bare names.

Results go to standard output, everything else to standard error. No gRPC and no wire type here.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NoReturn

import click

from bigfleet_azure.cli.exits import Exit

_COLOURS = {
    "IDLE": "cyan",
    "CONFIGURED": "green",
    "CREATING": "yellow",
    "CONFIGURING": "yellow",
    "DRAINING": "yellow",
    "DELETING": "yellow",
    "FAILED": "red",
}


class Format(StrEnum):
    """The values of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class CommandFailed(click.ClickException):
    """A command that ends with one line on standard error and a documented exit code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        # click reads it from the exception; its type says "of the class".
        self.exit_code = int(code)  # type: ignore[misc]


def fail(code: Exit, message: str) -> NoReturn:
    """End the command with `code`; `message` says what happened, to what, and what to do now."""
    raise CommandFailed(code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine as the daemon reports it, in words: enum values without their prefixes.

    Attributes:
        price_per_hour: US dollars.
        interruption_probability: per hour.
        host: the substrate's reference as {provider, ref}; None when there is no host.
    """

    id: str
    state: str
    instance_type: str
    zone: str
    capacity_type: str
    price_per_hour: float
    interruption_probability: float
    host: Mapping[str, str] | None
    cluster: str
    shard_metadata: Mapping[str, str]
    last_error: str
    resources: Mapping[str, str]
    allocatable: Mapping[str, str]
    labels: Mapping[str, str]


def show_machines(machines: Sequence[Machine], output: Format) -> None:
    """Print a list of machines in the order of their ids."""
    ordered = sorted(machines, key=lambda machine: machine.id)
    if output is Format.TABLE:
        _show_table(ordered)
    elif output is Format.NAME:
        write("".join(f"{machine.id}\n" for machine in ordered))
    else:
        show_data([asdict(machine) for machine in ordered], output)


def _show_table(machines: Sequence[Machine]) -> None:
    failed = any(machine.last_error for machine in machines)
    head = ["ID", "STATE", "SIZE", "ZONE", "CAPACITY", "USD/HOUR", "CLUSTER"]
    rows = [
        [
            machine.id,
            machine.state,
            machine.instance_type,
            machine.zone,
            machine.capacity_type,
            f"{machine.price_per_hour:.4f}",
            machine.cluster or "-",
            *([machine.last_error or "-"] if failed else []),
        ]
        for machine in machines
    ]
    if failed:
        head.append("LAST ERROR")
    write(columns(head, rows))


def show_machine(machine: Machine, output: Format) -> None:
    """Print everything about one machine."""
    if output is Format.NAME:
        write(f"{machine.id}\n")
    elif output is Format.TABLE:
        write(described(asdict(machine)))
    else:
        show_data(asdict(machine), output)


def show_data(data: Any, output: Format) -> None:
    """Print `data` as JSON, or as YAML when that was asked for."""
    if output is Format.YAML:
        import yaml

        write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def described(facts: Mapping[str, Any]) -> str:
    """Facts one below the other; what a map holds is indented, what is empty is a dash."""
    width = max(len(name) for name in facts)
    lines = []
    for name, value in facts.items():
        title = f"{name.replace('_', ' ')}:".ljust(width + 1)
        if isinstance(value, Mapping) and value:
            lines.append(title.rstrip())
            lines += [f"  {printable(key)}: {printable(str(value[key]))}" for key in sorted(value)]
        else:
            text = printable(str(value)) if value not in ("", None, {}) else "-"
            lines.append(f"{title} {coloured(text) if name == 'state' else text}")
    return "\n".join([*lines, ""])


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; states are coloured where a person reads them."""
    table = [list(head), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(head))]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(coloured(cell) for cell in cells).rstrip())
    return "\n".join([*lines, ""])


def coloured(text: str) -> str:
    """A state's name in its colour, any other text as it is."""
    colour = _COLOURS.get(text.strip())
    return click.style(text, fg=colour) if colour and _colours_wanted() else text


def _colours_wanted() -> bool:
    """See https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """`text` with control characters spelled out: they must not reach a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def write(text: str) -> None:
    """Write a result to standard output, at once."""
    click.echo(text, nl=False)


def note(text: str) -> None:
    """Say something beside the result, on standard error."""
    click.echo(text, err=True)


def output_option(*formats: Format) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The `--output` option of a command that can print in `formats`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([str(each) for each in formats]),
        callback=lambda _context, _parameter, value: Format(value),
        default=str(Format.TABLE),
        show_default=True,
        help="How the result is printed.",
    )
