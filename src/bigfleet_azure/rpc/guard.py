"""What surrounds every method: timing, metrics, one log line, and a net under bugs.

Wrapped around the methods once, at registration, which costs a call less than a gRPC interceptor.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, NoReturn

import grpc

from bigfleet_azure.rpc.status import GO_NAMES, Rejection
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[bytes, Context], Awaitable[bytes]]

_MAX_STATUS_CHARACTERS = 500
"""Statuses travel as HTTP/2 trailers, which clients cap at 8 KiB (gRPC's default), and each
character may become 12 bytes there; a text may quote what the caller sent, of any size."""


class _Asked(NamedTuple):
    """One call, for its log line."""

    raw: bytes
    context: Context
    started: float


def guarded(
    name: str,
    method: Method,
    metrics: Metrics,
    *,
    mutation: bool,
    machine_of: Callable[[bytes], str] | None = None,
) -> Method:
    """Surround `method`, whose short name is `name`.

    `machine_of` reads the machine's id from a request, for the log line.

    A `Rejection` becomes its status; any other exception is a bug: INTERNAL to the caller, counted,
    logged with its trace, and the process goes on. Answers are logged at debug level, because each
    operation has its own line; refused mutations and callers without permission at higher ones.
    """
    duration = metrics.grpc_duration.labels(name)
    requests = {code: metrics.grpc_requests.labels(name, GO_NAMES[code]) for code in GO_NAMES}
    answered = requests[grpc.StatusCode.OK]
    stale = metrics.fence_rejections.labels(name) if mutation else None

    async def call(raw: bytes, context: Context) -> bytes:
        started = time.perf_counter()
        try:
            answer = await method(raw, context)
        except Rejection as rejection:
            code, message = rejection.code, rejection.message
        except asyncio.CancelledError:
            # The caller hung up or its deadline passed.
            ended(grpc.StatusCode.CANCELLED, "", _Asked(raw, context, started))
            raise
        except Exception:
            metrics.panics.inc()
            extra = {"method": name, **named(raw), "peer": context.peer()}
            logger.exception("bug in %s", name, extra=extra)
            code, message = grpc.StatusCode.INTERNAL, f"bug in {name}; the daemon's log has more"
        else:
            answered.inc()
            duration.observe(time.perf_counter() - started)
            if logger.isEnabledFor(logging.DEBUG):
                log(logging.DEBUG, grpc.StatusCode.OK, "", _Asked(raw, context, started))
            return answer
        message = _shortened(message)
        ended(code, message, _Asked(raw, context, started))
        # gRPC keeps the exception of an abort, and with it this frame, until a garbage collection.
        raw = b""
        return await _abort(context, code, message)

    def ended(code: grpc.StatusCode, message: str, asked: _Asked) -> None:
        requests[code].inc()
        duration.observe(time.perf_counter() - asked.started)
        if stale is not None and code is grpc.StatusCode.FAILED_PRECONDITION:
            stale.inc()
        if code is grpc.StatusCode.PERMISSION_DENIED:
            level = logging.WARNING
        else:
            level = logging.INFO if mutation else logging.DEBUG
        if logger.isEnabledFor(level):
            log(level, code, message, asked)

    def log(level: int, code: grpc.StatusCode, message: str, asked: _Asked) -> None:
        logger.log(
            level,
            "%s: %s",
            name,
            message or GO_NAMES[code],
            extra={
                "method": name,
                **named(asked.raw),
                "code": GO_NAMES[code],
                "peer": asked.context.peer(),
                "seconds": round(time.perf_counter() - asked.started, 6),
            },
        )

    def named(raw: bytes) -> dict[str, str]:
        # An id with control characters is none of ours; the text quotes it in a harmless form.
        machine = machine_of(raw) if machine_of is not None else ""
        return {"machine": _shortened(machine)} if machine and machine.isprintable() else {}

    return call


async def _abort(context: Context, code: grpc.StatusCode, message: str) -> NoReturn:
    await context.abort(code, message)


def _shortened(message: str) -> str:
    if len(message) <= _MAX_STATUS_CHARACTERS:
        return message
    return message[: _MAX_STATUS_CHARACTERS - 1] + "…"
