"""The HTTP listener for operators: `/metrics`, `/healthz` and `/readyz`.

It only shows; nothing here changes a machine. The daemon imports this module after gRPC is open,
because aiohttp is slow to import, and goes on without it when the port is taken.
"""

import errno
import os
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.conditions import Condition, Conditions
from bigfleet_azure.telemetry.metrics import Metrics

_SHUTDOWN_SECONDS = 1.0
"""How long an answer under way may hold up the end of the process."""


class HttpListenError(Exception):
    """The listener cannot be opened; the text says where, why, and which flag changes it."""


class WebServer:
    """One HTTP listener, from `start` to `close`."""

    def __init__(
        self,
        metrics: Metrics,
        conditions: Conditions,
        clock: Clock,
        *,
        ready: Callable[[], bool],
        refresh: Callable[[], None],
        notes: Callable[[], Mapping[str, str]],
    ) -> None:
        """Take what is shown.

        Args:
            ready: whether the daemon serves.
            refresh: brings gauges that are counted on demand up to date, before each scrape.
            notes: named facts to be shown beside the conditions, which are no trouble of ours.
        """
        self._metrics = metrics
        self._conditions = conditions
        self._clock = clock
        self._ready = ready
        self._refresh = refresh
        self._notes = notes
        app = web.Application()
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", self._show_health)
        app.router.add_get("/readyz", self._show_readiness)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; an empty host means every interface.

        Returns:
            The port in use, which matters when `port` is 0.

        Raises:
            HttpListenError: the address is taken or not ours.
        """
        try:
            listener = _listen(host, port)
        except OSError as error:
            raise HttpListenError(f"--metrics-addr: {_why(host, port, error)}") from error
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        bound: int = listener.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening; does nothing when it never did."""
        await self._runner.cleanup()

    async def _show_metrics(self, request: web.Request) -> web.Response:
        self._refresh()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(
            body=encode(self._metrics.registry), headers={"Content-Type": content_type}
        )

    async def _show_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _show_readiness(self, request: web.Request) -> web.Response:
        """200 or 503 by `ready` alone; conditions and notes are shown, but change nothing."""
        ready = self._ready()
        status = 200 if ready else 503
        verdict = "ready" if ready else "not ready"
        if "verbose" not in request.query:
            return web.Response(text=verdict, status=status)
        conditions = self._conditions.standing()
        notes = self._notes()
        now = self._clock.now()
        if _wants_json(request):
            shown = [
                {
                    "name": c.name,
                    "message": c.message,
                    "since": c.since,
                    "age_seconds": now - c.since,
                }
                for c in conditions
            ]
            answer = {"ready": ready, "conditions": shown, "notes": dict(notes)}
            return web.json_response(answer, status=status)
        lines = [verdict, *(_line(condition, now) for condition in conditions)]
        lines += [f"{name}: {' '.join(text.split())}" for name, text in notes.items()]
        return web.Response(text="".join(f"{line}\n" for line in lines), status=status)


def _wants_json(request: web.Request) -> bool:
    return request.query.get("format") == "json" or "application/json" in request.headers.get(
        "Accept", ""
    )


def _line(condition: Condition, now: float) -> str:
    age = timedelta(seconds=max(0, round(now - condition.since)))
    return f"{condition.name} (for {age}): {' '.join(condition.message.split())}"


def _listen(host: str, port: int) -> socket.socket:
    if host:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise
        # No IPv6 here, or none that also takes IPv4.
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 - what no host asks for


def _why(host: str, port: int, error: OSError) -> str:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, socket.gaierror):
        return f"{where} cannot be resolved: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use already"
    return f"cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}"
