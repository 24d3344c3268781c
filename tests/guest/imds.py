"""The part of Azure's metadata service that the agent asks, answering as recorded."""

import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.guest.serving import Answer

Json = dict[str, Any]

DATA = Path(__file__).parent / "data"
NO_EVENTS: Json = {"DocumentIncarnation": 1, "Events": []}


def recorded(name: str) -> Json:
    """A recorded file, by the end of its name."""
    found: Json = json.loads((DATA / f"imds-scheduledevents-{name}.json").read_text())
    return found


def preempt() -> Json:
    """The recorded document with an eviction of `vm-spot`."""
    body: Json = recorded("preempt")["response"]["body"]
    return body


def freezing() -> list[Json]:
    """The recorded life of one Freeze of `WestNO_0` and `WestNO_1`."""
    documents: list[Json] = recorded("freeze-sequence")["documents_in_order"]
    return documents


class Imds:
    """Scheduled Events, and the name of the VM.

    Attributes:
        document: what is served, as JSON, or as it is when it is bytes.
        instead: answers for the next polls in its place; each is used once.
        name: of the VM; "" is an error.
        cut: whether the connection breaks in the middle of the name.
        polls: how often the events were asked for.
        approved: bodies of what was posted.
    """

    def __init__(self) -> None:
        self.document: Json | bytes = NO_EVENTS
        self.instead: list[Answer] = []
        self.name = "vm-spot"
        self.cut = False
        self.polls = 0
        self.approved: list[Json] = []

    def application(self) -> web.Application:
        made = web.Application()
        made.router.add_get("/metadata/scheduledevents", self._events)
        made.router.add_post("/metadata/scheduledevents", self._approve)
        made.router.add_get("/metadata/instance/compute/name", self._name)
        return made

    async def _events(self, request: web.Request) -> web.Response:
        self.polls += 1
        if refusal := _refusal(request, "2020-07-01"):
            return refusal
        if self.instead:
            return await self.instead.pop(0).response()
        body = self.document
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(body=raw, content_type="application/json", charset="utf-8")

    async def _approve(self, request: web.Request) -> web.Response:
        if refusal := _refusal(request, "2020-07-01"):
            return refusal
        if self.instead:
            return await self.instead.pop(0).response()
        self.approved.append(await request.json())
        return web.Response()

    async def _name(self, request: web.Request) -> web.StreamResponse:
        if refusal := _refusal(request, "2021-02-01"):
            return refusal
        assert request.query["format"] == "text"
        if self.cut:
            return await _broken(request, self.name.encode())
        return web.Response(text=self.name) if self.name else web.Response(status=500)


async def _broken(request: web.Request, body: bytes) -> web.StreamResponse:
    """The body as the beginning of a longer one that does not come."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body) + 1)})
    await response.prepare(request)
    await response.write(body)
    assert request.transport is not None
    request.transport.close()
    return response


def _refusal(request: web.Request, version: str) -> web.Response | None:
    """As the real one: only plain requests of this machine's own programs are answered."""
    if request.headers.get("Metadata") != "true" or "X-Forwarded-For" in request.headers:
        return web.json_response({"error": "Bad request: Required metadata header"}, status=400)
    if request.query.get("api-version") != version:
        return web.json_response({"error": "Bad request. api-version is invalid"}, status=400)
    return None
