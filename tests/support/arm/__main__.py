"""`make arm`: the double by hand, for a person who wants to point the daemon at something."""

import asyncio
import contextlib
import sys
from pathlib import Path

import click

from tests.support.arm.cloud import GROUP
from tests.support.arm.double import ArmDouble
from tests.support.arm.identity import CLIENT, SECRET, TENANT


@click.command()
@click.option("--port", default=8443, show_default=True, help="Port on 127.0.0.1.")
@click.option("--speed", default=1.0, show_default=True, help="Azure seconds a real second.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".cache/arm"),
    show_default=True,
    help="Where the CA's certificate is written.",
)
def main(port: int, speed: float, folder: Path) -> None:
    """Serve a fake Azure on this machine until interrupted."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(port, speed, folder))


async def _serve(port: int, speed: float, folder: Path) -> None:
    async with ArmDouble(speed=speed, port=port, folder=folder, record=False) as arm:
        sys.stdout.write(
            f"The ARM double listens at {arm.endpoint}\n"
            f"Its CA is in {arm.ca_file}\n\n"
            "For a client in another terminal:\n\n"
            f"  export AZURE_SUBSCRIPTION_ID={arm.cloud.subscription}\n"
            f"  export AZURE_TENANT_ID={TENANT}\n"
            f"  export AZURE_CLIENT_ID={CLIENT}\n"
            f"  export AZURE_CLIENT_SECRET={SECRET}\n"
            f"  export AZURE_AUTHORITY_HOST={arm.authority}\n\n"
            f"  --arm-endpoint {arm.endpoint} --arm-ca {arm.ca_file}\n"
            f"  location {arm.cloud.location}, resource group {GROUP},\n"
            f"  subnet {arm.cloud.subnet_id}\n\n"
            "Ctrl-C ends it; nothing is kept.\n"
        )
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
