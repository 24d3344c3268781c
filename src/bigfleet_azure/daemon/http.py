"""Which HTTP listeners there are, and what is served on which.

Imported after gRPC is open, in a thread: aiohttp takes longer to import than the first List may
wait.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from aiohttp import web

from bigfleet_azure.daemon.assembly import Parts, reporter
from bigfleet_azure.daemon.callbacks import CallbackKeys
from bigfleet_azure.daemon.settings import Settings
from bigfleet_azure.daemon.values import Address
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.telemetry.metrics import Metrics
from bigfleet_azure.web.app import StatusPages
from bigfleet_azure.web.listener import HttpListenError, HttpTls, Listener
from bigfleet_azure.web.notices import NoticeHandler, Senders

logger = logging.getLogger(__name__)

METRICS_CONDITION = "metrics-listener"
CALLBACK_CONDITION = "callback-listener"
CALLBACK_TLS_CONDITION = "callback-tls"


async def open_listeners(
    settings: Settings,
    parts: Parts,
    keys: CallbackKeys,
    *,
    metrics: Metrics,
    conditions: Conditions,
    clock: Clock,
    ready: Callable[[], bool],
) -> list[Listener]:
    """Open what the settings ask for; what cannot be opened is a condition, and no more."""
    handler = _handler(settings, parts, keys, metrics)
    opened: list[Listener] = []

    async def listen(listener: Listener, address: Address, condition: str, what: str) -> None:
        try:
            port = await listener.start(address.host, address.port)
        except HttpListenError as error:
            conditions.set(condition, f"{error}; gRPC is served all the same")
            return
        opened.append(listener)
        logger.info("serving %s", what, extra={"address": str(replace(address, port=port))})

    if settings.metrics_addr is not None:
        app = web.Application()
        StatusPages(
            metrics,
            conditions,
            clock,
            ready=ready,
            refresh=parts.refresh_metrics,
            notes=parts.notes,
        ).mount(app)
        if handler is not None:
            handler.mount(app)
        listener = Listener(app, "--metrics-addr")
        await listen(listener, settings.metrics_addr, METRICS_CONDITION, "HTTP")
    if settings.callback_addr is not None and handler is not None:
        app = web.Application()
        handler.mount(app)
        listener = Listener(
            app,
            "--callback-addr",
            tls=_tls(settings),
            report=reporter(conditions, CALLBACK_TLS_CONDITION),
        )
        await listen(listener, settings.callback_addr, CALLBACK_CONDITION, "notices")
    return opened


def _handler(
    settings: Settings, parts: Parts, keys: CallbackKeys, metrics: Metrics
) -> NoticeHandler | None:
    """Who answers notices; None when nobody may send one, or there are no real machines."""
    nobody = settings.eviction_token is None and settings.callback_key_file is None
    if settings.azure is None or nobody:
        return None
    senders = Senders(shared=settings.eviction_token, keys=keys.current, made_by=parts.made_by)
    return NoticeHandler(parts.notices, senders, metrics)


def _tls(settings: Settings) -> HttpTls | None:
    if settings.callback_tls_cert is None or settings.callback_tls_key is None:
        return None
    return HttpTls(settings.callback_tls_cert, settings.callback_tls_key)
