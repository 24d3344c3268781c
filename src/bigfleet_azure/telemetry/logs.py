"""Log lines: written with the standard library everywhere, rendered by structlog.

    logger = logging.getLogger(__name__)
    logger.info("create succeeded", extra={"machine": record.id})

structlog is slow to import, so logging begins in two steps: `begin` keeps lines in memory, `finish`
renders them, late but with their own times. Tracebacks are plain: richer ones print local
variables, and those hold secrets.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from logging.handlers import MemoryHandler
from typing import Any, Literal, TextIO

Format = Literal["auto", "console", "json"]
"""`auto` is console on a terminal and json elsewhere."""

_QUIET = ("asyncio", "grpc", "aiohttp")
"""Libraries whose debug lines outnumber ours, some of them with one per call."""

_STANDARD_FIELDS = frozenset(
    logging.LogRecord("", 0, "", 0, "", None, None).__dict__.keys() | {"message", "taskName"}
)

# structlog's own JSON renderer makes a new encoder for each line, a third of a line's cost.
_encode = json.JSONEncoder(default=repr).encode

_NEVER = logging.CRITICAL + 1


def begin(level: str) -> None:
    """Keep every line of `level` (debug, info, warning, error) and above until `finish`."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.INFO))
    # A caller that hung up is an error with a trace to gRPC; our own lines say all that matters.
    logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)
    root.handlers = [MemoryHandler(capacity=sys.maxsize, flushLevel=_NEVER)]


def finish(log_format: Format, stream: TextIO | None = None) -> None:
    """Write what was kept, and everything from now on, to `stream` (standard error).

    May run in a thread. Must also be called when the start fails, or the lines are lost.
    """
    stream = stream or sys.stderr
    written = logging.StreamHandler(stream)
    written.setFormatter(_formatter(log_format, stream))
    root = logging.getLogger()
    kept = root.handlers
    # A single assignment, so that no line is lost or doubled on the way; a thread that still holds
    # the old list finds a handler that passes its line on.
    root.handlers = [written]
    for handler in kept:
        if isinstance(handler, MemoryHandler):
            handler.setTarget(written)
            handler.capacity = 0
            handler.flush()


def _formatter(log_format: Format, stream: TextIO) -> logging.Formatter:
    import structlog

    processors: list[structlog.typing.Processor]
    if log_format == "json" or (log_format == "auto" and not stream.isatty()):
        processors = [structlog.processors.format_exc_info, _json]
    else:
        processors = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty() and not os.environ.get("NO_COLOR"),
                exception_formatter=structlog.dev.plain_traceback,
                sort_keys=False,
            )
        ]
    return structlog.stdlib.ProcessorFormatter(processors=[_fields, *processors])


def _fields(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """What a line consists of: when, how grave, who says what, and the extra fields."""
    record: logging.LogRecord = event["_record"]
    moment = datetime.fromtimestamp(record.created, UTC)
    line: dict[str, Any] = {
        "timestamp": moment.isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event["event"],
    }
    extra = {k: v for k, v in record.__dict__.items() if k not in _STANDARD_FIELDS}
    traces = {k: event[k] for k in ("exc_info", "stack_info") if k in event}
    return line | extra | traces


def _json(_: Any, __: str, line: MutableMapping[str, Any]) -> str:
    return _encode(line)
