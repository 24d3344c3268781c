"""The chart as Helm renders it, and its pod as a kubelet would see it."""

import base64
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from bigfleet_azure.daemon.settings import Settings, resolve
from scripts.build_helm import PROGRAM
from tests.support.tools import ROOT, require_tool

Json = dict[str, Any]
Objects = Mapping[str, Mapping[str, bytes]]

CHART = ROOT / "helm" / "bigfleet-azure"
VALUES = Path(__file__).parent / "values"
OFFERINGS = '[{"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 3}]'

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
ELLIPSIS = "/subscriptions/.../"
"""The gap in the page's subnet id, which nobody can leave open in earnest."""

TOKEN_FILE = "/var/run/secrets/azure/tokens/azure-identity-token"
"""Where the webhook of workload identity puts the token (azure.github.io/azure-workload-identity,
"Mutating admission webhook")."""


def helm(*arguments: str, home: Path, kubeconfig: Path | None = None) -> str:
    """What the real Helm prints; AssertionError with its words when it refuses."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "HELM_DRIVER": "secret"}
    if kubeconfig is not None:
        environ["KUBECONFIG"] = str(kubeconfig)
    done = subprocess.run(
        [require_tool(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to use the chart.

    Attributes:
        values: names of files in values/.
        arguments: more for Helm.
        own: content of the user's own Secrets and ConfigMaps, by name and key.
    """

    values: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    own: Objects = field(default_factory=dict)

    def render(self, home: Path, *more: str, release: str = "bigfleet-azure-eastus") -> "Release":
        """What Helm makes of it."""
        files = [f"--values={VALUES / name}.yaml" for name in self.values]
        text = helm(
            "template",
            release,
            str(CHART),
            "--namespace=bigfleet",
            *files,
            *self.arguments,
            *more,
            home=home,
        )
        return Release([each for each in yaml.safe_load_all(text) if each], self.own)


@dataclass(frozen=True, slots=True)
class Release:
    """The manifests of one rendering."""

    documents: list[Json]
    own: Objects

    def all(self, kind: str) -> list[Json]:
        return [each for each in self.documents if each["kind"] == kind]

    def one(self, kind: str, ending: str = "") -> Json:
        """The only one of a kind whose name ends so."""
        found = [each for each in self.all(kind) if each["metadata"]["name"].endswith(ending)]
        assert len(found) == 1, f"{kind}: {[each['metadata']['name'] for each in self.all(kind)]}"
        return found[0]

    def names(self) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in self.documents}

    @property
    def template(self) -> Json:
        made: Json = self.one("Deployment")["spec"]["template"]
        return made

    @property
    def pod(self) -> Json:
        made: Json = self.template["spec"]
        return made

    @property
    def container(self) -> Json:
        [made] = self.pod["containers"]
        assert isinstance(made, dict)
        return made

    @property
    def arguments(self) -> list[str]:
        made: list[str] = self.container["args"]
        return made

    @property
    def flags(self) -> dict[str, str]:
        """The arguments by name, the last of equal ones."""
        pairs = (each.removeprefix("--").partition("=") for each in self.arguments)
        return {name: text for name, _, text in pairs}

    def content(self, name: str) -> dict[str, bytes]:
        """The keys of a Secret or a ConfigMap, the chart's or the user's."""
        for each in self.documents:
            if each["metadata"]["name"] == name and each["kind"] in ("Secret", "ConfigMap"):
                plain = {key: text.encode() for key, text in each.get("data", {}).items()}
                if each["kind"] == "ConfigMap":
                    return plain
                return {key: base64.b64decode(text) for key, text in plain.items()}
        return dict(self.own[name])

    def environ(self) -> dict[str, str]:
        """The container's variables, and those of the webhook when the pod asks for it."""
        found: dict[str, str] = {}
        for each in self.container.get("env", []):
            if "value" in each:
                found[each["name"]] = each["value"]
                continue
            reference = each["valueFrom"]["secretKeyRef"]
            found[each["name"]] = self.content(reference["name"])[reference["key"]].decode()
        if self.template["metadata"]["labels"].get("azure.workload.identity/use") == "true":
            account = self.one("ServiceAccount")["metadata"]["annotations"]
            found |= {
                "AZURE_CLIENT_ID": account["azure.workload.identity/client-id"],
                "AZURE_TENANT_ID": account["azure.workload.identity/tenant-id"],
                "AZURE_FEDERATED_TOKEN_FILE": TOKEN_FILE,
                "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
            }
        return found

    def folder(self, path: str) -> tuple[Json, str]:
        """The volume that holds a path, and the path below its mount."""
        wanted = PurePosixPath(path)
        for mount in self.container["volumeMounts"]:
            if wanted.is_relative_to(mount["mountPath"]):
                [volume] = [each for each in self.pod["volumes"] if each["name"] == mount["name"]]
                return volume, str(wanted.relative_to(mount["mountPath"]))
        raise FileNotFoundError(2, "No such file or directory", path)

    def read(self, path: str) -> bytes:
        """A file as the container sees it; OSError when nothing puts one there."""
        volume, below = self.folder(path)
        source = volume.get("secret") or volume.get("configMap")
        if source is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        content = self.content(source.get("secretName") or source["name"])
        if "items" in source:
            content = {item["path"]: content[item["key"]] for item in source["items"]}
        if below not in content:
            raise FileNotFoundError(2, "No such file or directory", path)
        return content[below]

    def settings(self) -> Settings:
        """What the daemon makes of its arguments, variables and files."""
        filled = f"/subscriptions/{SUBSCRIPTION}/"
        arguments = [each.replace(ELLIPSIS, filled) for each in self.arguments]
        return resolve(arguments, self.environ(), self.read)
