"""The bootstrap hook with a real kubectl against a real API server, and a node's own rights there.

The API server runs the Node authorizer and NodeRestriction, as every cluster made by kubeadm does.
"""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.guest.machines import BLOB, NODE, Machine, memory_folder
from tests.kubernetes.things import PODS, Cluster
from tests.support.kube.objects import write_kubeconfig
from tests.support.kube.servers import KubeServers
from tests.support.tools import require_tool

pytestmark = [pytest.mark.kubernetes, pytest.mark.process]

Json = dict[str, Any]

NODE_TOKEN = "node-token"


class NodeServers(KubeServers):
    """With a user for the node, who has a node's rights and no others."""

    def start_api(self) -> None:
        with (self._folder / "tokens.csv").open("a") as tokens:
            tokens.write(f"{NODE_TOKEN},system:node:{NODE},9,system:nodes\n")
        super().start_api()

    def _run(self, program: Path, *arguments: str) -> Any:
        changed = [each.replace("mode=RBAC", "mode=Node,RBAC") for each in arguments]
        if changed != list(arguments):
            changed.append("--enable-admission-plugins=NodeRestriction")
        return super()._run(program, *changed)


class Kubelet(threading.Thread):
    """Ends pods that are to leave, and calls its node Ready unless it was stopped."""

    def __init__(self, cluster: Cluster, stopped: Path) -> None:
        super().__init__()
        self._cluster = cluster
        self._stopped = stopped
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for pod in self._cluster.servers.ask("GET", PODS)["items"]:
                metadata = pod["metadata"]
                if metadata.get("deletionTimestamp"):
                    path = f"{PODS}/{metadata['name']}"
                    self._cluster.servers.ask("DELETE", path, {"gracePeriodSeconds": 0})
            if not self._stopped.exists():
                self._cluster.put_node(node())

    def end(self) -> None:
        self._ended.set()
        self.join()


def node() -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "up"}
    condition = {**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"metadata": {"name": NODE}, "status": {"conditions": [condition]}}


def pod(name: str, *, node_name: str = NODE, grace: int = 30, **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app": name}, **metadata},
        "spec": {
            "nodeName": node_name,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "main", "image": "example.com/main"}],
        },
    }


@pytest.fixture(scope="module")
def node_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServers]:
    made = NodeServers(tmp_path_factory.mktemp("node-rights"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(node_servers: KubeServers) -> Iterator[Cluster]:
    made = Cluster(node_servers)
    yield made
    made.tidy()


@pytest.fixture
def kubelet(cluster: Cluster, machine: Machine) -> Iterator[Kubelet]:
    cluster.put_node(node())
    made = Kubelet(cluster, machine.fake / "stopped")
    made.start()
    yield made
    made.end()


@pytest.fixture
def machine(tmp_path: Path, node_servers: KubeServers) -> Iterator[Machine]:
    """With the real kubectl, and a kubeadm that gives the node its credentials."""
    with memory_folder() as memory:
        made = Machine(tmp_path, memory)
        write_kubeconfig(
            made.fake / "kubelet.conf",
            node_servers.url,
            {"token": NODE_TOKEN},
            **{"certificate-authority": str(node_servers.ca)},
        )
        made.stand_in("kubectl", f'HOME={tmp_path} exec {require_tool("kubectl")} "$@"')
        kubeconfig = f"{made.disk}/etc/kubernetes/kubelet.conf"
        joined = f'cp "$FAKE/kubelet.conf" {kubeconfig}; rm -f "$FAKE/stopped"'
        made.stand_in("kubeadm", f'if [ "$1" = join ]; then {joined}; else rm -f {kubeconfig}; fi')
        made.stand_in("systemctl", 'touch "$FAKE/stopped"')
        yield made


def test_a_node_may_do_all_that_the_hook_does(
    machine: Machine, cluster: Cluster, kubelet: Kubelet
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "proxy", "uid": "1"}
    cluster.put_pod(pod("proxy", ownerReferences=[{**owner, "controller": True}]))
    cluster.put_pod(pod("static", annotations={"kubernetes.io/config.mirror": "1"}))
    cluster.put_pod(pod("elsewhere", node_name="other"))
    cluster.put_pod(pod("movable"))
    cluster.put_pod(pod("held", grace=600))
    cluster.put_budget("held", "held", allowed=0)
    joined = machine.join()
    assert joined.returncode == 0, joined.stderr

    drained = machine.drain(grace=3)
    assert drained.returncode == 0, drained.stderr
    assert "are deleted: default/held" in drained.stderr
    assert "movable" not in drained.stderr
    left = cluster.names(PODS)
    assert {"proxy", "static", "elsewhere"} <= set(left)
    assert "movable" not in left
    found = cluster.node(NODE)
    assert found["spec"]["unschedulable"] is True
    [ready] = found["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "Left")

    again = machine.join(BLOB.replace("10.0.0.4", "10.0.0.5"))
    assert again.returncode == 0, again.stderr
    assert "unschedulable" not in cluster.node(NODE)["spec"]


def test_a_second_join_finds_the_node_by_its_own_rights(machine: Machine, kubelet: Kubelet) -> None:
    assert kubelet.is_alive()
    assert machine.join().returncode == 0
    assert "has joined with this blob before" in machine.join().stderr
    assert len(machine.calls("kubeadm")) == 1
