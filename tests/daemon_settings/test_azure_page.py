"""What the operator's page about Azure shows can be used as it stands there."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.simulated.backend import facts
from bigfleet_azure.daemon.offerings_file import load
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.domain.offering import Facts, Offer
from tests.daemon_settings.azure import azure_of
from tests.daemon_settings.test_azure_settings import ED25519, public_line
from tests.support.tools import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "azure.md").read_text(encoding="utf-8")

FOREIGN = {"drain", "grace", "namespace", "tag", "query", "output"}
"""Flags on the page that are not the daemon's: the hook's and az's."""


def blocks(kind: str) -> list[str]:
    """The page's blocks of that language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS = [
    shlex.split(block.replace("\\\n", " "))[1:]
    for block in blocks("sh")
    if block.startswith("bigfleet-azure ") and "--location" in block
]
OFFERINGS: list[list[dict[str, Any]]] = [json.loads(block) for block in blocks("json")]


def test_the_page_shows_something() -> None:
    assert len(COMMANDS) == 2
    assert len(OFFERINGS) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_a_daemon_takes_the_commands_of_the_page(command: list[str]) -> None:
    settings = resolve(command, {}, lambda path: f"{public_line(ED25519)}\n".encode())
    assert settings.azure is not None
    assert settings.azure.location == "eastus"


def of_any_size(offer: Offer) -> Facts:
    """Facts of whatever size: which ones a location has is Azure's to say."""
    return facts(
        Offer(
            vm_size="Standard_D4s_v5",
            zone=offer.zone,
            capacity_type=offer.capacity_type,
            count=offer.count,
        )
    )


@pytest.mark.parametrize("entries", OFFERINGS)
def test_the_offerings_of_the_page_load(tmp_path: Path, entries: list[dict[str, Any]]) -> None:
    (tmp_path / "azure.yaml").write_bytes(b"machine: {}\n")
    path = tmp_path / "offerings.json"
    path.write_text(json.dumps(entries))
    offers, warnings = load(path, of_any_size, azure_of())
    assert warnings == []
    assert [offer.vm_size for offer in offers] == [entry["vm_size"] for entry in entries]


def test_every_flag_and_metric_of_the_page_exists() -> None:
    known = {option.name for option in OPTIONS} | FOREIGN
    assert set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", PAGE)) <= known
    metrics = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"bigfleet_azure_[a-z_]+", PAGE))
    assert len(named) > 10
    assert {name for name in named if f"`{name}`" not in metrics} == set()


def test_every_condition_is_explained() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r'CONDITION = "([a-z-]+)"', code))
    names |= set(re.findall(r'onditions\.set\(\s*"([a-z-]+)"', code))
    assert {"credential", "substrate", "tls"} <= names
    pages = PAGE + (DOCS / "observing.md").read_text(encoding="utf-8")
    assert {name for name in names if f"\n| `{name}` |" not in pages} == set()
    backend = "\n".join(
        path.read_text() for path in (ROOT / "src/bigfleet_azure/backends/azure").rglob("*.py")
    )
    for name in re.findall(r'CONDITION = "([a-z-]+)"', backend):
        assert f"\n| `{name}` |" in PAGE


def test_the_pages_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (DOCS / target).is_file(), target
