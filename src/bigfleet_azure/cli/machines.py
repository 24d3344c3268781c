"""`bigfleet-azure machines …`: look at and drive the machines of a running daemon."""

import functools
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import (
    CommandFailed,
    Format,
    Machine,
    coloured,
    fail,
    note,
    output_option,
    printable,
    show_data,
    show_machine,
    show_machines,
    write,
)
from bigfleet_azure.cli.waiting import wait_for
from bigfleet_azure.daemon.settings import SERVER_VARIABLE
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.kit import duration

if TYPE_CHECKING:
    from bigfleet_azure.cli.remote import Accepted, Remote

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

WATCH_SECONDS = 1.0
"""Pause between two questions for changes."""

Command = Callable[..., None]


def _as_duration(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    try:
        found = duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}.", context, parameter) from None
    if found < timedelta():
        raise click.BadParameter(f"{value!r} is negative.", context, parameter)
    return found


def _as_int64(context: click.Context, parameter: click.Parameter, value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise click.BadParameter(f"{value} does not fit 64 bits.", context, parameter)
    return value


def connection(command: Command) -> Command:
    """Add the flags that name the daemon, and open the connection for the command."""

    @click.option(
        "--addr",
        envvar=SERVER_VARIABLE,
        show_envvar=True,
        default="localhost:9000",
        show_default=True,
        metavar="HOST:PORT",
        help="gRPC address of the daemon.",
    )
    @click.option(
        "--tls-ca", type=_FILE, help="CA bundle (PEM) that the daemon's certificate is from."
    )
    @click.option("--tls-cert", type=_FILE, help="Client certificate (PEM), for mutual TLS.")
    @click.option("--tls-key", type=_FILE, help="Key of the client certificate (PEM).")
    @click.option(
        "--tls-server-name",
        default="",
        metavar="NAME",
        help="Name in the daemon's certificate, when it is not the host of --addr.",
    )
    @functools.wraps(command)
    def connected(
        addr: str,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        tls_server_name: str,
        **rest: Any,
    ) -> None:
        if (tls_cert is None) != (tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key are given together or not at all.")
        from bigfleet_azure.cli.remote import Endpoint, Remote

        endpoint = Endpoint(
            address=f"localhost{addr}" if addr.startswith(":") else addr,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_server_name=tls_server_name,
        )
        with Remote(endpoint) as remote:
            command(remote=remote, **rest)

    return connected


def mutation(kind: Kind) -> Callable[[Callable[..., "Accepted"]], Command]:
    """Add what every mutation takes; the command returns what the daemon accepted."""

    def decorate(command: Callable[..., "Accepted"]) -> Command:
        @click.argument("machine_id", metavar="ID")
        @click.option("--wait", is_flag=True, help="Wait until the operation has ended.")
        @click.option(
            "--timeout",
            callback=_as_duration,
            default="10m",
            metavar="DURATION",
            show_default=True,
            help="Longest --wait.",
        )
        @click.option("--shard", default="", metavar="ID", help="Fencing token: the shard's id.")
        @click.option(
            "--epoch",
            type=int,
            callback=_as_int64,
            default=0,
            metavar="N",
            help="Fencing token: the shard's epoch.",
        )
        @click.option(
            "--sequence",
            type=int,
            callback=_as_int64,
            default=0,
            metavar="N",
            help="Fencing token: the sequence number.",
        )
        @output_option(*Format)
        @connection
        @functools.wraps(command)
        def run(
            *,
            remote: "Remote",
            machine_id: str,
            wait: bool,
            timeout: timedelta,
            shard: str,
            epoch: int,
            sequence: int,
            output: Format,
            **rest: Any,
        ) -> None:
            accepted = command(remote, machine_id, Token(shard, epoch, sequence), **rest)
            machine = accepted.machine
            try:
                if wait:
                    machine = wait_for(remote, kind, machine, timeout)
            except KeyboardInterrupt:
                fail(Exit.INTERRUPTED, f"{kind} {machine_id}: no longer waited for; it goes on")
            _show_accepted(accepted.operation_id, machine, output)

        return run

    return decorate


def _show_accepted(operation_id: str, machine: Machine, output: Format) -> None:
    if output is Format.NAME:
        write(f"{machine.id}\n")
    elif output is Format.TABLE:
        write(f"{machine.id} is {coloured(machine.state)} (operation {operation_id})\n")
    else:
        show_data({"operation_id": operation_id, "machine": asdict(machine)}, output)


@click.group()
def machines() -> None:
    """Look at and drive the machines of a running daemon."""


@machines.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE[,STATE…]",
    callback=lambda _context, _parameter, values: _states(values),
    help="Only machines in these states, such as idle,configured.",
)
@output_option(*Format)
@connection
def list_machines(remote: "Remote", states: list[State], output: Format) -> None:
    """List machines."""
    found, _ = remote.list(states)
    show_machines(found, output)


@machines.command("get")
@click.argument("machine_id", metavar="ID")
@output_option(*Format)
@connection
def get_machine(remote: "Remote", machine_id: str, output: Format) -> None:
    """Show everything about one machine."""
    show_machine(remote.get(machine_id), output)


@machines.command("create")
@mutation(Kind.CREATE)
def create_machine(remote: "Remote", machine_id: str, token: Token) -> "Accepted":
    """Turn a speculative slot into a running host."""
    return remote.create(machine_id, token)


@machines.command("configure")
@click.option("--cluster", required=True, metavar="ID", help="Cluster that the host is to join.")
@click.option(
    "--blob-file",
    type=click.File("rb"),
    metavar="FILE",
    help="Bootstrap blob to hand to the host; - is standard input.",
)
@click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _parameter, values: _pairs(values),
    help="Shard metadata to bind; may be given several times.",
)
@mutation(Kind.CONFIGURE)
def configure_machine(
    remote: "Remote",
    machine_id: str,
    token: Token,
    *,
    cluster: str,
    blob_file: BinaryIO | None,
    metadata: dict[str, str],
) -> "Accepted":
    """Bind an idle host to a cluster and join it as a node."""
    blob = blob_file.read() if blob_file else b""
    return remote.configure(machine_id, token, cluster=cluster, blob=blob, metadata=metadata)


@machines.command("drain")
@click.option(
    "--grace",
    callback=_as_duration,
    default="30s",
    metavar="DURATION",
    show_default=True,
    help="Time workloads get for graceful shutdown, in whole seconds.",
)
@mutation(Kind.DRAIN)
def drain_machine(
    remote: "Remote", machine_id: str, token: Token, *, grace: timedelta
) -> "Accepted":
    """Take a configured host out of its cluster."""
    if grace % timedelta(seconds=1):
        raise click.UsageError(f"--grace {duration.spell(grace)} is not a number of whole seconds.")
    return remote.drain(machine_id, token, grace_seconds=grace // timedelta(seconds=1))


@machines.command("delete")
@mutation(Kind.DELETE)
def delete_machine(remote: "Remote", machine_id: str, token: Token) -> "Accepted":
    """Give an idle host back; the slot stays."""
    return remote.delete(machine_id, token)


@machines.command("watch")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE[,STATE…]",
    callback=lambda _context, _parameter, values: _states(values),
    help="Only machines that come into these states.",
)
@output_option(Format.TABLE, Format.JSON, Format.NAME)
@connection
def watch_machines(remote: "Remote", states: list[State], output: Format) -> None:
    """Print every change of a machine, one line each, until Ctrl-C.

    Changes are asked for once a second: a state that lasted shorter is not seen. A machine that
    is offered no longer is not shown either.
    """
    found, revision = remote.list()
    note(f"watching {len(found)} machines of {remote.address}; Ctrl-C ends it")
    answers = True
    try:
        while True:
            time.sleep(WATCH_SECONDS)
            try:
                changed, revision = remote.list(states, revision)
            except CommandFailed as error:
                if error.exit_code != Exit.UNREACHABLE:
                    raise
                if answers:
                    note(f"{error.format_message()}; asking again every second")
                answers = False
                continue
            answers = True
            for machine in changed:
                _show_change(machine, output)
    except KeyboardInterrupt:
        return


def _show_change(machine: Machine, output: Format) -> None:
    if output is Format.NAME:
        write(f"{machine.id}\n")
    elif output is Format.JSON:
        write(json.dumps(asdict(machine), ensure_ascii=False) + "\n")
    else:
        when = datetime.now().astimezone().strftime("%H:%M:%S")
        beside = machine.last_error or (machine.cluster and f"cluster {machine.cluster}")
        line = f"{when}  {machine.id}  {coloured(machine.state)}  {printable(beside)}"
        write(f"{line.rstrip()}\n")


def _states(values: tuple[str, ...]) -> list[State]:
    names = [name.strip().upper() for value in values for name in value.split(",")]
    unknown = [name for name in names if name not in State.__members__]
    if unknown:
        known = ", ".join(state.name.lower() for state in State)
        raise click.BadParameter(f"{', '.join(unknown).lower()!r} is no state; known are {known}.")
    return [State[name] for name in dict.fromkeys(names)]


def _pairs(values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE.")
    return {key: value for key, _, value in pairs}
