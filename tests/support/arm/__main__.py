"""`make arm`: the double by hand, for a person who wants to point the daemon at something."""

import asyncio
import errno
import sys
from pathlib import Path

import click

from tests.support.arm.cloud import GROUP
from tests.support.arm.double import ArmDouble
from tests.support.arm.identity import CLIENT, SECRET, TENANT

QUICK = 8
"""What `--quick` divides Azure's usual times by: a VM is made in 8 s instead of 67."""
LOOK_SECONDS = 0.2


@click.command()
@click.option("--port", default=8443, show_default=True, help="Port on 127.0.0.1.")
@click.option("--quick", is_flag=True, help="Make and delete machines in seconds.")
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    help="Azure seconds a real second, for clients that share such a clock; the daemon does not.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".cache/arm"),
    show_default=True,
    help="Where the CA's certificate is written.",
)
def main(port: int, speed: float, folder: Path, *, quick: bool) -> None:
    """Serve a fake Azure on this machine until interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    arm = ArmDouble(speed=speed, port=port, folder=folder)
    if quick:
        hurry(arm)
    try:
        asyncio.run(_serve(arm))
    except KeyboardInterrupt:
        pass
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise click.ClickException(
            f"port {port} of 127.0.0.1 is taken: choose another with --port, or any with --port=0"
        ) from error


def hurry(arm: ArmDouble) -> None:
    """Shorten all operations, and do not tell clients to wait."""
    durations = arm.operations.durations
    durations.seconds = {kind: usual / QUICK for kind, usual in durations.seconds.items()}
    arm.operations.retry_after.none()


def introduction(arm: ArmDouble) -> str:
    """What a person needs to point the daemon here, ready to be pasted."""
    return (
        f"The ARM double listens at {arm.endpoint}\n\n"
        "Paste this into a second terminal:\n\n"
        f"export AZURE_TENANT_ID={TENANT}\n"
        f"export AZURE_CLIENT_ID={CLIENT}\n"
        f"export AZURE_CLIENT_SECRET={SECRET}\n"
        f"export AZURE_AUTHORITY_HOST={arm.authority}\n"
        f"export AZURE_SUBSCRIPTION_ID={arm.cloud.subscription}\n"
        f".venv/bin/bigfleet-azure --location {arm.cloud.location} --resource-group {GROUP} \\\n"
        f"  --subnet-id {arm.cloud.subnet_id} \\\n"
        f"  --arm-endpoint {arm.endpoint} --arm-ca {arm.ca_file} \\\n"
        f"  --prices-endpoint {arm.prices_endpoint}\n\n"
        f"A managed identity instead: AZURE_POD_IDENTITY_AUTHORITY_HOST={arm.metadata_endpoint}\n\n"
        "Ctrl-C ends it; nothing is kept. What clients write:\n\n"
    )


async def _serve(arm: ArmDouble) -> None:
    async with arm:
        _say(introduction(arm))
        while True:
            for said in arm.exchanges:
                if said.method != "GET" and said.route != "token":
                    _say(f"{said.status or 'lost'} {said.method} {said.path}\n")
            arm.exchanges.clear()
            await asyncio.sleep(LOOK_SECONDS)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
