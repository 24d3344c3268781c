"""The alert rules, their cases and the dashboard's queries, taken apart."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.metrics import MetricWrapperBase

from bigfleet_azure.telemetry.metrics import Metrics
from tests.support.tools import ROOT

Json = dict[str, Any]

FILES = ROOT / "helm" / "bigfleet-azure" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARD: Json = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
CASES = sorted(Path(__file__).parent.glob("*.test.yaml"))

RULES: list[Json] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
NAMES = sorted({rule["alert"] for rule in RULES})

OF_TARGETS = frozenset({"namespace", "job", "instance"})
"""Labels that Prometheus gives to all that it scrapes."""

_METRIC = re.compile(
    r"\b(?P<name>(?:bigfleet_azure|process)_\w+|up|ALERTS)\b(?P<matchers>\{[^}]*\})?"
)
_MATCHER = re.compile(r"(?P<label>\w+)(?:=~|!~|!=|=)\"(?P<value>[^\"]*)\"")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class Series:
    """A metric as a query names it.

    Attributes:
        matchers: pairs of a label and what it is compared with.
    """

    name: str
    matchers: list[tuple[str, str]] = field(default_factory=list)


def series(query: str) -> list[Series]:
    """Every metric that a query names."""
    return [
        Series(match["name"], _MATCHER.findall(match["matchers"] or ""))
        for match in _METRIC.finditer(query)
    ]


def grouping(query: str) -> set[str]:
    """The labels by which a query sums and joins."""
    return {label.strip() for found in _GROUPING.findall(query) for label in found.split(",")}


def known_series() -> dict[str, frozenset[str]]:
    """The labels of every series that the daemon can show, and of two of Prometheus' own."""
    metrics = Metrics()
    found: dict[str, frozenset[str]] = {
        "up": frozenset(),
        "ALERTS": frozenset({"alertname", "alertstate"}),
    }
    for family in vars(metrics).values():
        if isinstance(family, MetricWrapperBase):
            described = next(iter(family.describe()))
            labels = frozenset(family._labelnames)
            if described.type == "histogram":
                found[f"{described.name}_bucket"] = labels | {"le"}
                found |= {f"{described.name}_{part}": labels for part in ("sum", "count")}
            else:
                found[described.name + "_total" * (described.type == "counter")] = labels
    for process in metrics.registry.collect():
        if process.name.startswith("process_"):
            found |= {sample.name: frozenset() for sample in process.samples}
    return found


def dashboard_queries() -> Iterator[tuple[str, str, str]]:
    """Title of the panel, query and legend, of everything on the dashboard."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def with_choices(query: str) -> str:
    """A query of the dashboard as Grafana sends it when nothing was chosen."""
    for variable, value in (
        ("$__rate_interval", "5m"),
        ("$job", ".+"),
        ("$instance", ".+"),
    ):
        query = query.replace(variable, value)
    assert "$" not in query
    return query


def conditions() -> set[str]:
    """The name of every condition that the code can set."""
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r'CONDITION = "([a-z-]+)"', code))
    return names | set(re.findall(r'onditions\.set\(\s*"([a-z-]+)"', code))


def cases() -> Iterator[Json]:
    """Every case of promtool's, of all files."""
    for path in CASES:
        yield from yaml.safe_load(path.read_text())["tests"]
