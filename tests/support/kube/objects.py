"""Nodes, pods and kubeconfigs as documents."""

import json
from pathlib import Path
from typing import Any

from bigfleet_azure.backends.azure.kube_objects import stamp

Json = dict[str, Any]

MACHINE = "azure-eastus-od-d4s-v5-1-000"
VM_ID = "0f7f4c1a-9d2e-4b6c-8a31-5e0c7b9d2f44"
SWAPPED = "1a4c7f0f-2e9d-6c4b-8a31-5e0c7b9d2f44"
OTHER_VM = "5b1d7f90-3c44-4e0e-9f0a-7e2b6a1c8d11"
HOST = (
    "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/fleet"
    f"/providers/Microsoft.Compute/virtualMachines/{MACHINE}"
)


def condition(ready: str, heartbeat: float, transition: float) -> Json:
    """The condition Ready, as a kubelet writes it."""
    fine = ready == "True"
    return {
        "type": "Ready",
        "status": ready,
        "reason": "KubeletReady" if fine else "KubeletNotReady",
        "message": "kubelet is posting ready status" if fine else "cni plugin not initialized",
        "lastHeartbeatTime": stamp(heartbeat),
        "lastTransitionTime": stamp(transition),
    }


def node_document(
    name: str = MACHINE,
    *,
    system_uuid: str = VM_ID,
    provider_id: str = "",
    ready: str = "True",
    heartbeat: float = 0.0,
    transition: float | None = None,
    annotations: dict[str, str] | None = None,
    cordoned: bool = False,
) -> Json:
    """A Node; `ready` is True, False or Unknown."""
    spec: Json = {"providerID": provider_id} if provider_id else {}
    if cordoned:
        spec["unschedulable"] = True
    changed = heartbeat if transition is None else transition
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": spec,
        "status": {
            "conditions": [condition(ready, heartbeat, changed)],
            "nodeInfo": {
                "systemUUID": system_uuid,
                "architecture": "amd64",
                "bootID": "b",
                "containerRuntimeVersion": "containerd://2.1",
                "kernelVersion": "6.8",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.34.2",
                "machineID": "m",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04",
            },
        },
    }


def pod_document(
    name: str,
    node: str = MACHINE,
    *,
    labels: dict[str, str] | None = None,
    owner: str = "",
    mirror: bool = False,
    grace_seconds: int = 0,
) -> Json:
    """A pod on a node; `owner` is the kind of its controller."""
    metadata: Json = {"name": name, "namespace": "default", "labels": dict(labels or {})}
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": owner,
                "name": "its-owner",
                "uid": "9b0c5ad2-6f04-4c9c-8f35-5d3f1f0c7a10",
                "controller": True,
            }
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{"name": "work", "image": "work:1"}],
        },
        "status": {"phase": "Running"},
    }


def write_kubeconfig(path: Path, server: str, user: Json, **cluster: Any) -> Path:
    """A kubeconfig with one context, put in place at once as an operator should."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user}],
    }
    made = path.with_name(f".{path.name}.new")
    made.write_text(json.dumps(document), encoding="utf-8")
    made.replace(path)
    return path
