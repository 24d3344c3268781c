"""The Retail Prices API: asking for the rows of many sizes in few requests.

Which rows count is `meters`'. The API knows no credential and is no part of Azure Resource Manager:
it has no buckets of ours, so it is asked one request at a time.
"""

import logging
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigfleet_azure import __version__
from bigfleet_azure.backends.azure import answers
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

PUBLIC_ENDPOINT = "https://prices.azure.com/api/retail/prices"

MOST_SIZES = 15
"""Sizes asked for at once: the filter's terms and the address's length are limited, by how much is
not documented; a refusal halves the group."""

MOST_PAGES = 200
"""Pages of 1,000 rows read for one group: a size has some nine rows, so more is an endless list."""

TRIES = 4
FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0
"""Limits of the API are not documented, refusals as too many are reported (azure-facts 2.5)."""

ANSWER_SECONDS = 60.0

_TOO_LARGE = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_URI_TOO_LONG)
_PASSING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


def open_session(ca: Path | None = None) -> "aiohttp.ClientSession":
    """Connections to the price service, to be closed by the caller.

    Args:
        ca: CA bundle (PEM) that is trusted beside the system's.
    """
    import aiohttp

    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(cafile=str(ca))
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=1),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=True,
        auto_decompress=False,
    )


class _Refused(Exception):
    """The service answered with an error status."""

    def __init__(self, status: int, text: str, wait: float | None) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.wait = wait


class RetailPrices:
    """Reads price rows.

    Args:
        session: for the requests; not closed here.
        endpoint: address of the API, with its path.
        region: Azure region in short form.
        clock: waits between tries.
    """

    def __init__(
        self, session: "aiohttp.ClientSession", *, endpoint: str, region: str, clock: Clock
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._region = region
        self._clock = clock

    async def rows(self, sizes: Sequence[str]) -> list[dict[str, Any]]:
        """Every row of these sizes in the region.

        Raises:
            BackendError: TRANSIENT; nothing of a list that broke off is given.
        """
        names = sorted(set(sizes), key=str.lower)
        found: list[dict[str, Any]] = []
        for first in range(0, len(names), MOST_SIZES):
            found += await self._group(names[first : first + MOST_SIZES])
        return found

    async def _group(self, sizes: Sequence[str]) -> list[dict[str, Any]]:
        try:
            return await self._all_pages({"$filter": _filter(self._region, sizes)})
        except _Refused as refusal:
            if refusal.status in _TOO_LARGE and len(sizes) > 1:
                half = len(sizes) // 2
                logger.info("the price service refused %d sizes at once; halved", len(sizes))
                return await self._group(sizes[:half]) + await self._group(sizes[half:])
            raise _failed(str(refusal)) from refusal

    async def _all_pages(self, query: dict[str, str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        following: str | None = None
        read: set[str] = set()
        while len(read) < MOST_PAGES:
            page = await self._page(following, query)
            items = page.get("Items")
            if not isinstance(items, list):
                raise _failed("the answer has no list of items")
            rows += [item for item in items if isinstance(item, dict)]
            link = page.get("NextPageLink")
            if not link:
                return rows
            # Only the link's query is used: a mirror's answers name Microsoft's host.
            following = urlsplit(str(link)).query
            if following in read:
                break
            read.add(following)
        raise _failed("the list of pages does not end")

    async def _page(self, following: str | None, query: dict[str, str]) -> dict[str, Any]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._answer(following, query)
            except _Refused as refusal:
                passing = refusal.status in _PASSING or refusal.status >= 500
                if not passing or attempt == TRIES:
                    raise
                wait = refusal.wait
            except BackendError:
                if attempt == TRIES:
                    raise
                wait = None
            pause = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) if wait is None else max(1.0, wait)
            await self._clock.sleep(min(LONGEST_WAIT_SECONDS, pause))

    async def _answer(self, following: str | None, query: dict[str, str]) -> dict[str, Any]:
        import aiohttp
        from yarl import URL

        url = URL(f"{self._endpoint}?{following}", encoded=True) if following else self._endpoint
        limit = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with self._session.get(
                url,
                params=None if following else query,
                headers={
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                    "User-Agent": f"bigfleet-azure/{__version__}",
                },
                allow_redirects=False,
                timeout=limit,
            ) as response:
                content = await response.read()
                status, headers = response.status, response.headers
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _failed(f"{type(error).__name__} {error}".strip()) from error
        if status != HTTPStatus.OK:
            wait = answers.retry_after(headers, self._clock.now())
            text = content[:200].decode(errors="replace")
            raise _Refused(status, " ".join(text.split()), wait.total_seconds() if wait else None)
        page = answers.json_object(content)
        if page is None:
            raise _failed("the answer is no JSON object")
        return page


def _filter(region: str, sizes: Sequence[str]) -> str:
    names = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
    return f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and ({names})"


def _failed(why: str) -> BackendError:
    return BackendError(
        FailureKind.TRANSIENT,
        f"the price service did not answer: {why}",
        code="RetailPrices",
    )
