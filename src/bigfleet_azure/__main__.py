"""Entry point of the console script and of `python -m bigfleet_azure`.

What stands before the last import must come before anything imports gRPC; nothing else belongs
here.
"""

import os

from bigfleet_azure.rpc.minimum_tls import require_tls13

require_tls13()
# gRPC's core writes lines of its own among ours, one for every failed handshake; whoever looks for
# the cause of one can ask for them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from bigfleet_azure.cli.main import main  # noqa: E402 - after the call above

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
