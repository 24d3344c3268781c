"""The daemon runs with the arguments of the chart, and the pod of `helm test` finds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chart.things import Case
from tests.support.process import COMMAND, DaemonProcess, eventually, running

pytestmark = [pytest.mark.deploy, pytest.mark.process]

HERE = ("--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
"""Arguments given last, so that they win: ports that are free on this machine."""


def mounted(arguments: list[str], folder: Path) -> list[str]:
    """The arguments with the folders of the container moved to one of this machine."""
    places = {"/etc/bigfleet/": f"{folder}/etc/", "/var/lib/bigfleet-azure/": f"{folder}/"}
    for place, here in places.items():
        arguments = [each.replace(place, here) for each in arguments]
    return arguments


def http_port(daemon: DaemonProcess) -> int:
    eventually(lambda: set(daemon.listening()) - {daemon.port}, "the HTTP listener is open")
    [port] = set(daemon.listening()) - {daemon.port}
    return port


def test_a_daemon_with_the_rendered_arguments_passes_the_test_of_the_chart(
    home: Path, tmp_path: Path
) -> None:
    made = Case(values=("in-memory-disk",)).render(home, "--set=azure.seedCount=8")
    key = tmp_path / "etc" / "state-key" / "state-key"
    key.parent.mkdir(parents=True)
    key.write_bytes(made.read("/etc/bigfleet/state-key/state-key"))
    arguments = mounted(made.arguments, tmp_path)
    log = tmp_path / "log"
    with running(log, *arguments, *HERE, env=made.environ(), base=()) as daemon:
        pod = made.one("Pod")["spec"]
        [ready] = pod["initContainers"]
        assert ready["command"][0] == "python3"
        url = f"http://127.0.0.1:{http_port(daemon)}/readyz"
        assert ready["args"][1] == "http://bigfleet-azure-eastus:9090/readyz"
        assert said(sys.executable, *ready["command"][1:], ready["args"][0], url) == "ready\n"
        [machines] = pod["containers"]
        assert machines["args"] == ["machines", "list", "--addr=bigfleet-azure-eastus:9000"]
        listed = said(*COMMAND, *machines["args"][:-1], f"--addr={daemon.address}")
        assert len(listed.splitlines()) == 1 + 8


def said(*command: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_test_pod_fails_when_nothing_answers(home: Path) -> None:
    script = Case(values=("in-memory-disk",)).render(home).one("Pod")["spec"]["initContainers"][0]
    hasty = script["args"][0].replace("SECONDS = 120.0", "SECONDS = 0.0")
    done = subprocess.run(
        [sys.executable, "-c", hasty, "http://127.0.0.1:1/readyz"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "http://127.0.0.1:1/readyz is not ready" in done.stderr
