"""A daemon under measurement: how it is started, and what the system and its metrics tell of it."""

import asyncio
import socket
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import Caller
from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.lifecycle import KIND_OF_TRANSITIONAL
from bigfleet_azure.store.sqlite import IDLE_SECONDS
from tests.support.process import DaemonProcess, running

SETTLE_SECONDS = 60.0
_POLL_SECONDS = 0.05
_CHECKPOINT_SECONDS = 1.0
"""More than the idle checkpoint itself takes."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that has answered its first List.

    Attributes:
        call: its client.
        first_list: that answer, a MachineList in wire form.
        start_seconds: from the start of the process to that answer.
    """

    call: Caller
    process: DaemonProcess
    metrics_port: int
    first_list: bytes
    start_seconds: float

    def ids(self) -> list[str]:
        """Machine ids in the order of the first List."""
        return [machine.id for machine in pb.MachineList.FromString(self.first_list).machines]

    def written(self) -> int:
        """Bytes the process gave to write(2) and its like so far.

        That is every file: state, log, checkpoints, the region's ledger, and the daemon's own log.
        Sockets are written by sendmsg(2), which the kernel does not count here; wake-ups of threads
        are, with 1 to 8 bytes each.
        """
        return self._proc("io", "wchar")

    def resident_bytes(self) -> int:
        """Physical memory in use."""
        return self._proc("status", "VmRSS") * 1024

    def _proc(self, file: str, key: str) -> int:
        for line in Path(f"/proc/{self.process.popen.pid}/{file}").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0])
        raise LookupError(key)

    async def metric(self, name: str, **labels: str) -> float:
        """The present value of one sample; 0 while there is none."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    async def settled(self) -> None:
        """Wait until no machine is in transition.

        Raises:
            TimeoutError: some still are after `SETTLE_SECONDS`.
        """
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                if not await self.in_transition():
                    return
                await asyncio.sleep(_POLL_SECONDS)

    async def in_transition(self) -> list[str]:
        """Ids of the machines that an operation moves just now."""
        transitional = await self.call.fleet(states=list(KIND_OF_TRANSITIONAL))
        return [machine.id for machine in transitional.machines]

    async def idle(self) -> None:
        """Wait until nothing is in transition and the idle checkpoint is over too."""
        await self.settled()
        await asyncio.sleep(IDLE_SECONDS + _CHECKPOINT_SECONDS)


@asynccontextmanager
async def serving(folder: Path, *flags: str, durable: bool = True) -> AsyncIterator[Daemon]:
    """Run a daemon with its files in `folder`, the client dialling from the first moment on."""
    port, metrics_port = _free_ports()
    own = (f"--addr=127.0.0.1:{port}", f"--metrics-addr=127.0.0.1:{metrics_port}")
    state = (f"--state={state_file(folder)}",) if durable else ()
    daemon = running(folder / "log", *own, *state, *flags)
    with ExitStack() as stack:
        async with Caller(f"127.0.0.1:{port}") as call:
            started = time.perf_counter()
            starting = asyncio.create_task(asyncio.to_thread(stack.enter_context, daemon))
            try:
                first_list = await call.list(b"")
                start_seconds = time.perf_counter() - started
            finally:
                process = await starting
            yield Daemon(call, process, metrics_port, first_list, start_seconds)


def state_file(folder: Path) -> Path:
    """The state file of the daemon that runs in `folder`."""
    return folder / "state.db"


def ledger_file(folder: Path) -> Path:
    """What its simulated region remembers."""
    return folder / "state.db.region"


def _free_ports() -> tuple[int, int]:
    """Two ports nobody listens on just now."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
