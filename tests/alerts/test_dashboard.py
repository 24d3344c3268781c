"""The dashboard: Grafana can draw it, and everything that the daemon counts is on it."""

import re
from itertools import combinations

import pytest

from tests.alerts.rules import DASHBOARD, OF_TARGETS, Json, dashboard_queries, known_series, series

PANELS: list[Json] = DASHBOARD["panels"]
DRAWN = [panel for panel in PANELS if panel["type"] != "row"]
VARIABLES = {each["name"] for each in DASHBOARD["templating"]["list"]}

# Variables that Grafana has by itself.
GIVEN = {"__rate_interval", "__all"}


def test_panels_can_be_told_apart() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 40
    titles = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert len(set(titles)) == len(titles)


def test_panels_are_on_the_grid_and_do_not_overlap() -> None:
    def cells(panel: Json) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        return {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }

    for panel in PANELS:
        assert cells(panel)
        assert all(0 <= x < 24 for x, _ in cells(panel))
    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


@pytest.mark.parametrize("panel", DRAWN, ids=[str(panel["id"]) for panel in DRAWN])
def test_a_panel_asks_the_chosen_prometheus_about_what_was_chosen(panel: Json) -> None:
    targets = panel["targets"]
    assert len({target["refId"] for target in targets}) == len(targets) > 0
    for target in targets:
        assert target["datasource"] == panel["datasource"] == {
            "type": "prometheus",
            "uid": "${datasource}",
        }  # fmt: skip
        assert '"$job"' in target["expr"]


def test_variables_that_are_used_exist_and_those_that_exist_are_used() -> None:
    text = str(DASHBOARD)
    used = set(re.findall(r"\$\{?(\w+)", text))
    assert used - GIVEN == VARIABLES
    assert {"datasource", "job", "instance"} == VARIABLES


def test_a_legend_names_labels_that_the_query_keeps() -> None:
    known = known_series()
    for title, query, legend in dashboard_queries():
        kept: set[str] = set(OF_TARGETS)
        if by := re.findall(r"\bby \(([^)]*)\)", query):
            kept = {label.strip() for label in by[0].split(",")}
        else:
            for one in series(query):
                kept |= known[one.name]
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept, title


def test_everything_that_the_daemon_counts_is_on_it() -> None:
    def family(name: str) -> str:
        return re.sub(r"_(bucket|sum|count)$", "", name)

    shown = {family(one.name) for _, query, _ in dashboard_queries() for one in series(query)}
    known = {family(name) for name in known_series() if name.startswith("bigfleet_azure_")}
    assert known - shown == set()
