"""The real daemon as a real process, spoken to over a real socket."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb import provider_pb2_grpc

START_SECONDS = 20.0
"""The certification runner's limit (contract section 17); a busy machine needs some of it."""

BASE = ("--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr=")
"""What `running` gives before all other flags; of two equal ones the last counts."""

COMMAND = (sys.executable, "-m", "bigfleet_azure")

_POLL_SECONDS = 0.02


@dataclass(slots=True)
class DaemonProcess:
    """A running daemon."""

    popen: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait(10)

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def terminate(self, within: float = 10.0) -> int:
        """SIGTERM, and the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(within)

    def lines(self) -> list[str]:
        """What it logged so far."""
        return self.log.read_text().splitlines()

    def channel(self) -> grpc.Channel:
        """A new plaintext channel, over a connection of its own, that takes answers of any size."""
        return grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.max_receive_message_length", 256 * 1024 * 1024),
                ("grpc.max_send_message_length", 256 * 1024 * 1024),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    def listening(self) -> list[int]:
        """The ports it listens on."""
        found = psutil.Process(self.popen.pid).net_connections("tcp")
        return [c.laddr.port for c in found if c.status == psutil.CONN_LISTEN]

    def web(self, path: str, accept: str = "*/*") -> "Page":
        """What the HTTP listener answers; it is waited for, since it opens after gRPC."""
        eventually(lambda: set(self.listening()) - {self.port}, "the HTTP listener is open")
        [port] = set(self.listening()) - {self.port}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", headers={"Accept": accept}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return Page(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.code, error.read().decode())


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP answer."""

    status: int
    text: str


def eventually(holds: Callable[[], object], what: str, within: float = 20.0) -> None:
    """Wait until `holds` returns something true."""
    end = time.monotonic() + within
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(_POLL_SECONDS)


def refused(
    *flags: str, env: Mapping[str, str] | None = None, base: Sequence[str] = BASE
) -> tuple[int, str]:
    """Exit code and standard error of a daemon that must not come to serve."""
    ended = subprocess.run(
        [*COMMAND, *base, *flags],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=START_SECONDS,
        check=False,
    )
    assert "serving CapacityProvider" not in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stderr


class Client:
    """A blocking client of one daemon, with tokens left out unless given."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub = provider_pb2_grpc.CapacityProviderStub(channel)

    def list(self, **fields: object) -> pb.MachineList:
        return self.stub.List(pb.ListFilter(**fields), timeout=30)  # type: ignore[arg-type]

    def get(self, machine_id: str) -> pb.Machine:
        return self.stub.Get(pb.MachineRef(id=machine_id), timeout=10)

    def create(self, machine_id: str, **fields: object) -> pb.TransitionAck:
        return self.stub.Create(
            pb.CreateRequest(machine_id=machine_id, **fields),  # type: ignore[arg-type]
            timeout=10,
        )

    def configure(
        self, machine_id: str, cluster: str = "blue", **fields: object
    ) -> pb.TransitionAck:
        return self.stub.Configure(
            pb.ConfigureRequest(machine_id=machine_id, cluster_id=cluster, **fields),  # type: ignore[arg-type]
            timeout=10,
        )

    def drain(self, machine_id: str, **fields: object) -> pb.TransitionAck:
        return self.stub.Drain(
            pb.DrainRequest(machine_id=machine_id, **fields),  # type: ignore[arg-type]
            timeout=10,
        )

    def delete(self, machine_id: str, **fields: object) -> pb.TransitionAck:
        return self.stub.Delete(
            pb.DeleteRequest(machine_id=machine_id, **fields),  # type: ignore[arg-type]
            timeout=10,
        )

    def reaches(self, machine_id: str, state: str, within: float = 15.0) -> pb.Machine:
        """Wait until the machine is in `state`, named without its prefix."""
        wanted = pb.MachineState.Value(f"MACHINE_STATE_{state}")
        end = time.monotonic() + within
        while (machine := self.get(machine_id)).state != wanted:
            if time.monotonic() > end:
                raise AssertionError(f"{machine_id} is {machine.state}, not {state}: {machine}")
            time.sleep(_POLL_SECONDS)
        return machine


@contextmanager
def running(
    log: Path,
    *flags: str,
    env: dict[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    base: Sequence[str] = BASE,
) -> Iterator[DaemonProcess]:
    """Run the daemon on a free port, with its log in a file, until the block ends.

    `base`, which asks for a free `--addr` and no metrics listener, is given before `flags`.
    """
    with log.open("a") as stderr:
        before = log.stat().st_size
        popen = subprocess.Popen(
            [*command, *base, *flags],
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(env or {})},
        )
    try:
        yield DaemonProcess(popen, _port(popen, log, before), log)
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait(10)


@contextmanager
def client(daemon: DaemonProcess) -> Iterator[Client]:
    """A client over a channel of its own."""
    with daemon.channel() as channel:
        yield Client(channel)


def _port(popen: subprocess.Popen[str], log: Path, offset: int) -> int:
    """The port of the line that says it serves, past `offset` bytes of the log."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with log.open() as file:
            file.seek(offset)
            for line in file:
                if "serving CapacityProvider" in line:
                    found = re.search(r":(\d+)\b(?=[^:]*backend)", line)
                    if found:
                        return int(found[1])
        if popen.poll() is not None:
            raise AssertionError(f"the daemon ended with {popen.returncode}:\n{log.read_text()}")
        time.sleep(_POLL_SECONDS)
    raise AssertionError(f"the daemon did not start within {START_SECONDS:g} s:\n{log.read_text()}")
