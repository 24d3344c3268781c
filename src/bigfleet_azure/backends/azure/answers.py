"""Reading Azure's answers: bodies of any shape into a `Failure`, headers into waits and ids.

Nothing here raises for what a body holds, and nothing here decides what it means; that is
`errors`'. Texts come out as valid Unicode, since they end up in messages that must be.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from bigfleet_azure.backends.azure import errors
from bigfleet_azure.backends.azure.arm import Detail, Failure

MAX_RETRY_AFTER = timedelta(hours=1)
"""Longest wait that a header is believed; the longest on record is 1,200 s (azure-facts)."""

MAX_TEXT = 4_000
"""Longest message kept, in characters. A guest's output may be in it."""

MAX_CODE = 100
"""Longest code or id kept, in characters; real ones have less than 60."""

_MAX_ERRORS = 50
_MAX_DEPTH = 12
"""Bodies nest some four deep in reality; an endless one must not be followed."""

_NESTED = ("error", "odata.error", "properties", "statusmessage", "details", "innererror")
"""Keys under which an error holds others, in lower case; `properties` as in a deployment's."""

_WAITS = (("retry-after", 1.0), ("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001))
"""Headers in the order in which they count, with their unit in seconds."""


def refused(
    call: str, status: int, headers: Mapping[str, str], body: object, now: float
) -> Failure:
    """A call that was answered with an error.

    Args:
        body: bytes, text, or what JSON gave.
        now: Unix seconds, for waits that are given as a date.
    """
    document = _parsed(body)
    return _failure(call, status, code=f"Http{status}", document=document, headers=headers, now=now)


def operation_failed(call: str, body: object, headers: Mapping[str, str], now: float) -> Failure:
    """An operation that was accepted, and whose own report says that it did not succeed."""
    document = _parsed(body)
    state = document.get("status") if isinstance(document, dict) else None
    code = f"Operation{_code(state) or 'Failed'}"
    return _failure(call, 200, code=code, document=document, headers=headers, now=now)


def no_answer(call: str, code: str, message: str) -> Failure:
    """A call that was not answered; `code` names the trouble."""
    return Failure(call=call, status=0, code=_code(code) or "NoAnswer", message=_text(message))


def absent(failure: Failure) -> bool:
    """Whether ARM says that what was asked for does not exist."""
    return errors.classify(failure).gone


def json_object(content: bytes) -> dict[str, Any] | None:
    """The object in a good answer: {} for none, a bare array under `value`; None if unreadable."""
    if not content.strip():
        return {}
    document = _parsed(content)
    if isinstance(document, list):
        return {"value": document}
    return document if isinstance(document, dict) else None


def retry_after(headers: Mapping[str, str], now: float) -> timedelta | None:
    """When to ask again by the headers; None when they do not say, or say now."""
    fields = _lowered(headers)
    for name, unit in _WAITS:
        seconds = _seconds(str(fields.get(name, "")).strip(), now) * unit
        wait = timedelta(seconds=max(0.0, min(seconds, MAX_RETRY_AFTER.total_seconds())))
        if wait:
            return wait
    return None


def _seconds(text: str, now: float) -> float:
    """A number, or a date of HTTP as seconds from now; 0 for anything else."""
    try:
        number = float(text)
        return 0.0 if math.isnan(number) else number
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def _failure(
    call: str, status: int, *, code: str, document: object, headers: Mapping[str, str], now: float
) -> Failure:
    """The failure that a document tells of; `code` is for one that names none."""
    found = list(_errors(document))
    outer = next((each for each in found if each.code), found[0] if found else None)
    fields = _lowered(headers)
    return Failure(
        call=call,
        status=status,
        code=(outer.code if outer else "") or code,
        message=outer.message if outer else _plain(document),
        target=outer.target if outer else "",
        details=tuple(each for each in found if each is not outer),
        retry_after=retry_after(headers, now),
        request_id=_code(
            fields.get("x-ms-request-id") or fields.get("x-ms-arm-service-request-id")
        ),
        correlation_id=_code(fields.get("x-ms-correlation-request-id")),
    )


def _parsed(body: object) -> object:
    """JSON as it came or as text; other text stays text."""
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8-sig", "replace")
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def _errors(document: object) -> Iterator[Detail]:
    """Every error in a document, outermost first."""
    # One that is deep in lists and objects costs no stack: what is left to do is a list.
    left: list[tuple[object, int]] = [(document, 0)]
    found = looked_at = 0
    while left and found < _MAX_ERRORS and looked_at < _MAX_ERRORS * _MAX_DEPTH:
        node, depth = left.pop()
        looked_at += 1
        inner: list[object] = []
        if isinstance(node, list):
            inner = node[:_MAX_ERRORS]
        elif isinstance(node, Mapping):
            fields = {str(key).lower(): value for key, value in node.items()}
            error = _detail(fields)
            if error.code or error.message:
                found += 1
                yield error
            inner = [
                _embedded(fields.get("message")),
                *(_embedded(fields.get(key)) for key in _NESTED),
            ]
        if depth < _MAX_DEPTH:
            left += [(each, depth + 1) for each in reversed(inner)]


def _detail(fields: Mapping[str, Any]) -> Detail:
    """One error by its own keys: ARM's, or those of the token endpoint."""
    code = _code(fields.get("code"))
    message = fields.get("message")
    named = fields.get("error")
    if not code and isinstance(named, str) and _embedded(named) is None:
        code = _code(named)
        message = fields.get("error_description", message)
    if isinstance(message, Mapping):
        message = message.get("value")
    return Detail(code=code, message=_text(message), target=_text(fields.get("target"))[:MAX_CODE])


def _embedded(value: object) -> object:
    """What a value is, or holds as JSON text; text in between other words is not looked for.

    A guest's output is quoted inside such words, and a guest must not decide anything.
    """
    if not isinstance(value, str):
        return value
    text = value.lstrip()
    return _parsed(text) if text.startswith(("{", "[")) else None


def _plain(document: object) -> str:
    """What a body without an error in it says: its text without markup."""
    if not isinstance(document, str):
        return ""
    text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", document[: 4 * MAX_TEXT])
    return _text(" ".join(text.split()))[:300]


def _text(value: object) -> str:
    """A text without what may not be in one; "" for anything else."""
    if not isinstance(value, str):
        return ""
    text = value[:MAX_TEXT].encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).strip()


def _code(value: object) -> str:
    """A short name in one word; numbers too, since some services number their errors."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        value = str(value)
    return "".join(_text(value).split())[:MAX_CODE]


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {str(name).lower(): value for name, value in headers.items()}
