"""The tools beside `serve`, as one click group."""

from collections.abc import Sequence

import click

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.machines import machines
from bigfleet_azure.cli.offerings import offerings
from bigfleet_azure.cli.prices import prices
from bigfleet_azure.cli.state import state


@click.group(
    epilog="Flags without a command mean `serve`: `bigfleet-azure --seed-count 32`. "
    "`bigfleet-azure --version` prints the version."
)
def bigfleet_azure() -> None:
    """Azure capacity provider for BigFleet: the daemon, and the tools beside it."""


@bigfleet_azure.command("serve", add_help_option=False)
def serve() -> None:
    """Run the daemon (`serve --help` lists its flags)."""
    raise AssertionError("cli.main takes this command before click does")


for command in (machines, offerings, prices, state):
    bigfleet_azure.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run the command in `arguments`; return its exit code."""
    try:
        ended = bigfleet_azure.main(
            list(arguments), prog_name="bigfleet-azure", standalone_mode=False
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return Exit.INTERRUPTED
    except SystemExit:
        # click leaves so in one case only: who reads the result has closed the pipe, content.
        return Exit.OK
    return ended if isinstance(ended, int) else Exit.OK
