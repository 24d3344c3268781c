"""One real API server for the whole group, and a tidy cluster for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bigfleet_azure.kit.clock import SystemClock
from tests.kubernetes.things import Cluster, Provider
from tests.support.arm.clock import ArmClock
from tests.support.kube.servers import KubeServers

SPEED = 10.0


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServers]:
    made = KubeServers(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(servers: KubeServers) -> Iterator[Cluster]:
    made = Cluster(servers)
    made.grant()
    yield made
    made.tidy()


@pytest.fixture
async def provider(tmp_path: Path, servers: KubeServers) -> AsyncIterator[Provider]:
    """In real time, for what the server's own clock takes part in."""
    made = Provider(tmp_path, servers, SystemClock())
    yield made
    await made.clusters.close()


@pytest.fixture
async def hasty(tmp_path: Path, servers: KubeServers) -> AsyncIterator[Provider]:
    """In time that runs ten times faster, for drains."""
    made = Provider(tmp_path, servers, ArmClock(SPEED))
    yield made
    await made.clusters.close()
