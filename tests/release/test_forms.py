"""What contributors meet on GitHub: update requests, issue forms, the text of a pull request."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tools import ROOT

FOLDER = ROOT / ".github"
FORMS = sorted(
    set((FOLDER / "ISSUE_TEMPLATE").glob("*.yml")) - {FOLDER / "ISSUE_TEMPLATE/config.yml"}
)
Json = dict[str, Any]

MANIFESTS = {
    "pip": "requirements/*.txt",
    "docker": "Dockerfile",
    "github-actions": ".github/workflows/*.yml",
    "terraform": "terraform/**/*.tf",
    "gomod": "**/go.mod",
}
"""What each kind of update reads, from the root of the repository."""

NOT_OURS = (".venv", ".tools", ".cache", "site")

KINDS = {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def load(name: Path | str) -> Json:
    """A YAML file below .github."""
    return yaml.safe_load((FOLDER / name).read_text())


def has(manifest: str) -> bool:
    """Whether the repository has such a file."""
    found = (path.relative_to(ROOT) for path in ROOT.glob(manifest))
    return any(path.parts[0] not in NOT_OURS for path in found)


def test_updates_cover_every_kind_of_dependency_that_is_here_and_no_other() -> None:
    updates = load("dependabot.yml")
    assert updates["version"] == 2
    kinds = {update["package-ecosystem"] for update in updates["updates"]}
    assert kinds == {kind for kind, manifest in MANIFESTS.items() if has(manifest)}


def test_updates_wait_until_a_release_is_some_days_old() -> None:
    for update in load("dependabot.yml")["updates"]:
        assert update["schedule"]["interval"] == "weekly"
        assert update["cooldown"]["default-days"] >= 7


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_issue_form_has_what_github_asks_for(form: Path) -> None:
    found = load(form)
    assert {"name", "description", "body"} <= set(found)
    fields = [part for part in found["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in found["body"]} <= KINDS
    names = [part["id"] for part in fields]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)
    assert all(part["attributes"]["label"] for part in fields)
    assert any(part.get("validations", {}).get("required") for part in fields)
    for part in fields:
        if part["type"] == "dropdown":
            options = part["attributes"]["options"]
            assert all(isinstance(option, str) for option in options)
            assert len(set(options)) == len(options)


def test_forms_send_weaknesses_elsewhere_and_ask_for_no_secrets() -> None:
    assert load("ISSUE_TEMPLATE/config.yml")["blank_issues_enabled"] is False
    first = load("ISSUE_TEMPLATE/bug.yml")["body"][0]["attributes"]["value"]
    assert "SECURITY.md" in first
    assert "tokens" in first


def test_commands_and_metrics_that_forms_name_exist() -> None:
    text = "".join(path.read_text() for path in (*FORMS, FOLDER / "PULL_REQUEST_TEMPLATE.md"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets
    metrics = (ROOT / "docs/reference/metrics.md").read_text()
    named = re.findall(r"`(bigfleet_azure_\w+)`", text)
    assert named
    assert all(f"`{name}`" in metrics for name in named)
