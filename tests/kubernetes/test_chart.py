"""The chart in a real cluster: installed, upgraded, rolled back, uninstalled by the real Helm.

No controller runs, so there is a Deployment and no pod, and a claim without a volume.
"""

import base64
import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.build_helm import PROGRAM
from tests.chart.things import CHART, OFFERINGS, VALUES, helm
from tests.support.kube.objects import write_kubeconfig
from tests.support.kube.servers import ADMIN_TOKEN, KubeServers
from tests.support.process import eventually
from tests.support.tools import require_tool

pytestmark = pytest.mark.kubernetes

Json = dict[str, Any]

RELEASE = "bigfleet-azure-eastus"
APPS = "/apis/apps/v1/namespaces"
CORE = "/api/v1/namespaces"

NUMBERS = itertools.count()
"""A namespace for each test: without controllers none can be deleted."""


class Fleet:
    """A namespace with a release of the chart, as its operator sees it."""

    def __init__(self, servers: KubeServers, folder: Path, namespace: str) -> None:
        self.servers = servers
        self.namespace = namespace
        self.folder = folder
        self.kubeconfig = write_kubeconfig(
            folder / "kubeconfig",
            servers.url,
            {"token": ADMIN_TOKEN},
            **{"certificate-authority": str(servers.ca)},
        )
        self.offerings = folder / "offerings.eastus.json"
        self.offerings.write_text(OFFERINGS, encoding="utf-8")

    def helm(self, verb: str, *arguments: str) -> str:
        return helm(
            verb,
            RELEASE,
            *arguments,
            "--namespace",
            self.namespace,
            home=self.folder,
            kubeconfig=self.kubeconfig,
        )

    def apply(self, verb: str, *more: str) -> str:
        """The command of the page, with the values of the page."""
        return self.helm(
            verb,
            str(CHART),
            "--values",
            str(VALUES / "eastus.values.yaml"),
            "--set-file",
            f"offerings.content={self.offerings}",
            *more,
        )

    def get(self, kind: str, name: str, group: str = CORE) -> Json:
        return self.servers.ask("GET", f"{group}/{self.namespace}/{kind}/{name}")

    def names(self, kind: str, group: str = CORE) -> list[str]:
        found = self.servers.ask("GET", f"{group}/{self.namespace}/{kind}")["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def key(self, name: str = "state-key") -> bytes:
        data = self.get("secrets", f"{RELEASE}-{name}")["data"]
        return base64.b64decode(data[name])

    def checksum(self) -> str:
        template = self.get("deployments", RELEASE, APPS)["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/offerings"]
        return found


@pytest.fixture
def fleet(servers: KubeServers, tmp_path: Path) -> Fleet:
    require_tool(PROGRAM)
    return Fleet(servers, tmp_path, f"bigfleet-{next(NUMBERS)}")


def test_the_values_of_the_page_are_installed_as_they_stand(fleet: Fleet) -> None:
    said = fleet.apply("install", "--create-namespace")
    deployment = fleet.get("deployments", RELEASE, APPS)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ghcr.io/your-org/bigfleet-azure:latest"
    assert "--location=eastus" in container["args"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert fleet.get("services", RELEASE)["spec"]["publishNotReadyAddresses"] is True
    account = fleet.get("serviceaccounts", RELEASE)
    client = account["metadata"]["annotations"]["azure.workload.identity/client-id"]
    assert client == "11111111-1111-1111-1111-111111111111"
    offerings = fleet.get("configmaps", f"{RELEASE}-offerings")
    assert offerings["data"] == {"offerings.json": OFFERINGS}
    assert f"kubectl -n {fleet.namespace} logs deploy/{RELEASE}" in said


def test_the_state_key_outlives_upgrade_rollback_uninstall_and_a_new_install(
    fleet: Fleet,
) -> None:
    fleet.apply("install", "--create-namespace", "--set=callback.enabled=true",
                "--set=callback.url=https://fleet.example.com")  # fmt: skip
    keys = (fleet.key(), fleet.key("callback-keys"))
    assert keys[0] != keys[1]
    assert len(bytes.fromhex(keys[0].decode())) == 32
    first = fleet.checksum()

    fleet.offerings.write_text("[]", encoding="utf-8")
    fleet.apply("upgrade", "--set=callback.enabled=true",
                "--set=callback.url=https://fleet.example.com")  # fmt: skip
    assert (fleet.key(), fleet.key("callback-keys")) == keys
    assert fleet.checksum() != first

    fleet.helm("rollback", "1")
    assert (fleet.key(), fleet.key("callback-keys")) == keys
    assert fleet.checksum() == first

    fleet.helm("uninstall")
    assert fleet.names("deployments", APPS) == []
    assert fleet.names("services") == []
    assert fleet.names("configmaps") == []
    claim = f"{RELEASE}-state"
    assert fleet.names("persistentvolumeclaims") == [claim]
    assert "deletionTimestamp" not in fleet.get("persistentvolumeclaims", claim)["metadata"]
    assert (fleet.key(), fleet.key("callback-keys")) == keys

    fleet.apply("install")
    assert fleet.key() == keys[0]
    assert fleet.names("deployments", APPS) == [RELEASE]


def test_a_key_that_is_rendered_without_looking_replaces_none(fleet: Fleet) -> None:
    fleet.apply("install", "--create-namespace")
    key = fleet.key()
    text = helm("template", RELEASE, str(CHART), "--namespace", fleet.namespace,
                "--set=azureBackend=fake", home=fleet.folder)  # fmt: skip
    [secret] = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Secret"]
    assert base64.b64decode(secret["data"]["state-key"]) != key
    path = f"{CORE}/{fleet.namespace}/secrets/{RELEASE}-state-key"
    with pytest.raises(AssertionError, match="field is immutable when `immutable` is set"):
        fleet.servers.ask("PATCH", path, secret)
    assert fleet.key() == key


@pytest.mark.parametrize("name", ["everything", "existing", "talos", "fake", "upstream"])
def test_the_server_takes_every_other_way_to_use_the_chart(fleet: Fleet, name: str) -> None:
    """What needs an operator's own kinds is left out: the server does not know them."""
    fleet.helm(
        "install",
        str(CHART),
        "--create-namespace",
        f"--values={VALUES / name}.yaml",
        "--set=metrics.serviceMonitor.enabled=false",
        "--set=metrics.prometheusRule.enabled=false",
        "--set=tls.certManager.enabled=false,tls.secretName=tls",
    )
    assert len(fleet.names("deployments", APPS)) == 1
    fleet.helm("upgrade", str(CHART), "--reuse-values", "--set=podLabels.again=yes")


def test_helm_test_makes_its_pod_and_believes_it(fleet: Fleet) -> None:
    fleet.helm("install", str(CHART), "--create-namespace", "--set=azureBackend=fake")
    pod = f"{CORE}/{fleet.namespace}/pods/{RELEASE}-test"
    testing = subprocess.Popen(
        [require_tool(PROGRAM), "test", RELEASE, "--namespace", fleet.namespace],
        env={"HOME": str(fleet.folder), "KUBECONFIG": str(fleet.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: fleet.names("pods"), "the pod is made")
        # No kubelet runs: this is what one would report in the end.
        fleet.servers.ask("PATCH", f"{pod}/status", {"status": {"phase": "Succeeded"}})
        said, _ = testing.communicate(timeout=30)
    finally:
        testing.kill()
        testing.wait()
    assert testing.returncode == 0
    assert "Phase:          Succeeded" in said
    eventually(lambda: not running_pods(fleet), "the pod is deleted")


def running_pods(fleet: Fleet) -> list[str]:
    return [
        name for name in fleet.names("pods")
        if "deletionTimestamp" not in fleet.get("pods", name)["metadata"]
    ]  # fmt: skip


def test_notes_tell_what_to_do_and_warn(fleet: Fleet) -> None:
    def notes(*values: str) -> str:
        sets = (f"--set={value}" for value in values)
        said = fleet.helm("install", str(CHART), "--create-namespace", "--dry-run=server", *sets)
        return said.partition("NOTES:")[2]

    plain = notes("azureBackend=fake", "state.enabled=false", "replicaCount=0")
    assert f"{RELEASE}.{fleet.namespace}.svc:9000 (plaintext)" in plain
    assert "image.repository is still the placeholder" in plain
    assert "the state is not on a PersistentVolume" in plain
    assert "replicaCount is 0" in plain
    good = notes(
        "azureBackend=fake", "image.repository=registry.example.com/it", "tls.enabled=true",
        "tls.secretName=tls", "offerings.content=[]",
    )  # fmt: skip
    assert "svc:9000 (TLS)" in good
    assert "WARNING" not in good
