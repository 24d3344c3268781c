"""The GitHub workflows: least rights, pinned actions, and only commands that exist.

They cannot run here. What actionlint and zizmor (`make lint`) know is left to them.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tools import ROOT, require_tool

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
Json = dict[str, Any]

PIN = re.compile(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$")

WRITES = {
    ("image.yml", "publish", "packages"),
    ("image.yml", "join", "packages"),
    ("package.yml", "release", "contents"),
    ("package.yml", "release", "packages"),
}
"""All that any job may write."""


def load(file: Path) -> Json:
    """The workflow; YAML 1.1 reads the key `on` as true."""
    found = yaml.safe_load(file.read_text())
    found["on"] = found.pop(True)
    return found


def jobs() -> Iterator[tuple[str, str, Json]]:
    """File, name and content of every job."""
    for file in FILES:
        for name, job in load(file)["jobs"].items():
            yield file.name, name, job


def commands() -> Iterator[str]:
    """What the steps run."""
    for _, _, job in jobs():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def for_tags_only(file: str, job: Json) -> bool:
    """Whether the job, or one that it waits for, runs for tags only."""
    if job.get("if") == "github.ref_type == 'tag'":
        return True
    needed = job.get("needs", [])
    others = load(FOLDER / file)["jobs"]
    names = [needed] if isinstance(needed, str) else needed
    return any(for_tags_only(file, others[name]) for name in names)


def test_there_are_workflows_for_tests_image_packages_and_documentation() -> None:
    assert [file.name for file in FILES] == ["ci.yml", "docs.yml", "image.yml", "package.yml"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_workflow_has_no_rights_of_its_own_and_no_dangerous_trigger(file: Path) -> None:
    workflow = load(file)
    assert workflow["permissions"] == {}
    assert set(workflow["on"]) == {"push", "pull_request"}
    assert workflow["concurrency"]


def test_every_job_names_its_rights_and_its_longest_time() -> None:
    for file, name, job in jobs():
        assert job["permissions"], f"{file}: {name}"
        assert job["timeout-minutes"] <= 90, f"{file}: {name}"


def test_only_jobs_of_a_tag_may_write() -> None:
    writing = {
        (file, name, right)
        for file, name, job in jobs()
        for right, kind in job["permissions"].items()
        if kind != "read"
    }
    assert writing == WRITES
    for file, name, job in jobs():
        if any(entry[:2] == (file, name) for entry in WRITES):
            assert for_tags_only(file, job), f"{file}: {name}"


def test_every_action_is_pinned_by_one_hash_with_its_version() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    for file in FILES:
        for line in file.read_text().splitlines():
            if "uses:" in line:
                found = PIN.search(line)
                assert found, f"{file.name}: {line.strip()}"
                pins.setdefault(found[1], set()).add((found[2], found[3]))
    assert all(action.startswith("actions/") for action in pins)
    assert all(len(versions) == 1 for versions in pins.values()), pins


def test_a_checkout_leaves_no_token_behind() -> None:
    steps = [step for _, _, job in jobs() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for text in commands() for name in re.findall(r"\bmake ([a-z-]+)", text)}
    assert called == {"test", "docs", "venv"}
    assert called <= targets


def test_every_path_of_the_repository_exists() -> None:
    pattern = r"(?<![\w./-])(?:\.ci|requirements|helm|scripts|deploy)/[\w./-]*\w"
    named = {path for text in commands() for path in re.findall(pattern, text)}
    assert named == {".ci/run", "requirements/runtime.txt", "helm/bigfleet-azure"}
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_tests_run_on_every_python_that_the_package_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    supported = [found[1] for text in project["classifiers"] if (found := pattern.match(text))]
    assert load(FOLDER / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def test_image_is_published_for_both_architectures_on_the_base_of_the_dockerfile() -> None:
    workflow = load(FOLDER / "image.yml")
    default = re.search(r"^ARG BASE_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert default
    assert workflow["env"]["BASE_IMAGE"] == default[1]
    matrices = [workflow["jobs"][name]["strategy"]["matrix"] for name in ("try", "publish")]
    assert matrices[0] == matrices[1]
    assert [each["architecture"] for each in matrices[0]["include"]] == ["amd64", "arm64"]
    [publish] = [text for text in commands() if "--push" in text]
    assert "--sbom=true" in publish
    assert "--provenance=mode=max" in publish
    assert '--build-arg "BASE_IMAGE=$BASE_IMAGE@$digest"' in publish


def test_image_is_tried_as_the_install_page_says() -> None:
    [smoke] = [text for text in commands() if "--name smoke" in text]
    assert "--seed-count 32 --addr :9000 --metrics-addr :9090" in smoke
    assert "--read-only" in smoke


def test_actionlint_finds_no_fault() -> None:
    shellcheck = require_tool("shellcheck")
    done = subprocess.run(
        [require_tool("actionlint"), f"-shellcheck={shellcheck}", *FILES],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
