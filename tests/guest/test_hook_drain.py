"""The bootstrap hook takes a node out of its cluster, whatever the cluster does."""

import json
import time

import pytest

from tests.guest.machines import BLOB, NODE, Machine

pytestmark = pytest.mark.process

NONE = "<none>"
PODS = (
    f"default web-1 30 {NONE} Running {NONE} ReplicaSet",
    f"default alone 600 {NONE} Running {NONE} {NONE}",
    f"kube-system proxy 30 {NONE} Running {NONE} DaemonSet",
    f"kube-system static 30 {NONE} Running 0f1e2d Node",
    f"batch done 30 {NONE} Succeeded {NONE} Job",
    f"batch broken 30 {NONE} Failed {NONE} Job",
    "default leaving 30 2026-11-30T00:00:00Z Running <none> ReplicaSet",
)
RESET = "kubeadm reset --force"


@pytest.fixture
def joined(machine: Machine) -> Machine:
    assert machine.join().returncode == 0
    (machine.fake / "calls").unlink()
    return machine


def evicted(machine: Machine) -> dict[str, int]:
    """Names of the pods that were asked to leave, and the grace of the last call."""
    lines = (machine.fake / "evictions").read_text().splitlines()
    documents = [json.loads(line) for line in lines if line]
    assert {each["kind"] for each in documents} == {"Eviction"}
    return {
        each["metadata"]["name"]: each["deleteOptions"]["gracePeriodSeconds"] for each in documents
    }


def test_a_node_is_cordoned_emptied_and_reset(joined: Machine) -> None:
    joined.put("pods", *PODS[:-1])
    drained = joined.drain()
    assert drained.returncode == 0, drained.stderr
    changes = joined.changes()
    assert changes[0] == f"cordon {NODE}"
    assert sorted(changes[1:3]) == [
        "create --raw /api/v1/namespaces/default/pods/alone/eviction -f -",
        "create --raw /api/v1/namespaces/default/pods/web-1/eviction -f -",
    ]
    assert changes[3:] == [f"replace --raw /api/v1/nodes/{NODE}/status -f -", RESET]
    graces = evicted(joined)
    assert graces["web-1"] in (29, 30)
    assert graces["alone"] in (29, 30)
    assert f"--field-selector spec.nodeName={NODE}" in str(joined.calls("kubectl"))
    assert (joined.disk / "run" / "bigfleet" / "drained").exists()


def test_the_kubelet_is_stopped_before_its_node_is_called_not_ready(joined: Machine) -> None:
    assert joined.drain().returncode == 0
    order = [call for call in joined.calls() if "systemctl" in call or "/status" in call]
    assert order[0] == "systemctl stop kubelet"
    assert len(order) == 2


def test_pods_that_are_leaving_are_waited_for(joined: Machine) -> None:
    joined.put("pods", PODS[-1])
    joined.stand_in("sleep", 'sed -i "/leaving/d" "$FAKE/pods"')
    assert joined.drain().returncode == 0
    assert not (joined.fake / "evictions").exists()
    assert sum("get pods" in call for call in joined.calls("kubectl")) == 2


@pytest.mark.parametrize(
    ("grace", "deleted"), [(0, "default/web-1 default/alone"), (1, "default/web-1")]
)
def test_what_the_grace_leaves_is_deleted(joined: Machine, grace: int, deleted: str) -> None:
    joined.put("pods", *PODS[:2])
    joined.put("budget-web-1")
    drained = joined.drain(grace)
    assert drained.returncode == 0
    assert drained.stderr.splitlines()[0].rstrip().endswith(f"are deleted: {deleted}")
    names = deleted.replace("default/", "").split()
    assert sorted(each for each in joined.changes() if each.startswith("delete")) == sorted(
        f"delete pod --namespace default {name} --grace-period=1 --wait=false" for name in names
    )
    assert joined.changes()[-1] == RESET


def test_a_cluster_that_is_away_holds_nobody_longer_than_the_grace(joined: Machine) -> None:
    joined.put("no-api")
    began = time.monotonic()
    drained = joined.drain(1)
    assert drained.returncode == 0
    assert "connection refused" in drained.stderr
    assert joined.calls("kubeadm") == [RESET]
    assert time.monotonic() - began < 8


def test_a_node_that_is_gone_from_its_cluster_is_reset_at_once(joined: Machine) -> None:
    (joined.fake / "node").unlink()
    began = time.monotonic()
    assert joined.drain(60).returncode == 0
    assert joined.calls("kubeadm") == [RESET]
    assert time.monotonic() - began < 8


def test_a_machine_that_has_left_or_never_joined_has_nothing_to_do(
    machine: Machine, joined: Machine
) -> None:
    assert joined.drain().returncode == 0
    (machine.fake / "calls").unlink()
    machine.remove("kubeadm")
    again = machine.drain()
    assert again.returncode == 0
    assert "in no cluster" in again.stderr
    assert machine.calls() == []


def test_a_drained_machine_joins_again(joined: Machine) -> None:
    assert joined.drain().returncode == 0
    assert joined.join(BLOB.replace("10.0.0.4", "10.9.9.9")).returncode == 0
    assert not (joined.disk / "run" / "bigfleet" / "drained").exists()
    assert joined.changes()[-1] == f"uncordon {NODE}"


def test_a_reset_that_fails_is_told_and_can_be_tried_again(joined: Machine) -> None:
    joined.put("kubeadm-reset", "echo device or resource busy >&2; exit 1")
    drained = joined.drain()
    assert drained.returncode == 73
    assert drained.stderr.splitlines()[-2:] == [
        "device or resource busy",
        "bigfleet-bootstrap: kubeadm reset failed with exit 1",
    ]
    assert not (joined.disk / "run" / "bigfleet" / "drained").exists()
    joined.put("kubeadm-reset", "")
    assert joined.drain().returncode == 0


def test_what_the_network_of_the_cluster_left_is_removed(joined: Machine) -> None:
    ours = "-A FORWARD -d 168.63.129.16/32 -p tcp -m tcp --dport 80 -j DROP"
    theirs = ["-A FORWARD -j KUBE-FORWARD", ":cali-FORWARD - [0:0]", "-A CNI-FORWARD -j ACCEPT"]
    joined.put("saved", "*mangle", *theirs, ours, "COMMIT")
    joined.put(
        "links",
        "1: lo: <LOOPBACK>",
        "2: eth0: <BROADCAST>",
        "5: cni0: <BROADCAST>",
        "6: cali12ab@if3: <BROADCAST>",
        "7: vxlan.calico: <BROADCAST>",
        "8: enP1s1: <BROADCAST>",
    )
    left = [
        joined.disk / "etc" / "cni" / "net.d" / "10-flannel.conflist",
        joined.disk / "var" / "lib" / "cni" / "networks" / "cbr0" / "10.0.0.7",
        joined.disk / "run" / "flannel" / "subnet.env",
    ]
    kept = joined.disk / "etc" / "cni" / "net.d" / ".kept"
    for path in (*left, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert joined.drain().returncode == 0
    assert not [path for path in left if path.exists()]
    assert kept.exists()
    assert joined.calls("ip")[1:] == [
        f"ip link delete {name}" for name in ("cni0", "cali12ab", "vxlan.calico")
    ]
    assert (joined.fake / "restored").read_text().splitlines() == ["*mangle", ours, "COMMIT"]


def test_a_script_that_joined_otherwise_leaves_by_its_own_program(machine: Machine) -> None:
    leave = machine.disk / "opt" / "bigfleet" / "leave"
    leave.parent.mkdir(parents=True)
    machine.put("node", "True|NOW|x: y")
    script = f"""#!/bin/sh
    kubeconfig={machine.disk}/etc/kubernetes/kubelet.conf
    : >$kubeconfig
    printf '#!/bin/sh\\nrm %s' $kubeconfig >{leave}; chmod 755 {leave}
    """
    assert machine.join(script).returncode == 0
    assert machine.drain().returncode == 0
    assert machine.calls("kubeadm", "systemctl") == []
    assert not leave.exists()
    assert not (machine.disk / "etc" / "kubernetes" / "kubelet.conf").exists()
