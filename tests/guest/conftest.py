"""A machine's surroundings: its metadata service, the daemon's end of a notice, the agent."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.guest.agents import TOKEN, Agent
from tests.guest.imds import Imds
from tests.guest.machines import Machine, memory_folder
from tests.guest.notices import StandInDaemon
from tests.guest.serving import serving


@pytest.fixture
async def imds() -> Imds:
    return Imds()


@pytest.fixture
async def imds_url(imds: Imds) -> AsyncIterator[str]:
    async with serving(imds.application()) as url:
        yield url


@pytest.fixture
async def daemon() -> StandInDaemon:
    """Who takes the notices; here a stand-in, see `notice_url`."""
    return StandInDaemon(TOKEN)


@pytest.fixture
async def notice_url(daemon: StandInDaemon) -> AsyncIterator[str]:
    """Where the agent is told to send its notices: `--callback-url`."""
    async with serving(daemon.application()) as url:
        yield url


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


@pytest.fixture
def settings(imds_url: str, notice_url: str) -> dict[str, str]:
    """Of an agent on the VM `vm-spot`."""
    return {
        "BIGFLEET_TEST_IMDS": imds_url,
        "BIGFLEET_CALLBACK_URL": notice_url,
        "BIGFLEET_MACHINE_ID": "vm-spot",
    }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with memory_folder() as memory:
        yield Machine(tmp_path, memory)
