"""What single pages say in tables and examples, against the code."""

import re
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from bigfleet_azure.backends.azure.options import BootstrapMethod
from bigfleet_azure.cli import go_state
from bigfleet_azure.cli.imports import Slots
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.service.marks import MAX_UNKNOWN_AGE_SECONDS
from scripts import generate_docs
from tests.docs.ledger import SHOWN
from tests.support.pages import DOCS, PAGES, READMES, block, blocks, name_of, table
from tests.support.tools import ROOT

MIGRATION = DOCS / "migration.md"
SECURITY = DOCS / "security.md"
NEWEST_KUBERNETES = "1.34"

GO_FLAGS = [
    "addr", "provider", "azure-backend", "use-fake-backend", "location", "offerings", "seed-count",
    "zone-a", "zone-b", "state", "subscription-id", "resource-group", "subnet-id", "image",
    "admin-username", "ssh-public-key", "bootstrap-hook", "base-user-data", "price-refresh",
    "reconcile-interval", "eviction-token", "metrics-addr", "reflection", "tls-cert", "tls-key",
    "tls-ca",
]  # fmt: skip
GO_METRICS = [
    "api_calls_total", "api_duration_seconds", "grpc_requests_total",
    "grpc_request_duration_seconds", "panics_total", "reconcile_total", "price_refresh_total",
    "price_last_success_timestamp_seconds", "spot_evictions_total",
]  # fmt: skip
"""Flags and metrics of the Go provider, in the order of contract section 16."""


def plain(cell: str) -> str:
    return cell.strip("`")


# Coming from the Go provider


def test_each_flag_of_the_go_provider_is_compared_and_exists_here() -> None:
    assert [plain(row[0]).removeprefix("--") for row in table(MIGRATION, "Flag")] == GO_FLAGS
    assert set(GO_FLAGS) <= {option.name for option in OPTIONS}


def test_each_metric_of_the_go_provider_is_compared_and_exists_here() -> None:
    compared = [plain(row[0]).removeprefix("bigfleet_azure_") for row in table(MIGRATION, "Metric")]
    assert compared == GO_METRICS
    page = generate_docs.metrics()
    assert all(f"`bigfleet_azure_{name}`" in page for name in GO_METRICS)


def test_the_examples_of_ids_are_what_an_import_makes_of_them() -> None:
    examples = [row for row in table(MIGRATION, "") if row[0] == "example"]
    assert len(examples) == 2
    for _, old, new in examples:
        slot = go_state.old_slot(plain(old))
        assert slot is not None
        assert Slots().name(slot) == (plain(new), "")


def test_the_spellings_on_the_page_are_those_that_are_understood() -> None:
    rows = {row[0]: set(re.findall("`([a-z_]+)`", row[1])) for row in table(MIGRATION, "part")}
    assert rows["fence marks"] == {*go_state.MARKS, "machine_id", "shard_id"}
    assert rows["idempotency keys"] == set(go_state.IDEMPOTENCY)
    assert set(go_state.BINDINGS) < rows["bindings"]
    for part, names in (
        ("numbers", go_state.EPOCH + go_state.SEQUENCE),
        ("bindings", go_state.BINDINGS + go_state.CLUSTER + go_state.METADATA + go_state.HOST),
    ):
        assert rows[part] == set(names)


def test_the_time_that_old_marks_are_kept_is_the_daemons() -> None:
    assert f"for {MAX_UNKNOWN_AGE_SECONDS // 86_400} days" in MIGRATION.read_text()


def test_the_pod_that_imports_is_one_and_mounts_what_it_names() -> None:
    pod = yaml.safe_load(block(MIGRATION, "yaml", "kind: Pod"))
    kubernetes_validate.validate(pod, NEWEST_KUBERNETES, strict=True)
    [container] = pod["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["args"][:3] == ["state", "import", f"{mounts[1]}/state.json"]
    assert f"--state={mounts[0]}/state.db" in container["args"]
    values = yaml.safe_load((ROOT / "helm/bigfleet-azure/values.yaml").read_text())
    assert values["state"]["path"] == f"{mounts[0]}/state.db"


# Configuration


def test_the_file_on_the_page_about_configuration_is_taken() -> None:
    text = block(DOCS / "configuration.md", "yaml", "location:")
    environ = {"AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000"}
    settings = resolve(["--config=c.yaml"], environ, lambda path: text.encode())
    assert settings.azure is not None
    assert not settings.warnings


def test_the_page_about_configuration_names_every_further_variable() -> None:
    text = (DOCS / "configuration.md").read_text()
    aliases = {name for option in OPTIONS for name in option.env_aliases}
    assert set(re.findall(r"`(AZURE_\w+|BIGFLEET_EVICTION_TOKEN)`", text)) == aliases


# Talos and networks


def test_the_talos_daemon_is_one_that_sends_no_extension_and_watches_nodes() -> None:
    [shown] = [x for x in SHOWN if x.page == DOCS / "talos.md" and x.text.startswith("bigfleet-")]
    settings = resolve(shown.text.split()[1:], {}, lambda path: b"machine: {}\n")
    assert settings.azure is not None
    assert settings.azure.bootstrap_method is BootstrapMethod.NONE
    assert settings.azure.cluster == "cozystack"


def test_the_rules_on_the_page_about_networks_are_those_of_the_module() -> None:
    code = (ROOT / "terraform/modules/network/profiles.tf").read_text()
    profile = re.search(r"talos-cilium = {\n(.*?)^    }", code, re.MULTILINE | re.DOTALL)
    assert profile is not None
    made = re.findall(
        r'priority = (\d+), protocol = "(\w+)", ports = "([\d-]+)", source = local\.(\w+)',
        profile[1],
    )
    places = {"everyone": "anywhere", "subnet": "subnet"}
    expected = [[p, f"{protocol.upper()} {ports}", places[s]] for p, protocol, ports, s in made]
    assert [row[:3] for row in table(DOCS / "ha-network.md", "priority")] == expected
    assert len(expected) == 6


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name_of)
def test_modules_are_given_variables_that_they_have(page: Path) -> None:
    for text in blocks(page, "hcl"):
        source = re.search(r'source = "\./(terraform[\w/-]*)"', text)
        if source is None:
            continue
        declared = (ROOT / source[1] / "variables.tf").read_text()
        given = set(re.findall(r"^  (\w+) +=", text, re.MULTILINE)) - {"source"}
        assert given <= set(re.findall(r'^variable "(\w+)"', declared, re.MULTILINE))


def test_the_outputs_on_the_page_about_networks_exist_and_so_do_flags_and_keys() -> None:
    outputs = (ROOT / "terraform/modules/network/outputs.tf").read_text()
    flags = {f"--{option.name}" for option in OPTIONS}
    rows = table(DOCS / "ha-network.md", "output")
    assert len(rows) == 4
    for output, flag, key in rows:
        assert f'output "{plain(output)}"' in outputs
        assert plain(flag) in flags
        assert key.startswith(f"`{plain(flag).removeprefix('--').replace('-', '_')}`")


@pytest.mark.parametrize("page", ["talos.md", "ha-network.md", "configuration.md", "security.md"])
def test_flags_that_a_page_names_exist(page: str) -> None:
    others = {
        "--grace",  # the hook's
        "--live", "--wait", "--dry-run",  # of other commands
        "--public-ip-per-vm", "--custom-data", "--insecure",  # of other programs
    }  # fmt: skip
    named = set(re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)", (DOCS / page).read_text()))
    named |= set(re.findall(r"`(--[a-z][a-z-]+)", (DOCS / page).read_text()))
    assert named - others <= {f"--{option.name}" for option in OPTIONS}


# Security


def test_each_threat_names_its_protection_and_a_test_or_none() -> None:
    rows = table(SECURITY, "Threat")
    assert len(rows) > 20
    for threat, protection, _, tested in rows:
        assert threat
        assert protection
        paths = re.findall("`([^`]+)`", tested)
        assert paths or tested == "-"
        assert all((ROOT / path).is_file() for path in paths)


def test_few_threats_are_without_a_test() -> None:
    assert [row[0] for row in table(SECURITY, "Threat") if row[3] == "-"] == [
        "A pod asks the metadata service (169.254.169.254)"
    ]
