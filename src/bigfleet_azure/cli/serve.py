"""`bigfleet-azure serve`: settings in, daemon started, troubles of the start as one text."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.daemon.options import OPTIONS, Option
from bigfleet_azure.daemon.settings import SettingsError, resolve
from bigfleet_azure.store.base import StoreUnusable

_INTRODUCTION = """\
Usage: bigfleet-azure [serve] [flags]

Serve the capacity provider of one Azure region over gRPC, until SIGTERM.

A flag is written --flag=value, --flag value or -flag value; a boolean bare or --flag=false.
Durations are written 500ms, 90s, 8m or 1h30m. Each setting also has an environment variable,
and a key of the flag's name in the YAML file of --config. A flag goes before the variable,
the variable before the file, the file before the default.
"""
_INDENT = 6


def serve(argv: Sequence[str]) -> int:
    """Run the daemon until it is told to stop; return the exit code."""
    try:
        settings = resolve(argv, os.environ, lambda path: Path(path).read_bytes())
    except SettingsError as error:
        return _complain(
            Exit.USAGE, *error.faults, hint="`bigfleet-azure serve --help` explains every flag."
        )
    from bigfleet_azure.daemon.app import CannotListen, StartError, run

    try:
        return run(settings)
    except CannotListen as error:
        return _complain(Exit.CANNOT_LISTEN, str(error))
    except StartError as error:
        return _complain(Exit.USAGE, *str(error).splitlines())
    except StoreUnusable as error:
        return _complain(Exit.STATE_UNUSABLE, str(error))


def _complain(code: Exit, *faults: str, hint: str = "") -> Exit:
    lines = [f"Error: {fault}" for fault in faults]
    sys.stderr.write("\n".join([*lines, *([hint] if hint else []), ""]))
    return code


def help_text() -> str:
    """Every option by group, with its default and its variable."""
    from shutil import get_terminal_size

    width = min(get_terminal_size().columns, 100)
    lines = [_INTRODUCTION.rstrip()]
    group = ""
    for option in OPTIONS:
        if option.group != group:
            group = option.group
            lines += ["", f"{group}:"]
        lines += _described(option, width)
    return "\n".join([*lines, ""])


def _described(option: Option, width: int) -> Iterator[str]:
    from textwrap import wrap

    if not option.env_only:
        yield f"  --{option.name} {option.metavar}".rstrip()
    default = option.derived or option.default
    text = option.help + (f" Default: {default}." if default else "")
    yield from wrap(
        text,
        width,
        initial_indent=" " * _INDENT,
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
    )
    for variable in (option.env, *option.env_aliases):
        yield " " * _INDENT + f"${variable}"
