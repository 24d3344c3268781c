"""A stand-in for the daemon's end of a notice: `POST /internal/eviction`."""

import json
from typing import Any

from aiohttp import web

from tests.guest.serving import Answer

Json = dict[str, Any]

MAX_BODY = 4096
"""Bytes that the daemon takes (contract section 16)."""


class StandInDaemon:
    """Takes notices, and refuses what the daemon would refuse.

    Attributes:
        token: of the one VM that may speak.
        instead: answers for the next notices; each is used once, and takes nothing.
        seen: all bodies, also those that were not taken.
        taken: bodies that were answered with 204.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.instead: list[Answer] = []
        self.seen: list[Json] = []
        self.taken: list[Json] = []

    def application(self) -> web.Application:
        made = web.Application(client_max_size=MAX_BODY)
        made.router.add_post("/internal/eviction", self._take)
        return made

    async def _take(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.seen.append(body)
        if self.instead:
            return await self.instead.pop(0).response()
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        assert isinstance(body["machine_id"], str)
        self.taken.append(body)
        return web.Response(status=204)
