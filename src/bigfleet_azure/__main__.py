"""Entry point of the console script and of `python -m bigfleet_azure`.

The call below must come before anything imports gRPC; nothing else belongs here.
"""

from bigfleet_azure.rpc.minimum_tls import require_tls13

require_tls13()

from bigfleet_azure.cli.main import main  # noqa: E402 - after the call above

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
