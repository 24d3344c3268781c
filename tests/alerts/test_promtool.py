"""Promtool's own view of the rules, of the dashboard's queries and of the cases."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.alerts.rules import ALERTS, CASES, dashboard_queries, with_choices
from tests.support.tools import require_tool

pytestmark = pytest.mark.deploy


def promtool(*arguments: str | Path) -> str:
    """What promtool prints; AssertionError with its words when it is not content."""
    done = subprocess.run(
        [require_tool("promtool"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_sound() -> None:
    assert "rules found" in promtool("check", "rules", "--lint-fatal", ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_alerts_fire_in_their_cases_and_not_beside_them(case: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", case)


def test_a_rule_that_is_broken_is_noticed(tmp_path: Path) -> None:
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if rule["alert"] == "BigFleetAzurePanics":
            rule["expr"] += " + 1"
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules))
    [case] = [path for path in CASES if "BigFleetAzurePanics" in path.read_text()]
    text = case.read_text().replace(f"../../{ALERTS.relative_to(ALERTS.parents[3])}", "alerts.yaml")
    (tmp_path / "case.yaml").write_text(text)
    with pytest.raises(AssertionError, match="BigFleetAzurePanics"):
        promtool("test", "rules", tmp_path / "case.yaml")


def test_every_query_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": with_choices(query)}
        for number, (_, query, _) in enumerate(dashboard_queries())
    ]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", path)
