"""Asking a cluster's API server, and what its refusals mean.

Everything that is not the answer to a question is a `BackendError` that holds the operation: a
cluster may be away, and rights may be granted, while its deadline runs. The questions are in
`kube_api`, the connection in `kube_session`.
"""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp

from bigfleet_azure.backends.azure import kubeconfig
from bigfleet_azure.backends.azure.kube_session import KubeSession
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

Json = dict[str, Any]

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0

SILENCE_SECONDS = 75.0
"""A watch without a line for so long is opened anew: bookmarks come about every minute, and a
connection may be dead without a sign."""

HOLD_SECONDS = 15.0
"""After which an operation asks a cluster again that could not be asked; each such try also reads
the VM, and a thousand operations may wait for one cluster."""

MESSAGE_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that was expected.

    Attributes:
        status: HTTP's.
        body: decoded.
    """

    status: int
    body: Json

    @property
    def message(self) -> str:
        """The server's words, of a refusal."""
        return str(self.body.get("message") or "")[:MESSAGE_CHARACTERS]


class KubeWire:
    """The way to one cluster, by the kubeconfig at `path`, which may change at any time."""

    def __init__(self, cluster: str, path: Path, clock: Clock) -> None:
        self.cluster = cluster
        self._path = path
        self._session = KubeSession(path, clock)

    async def changed(self) -> None:
        """Return once the kubeconfig is not the one in use any more."""
        await self._session.changed()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def ask(
        self, right: str, method: str, *names: object, expected: tuple[int, ...] = (), **args: Any
    ) -> Answer:
        """The answer to a call of the client library, one of success or of an expected refusal.

        Args:
            right: what the kubeconfig's user must be allowed, as verb and resource.
        """
        async with self._leased() as core:
            call = getattr(core, method)(
                *names,
                **{name: value for name, value in args.items() if value is not None},
                # The library's own reading logs bodies, and the pods' hold secrets.
                _preload_content=False,
                _request_timeout=REQUEST_SECONDS,
            )
            response = await self._send(call)
            async with response:
                known = response.status < 300 or response.status in expected
                if not known or (response.status == 403 and await _lacks_right(response)):
                    raise await self._refusal(right, response)
                return Answer(status=response.status, body=await self._body(response))

    async def stream(self, right: str, method: str, **args: Any) -> AsyncGenerator[Json, None]:
        """The JSON lines of an answer that goes on; ends when the server, or the network, does."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        async with self._leased() as core:
            call = getattr(core, method)(**args, _preload_content=False, _request_timeout=timeout)
            response = await self._send(call)
            async with response:
                if response.status not in {200, 410}:
                    raise await self._refusal(right, response)
                try:
                    while line := await response.content.readline():
                        yield json.loads(line)
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    logger.debug("a watch broke off: %s", _words(error))

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[Any]:
        try:
            async with self._session.lease() as core:
                yield core
        except kubeconfig.Unusable as error:
            text = f"cannot be asked: the kubeconfig {self._path} is of no use: {error}"
            raise self._held(text, "Kubeconfig") from error

    async def _send(self, call: Any) -> aiohttp.ClientResponse:
        try:
            response: aiohttp.ClientResponse = await call
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._held(f"does not answer ({_words(error)})", "Unreachable") from error
        return response

    async def _body(self, response: aiohttp.ClientResponse) -> Json:
        try:
            body = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._held(f"broke off its answer ({_words(error)})", "Unreachable") from error
        return body if isinstance(body, dict) else {}

    async def _refusal(self, right: str, response: aiohttp.ClientResponse) -> BackendError:
        message = await _message(response)
        code = f"Kubernetes{response.status}"
        if response.status == 401:
            return self._held(f"does not know the user of {self._path}", code)
        if response.status == 403:
            return self._held(f"does not let the user of {self._path} {right}: {message}", code)
        return self._held(f"answers {response.status} to {right}: {message}", code)

    def _held(self, what: str, code: str) -> BackendError:
        return BackendError(
            FailureKind.TRANSIENT,
            f"cluster {self.cluster} {what}",
            code=code,
            retry_after=timedelta(seconds=HOLD_SECONDS),
        )


async def _lacks_right(response: aiohttp.ClientResponse) -> bool:
    """Whether a 403 is about the user's rights, not about the one object."""
    return " cannot " in await _message(response)


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        text = await response.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError):
        return ""
    try:
        return str(json.loads(text)["message"])[:MESSAGE_CHARACTERS]
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:MESSAGE_CHARACTERS]


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
