"""The Grafana dashboard of the chart, made from the panels in `dashboard.yaml` beside this file.

`generate_docs` writes it to `helm/bigfleet-azure/files/dashboard.json`.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any

import yaml

PANELS = Path(__file__).with_suffix(".yaml")

WIDTH = 24
"""Columns of Grafana's grid."""

A_ROW = 3
HEIGHT = 8

CHOSEN = 'job=~"$job", instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]

_UNWANTED = {"Time": True, "Value": True, "__name__": True, "alertstate": True}
"""Columns of a table that say nothing."""


def dashboard() -> str:
    """The dashboard as Grafana's JSON."""
    panels: list[Json] = []
    numbers = count(1)
    y = 0
    for row in yaml.safe_load(PANELS.read_text(encoding="utf-8")):
        at = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        panels.append({"id": next(numbers), "type": "row", "title": row["row"], "gridPos": at})
        y += 1
        for place, panel in enumerate(row["panels"]):
            down, right = divmod(place, A_ROW)
            width = WIDTH // A_ROW
            at = {"x": right * width, "y": y + down * HEIGHT, "w": width, "h": HEIGHT}
            panels.append({"id": next(numbers), "gridPos": at, **_panel(panel)})
        y += -(-len(row["panels"]) // A_ROW) * HEIGHT
    return json.dumps({**_HEAD, "panels": panels}, indent=2) + "\n"


def _panel(panel: Json) -> Json:
    table = panel.get("kind") == "table"
    defaults: Json = {"unit": panel.get("unit", "short")}
    if panel.get("stacked"):
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    made: Json = {
        "type": panel.get("kind", "timeseries"),
        "title": panel["title"],
        "description": panel.get("text", ""),
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": query.replace("%", CHOSEN),
                "legendFormat": legend,
                **({"instant": True, "format": "table"} if table else {}),
            }
            for place, (legend, query) in enumerate(panel["queries"].items())
        ],
    }
    if table:
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": _UNWANTED}}]
    else:
        made["options"] = {"tooltip": {"mode": "multi", "sort": "desc"}}
    return made


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


_HEAD: Json = {
    "title": "BigFleet Azure",
    "uid": "bigfleet-azure",
    "description": "The capacity provider, one job for each region.",
    # Of Grafana 10; newer ones bring it up to date by themselves.
    "schemaVersion": 38,
    "tags": ["bigfleet"],
    "editable": True,
    "graphTooltip": 1,
    "refresh": "1m",
    "time": {"from": "now-6h", "to": "now"},
    "templating": {
        "list": [
            {
                "type": "datasource",
                "name": "datasource",
                "label": "Prometheus",
                "query": "prometheus",
            },
            _variable("job", "Region (job)", "label_values(bigfleet_azure_build_info, job)"),
            _variable(
                "instance",
                "Instance",
                'label_values(bigfleet_azure_build_info{job=~"$job"}, instance)',
            ),
        ]
    },
}
