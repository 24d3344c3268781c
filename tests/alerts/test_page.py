"""The page of troubleshooting: complete, and its commands about a daemon work."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.alerts.rules import NAMES, conditions, known_series
from tests.alerts.test_alerts import PAGE
from tests.support.pages import blocks, commands
from tests.support.process import COMMAND, running
from tests.support.tools import require_tool

TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
REQUIRED = [*NAMES, *(f"condition {name}" for name in sorted(conditions()))]

SHOWN = [command for text in blocks(PAGE, "sh") for command in commands(text)]
ASKING = [
    command
    for command in SHOWN
    if command.startswith(("bigfleet-azure machines ", "grpcurl ", "curl "))
]


@pytest.mark.parametrize("title", REQUIRED)
def test_a_section_says_what_is_seen_why_it_is_so_and_what_to_do(title: str) -> None:
    section = SECTIONS[title]
    assert "**See.**" in section
    assert ("**Why.**" in section and "**Do.**" in section) or "**Why and what to do.**" in section


def test_there_is_no_section_of_an_alert_or_a_condition_that_is_gone() -> None:
    titles = {title for title in SECTIONS if title.startswith(("BigFleetAzure", "condition "))}
    assert titles == set(REQUIRED)


def test_every_metric_of_the_page_exists() -> None:
    named = set(re.findall(r"`(bigfleet_azure_\w+)`", TEXT))
    assert len(named) > 10
    assert named <= set(known_series())


@pytest.mark.process
def test_the_commands_about_a_daemon_work_in_their_order(tmp_path: Path) -> None:
    require_tool("grpcurl")
    assert len(ASKING) > 10
    with running(tmp_path / "log", "--metrics-addr=127.0.0.1:0") as daemon:
        daemon.web("/healthz")
        [http] = set(daemon.listening()) - {daemon.port}
        tools = Path(require_tool("grpcurl")).parent
        environ = {
            **os.environ,
            "BIGFLEET_AZURE_SERVER": daemon.address,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        }
        for command in ASKING:
            done = subprocess.run(
                [
                    "bash",
                    "-ec",
                    command.replace("bigfleet-azure ", f"{shlex.join(COMMAND)} ", 1)
                    .replace("localhost:9000", daemon.address)
                    .replace("localhost:9090", f"127.0.0.1:{http}"),
                ],
                env=environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert done.stdout, command
