"""The systemd unit: sound, hardened, and started with settings that the daemon takes."""

import configparser
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bigfleet_azure.daemon.app import SHUTDOWN_LIMIT_SECONDS
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.daemon.settings import resolve
from tests.support.process import client, running
from tests.support.tools import ROOT, require_tool

FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "bigfleet-azure.service"
EXAMPLE = FOLDER / "bigfleet-azure.env.example"
PROGRAM = "/opt/bigfleet-azure/bin/bigfleet-azure"

EXPOSURE = 15
"""Tenths of what `systemd-analyze security` may find; 0 is a service shut in without a network."""


def settings() -> dict[str, str]:
    """The last value of each setting of the service."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def flags(state: Path) -> list[str]:
    """Arguments of the program, as systemd gives them."""
    program, *arguments = shlex.split(settings()["ExecStart"].replace("%S", str(state)))
    assert program == PROGRAM
    return arguments


def variables(text: str) -> dict[str, str]:
    """What systemd reads from the file of the environment."""
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]", line))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a program that exists, which is the first thing systemd looks for."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return copy


def test_systemd_finds_no_fault_in_the_unit(installed: Path) -> None:
    tool = require_tool("systemd-analyze")
    done = subprocess.run([tool, "verify", installed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_leaves_the_daemon_hardly_more_than_the_network(installed: Path) -> None:
    tool = require_tool("systemd-analyze")
    done = subprocess.run(
        [tool, "security", "--offline=true", f"--threshold={EXPOSURE}", installed],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_example_holds_the_settings_of_a_real_region(tmp_path: Path) -> None:
    environment = variables(EXAMPLE.read_text())
    found = resolve(flags(tmp_path)[1:], environment, lambda name: Path(name).read_bytes())
    assert (found.location, found.provider) == ("eastus", "azure-eastus")
    assert found.state == tmp_path / "bigfleet-azure" / "state.db"
    assert found.warnings == ()


def test_every_variable_of_the_example_exists_also_those_commented_out() -> None:
    named = set(re.findall(r"^#?([A-Z][A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE))
    own = {name for name in named if name.startswith("BIGFLEET_")}
    known = {f"BIGFLEET_AZURE_{option.name.upper().replace('-', '_')}" for option in OPTIONS}
    assert own <= known
    assert named - own == {"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"}


def test_daemon_starts_with_flags_and_example_of_the_unit(tmp_path: Path) -> None:
    (tmp_path / "bigfleet-azure").mkdir()
    command, *given = flags(tmp_path)
    assert command == "serve"
    given += ["--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr="]
    environment = variables(EXAMPLE.read_text())
    with (
        running(tmp_path / "log", "serve", *given, env=environment, base=()) as daemon,
        client(daemon) as calls,
    ):
        assert calls.list().machines[0].id.startswith("azure-eastus-")
        assert daemon.terminate() == 0
    assert (tmp_path / "bigfleet-azure" / "state.db").exists()


def test_systemd_waits_longer_than_the_daemon_may_take_to_end() -> None:
    assert float(settings()["TimeoutStopSec"]) > SHUTDOWN_LIMIT_SECONDS + 1
    assert settings()["RestartPreventExitStatus"] == "2"


def test_files_that_the_page_installs_exist() -> None:
    page = (FOLDER / "README.md").read_text()
    named = re.findall(r"(?:deploy/systemd|requirements)/[\w.-]+", page)
    assert len(named) == 4
    assert [name for name in named if not os.path.lexists(ROOT / name)] == []
