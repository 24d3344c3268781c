"""The image runs as its users run it: read-only, without privileges, as nobody in particular."""

import shutil
import socket
import time
from pathlib import Path

import pytest

from bigfleet_azure import __version__
from bigfleet_azure.cli.exits import Exit
from tests.support.image import STATE_FOLDER, Image
from tests.support.process import DaemonProcess, client, running

pytestmark = [pytest.mark.deploy, pytest.mark.process]

SHUTDOWN_SECONDS = 10.0
"""What Docker gives a container between SIGTERM and SIGKILL."""


def free_port(wanted: int) -> int:
    """The port itself, or another if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume as a container engine makes one: with owner and mode of the folder it covers."""
    folder = tmp_path / "volume"
    folder.mkdir(mode=0o700)
    shutil.chown(folder, 65532, 65532)
    return folder


def status(daemon: DaemonProcess) -> dict[str, str]:
    """What the kernel says about the process."""
    lines = Path(f"/proc/{daemon.popen.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_smoke_test_of_the_install_page_passes(image: Image, tmp_path: Path, figure) -> None:
    flags = ["--seed-count", "32"]
    flags += ["--addr", f":{free_port(9000)}", "--metrics-addr", f":{free_port(9090)}"]
    begun = time.monotonic()
    with running(tmp_path / "log", *flags, command=image.command(), base=()) as daemon:
        figure(f"start until it serves gRPC: {time.monotonic() - begun:.2f} s")
        assert daemon.web("/healthz").text.strip() == "ok"
        assert daemon.web("/readyz").text.strip() == "ready"
        with client(daemon) as calls:
            assert len(calls.list().machines) == 32


def test_daemon_runs_as_the_images_user_without_a_capability(image: Image, tmp_path: Path) -> None:
    with running(tmp_path / "log", command=image.command()) as daemon:
        facts = status(daemon)
        mounts = Path(f"/proc/{daemon.popen.pid}/mountinfo").read_text()
    assert facts["Uid"].split() == facts["Gid"].split() == ["65532"] * 4
    assert facts["Groups"] == ""
    assert facts["CapEff"] == "0" * 16
    assert any(
        line.split()[4] == "/" and line.split()[5].startswith("ro") for line in mounts.splitlines()
    )


def test_state_on_a_volume_outlives_the_container(
    image: Image, tmp_path: Path, volume: Path
) -> None:
    command = image.command(binds={volume: STATE_FOLDER})
    flags = (f"--state={STATE_FOLDER}/state.db", "--seed-count=4")
    with (
        running(tmp_path / "log", *flags, command=command) as daemon,
        client(daemon) as calls,
    ):
        machine = calls.list().machines[0].id
        calls.create(machine)
        calls.reaches(machine, "IDLE")
        assert daemon.terminate() == 0
    with running(tmp_path / "log", *flags, command=command) as daemon, client(daemon) as calls:
        calls.reaches(machine, "IDLE", within=0)


def test_state_outside_a_volume_is_refused_on_the_read_only_root(image: Image) -> None:
    done = image.run(*image.config["Entrypoint"], f"--state={STATE_FOLDER}/state.db")
    assert done.returncode == Exit.STATE_UNUSABLE
    assert f"{STATE_FOLDER} is not writable" in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_ends_it_in_time_and_without_an_error(image: Image, tmp_path: Path, figure) -> None:
    with running(tmp_path / "log", command=image.command()) as daemon:
        begun = time.monotonic()
        assert daemon.terminate(within=SHUTDOWN_SECONDS) == 0
        figure(f"SIGTERM until it has ended: {time.monotonic() - begun:.2f} s")


def test_command_is_found_by_its_name_for_exec_in_a_running_container(image: Image) -> None:
    done = image.run("/opt/bigfleet-azure/bin/bigfleet-azure", "--version")
    assert (done.returncode, done.stdout.split()[-1]) == (0, __version__)
    assert "/opt/bigfleet-azure/bin" in dict(entry.split("=", 1) for entry in image.config["Env"])[
        "PATH"
    ].split(":")


def test_azure_backend_is_complete_and_trusts_the_public_authorities(image: Image) -> None:
    lines = image.python(
        "import bigfleet_azure.backends.azure, azure.identity.aio, azure.mgmt.compute.aio,"
        " azure.mgmt.network.aio, kubernetes_asyncio, ssl;"
        "print(len(ssl.create_default_context().get_ca_certs()) > 50)"
    )
    assert lines == "True"
