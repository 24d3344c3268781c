"""A running daemon, shared by the tests of a module that do not hurt each other."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.process import Client, DaemonProcess, client, running


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the daemon's lines go."""
    path = tmp_path / "daemon.log"
    path.touch()
    return path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A durable daemon with many slots and some latency."""
    folder = tmp_path_factory.mktemp("daemon")
    log = folder / "daemon.log"
    log.touch()
    flags = (
        "--seed-count=1000",
        "--fake-latency=50ms",
        "--log-level=debug",
        "--log-format=json",
        "--metrics-addr=127.0.0.1:0",
        f"--state={folder / 'state.db'}",
    )
    with running(log, *flags) as running_daemon:
        yield running_daemon
        # Whatever was done to it, it still ends as it should, and met no bug of its own.
        said = [json.loads(line) for line in log.read_text().splitlines()]
        troubles = [line for line in said if line["level"] == "error" or "exception" in line]
        # gRPC itself says so when the caller of an answer has gone.
        assert all("ExecuteBatchError" in line["event"] for line in troubles), troubles
        assert running_daemon.terminate() == 0


@pytest.fixture
def speaking(daemon: DaemonProcess) -> Iterator[Client]:
    """A client of the shared daemon."""
    with client(daemon) as speaking_client:
        yield speaking_client


@pytest.fixture(scope="module")
def fresh(daemon: DaemonProcess) -> Callable[[], str]:
    """Gives out slots of the shared daemon that nobody has touched yet."""
    with client(daemon) as speaking_client:
        ids = [machine.id for machine in speaking_client.list().machines]
    random.Random(3).shuffle(ids)
    return ids.pop
