"""The quickstart on the ARM double, followed as it stands there."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.test_documented import PROGRAM, follow, shell_lines
from tests.support.process import eventually, running
from tests.support.tools import ROOT, require_tool

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = ROOT / "docs/quickstart-azure-double.md"
DOUBLE = "make arm ARGS=--quick"
PORT = "127.0.0.1:8443"
CA = ".cache/arm/ca.pem"


@contextmanager
def double(folder: Path) -> Iterator[Path]:
    """What `make arm` runs, on a port of its own; the file of what it says."""
    said = folder / "said"
    options = shlex.split(DOUBLE)[2].removeprefix("ARGS=")
    with said.open("w") as output:
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.support.arm", options, "--port=0", f"--folder={folder}"],
            cwd=ROOT,
            stdout=output,
        )
    try:
        eventually(lambda: "Ctrl-C" in said.read_text(), "the double listens")
        yield said
    finally:
        popen.terminate()
        popen.wait(10)


def commands() -> list[str]:
    """The page's commands, with lines that go on joined."""
    return "\n".join(shell_lines(PAGE)).replace("\\\n  ", "").splitlines()


def pasted(lines: list[str], endpoint: str, ca: Path) -> tuple[dict[str, str], list[str]]:
    """Environment and arguments of the daemon, by the page's second block."""
    exports = dict(
        line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export ")
    )
    [started] = [line for line in lines if line.startswith(f"{PROGRAM} --")]
    env = {key: value.replace(PORT, endpoint) for key, value in exports.items()}
    return env, shlex.split(started.replace(PORT, endpoint).replace(CA, str(ca)))[1:]


def test_the_page_shows_what_the_double_prints_and_its_commands_work(tmp_path: Path) -> None:
    require_tool("grpcurl")
    lines = commands()
    assert lines[0] == DOUBLE
    with double(tmp_path) as said:
        text = said.read_text()
        endpoint = re.findall(r"listens at https://(\S+)", text)[0]
        printed = text.replace(endpoint, PORT).replace(f"{tmp_path}/ca.pem", CA)
        for line in shell_lines(PAGE)[1:10]:
            assert line in printed.splitlines(), line
        env, flags = pasted(lines, endpoint, tmp_path / "ca.pem")
        base = ("--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
        with running(tmp_path / "log", *flags, env=env, base=base) as daemon:
            eventually(lambda: len(daemon.listening()) == 2, "HTTP is served too")
            rest = lines[lines.index(f"{PROGRAM} machines list") :]
            assert len(rest) == 10
            follow(rest, daemon)
        wrote = said.read_text().partition("What clients write:")[2]
        assert re.findall(r"(?m)^201 PUT .*/virtualMachines/(\S+)$", wrote)[0].endswith("-000")
        assert "202 DELETE" in wrote
