"""The client library's connection to one cluster, made anew when its kubeconfig changes.

The one place that imports the library. What is asked through it is `kube_api`.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigfleet_azure.backends.azure import kubeconfig
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

CHANGED_SECONDS = 5.0
"""How often a kubeconfig is looked at while a watch runs."""


@dataclass(slots=True, kw_only=True)
class _Session:
    """A client made from one state of the kubeconfig; closed when nobody uses it any more."""

    client: Any
    core: Any
    config: kubeconfig.Kubeconfig
    users: int = 0


class KubeSession:
    """Hands out the client for the kubeconfig at `path` as it is now."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._session: _Session | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Any]:
        """The library's core API, which stays open as long as it is held.

        Raises:
            kubeconfig.Unusable: the kubeconfig is missing, broken or wants a program to be run.
        """
        async with self._opening:
            session = self._current() or await self._renew()
        session.users += 1
        try:
            yield session.core
        finally:
            session.users -= 1
            await self._retire(session)

    async def changed(self) -> None:
        """Return once the kubeconfig is not the one in use any more."""
        while self._current() is not None:
            await self._clock.sleep(CHANGED_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.client.close()

    def _current(self) -> _Session | None:
        session = self._session
        if session is None or kubeconfig.stamp(session.config.files) != session.config.stamp:
            return None
        return session

    async def _renew(self) -> _Session:
        library = await asyncio.to_thread(_library)
        with tempfile.TemporaryDirectory(prefix="bigfleet-azure-") as scratch:
            config = kubeconfig.read(self._path, Path(scratch))
            client = await _connect(library, config.document, self._path.parent)
        old = self._session
        self._session = _Session(
            client=client, core=library.client.CoreV1Api(client), config=config
        )
        if old is not None:
            logger.info("the kubeconfig %s has changed and was read", self._path)
            await self._retire(old)
        return self._session

    async def _retire(self, session: _Session) -> None:
        if session is not self._session and not session.users:
            await session.client.close()


async def _connect(library: Any, document: dict[str, Any], folder: Path) -> Any:
    configuration = library.client.Configuration()
    # Python's strictness about X.509, which kubectl does not share, refuses real clusters' own CAs.
    configuration.disable_strict_ssl_verification = True
    try:
        loader = library.config.kube_config.KubeConfigLoader(document, config_base_path=str(folder))
        await loader.load_and_set(configuration)
        client = library.client.ApiClient(configuration)
    except (library.config.ConfigException, OSError, ValueError, TypeError) as error:
        raise kubeconfig.Unusable(f"its parts do not fit ({error})") from None
    client.user_agent = "bigfleet-azure"
    return client


def _library() -> Any:
    """Imported late: it is large, and few daemons need it."""
    import kubernetes_asyncio.client
    import kubernetes_asyncio.config

    return kubernetes_asyncio
