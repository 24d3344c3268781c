"""A server in a process of its own, in which gRPC is imported as the daemon does it.

Arguments: certificate, key and optionally CA. Prints the port it listens on.
"""

import asyncio
import sys
from pathlib import Path

from bigfleet_azure.rpc.minimum_tls import require_tls13

require_tls13()


async def main() -> None:
    from bigfleet_azure.kit.clock import SystemClock
    from bigfleet_azure.rpc.server import RpcServer
    from bigfleet_azure.rpc.tls import Certificates, TlsFiles
    from bigfleet_azure.telemetry.metrics import Metrics
    from tests.rpc.support import FakeProvider

    certificate, key, *ca = map(Path, sys.argv[1:])
    metrics = Metrics()
    certificates = Certificates(
        TlsFiles(certificate=certificate, key=key, ca=ca[0] if ca else None),
        SystemClock(),
        metrics,
        lambda _: None,
    )
    server = RpcServer(FakeProvider(), metrics, certificates=certificates)
    print(await server.start("127.0.0.1:0"), flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
