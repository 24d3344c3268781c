"""The commands of the install page, as far as they get without Azure and a cluster."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bigfleet_azure.daemon.options import OPTIONS
from tests.docs.ledger import SHOWN
from tests.support.pages import DOCS, blocks, command, commands, prose, table
from tests.support.process import DaemonProcess, client, running
from tests.support.tools import ROOT

PAGE = DOCS / "install.md"

GO_PAGE = frozenset(
    {
        "addr", "provider", "location", "azure-backend", "state", "subscription-id",
        "resource-group", "subnet-id", "image", "admin-username", "ssh-public-key",
        "bootstrap-hook", "base-user-data", "offerings", "seed-count", "zone-a", "zone-b",
        "price-refresh", "reconcile-interval", "metrics-addr", "reflection", "tls-cert", "tls-key",
        "tls-ca",
    }
)  # fmt: skip
"""The flags that the Go provider's install page lists (contract section 16)."""

SIX = {
    "name",
    "location",
    "resource_group_name",
    "oidc_issuer_url",
    "service_account_namespace",
    "service_account_name",
}
"""The variables that users of that page give to Terraform."""


def smoke_flags() -> list[str]:
    """What the page's container is given."""
    words = shlex.split(command(PAGE, "docker run "))
    return words[words.index("ghcr.io/your-org/bigfleet-azure:latest") + 1 :]


def said(shell: str) -> str:
    """Standard output of a command line that must succeed."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-ec", shell],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (shell, done.stderr)
    return done.stdout


@pytest.fixture
def smoke(tmp_path: Path):
    """A process with the flags of the smoke test, on ports that are free."""
    flags = [*smoke_flags(), "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"]
    with running(tmp_path / "log", *flags, base=()) as daemon:
        yield daemon


def asked(daemon: DaemonProcess, path: str) -> str:
    """What the page's curl for that path prints."""
    daemon.web("/healthz")
    [port] = set(daemon.listening()) - {daemon.port}
    shown = {
        each
        for text in blocks(PAGE, "sh")
        for each in commands(text)
        if each.startswith("curl ") and each.endswith(path)
    }
    [line] = shown
    return said(line.replace("localhost:9090", f"127.0.0.1:{port}").replace("curl", "curl -s"))


@pytest.mark.process
def test_the_smoke_test_serves_health_readiness_and_32_machines(smoke: DaemonProcess) -> None:
    assert smoke_flags() == ["--seed-count", "32", "--addr", ":9000", "--metrics-addr", ":9090"]
    assert asked(smoke, "/healthz").strip() == "ok"
    assert asked(smoke, "/readyz").strip() == "ready"
    with client(smoke) as calls:
        assert len(calls.list().machines) == 32


@pytest.mark.process
def test_the_line_that_the_page_looks_for_in_the_log_is_there(smoke: DaemonProcess) -> None:
    shown = command(PAGE, "kubectl -n bigfleet logs ")
    logs, _, grep = shown.partition(" | ")
    assert logs == "kubectl -n bigfleet logs deploy/bigfleet-azure-eastus"
    [line] = said(f"{grep} < {smoke.log}").splitlines()
    assert '"security": "insecure"' in line


def test_the_image_is_built_by_the_dockerfile_at_the_root() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    declared = set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))
    builds = [x for text in blocks(PAGE, "sh") for x in commands(text) if x.startswith("docker b")]
    assert len(builds) == 2
    for build in builds:
        words = shlex.split(build)
        assert words[-1] == "."
        assert "-f" not in words
        given = {words[n + 1].partition("=")[0] for n, x in enumerate(words) if x == "--build-arg"}
        assert given <= declared
    assert "EXPOSE 9000 9090" in dockerfile
    assert [row[0] for row in table(PAGE, "Port")] == ["9000", "9090"]


def test_terraform_is_given_exactly_the_six_variables_and_needs_no_other() -> None:
    given = set(re.findall(r"-var (\w+)=", command(PAGE, "terraform -chdir=terraform apply")))
    assert given == SIX
    declared = re.findall(
        r'^variable "(\w+)" {\n(.*?)^}',
        (ROOT / "terraform/variables.tf").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    needed = {name for name, body in declared if not re.search(r"^  default ", body, re.MULTILINE)}
    assert needed <= given <= {name for name, _ in declared}


def test_the_outputs_that_the_page_names_exist() -> None:
    outputs = re.findall(r'^output "(\w+)"', (ROOT / "terraform/outputs.tf").read_text(), re.M)
    for name in ("client_id", "tenant_id", "helm_values"):
        assert name in prose(PAGE)
        assert name in outputs


def test_the_names_of_the_identity_fit_the_chart() -> None:
    apply = command(PAGE, "terraform -chdir=terraform apply")
    install = shlex.split(command(PAGE, "helm install "))
    assert f"-var service_account_name={install[2]}" in apply
    assert f"-var service_account_namespace={install[install.index('-n') + 1]}" in apply


def flag_rows() -> dict[str, str]:
    """Default by flag, of all tables of the page."""
    return {row[0].strip("`").removeprefix("--"): row[1] for row in table(PAGE, "Flag")}


def test_the_tables_have_every_flag_of_the_go_providers_page() -> None:
    assert flag_rows().keys() == GO_PAGE


@pytest.mark.parametrize("name", sorted(GO_PAGE))
def test_a_default_in_a_table_is_the_daemons(name: str) -> None:
    [option] = [each for each in OPTIONS if each.name == name]
    default = option.derived or (f"`{option.default}`" if option.default else "(empty)")
    assert flag_rows()[name] == default


def test_what_is_not_run_is_said_on_the_page() -> None:
    section = PAGE.read_text().partition("## What was not exercised")[2]
    unrun = [each for each in SHOWN if each.page == PAGE and each.rule and each.rule.why_not]
    assert unrun
    for shown in unrun:
        words = shown.text.split()
        named = {"az": "`az`", "docker": "`docker push`", "kubectl": "`kubectl port-forward`"}
        assert named[words[0]] in section
    for text in ("probes", "volume claim", "`helm test`", "distroless", "digests", "federation"):
        assert text in section


def test_the_tests_that_the_page_relies_on_are_there() -> None:
    build = (ROOT / "tests/image/test_build.py").read_text()
    assert "def test_base_without_sqlite_ends_the_build" in build
    identities = (ROOT / "tests/azure/test_identities.py").read_text()
    assert "def test_a_federated_token_may_be_rotated_again_and_again" in identities
