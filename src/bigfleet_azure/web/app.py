"""What operators look at over HTTP: `/metrics`, `/healthz` and `/readyz`.

It only shows; nothing here changes a machine. The daemon imports this module after gRPC is open,
because aiohttp is slow to import, and goes on without it when the port is taken.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.conditions import Condition, Conditions
from bigfleet_azure.telemetry.metrics import Metrics


class StatusPages:
    """Mounted on the listener of --metrics-addr."""

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

    def mount(self, app: web.Application) -> None:
        """Serve the pages on `app`."""
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", self._show_health)
        app.router.add_get("/readyz", self._show_readiness)

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
