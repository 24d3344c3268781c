"""A real cluster as its administrator sees it, and as the backend does."""

from pathlib import Path
from typing import Any

import yaml

from bigfleet_azure.backends.azure.kubernetes import Clusters
from bigfleet_azure.kit.clock import Clock
from tests.support.kube.objects import HOST, MACHINE, VM_ID, write_kubeconfig
from tests.support.kube.servers import PROVIDER_TOKEN, KubeServers
from tests.support.tools import ROOT

Json = dict[str, Any]

ROLES = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def documented_role() -> list[Json]:
    """The role and its binding that operators are given."""
    text = (ROOT / "deploy" / "kubernetes" / "cluster-role.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


class Cluster:
    """A real cluster: what its administrator, its kubelets and its controllers would do."""

    def __init__(self, servers: KubeServers) -> None:
        self.servers = servers

    def grant(self, rules: list[Json] | None = None) -> None:
        """Give the provider the documented rights, or others."""
        role, binding = documented_role()
        if rules is not None:
            role["rules"] = rules
        for kind, document in (("clusterroles", role), ("clusterrolebindings", binding)):
            name = document["metadata"]["name"]
            found = self.servers.ask("GET", f"{ROLES}/{kind}")["items"]
            if any(each["metadata"]["name"] == name for each in found):
                self.servers.ask("PUT", f"{ROLES}/{kind}/{name}", document)
            else:
                self.servers.ask("POST", f"{ROLES}/{kind}", document)

    def put_node(self, document: Json) -> None:
        """Register a Node and report its status, as its kubelet does."""
        path = f"/api/v1/nodes/{document['metadata']['name']}"
        if document["metadata"]["name"] not in self.names("/api/v1/nodes"):
            self.servers.ask("POST", "/api/v1/nodes", document)
        self.servers.ask("PATCH", f"{path}/status", {"status": document["status"]})

    def node(self, name: str = MACHINE) -> Json:
        return self.servers.ask("GET", f"/api/v1/nodes/{name}")

    def put_pod(self, document: Json) -> None:
        """Make a pod that runs."""
        made = self.servers.ask("POST", PODS, document)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = f"{PODS}/{made['metadata']['name']}/status"
        self.servers.ask("PATCH", path, {"status": status})

    def put_budget(self, name: str, label: str, allowed: int) -> None:
        """Make a budget for pods with `app: label`, or change how many may go."""
        if name not in self.names(BUDGETS):
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": label}}}
            self.servers.ask("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
        }
        self.servers.ask("PATCH", f"{BUDGETS}/{name}/status", {"status": status})

    def names(self, path: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.servers.ask("GET", path)["items"])

    def tidy(self) -> None:
        for path in (PODS, BUDGETS, "/api/v1/nodes"):
            for name in self.names(path):
                self.servers.ask("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})


class Provider:
    """The backend's side: `Clusters` with the provider's kubeconfig, and one machine."""

    def __init__(self, folder: Path, servers: KubeServers, clock: Clock) -> None:
        self.path = folder / "prod"
        self._servers = servers
        self.write()
        self.clock = clock
        self.clusters = Clusters(folder, clock)

    def write(self, token: str = PROVIDER_TOKEN) -> None:
        write_kubeconfig(
            self.path,
            self._servers.url,
            {"token": token},
            **{"certificate-authority": str(self._servers.ca)},
        )

    async def wait_ready(self, since: float | None, vm_id: str = VM_ID, **how: float) -> None:
        await self.clusters.wait_ready("prod", MACHINE, vm_id=vm_id, host=HOST, since=since, **how)

    async def drain(self, grace_seconds: int = 60, *, keep_node: bool = False) -> None:
        await self.clusters.drain(
            "prod",
            MACHINE,
            vm_id=VM_ID,
            host=HOST,
            grace_seconds=grace_seconds,
            keep_node=keep_node,
        )

    async def uncordon(self) -> None:
        await self.clusters.uncordon("prod", MACHINE, vm_id=VM_ID, host=HOST)
