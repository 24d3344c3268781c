"""The daemon's start over a substrate that is away, slow or refuses."""

# ruff: noqa: ASYNC110 - the daemon tells nobody, and lives in real time
import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb import provider_pb2_grpc as pb_grpc
from bigfleet_azure.daemon import app, substrate
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.rpc.minimum_tls import require_tls13
from tests.support.rig import ScriptedBackend, ScriptedHost

pytestmark = pytest.mark.asyncio

AWAY = BackendError(FailureKind.TRANSIENT, "login.microsoftonline.com does not answer")
DENIED = BackendError(FailureKind.DENIED, "the role assignment is missing")
BOUND, UNUSED = "azure-eastus-od-d4s-v5-1-000", "azure-eastus-od-d4s-v5-1-001"


class Substrate(ScriptedBackend):
    """A scripted backend that is started only when a test lets it.

    Attributes:
        trouble: raised by `start` while it is set.
        hangs: `start` never returns while it is set.
        started: whether it was started.
        facts_changed: what `watch_facts` was given.
    """

    def __init__(self) -> None:
        super().__init__(rebuilds=True)
        self.trouble: BackendError | None = None
        self.hangs = False
        self.started = False
        self.facts_changed: Callable[[], None] = lambda: None

    async def start(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        self.started = True

    def watch_facts(self, changed: Callable[[], None]) -> None:
        self.facts_changed = changed


class Served:
    """A daemon in this process, and its two ports."""

    def __init__(self, backend: Substrate, state: Path) -> None:
        self.backend = backend
        self.port, self.http = _free_port(), _free_port()
        flags = [
            "--use-fake-backend",
            f"--addr=127.0.0.1:{self.port}",
            f"--metrics-addr=127.0.0.1:{self.http}",
            f"--state={state}",
            "--seed-count=8",
        ]
        self.daemon = app.Daemon(resolve(flags, {}, lambda _: b""), SystemClock())
        self.task = asyncio.create_task(self.daemon.serve())

    async def list(self) -> dict[str, pb.Machine]:
        async with self._channel() as channel:
            stub = pb_grpc.CapacityProviderStub(channel)
            answer = await stub.List(pb.ListFilter(), wait_for_ready=True, timeout=10)
            return {machine.id: machine for machine in answer.machines}

    async def create(self, machine: str) -> None:
        async with self._channel() as channel:
            stub = pb_grpc.CapacityProviderStub(channel)
            await stub.Create(pb.CreateRequest(machine_id=machine), timeout=10)

    def _channel(self) -> grpc.aio.Channel:
        # A client that dials before the server listens waits a second by default.
        quickly = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=quickly)

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    async def shows(self, *texts: str, status: int) -> None:
        """Wait until `/readyz?verbose` has that status and shows the texts."""
        async with asyncio.timeout(10), aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{self.http}/readyz?verbose") as got:
                        text = await got.text()
                        if got.status == status and all(part in text for part in texts):
                            return
                await asyncio.sleep(0.02)

    async def is_healthy(self) -> bool:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.http}/healthz") as got,
        ):
            return got.status == 200

    async def reaches(self, machine: str, state: int) -> pb.Machine:
        async with asyncio.timeout(10):
            while (found := (await self.list())[machine]).state != state:
                await asyncio.sleep(0.02)
            return found

    async def stops(self, within: float = 5) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(self.task, within)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Substrate:
    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "")
    require_tls13()
    made = Substrate()
    monkeypatch.setattr(app, "make_backend", lambda *_: made)
    monkeypatch.setattr(substrate, "FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(substrate, "DEFINITE_RETRY_SECONDS", 0.05)
    return made


@pytest.fixture
async def serve(backend: Substrate, tmp_path: Path) -> AsyncIterator[Callable[[], Served]]:
    """Starts a daemon, always on the same state; whatever still runs at the end is stopped."""
    served: list[Served] = []

    def start() -> Served:
        served.append(Served(backend, tmp_path / "state.db"))
        return served[-1]

    yield start
    for one in served:
        if not one.task.done():
            await one.stops()


@asynccontextmanager
async def _lived_before(serve: Callable[[], Served]) -> AsyncIterator[None]:
    """A first life that leaves an inventory behind."""
    first = serve()
    await first.list()
    yield
    while not first.daemon.served:
        await asyncio.sleep(0.01)
    await first.stops()
    first.backend.started = False


@pytest.mark.behaviour(94, 73)
async def test_without_an_inventory_nothing_is_served_until_the_substrate_said_what_exists(
    backend: Substrate, serve: Callable[[], Served]
) -> None:
    backend.trouble = AWAY
    backend.listing = BackendError(FailureKind.THROTTLED, "slow down")
    backend.hosts[BOUND] = ScriptedHost("op-ffff0000-3", cluster="blue", metadata={"k": "v"})
    served = serve()
    await served.shows("substrate (", "does not answer", status=503)
    assert await served.is_healthy()
    assert not served.listens()
    backend.trouble = None
    await served.shows("substrate-inventory", "slow down", status=503)
    assert not served.listens()
    backend.listing = None
    machine = (await served.list())[BOUND]
    assert (machine.state, machine.cluster) == (pb.MACHINE_STATE_CONFIGURED, "blue")
    assert dict(machine.shard_metadata) == {"k": "v"}
    await served.shows("ready", status=200)


@pytest.mark.behaviour(94)
@pytest.mark.parametrize("trouble", [AWAY, DENIED])
async def test_with_an_inventory_it_is_served_at_once_and_the_trouble_is_a_condition(
    backend: Substrate, serve: Callable[[], Served], trouble: BackendError
) -> None:
    async with _lived_before(serve):
        pass
    backend.trouble = trouble
    served = serve()
    assert len(await served.list()) == 8
    await served.shows("ready", "substrate (", str(trouble), status=200)
    await served.create(UNUSED)
    await asyncio.sleep(0.1)
    assert backend.calls == []
    assert (await served.list())[UNUSED].state == pb.MACHINE_STATE_CREATING
    backend.trouble = None
    await served.reaches(UNUSED, pb.MACHINE_STATE_IDLE)
    async with asyncio.timeout(5):
        while any(c.name == "substrate" for c in served.daemon._conditions.standing()):
            await asyncio.sleep(0.01)


@pytest.mark.behaviour(93, 94)
async def test_a_definite_refusal_without_an_inventory_ends_the_start(
    backend: Substrate, serve: Callable[[], Served]
) -> None:
    backend.trouble = DENIED
    served = serve()
    with pytest.raises(app.StartError, match="role assignment is missing"):
        await asyncio.wait_for(served.task, 10)
    assert not served.listens()


@pytest.mark.behaviour(92)
@pytest.mark.parametrize("stored", [False, True])
async def test_a_signal_ends_a_start_that_hangs_on_the_substrate(
    backend: Substrate, serve: Callable[[], Served], stored: bool
) -> None:
    if stored:
        async with _lived_before(serve):
            pass
    backend.hangs = True
    served = serve()
    await served.shows(status=200 if stored else 503)
    await served.stops(within=1.5)
    assert not served.listens()
    assert not backend.started


@pytest.mark.behaviour(92, 94)
async def test_a_signal_ends_the_wait_for_the_first_inventory(
    backend: Substrate, serve: Callable[[], Served]
) -> None:
    backend.listing = AWAY
    served = serve()
    await served.shows("substrate-inventory", status=503)
    await served.stops(within=3)


@pytest.mark.behaviour(94)
async def test_a_start_that_ended_before_the_first_inventory_begins_anew_with_asking(
    backend: Substrate, serve: Callable[[], Served]
) -> None:
    backend.listing = AWAY
    backend.hosts[BOUND] = ScriptedHost("op-ffff0000-3", cluster="blue")
    served = serve()
    await served.shows("substrate-inventory", status=503)
    await served.stops()
    again = serve()
    await again.shows("substrate-inventory", status=503)
    assert not again.listens()
    backend.listing = None
    assert (await again.list())[BOUND].state == pb.MACHINE_STATE_CONFIGURED


@pytest.mark.behaviour(94)
async def test_offers_are_applied_again_when_the_substrate_knows_more_of_them(
    backend: Substrate, serve: Callable[[], Served], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with _lived_before(serve):
        pass
    backend.unknown = {"Standard_D4s_v5", "Standard_F8s_v2"}
    backend.trouble = AWAY
    backend.price = 0.5
    served = serve()
    assert {m.price_per_hour for m in (await served.list()).values()} == {0.2}
    backend.unknown.clear()
    backend.trouble = None

    async def published(price: float) -> None:
        async with asyncio.timeout(10):
            while {m.price_per_hour for m in (await served.list()).values()} != {price}:
                await asyncio.sleep(0.02)

    await published(0.5)
    backend.price = 0.7
    backend.facts_changed()
    await published(0.7)
