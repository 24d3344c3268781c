"""Every shell command of the pages can be read and is accounted for; what can run is run."""

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bigfleet_azure.backends.simulated.backend import facts
from bigfleet_azure.daemon.offerings_file import load
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.domain.offering import Facts, Offer
from tests.docs.ledger import HERE, RULES, SHOWN, Rule, Shown
from tests.support.pages import DOCS, PAGES, READMES, block, blocks, name_of
from tests.support.process import COMMAND, client, running
from tests.support.tools import ROOT

BLOCKS = [(page, text) for page in (*PAGES, *READMES) for text in blocks(page, "sh")]
ENDING = [each for each in SHOWN if each.rule and each.text.startswith("bigfleet-azure ")]
OURS = [each for each in ENDING if each.rule and HERE in each.rule.tests]
SERVING = [each for each in OURS if each.text.startswith("bigfleet-azure --")]


@pytest.mark.parametrize("page", sorted({page for page, _ in BLOCKS}), ids=name_of)
def test_bash_can_read_every_block(page: Path) -> None:
    for text in blocks(page, "sh"):
        done = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), text


@pytest.mark.parametrize("shown", SHOWN, ids=str)
def test_a_command_is_run_by_a_test_or_there_is_a_reason_why_not(shown: Shown) -> None:
    rule = shown.rule
    assert rule is not None, f"say in tests/docs/ledger.py what runs {shown.text!r}, or why nothing"
    assert bool(rule.tests) != bool(rule.why_not)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern)
def test_a_rule_is_about_something_and_names_tests_that_exist(rule: Rule) -> None:
    assert any(shown.rule is rule for shown in SHOWN)
    assert all((ROOT / test).is_file() for test in rule.tests)


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name_of)
def test_data_that_a_page_shows_can_be_read(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "json"):
        shown = json.loads(text)
        if isinstance(shown, list) and "vm_size" in shown[0]:
            file = tmp_path / "offerings.json"
            file.write_text(text)
            offers, _ = load(file, of_any_size)
            assert offers
    for text in blocks(page, "yaml"):
        assert list(yaml.safe_load_all(text))


def of_any_size(offer: Offer) -> Facts:
    """Facts of whatever size: which ones there are is Azure's to say."""
    return facts(replace(offer, vm_size="Standard_D4s_v5"))


@pytest.mark.parametrize("shown", SERVING, ids=str)
def test_the_daemon_takes_the_flags_that_a_page_shows(shown: Shown) -> None:
    key = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1GfoCqC0mxpwuSFTCn2+pdzn4K8KoM3wVxaKHTzLhN a\n"
    settings = resolve(shlex.split(shown.text)[1:], {}, lambda path: key)
    assert settings.azure is not None


@pytest.mark.process
def test_the_commands_about_files_work_in_their_order(tmp_path: Path) -> None:
    furnish(tmp_path)
    ran = [shown for shown in OURS if shown not in SERVING]
    assert len(ran) >= 6
    for shown in ran:
        done = subprocess.run(
            [*COMMAND, *shlex.split(shown.text)[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (str(shown), done.stderr)
        assert done.stdout + done.stderr
        for made in ("COPY", "bigfleet.db"):
            (tmp_path / made).unlink(missing_ok=True)


def furnish(folder: Path) -> None:
    """The files that commands of the pages name."""
    install = block(DOCS / "install.md", "json", "vm_size")
    (folder / "offerings.eastus.json").write_text(install)
    (folder / "offerings.json").write_text(blocks(DOCS / "offerings.md", "json")[0])
    (folder / "go-state.json").write_text(block(DOCS / "migration.md", "json", "fences"))
    with running(folder / "log", f"--state={folder / 'FILE'}") as daemon, client(daemon) as calls:
        calls.create(calls.list().machines[0].id)
        daemon.terminate()
