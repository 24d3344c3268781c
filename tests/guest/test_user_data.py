"""The user data that operators are given installs what was tested, and fits into Azure's limit."""

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from scripts import user_data
from tests.guest.agents import TOKEN, Agent
from tests.guest.imds import Imds, preempt
from tests.guest.notices import StandInDaemon
from tests.guest.serving import until
from tests.support.tools import require_tool

Json = dict[str, Any]

MAX_CUSTOM_DATA = 65_535
"""Bytes (azure-facts section 4.3)."""

FILLED = {
    "__BIGFLEET_MACHINE_ID__": "m" * 64,
    "__BIGFLEET_CALLBACK_URL__": "https://" + "u" * 2_000,
    "__BIGFLEET_CALLBACK_TOKEN__": "t" * 2_048,
}
"""What the daemon replaces, with values longer than any of its own."""

FLATCAR = user_data.DEPLOY / "agent" / "flatcar.bu"
EXAMPLES = [*user_data.EXAMPLES, FLATCAR]
PROGRAMS = [path for path in user_data.SOURCES.values() if path.suffix == ""]
UNITS = [path for path in user_data.SOURCES.values() if path.suffix == ".service"]


def name(path: Path) -> str:
    return str(path.relative_to(user_data.DEPLOY))


def files(example: Path, values: dict[str, str] | None = None) -> dict[str, Json]:
    """What a cloud-init example writes, by path, once the daemon has filled it in."""
    text = example.read_text()
    for placeholder, value in (values or {}).items():
        text = text.replace(placeholder, value)
    return {each["path"]: each for each in yaml.safe_load(text)["write_files"]}


@pytest.mark.parametrize("example", user_data.EXAMPLES, ids=name)
def test_an_example_installs_the_programs_as_they_are(example: Path) -> None:
    text = example.read_text()
    assert user_data.filled(text) == text, "run `python -m scripts.user_data`"
    found = files(example)
    installed = [path for path in found if path in user_data.SOURCES]
    assert "/opt/bigfleet/eviction-agent" in installed
    for path in installed:
        source = user_data.SOURCES[path]
        assert found[path]["content"] == source.read_text()
        wanted = "0755" if source in PROGRAMS else None
        assert found[path].get("permissions") == wanted


def test_the_example_with_the_hook_installs_everything() -> None:
    assert user_data.SOURCES.keys() <= files(user_data.EXAMPLES[1]).keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_each_placeholder_stands_where_it_is_meant_and_nowhere_else(example: Path) -> None:
    text = example.read_text()
    assert {each: text.count(each) for each in FILLED} == dict.fromkeys(FILLED, 1)


@pytest.mark.parametrize("source", user_data.SOURCES.values(), ids=name)
def test_no_program_has_a_placeholder_that_the_daemon_would_replace(source: Path) -> None:
    text = source.read_text()
    assert [each for each in FILLED if each in text] == []


@pytest.mark.parametrize("example", user_data.EXAMPLES, ids=name)
def test_a_filled_example_fits_into_custom_data(example: Path) -> None:
    text = example.read_text()
    for placeholder, value in FILLED.items():
        text = text.replace(placeholder, value)
    assert len(text.encode()) < MAX_CUSTOM_DATA


@pytest.mark.parametrize("example", user_data.EXAMPLES, ids=name)
def test_only_root_reads_the_token(example: Path) -> None:
    written = files(example, FILLED)
    secret = [each for each in written.values() if "t" * 2_048 in each["content"]]
    assert [(each["path"], each["permissions"]) for each in secret] == [
        ("/etc/bigfleet/callback-token", "0600")
    ]


def test_flatcar_gets_the_same_files() -> None:
    document = yaml.safe_load(FLATCAR.read_text())
    found = {each["path"]: each for each in document["storage"]["files"]}
    for path, wanted in files(user_data.EXAMPLES[0]).items():
        if path.startswith("/etc/bigfleet/"):
            source = found[path]["contents"]["source"].removeprefix("data:,")
            assert unquote(source).strip() == wanted["content"].strip()
        elif path.startswith("/opt/"):
            local = FLATCAR.parent / found[path]["contents"]["local"]
            assert local == user_data.SOURCES[path]
        modes = {"0755": 0o755, "0600": 0o600, None: None}
        if path in found:
            assert found[path].get("mode") == modes[wanted.get("permissions")]
    [unit] = document["systemd"]["units"]
    assert FLATCAR.parent / unit["contents_local"] in UNITS
    assert unit["enabled"] is True


@pytest.mark.process
@pytest.mark.parametrize("example", user_data.EXAMPLES, ids=name)
async def test_what_an_example_installs_tells_of_an_eviction(
    example: Path, agent: Agent, imds: Imds, daemon: StandInDaemon, settings: dict[str, str]
) -> None:
    written = files(
        example,
        {
            "__BIGFLEET_MACHINE_ID__": "vm-spot",
            "__BIGFLEET_CALLBACK_URL__": settings.pop("BIGFLEET_CALLBACK_URL"),
            "__BIGFLEET_CALLBACK_TOKEN__": TOKEN,
        },
    )
    agent.token.write_text(written["/etc/bigfleet/callback-token"]["content"])
    lines = written["/etc/bigfleet/agent.env"]["content"].splitlines()
    imds.document = preempt()
    async with agent.running(**settings | dict(line.split("=", 1) for line in lines)):
        await until(lambda: daemon.taken, "the notice is taken")


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_shellcheck_finds_nothing(program: Path) -> None:
    checked = subprocess.run(
        [require_tool("shellcheck"), program], capture_output=True, text=True, check=False
    )
    assert checked.stdout + checked.stderr == ""


@pytest.mark.deploy
@pytest.mark.parametrize("example", user_data.EXAMPLES, ids=name)
def test_cloud_init_takes_an_example(example: Path, tmp_path: Path) -> None:
    tool = require_tool("cloud-init")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(example.read_text().replace("runcmd:", "runcmd: 5\nx:", 1))
    for path, words in ((example, "Valid"), (wrong, "Error")):
        checked = subprocess.run(
            [tool, "schema", "--config-file", path], capture_output=True, text=True, check=False
        )
        said = checked.stdout + checked.stderr
        assert words in said
        assert checked.returncode == (0 if words == "Valid" else 1)
        assert words == "Error" or "deprecat" not in said.lower()


@pytest.mark.deploy
@pytest.mark.parametrize("unit", UNITS, ids=name)
def test_systemd_understands_a_unit(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/bigfleet/", f"{tmp_path}/"))
    for program in PROGRAMS:
        (tmp_path / program.name).write_bytes(program.read_bytes())
        (tmp_path / program.name).chmod(0o755)
    checked = subprocess.run(
        [require_tool("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", here],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout + checked.stderr == ""
    assert checked.returncode == 0


@pytest.mark.deploy
def test_the_agent_may_do_little() -> None:
    checked = subprocess.run(
        [
            *(require_tool("systemd-analyze"), "security", "--no-pager", "--offline=true"),
            *("--threshold=20", user_data.DEPLOY / "agent" / "bigfleet-eviction-agent.service"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
