"""The Helm commands of the install page, rendered by the real Helm from the page's own files."""

import shlex
from pathlib import Path

import pytest
import yaml

from tests.chart.things import Release, helm
from tests.support.pages import DOCS, block, blocks, command, commands
from tests.support.tools import ROOT

pytestmark = pytest.mark.deploy

PAGE = DOCS / "install.md"


def rendered(folder: Path, shown: str, *more: str) -> Release:
    """What a `helm install` or `helm upgrade` of the page makes, of files as the page has them."""
    (folder / "eastus.values.yaml").write_text(block(PAGE, "yaml", "location: eastus"))
    (folder / "offerings.eastus.json").write_text(block(PAGE, "json", "vm_size"))
    (folder / "tls.yaml").write_text(block(PAGE, "yaml", "mtls: true"))
    words = shlex.split(shown)
    assert words[0] == "helm"
    files = ("eastus.values.yaml", "offerings.eastus.json")
    arguments = [word for word in words[2:] if word != "--create-namespace"]
    for name in files:
        arguments = [word.replace(name, str(folder / name)) for word in arguments]
    arguments = [str(ROOT / word) if word.startswith("helm/") else word for word in arguments]
    more = tuple(word.replace("tls.yaml", str(folder / "tls.yaml")) for word in more)
    text = helm("template", *arguments, *more, home=folder)
    return Release([each for each in yaml.safe_load_all(text) if each], {})


def helm_commands() -> list[str]:
    every = [each for text in blocks(PAGE, "sh") for each in commands(text)]
    return [each for each in every if each.startswith(("helm install", "helm upgrade"))]


def test_the_page_installs_and_upgrades() -> None:
    assert [each.split()[1] for each in helm_commands()] == ["install", "upgrade"]


@pytest.mark.parametrize("shown", helm_commands())
def test_a_command_renders_a_daemon_for_the_region_of_the_page(shown: str, tmp_path: Path) -> None:
    made = rendered(tmp_path, shown)
    settings = made.settings()
    assert settings.azure is not None
    assert settings.azure.location == "eastus"
    assert settings.provider == "azure-eastus"
    assert made.flags["offerings"] == "/etc/bigfleet/offerings/offerings.json"
    shown_file = block(PAGE, "json", "vm_size").encode()
    assert made.read("/etc/bigfleet/offerings/offerings.json") == shown_file
    assert made.one("PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"] == "1Gi"


def test_the_pod_logs_in_by_workload_identity_as_the_terraform_command_federates_it(
    tmp_path: Path,
) -> None:
    made = rendered(tmp_path, command(PAGE, "helm install "))
    account = made.one("ServiceAccount")["metadata"]
    assert account["name"] == "bigfleet-azure-eastus"
    assert account["annotations"] == {
        "azure.workload.identity/client-id": "11111111-1111-1111-1111-111111111111",
        "azure.workload.identity/tenant-id": "22222222-2222-2222-2222-222222222222",
    }
    assert made.template["metadata"]["labels"]["azure.workload.identity/use"] == "true"


def test_the_names_that_kubectl_and_bigfleet_are_given_are_those_of_the_release(
    tmp_path: Path,
) -> None:
    made = rendered(tmp_path, command(PAGE, "helm install "))
    assert ("Deployment", "bigfleet-azure-eastus") in made.names()
    assert ("Service", "bigfleet-azure-eastus") in made.names()
    ports = {port["name"]: port["port"] for port in made.one("Service")["spec"]["ports"]}
    assert ports == {"grpc": 9000, "metrics": 9090}
    assert "`bigfleet-azure-eastus.bigfleet.svc:9000`" in PAGE.read_text()


def test_the_values_of_the_section_on_tls_turn_on_mutual_tls(tmp_path: Path) -> None:
    made = rendered(tmp_path, command(PAGE, "helm install "), "-f", "tls.yaml")
    files = {name: made.flags[name] for name in ("tls-cert", "tls-key", "tls-ca")}
    assert files == {
        "tls-cert": "/etc/bigfleet/tls/tls.crt",
        "tls-key": "/etc/bigfleet/tls/tls.key",
        "tls-ca": "/etc/bigfleet/tls/ca.crt",
    }


def test_user_data_is_given_as_the_page_says(tmp_path: Path) -> None:
    user_data = ROOT / "deploy/bootstrap/cloud-init.yaml"
    assert "`--set-file baseUserData.content=deploy/bootstrap/cloud-init.yaml`" in PAGE.read_text()
    made = rendered(
        tmp_path,
        command(PAGE, "helm install "),
        f"--set-file=baseUserData.content={user_data}",
    )
    assert made.read(made.flags["base-user-data"]) == user_data.read_bytes()
