"""The commands in the README and the quickstart, run as they stand there."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.process import COMMAND, DaemonProcess, eventually, running
from tests.support.tools import ROOT, require_tool

pytestmark = pytest.mark.process

PROGRAM = ".venv/bin/bigfleet-azure"
LONG_RUNNING = ("make run", f"{PROGRAM} --use-fake-backend --state ./trial.db")
"""Commands of the quickstart that start a daemon, which the tests do in their own way."""


def shell_lines(page: Path) -> list[str]:
    """The lines of a page's `sh` blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def follow(lines: list[str], daemon: DaemonProcess) -> None:
    """Run commands that end, each of which says something."""
    http = next(port for port in daemon.listening() if port != daemon.port)
    path = f"{ROOT / '.tools' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "BIGFLEET_AZURE_SERVER": daemon.address, "PATH": path}
    for line in lines:
        command = (
            line.replace(PROGRAM, shlex.join(COMMAND))
            .replace("localhost:9000", daemon.address)
            .replace("localhost:9090", f"127.0.0.1:{http}")
        )
        done = subprocess.run(
            ["bash", "-ec", command],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout, line


def test_the_commands_of_the_quickstart_work_in_their_order(tmp_path: Path) -> None:
    require_tool("grpcurl")
    lines = [x for x in shell_lines(ROOT / "docs/quickstart.md") if x not in LONG_RUNNING]
    assert len(lines) > 10
    with running(tmp_path / "log", "--metrics-addr=127.0.0.1:0") as daemon:
        daemon.web("/healthz")
        follow(lines, daemon)


def test_every_command_shown_in_the_readme_session_exists(tmp_path: Path) -> None:
    session = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert session is not None
    text = session[1].replace("\\\n", " ")
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    assert len(commands) == 4
    require_tool("grpcurl")
    with running(tmp_path / "log") as daemon:
        path = f"{ROOT / '.tools' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "BIGFLEET_AZURE_SERVER": daemon.address, "PATH": path}
        for command in commands:
            done = subprocess.run(
                [
                    "bash",
                    "-ec",
                    command.replace(PROGRAM, shlex.join(COMMAND)).replace(
                        "localhost:9000", daemon.address
                    ),
                ],
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".stamp-test").exists(), reason="make venv was not run in this tree"
)
def test_make_run_prints_three_commands_and_serves(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        make = subprocess.Popen(
            ["make", "run", "ARGS=--addr=127.0.0.1:0 --metrics-addr="],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: "serving CapacityProvider" in log.read_text(), "it serves", within=60)
        shown = [line.strip() for line in log.read_text().splitlines() if PROGRAM in line]
        assert [line.split()[2] for line in shown[:3]] == ["list", "create", "configure"]
    finally:
        os.killpg(make.pid, signal.SIGTERM)
        make.wait(15)
