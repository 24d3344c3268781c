"""What the daemon makes of what the chart renders: every value, every flag, every file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.daemon.settings import SettingsError, resolve
from scripts import chart_values
from tests.chart.conftest import CASES
from tests.chart.flags import BY_VARIABLE, EXCUSED
from tests.chart.things import CHART, ELLIPSIS, OFFERINGS, VALUES, Case, Json, Release

pytestmark = pytest.mark.deploy

REPEATED = {"log-level"}
"""Flags that a case of the matrix gives a second time by extraArgs."""


# What the daemon says of it


@pytest.mark.parametrize("name", CASES)
def test_the_daemon_takes_what_is_rendered_and_wonders_at_nothing(
    releases: dict[str, Release], name: str
) -> None:
    settings = releases[name].settings()
    assert settings.warnings == ()
    assert (settings.azure is not None) == (name not in ("fake", "in memory disk"))


def test_only_the_gap_in_the_subnet_of_the_page_is_refused(releases: dict[str, Release]) -> None:
    page = releases["page"]
    assert ELLIPSIS in page.flags["subnet-id"]
    with pytest.raises(SettingsError) as caught:
        resolve(page.arguments, page.environ(), page.read)
    [fault] = caught.value.faults
    assert "is not the id of a subnet" in fault


def test_the_values_of_the_page_reach_the_daemon(releases: dict[str, Release]) -> None:
    settings = releases["page"].settings()
    assert settings.azure is not None
    assert settings.azure.location == "eastus"
    assert settings.provider == "azure-eastus"
    assert settings.azure.resource_group == "bigfleet-eastus"
    assert settings.azure.credentials.client_id == "11111111-1111-1111-1111-111111111111"
    assert settings.azure.credentials.tenant_id == "22222222-2222-2222-2222-222222222222"
    assert str(settings.offerings) == "/etc/bigfleet/offerings/offerings.json"
    assert releases["page"].read(str(settings.offerings)).decode() == OFFERINGS


def test_every_file_that_a_flag_names_is_there(release: Release) -> None:
    settings = release.settings()
    paths = [
        settings.offerings, settings.state_key_file, settings.tls_cert, settings.tls_key,
        settings.tls_ca, settings.callback_key_file, settings.callback_tls_cert,
        settings.callback_tls_key,
    ]  # fmt: skip
    if "price-file" in release.flags:
        paths.append(Path(release.flags["price-file"]))
    for path in filter(None, paths):
        assert release.read(str(path))
    if settings.state is not None:
        volume, name = release.folder(str(settings.state))
        assert {"persistentVolumeClaim", "emptyDir"} & volume.keys()
        assert "/" not in name


def test_a_key_that_the_chart_makes_is_one_for_the_daemon(
    releases: dict[str, Release], tmp_path: Path
) -> None:
    from bigfleet_azure.store.sealing import load_or_create_key

    key = tmp_path / "key"
    key.write_bytes(releases["page"].read("/etc/bigfleet/state-key/state-key"))
    assert len(load_or_create_key(tmp_path / "state.db", key, None).reveal()) == 32


# Values and flags


def test_every_flag_has_a_value_or_a_reason_to_have_none(releases: dict[str, Release]) -> None:
    known = {option.name for option in OPTIONS}
    named = {flag for value in chart_values.values() for flag in value.flags}
    assert named.isdisjoint(EXCUSED)
    assert named | EXCUSED.keys() == known
    given = {flag for made in releases.values() for flag in made.flags}
    variables = {name for made in releases.values() for name in made.environ()}
    for flag in named:
        if flag in BY_VARIABLE:
            assert BY_VARIABLE[flag] in variables
            assert flag not in given
        else:
            assert flag in given


def test_secrets_are_never_arguments(release: Release) -> None:
    secret = {option.name for option in OPTIONS if option.secret or option.env_only}
    assert secret == {*BY_VARIABLE, "state-key"}
    assert secret.isdisjoint(release.flags)
    shown = json.dumps([release.one("Deployment"), *release.all("ConfigMap")])
    for token in ("correct-horse-battery-staple", "#cloud-config"):
        assert token not in shown


def test_a_value_becomes_the_flag_that_the_schema_names(home: Path) -> None:
    """Values are texts of no meaning here; that each reaches its own flag is what counts."""
    given = yaml.safe_load((VALUES / "everything.yaml").read_text(encoding="utf-8"))
    made = Case(values=("everything",)).render(home).flags
    for value in chart_values.values():
        found: Any = given
        for key in value.path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if found is None or len(value.flags) != 1 or value.flags[0] in BY_VARIABLE:
            continue
        [flag] = value.flags
        if "content" in value.path or flag in ("ssh-public-key", "kubeconfig-dir", "tls-ca"):
            assert made[flag].startswith("/etc/bigfleet/")
        elif value.path.startswith("ports."):
            assert made[flag] == f":{found}"
        elif flag not in REPEATED:
            assert made[flag] == written(found), value.path


def written(value: Any) -> str:
    """The value as the flag takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dict):
        return ",".join(f"{key}={text}" for key, text in sorted(value.items()))
    return str(value)


def test_defaults_that_are_shown_are_those_of_the_daemon() -> None:
    options = {option.name: option for option in OPTIONS}
    differing = {
        "state": "durable by default, in the folder that the image has for it",
        "callback-addr": "a port to be used once the callback is enabled",
        "state-key-file": "a switch",
        "tls-ca": "a switch",
    }
    shown = 0
    for value in chart_values.values():
        if value.default in ("", None, [], {}) or len(value.flags) != 1:
            continue
        [flag] = value.flags
        if flag in differing:
            continue
        shown += 1
        prefix = ":" if value.path.startswith("ports.") else ""
        assert prefix + written(value.default) == options[flag].default, value.path
    assert shown > 8


def test_schema_and_values_file_name_the_same_values() -> None:
    schema = {value.path for value in chart_values.values()}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def leaves(tree: Json, path: str = "") -> set[str]:
        found = set()
        for key, inner in tree.items():
            where = f"{path}{key}"
            deeper = isinstance(inner, dict) and where not in schema
            found |= leaves(inner, f"{where}.") if deeper else {where}
        return found

    assert schema - leaves(defaults) == {"global", "state.persistence.storageClassName"}
    assert leaves(defaults) <= schema


def test_a_large_number_is_written_out(releases: dict[str, Release]) -> None:
    assert releases["everything"].flags["create-concurrency"] == "2000000"


def test_further_arguments_come_last(releases: dict[str, Release]) -> None:
    assert releases["everything"].arguments[-1] == "--log-level=warning"
    assert releases["everything"].settings().log_level == "warning"


# The image and the program are one release


def test_chart_and_program_have_one_version() -> None:
    from bigfleet_azure import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
