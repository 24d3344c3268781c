"""What the alert rules name exists, and each has a case and a section that says what to do."""

import re
from typing import Any

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.rpc.status import GO_NAMES
from tests.alerts.rules import (
    NAMES,
    OF_TARGETS,
    RULES,
    Json,
    cases,
    conditions,
    dashboard_queries,
    grouping,
    known_series,
    series,
)
from tests.support.pages import DOCS, anchors

KNOWN = known_series()
QUERIES = [(rule["alert"], rule["expr"]) for rule in RULES]
QUERIES += [(title, query) for title, query, _ in dashboard_queries()]

PAGE = DOCS / "troubleshooting.md"
ADDRESS = "https://github.com/your-org/bigfleet-azure/blob/main/docs/troubleshooting.md#"

VALUES = {
    "state": {state.name for state in State},
    "kind": {str(kind) for kind in Kind},
    "reason": {str(kind) for kind in FailureKind},
    "code": set(GO_NAMES.values()),
    "condition": {str(condition) for condition in Condition},
    "method": {"Create", "Configure", "Drain", "Delete", "Get", "List"},
    "outcome": {"success", "failure", "error", "adopted", "owed"},
    "name": conditions(),
}
"""What labels can be, as far as queries ask for it."""


@pytest.mark.parametrize("query", [text for _, text in QUERIES], ids=[name for name, _ in QUERIES])
def test_a_query_names_only_metrics_labels_and_values_that_exist(query: str) -> None:
    named = series(query)
    assert named
    labels: set[str] = set()
    for one in named:
        assert one.name in KNOWN
        labels |= KNOWN[one.name]
        for label, value in one.matchers:
            assert label in KNOWN[one.name] | OF_TARGETS
            if label in VALUES:
                assert set(value.split("|")) <= VALUES[label]
    assert grouping(query) <= labels | OF_TARGETS


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_to_do(rule: Json) -> None:
    assert rule["alert"].startswith("BigFleetAzure")
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(rule["annotations"]["description"].split()) > 8


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_links_a_section_that_exists(rule: Json) -> None:
    url = rule["annotations"]["runbook_url"]
    assert url.startswith(ADDRESS)
    names = conditions() if "$labels.name" in url else {""}
    for name in names:
        anchor = url.removeprefix(ADDRESS).replace("{{ $labels.name }}", name)
        assert anchor in anchors(PAGE)


def fired(case: Json) -> list[dict[str, str]]:
    """The labels of all alerts that fire in a case."""
    return [
        dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
        for test in case["promql_expr_test"]
        for sample in test.get("exp_samples", ())
    ]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_beside_one_in_which_it_just_does_not(
    name: str,
) -> None:
    [case] = [case for case in cases() if case["name"] == name]
    asked = f'ALERTS{{alertname="{name}", alertstate="firing"'
    assert all(test["expr"].startswith(asked) for test in case["promql_expr_test"])
    given = {
        value
        for one in case["input_series"]
        for value in re.findall(r'(?:instance|job)="([^"]*)"', one["series"])
    }
    assert {"bad", "near"} <= given
    alerts = fired(case)
    assert {alert["severity"] for alert in alerts} == {
        rule["labels"]["severity"] for rule in RULES if rule["alert"] == name
    }
    for alert in alerts:
        assert (alert["instance"] if alert.get("instance") else alert["job"]).startswith("bad")


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_the_words_of_an_alert_use_labels_that_it_has_when_it_fires(rule: Json) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    for case in cases():
        for alert in fired(case):
            if alert["alertname"] == rule["alert"]:
                assert used <= set(alert)


def test_there_is_no_case_of_an_alert_that_is_gone() -> None:
    assert sorted(case["name"] for case in cases()) == NAMES


def condition_rules() -> list[tuple[str, Any]]:
    """Severity, and a test whether the rule is about a name."""
    found = []
    for rule in RULES:
        if rule["alert"] == "BigFleetAzureCondition":
            [(sign, names)] = re.findall(r'name(=~|!~)"([^"]*)"', rule["expr"])
            found.append((rule["labels"]["severity"], (sign == "=~", set(names.split("|")))))
    return found


@pytest.mark.parametrize("name", [*sorted(conditions()), "one of tomorrow"])
def test_every_condition_has_one_alert(name: str) -> None:
    about = [
        severity for severity, (inside, names) in condition_rules() if (name in names) is inside
    ]
    if name == "debts":
        assert about == []
        assert "BigFleetAzureDebtsOld" in NAMES
    else:
        assert len(about) == 1
