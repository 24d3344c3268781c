"""A real Prometheus scrapes a real daemon: every rule and every query can be worked out."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.rules import ALERTS, RULES, dashboard_queries, with_choices
from tests.support.pages import block
from tests.support.process import client, eventually, running
from tests.support.tools import ROOT, require_tool

pytestmark = [pytest.mark.deploy, pytest.mark.process]

README = ROOT / "deploy" / "alerts" / "README.md"


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; OSError while it does not."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._address}/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, text: str) -> list[Any]:
        """The series that a query yields now."""
        found: list[Any] = self.ask("query", query=text)["result"]
        return found

    def up(self) -> bool:
        try:
            return bool(self.query("bigfleet_azure_build_info"))
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, target: str, port: int) -> Iterator[Prometheus]:
    """Prometheus with the configuration that the page shows, looking every second."""
    shown = block(README, "yaml", "scrape_configs")
    config = yaml.safe_load(
        shown.replace("provider.example.com:9090", target).replace(
            "/etc/prometheus/rules/alerts.yaml", str(ALERTS)
        )
    )
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("w") as log:
        started = subprocess.Popen(
            [
                require_tool("prometheus"),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Prometheus(port)
        eventually(server.up, "Prometheus has scraped the daemon", within=60)
        yield server
    finally:
        started.terminate()
        started.wait(20)


def unevaluated(server: Prometheus) -> list[Any]:
    """Rules that were not worked out yet, or could not be."""
    groups = server.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(RULES)
    return [rule for rule in rules if rule["health"] != "ok"]


def test_every_rule_and_every_query_of_the_dashboard_works_on_a_real_daemon(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    require_tool("prometheus")
    with running(tmp_path / "log", "--metrics-addr=127.0.0.1:0") as daemon, client(daemon) as calls:
        calls.create(calls.list().machines[0].id)
        daemon.web("/healthz")
        [port] = set(daemon.listening()) - {daemon.port}
        with prometheus(tmp_path, f"127.0.0.1:{port}", unused_tcp_port) as server:
            eventually(lambda: not unevaluated(server), "all rules are worked out", within=60)
            for title, query, _ in dashboard_queries():
                server.query(with_choices(query)), title
            [slots] = server.query('bigfleet_azure_machines{state="SPECULATIVE"}')
            assert int(slots["value"][1]) == 31
            assert server.query('ALERTS{alertstate="firing"}') == []
