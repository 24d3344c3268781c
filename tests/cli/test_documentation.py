"""The generated reference pages."""

import subprocess
import sys

import pytest

from bigfleet_azure.backends.azure.error_table import RULES
from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.daemon.options import OPTIONS
from scripts import generate_docs
from tests.support.tools import ROOT


def test_the_reference_pages_are_what_the_code_says():
    assert generate_docs.stale() == [], "run .venv/bin/python scripts/generate_docs.py"


@pytest.mark.behaviour(90)
def test_the_page_of_flags_names_every_flag_and_variable():
    page = generate_docs.flags()
    for option in OPTIONS:
        assert option.env_only or f"`--{option.name}`" in page
        assert f"`{option.env}`" in page


def test_the_page_of_exit_codes_names_every_code():
    page = generate_docs.exit_codes()
    assert all(f"\n| {int(code)} | {code.meaning} |" in page for code in Exit)


def test_the_page_of_azure_errors_lists_every_rule_in_order():
    rows = [
        line for line in generate_docs.azure_errors().splitlines() if line[:3].strip("| ").isdigit()
    ]
    assert len(rows) == len(RULES)
    for number, (row, rule) in enumerate(zip(rows, RULES, strict=True), start=1):
        assert row.startswith(f"| {number} |")
        assert f"| {rule.means.kind} |" in row
        assert all(f"`{code}`" in row for code in rule.codes)


def test_check_fails_on_drift_and_writing_mends_it(tmp_path, monkeypatch, capsys):
    page = tmp_path / "reference" / "page.md"
    monkeypatch.setattr(generate_docs, "PAGES", {page: lambda: "text\n"})
    monkeypatch.setattr(sys, "argv", ["generate_docs.py", "--check"])
    assert generate_docs.main() == 1
    assert "is stale" in capsys.readouterr().err
    assert not page.exists()
    monkeypatch.setattr(sys, "argv", ["generate_docs.py"])
    assert generate_docs.main() == 0
    assert page.read_text() == "text\n"
    monkeypatch.setattr(sys, "argv", ["generate_docs.py", "--check"])
    assert generate_docs.main() == 0


@pytest.mark.process
def test_the_script_runs_by_its_path():
    script = ROOT / "scripts" / "generate_docs.py"
    subprocess.run([sys.executable, script, "--check"], check=True, timeout=60)
