"""A disk that fills up under the running daemon."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.process import BASE, COMMAND, Client, DaemonProcess, client, eventually, running

pytestmark = [pytest.mark.process, pytest.mark.behaviour(82)]

FLAGS = ("--metrics-addr=127.0.0.1:0", "--fake-latency=1ms", "--seed-count=64")


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of that size at `path`; skips where one may not be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def create_all(speaking: Client, ids: list[str]) -> tuple[dict[str, str], list[str]]:
    """Operation ids of what was acknowledged, and the ids that were refused."""
    acknowledged: dict[str, str] = {}
    refused: list[str] = []
    errors: list[grpc.RpcError] = []
    for machine_id in ids:
        try:
            ack = speaking.create(machine_id, shard_id="s", shard_epoch=1, sequence_number=1)
            acknowledged[machine_id] = ack.operation_id
        except grpc.RpcError as error:
            refused.append(machine_id)
            errors.append(error)
    assert {error.code() for error in errors} <= {grpc.StatusCode.UNAVAILABLE}
    assert all("disk" in str(error.details()) for error in errors)
    return acknowledged, refused


def suffer_and_recover(log: Path, daemon: DaemonProcess, full: "Disk") -> dict[str, str]:
    """Fill the disk, look at what is said, free it; returns everything acknowledged."""
    with client(daemon) as speaking:
        ids = [machine.id for machine in speaking.list().machines]
        before, none = create_all(speaking, ids[:8])
        assert not none
        for machine_id in before:
            speaking.reaches(machine_id, "IDLE")
        full.fill()
        amid, refused = create_all(speaking, ids[8:40])
        assert refused, "the disk was not full"
        for machine_id in refused:
            assert speaking.get(machine_id).state == pb.MACHINE_STATE_SPECULATIVE
        assert len(speaking.list().machines) == 64
        shown = daemon.web("/readyz?verbose")
        assert shown.status == 200
        assert "\nstore (for " in shown.text
        assert 'bigfleet_azure_condition{name="store"} 1.0' in daemon.web("/metrics").text
        full.free()
        # The refused tokens left no mark, so the same ones pass now.
        after, still = create_all(speaking, [*refused, *ids[40:]])
        assert not still
        for machine_id in after | amid:
            speaking.reaches(machine_id, "IDLE", within=30)
        eventually(lambda: "store" not in daemon.web("/readyz?verbose").text, "the condition ends")
    assert "Traceback" not in log.read_text()
    return before | amid | after


def still_known(log: Path, state: Path, acknowledged: dict[str, str]) -> None:
    with running(log, *FLAGS, f"--state={state}") as daemon, client(daemon) as speaking:
        for machine_id, operation in acknowledged.items():
            speaking.reaches(machine_id, "IDLE")
            assert speaking.create(machine_id).operation_id == operation


class Disk:
    """Fills what is left of a file system, and frees it."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                pass

    def free(self) -> None:
        self._ballast.unlink()


def test_a_full_disk_refuses_mutations_and_space_lets_them_pass_without_a_restart(
    log: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "1m") as folder:
        state = folder / "state.db"
        with running(log, *FLAGS, f"--state={state}") as daemon:
            acknowledged = suffer_and_recover(log, daemon, Disk(folder))
            daemon.kill()
        still_known(log, state, acknowledged)


@pytest.mark.behaviour(80, 92)
def test_a_full_disk_keeps_no_daemon_from_stopping_or_from_serving_what_it_has(
    log: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "1m") as folder:
        state = folder / "state.db"
        disk = Disk(folder)
        with running(log, "--fake-latency=300ms", f"--state={state}") as daemon:
            with client(daemon) as speaking:
                ids = [machine.id for machine in speaking.list().machines]
                for machine_id in ids:
                    speaking.create(machine_id)
            disk.fill()
            eventually(lambda: "the disk is full" in log.read_text(), "a result cannot be kept")
            assert daemon.terminate() == 0
        with running(log, f"--state={state}") as daemon:
            with client(daemon) as speaking:
                assert len(speaking.list().machines) == len(ids)
            assert daemon.terminate() == 0
        # Changed offers have to be written before anything is served; SIGTERM ends the wait.
        said = log.stat().st_size
        with log.open("a") as stderr:
            popen = subprocess.Popen(
                [*COMMAND, *BASE, "--seed-count=64", f"--state={state}"], stderr=stderr
            )
        try:
            lock = state.with_name(f"{state.name}.lock").resolve()
            eventually(
                lambda: str(lock) in {file.path for file in psutil.Process(popen.pid).open_files()},
                "it has opened its state",
            )
            popen.terminate()
            assert popen.wait(10) == 0
        finally:
            popen.kill()
            popen.wait(10)
        assert "stopped before it served" in log.read_text()[said:]
        disk.free()
        with running(log, "--fake-latency=1ms", f"--state={state}") as daemon:
            with client(daemon) as speaking:
                for machine_id in ids:
                    speaking.reaches(machine_id, "IDLE")
            daemon.kill()


class FileSize:
    """Forbids the process to make any file longer than its write-ahead log is now."""

    def __init__(self, daemon: DaemonProcess, state: Path) -> None:
        self._pid = daemon.popen.pid
        self._state = state

    def fill(self) -> None:
        # The log is overwritten from its start after a checkpoint; a page is the least.
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.prlimit(
            self._pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )


def test_a_limit_of_the_file_size_refuses_mutations_and_lifting_it_lets_them_pass(
    log: Path, state: Path
) -> None:
    with running(log, *FLAGS, f"--state={state}") as daemon:
        acknowledged = suffer_and_recover(log, daemon, FileSize(daemon, state))  # type: ignore[arg-type]
        daemon.kill()
    still_known(log, state, acknowledged)
