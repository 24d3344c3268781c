"""Servers on loopback that a program under test talks to, and waiting for what it does."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer in place of the usual one.

    Attributes:
        after: seconds before it comes.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0

    async def response(self) -> web.Response:
        await asyncio.sleep(self.after)
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@asynccontextmanager
async def serving(
    application: web.Application, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve on loopback; the address without a path."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        found = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{found}"
    finally:
        await runner.cleanup()


async def until(holds: Callable[[], object], what: str, within: float = 15.0) -> None:
    """Wait until `holds` returns something true."""
    try:
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110 -- another process does it
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
