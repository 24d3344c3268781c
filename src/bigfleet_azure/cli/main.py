"""Which command is meant. Bare flags mean `serve`, as they did for the Go provider.

The daemon's start must not pay for the tools beside it: their libraries are imported only when
one of them is called.
"""

import sys
from collections.abc import Sequence

from bigfleet_azure import __version__
from bigfleet_azure.cli.exits import Exit

_HELP = ("--help", "-help", "-h")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (without the program's name) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else "serve"
    if first in ("--version", "-version"):
        sys.stdout.write(f"bigfleet-azure {__version__}\n")
        return Exit.OK
    if first == "serve" or (first.startswith("-") and first not in _HELP):
        from bigfleet_azure.cli.serve import help_text, serve

        flags = arguments[1:] if first == "serve" else arguments
        if any(word in flags for word in _HELP):
            sys.stdout.write(help_text())
            return Exit.OK
        return serve(flags)
    from bigfleet_azure.cli.commands import run

    return run(["--help"] if first in _HELP else arguments)
