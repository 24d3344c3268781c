"""`POST /internal/eviction`: who may say what, and how it is answered (contract section 16).

What a notice does is `service.notices`'. Mounted on the listener of the metrics, and on the
listener that is for machines only.
"""

import asyncio
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from aiohttp import web

from bigfleet_azure.domain import callback
from bigfleet_azure.domain.limits import MAX_NAME_BYTES
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.service.notices import A_MACHINE_SECONDS, Answer, Notice, Notices
from bigfleet_azure.telemetry.metrics import Metrics

PATH = "/internal/eviction"

MAX_BODY_BYTES = 4096
"""Contract section 16."""

BODY_SECONDS = 10.0
"""Time for a body of that size; a sender that takes longer holds a connection for nothing."""

MAX_TEXT = 256
"""Longest type and event id that are taken; Azure's ids are GUIDs."""

RETRY_SECONDS = 2
"""When a machine that is just being set up should say it again."""

_STATUS = {
    Answer.TAKEN: 204,
    Answer.DUPLICATE: 204,
    Answer.IGNORED: 204,
    Answer.TOO_EARLY: 503,
    Answer.TOO_MANY: 429,
}
_WAITS = {Answer.TOO_EARLY: RETRY_SECONDS, Answer.TOO_MANY: int(A_MACHINE_SECONDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Senders:
    """Who may send a notice.

    Attributes:
        shared: the token that all nodes share; None for none.
        keys: those in force of machines' own tokens, the newest first.
        made_by: operation id of the Create that made a machine's host; "" for no such machine.
    """

    shared: Secret | None
    keys: Callable[[], Sequence[callback.Key]]
    made_by: Callable[[str], str]


class _Refused(Exception):
    """The request is not answered with 204."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class NoticeHandler:
    """Answers notices on any number of listeners."""

    def __init__(self, notices: Notices, senders: Senders, metrics: Metrics) -> None:
        self._notices = notices
        self._senders = senders
        self._metrics = metrics

    def mount(self, app: web.Application) -> None:
        """Serve notices on `app`; other methods are refused with 405."""
        app.router.add_route("*", PATH, self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            notice = await self._notice(request)
        except _Refused as refused:
            self._metrics.notices_refused.labels(refused.reason).inc()
            headers = {"Allow": "POST"} if refused.status == 405 else {}
            if refused.status == 401:
                headers["WWW-Authenticate"] = "Bearer"
            return web.Response(status=refused.status, text=f"{refused}\n", headers=headers)
        if not notice.machine_id:
            return web.Response(status=204)
        answer = await self._notices.take(notice)
        wait = {"Retry-After": str(_WAITS[answer])} if answer in _WAITS else {}
        return web.Response(status=_STATUS[answer], headers=wait)

    async def _notice(self, request: web.Request) -> Notice:
        """The notice, once it is known that its sender may send it."""
        if request.method != "POST":
            raise _Refused(405, "method", "notices are sent by POST")
        token = _bearer(request)
        shared = self._senders.shared
        trusted = shared is not None and hmac.compare_digest(token, shared.reveal())
        own = not trusted and callback.formed(token.decode("ascii", errors="replace"))
        if not trusted and not own:
            raise _Refused(401, "token", "the bearer token is missing or wrong")
        fields = _fields(await _body(request))
        notice = _read(fields, own=own)
        if own and not self._speaks_for(token.decode(), notice.machine_id):
            raise _Refused(401, "token", "the bearer token is not that machine's")
        return notice

    def _speaks_for(self, token: str, machine_id: str) -> bool:
        made_by = self._senders.made_by(machine_id)
        return callback.verify(self._senders.keys(), token, machine_id, made_by)


def _bearer(request: web.Request) -> bytes:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip().encode(errors="replace") if scheme.lower() == "bearer" else b""


async def _body(request: web.Request) -> bytes:
    """At most what may be sent, however it is sent, and not for longer than it may take."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.content.iter_any():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise _Refused(400, "size", f"the body has more than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise _Refused(408, "body", f"the body did not come within {BODY_SECONDS:g} s") from None
    return body


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "body", "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise _Refused(400, "body", "the body is no JSON object")
    return fields


def _read(fields: dict[str, Any], *, own: bool) -> Notice:
    def text(name: str, most: int) -> str:
        value = fields.get(name, "")
        if not isinstance(value, str) or len(value.encode(errors="replace")) > most:
            raise _Refused(400, "body", f"{name} is no text of at most {most} bytes")
        return value

    return Notice(
        machine_id=text("machine_id", MAX_NAME_BYTES),
        event_type=text("event_type", MAX_TEXT),
        event_id=text("event_id", MAX_TEXT),
        not_before=_moment(text("not_before", MAX_TEXT)),
        own=own,
    )


def _moment(date: str) -> float:
    """Unix seconds of a date as IMDS writes it (RFC 1123); 0 for none."""
    if not date:
        return 0.0
    try:
        moment = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        raise _Refused(400, "body", "not_before is no date such as Mon, 19 Sep 2016") from None
