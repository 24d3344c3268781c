"""Nodes and pods as facts: which machine a Node is, whether it is ready, and what a drain moves.

Facts and judgements only; how they are got is `kube_api`, what follows is `kube_watch` and
`kube_drain`.
"""

import math
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

Json = dict[str, Any]

DRAIN_ENDS = "bigfleet-azure/drain-ends"
"""Annotation: when the grace of the drain under way is over; a restart does not begin it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node object.

    Attributes:
        system_uuid: as the guest's firmware shows it.
        provider_id: set by the cluster's cloud provider; "" without one.
        ready: whether its kubelet calls it Ready.
        told: Unix seconds of its kubelet's last word about that; 0 when there was none.
        words: why it is not ready, in its kubelet's words.
        cordoned: no new pods are put on it.
        drain_ends: Unix seconds; None when no drain of ours is under way.
    """

    name: str
    uid: str
    system_uuid: str = ""
    provider_id: str = ""
    ready: bool = False
    told: float = 0.0
    words: str = ""
    cordoned: bool = False
    drain_ends: float | None = None

    @classmethod
    def parse(cls, document: Json) -> Self:
        """The Node in the API server's words."""
        metadata = document["metadata"]
        spec = document.get("spec") or {}
        status = document.get("status") or {}
        conditions = status.get("conditions") or []
        ready: Json = next((each for each in conditions if each.get("type") == "Ready"), {})
        moments = (
            metadata.get("creationTimestamp"),
            ready.get("lastHeartbeatTime"),
            ready.get("lastTransitionTime"),
        )
        ends = (metadata.get("annotations") or {}).get(DRAIN_ENDS)
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            system_uuid=str((status.get("nodeInfo") or {}).get("systemUUID") or ""),
            provider_id=str(spec.get("providerID") or ""),
            ready=ready.get("status") == "True",
            told=max(map(seconds, moments)) if ready else 0.0,
            words=": ".join(filter(None, (ready.get("reason"), ready.get("message")))),
            cordoned=bool(spec.get("unschedulable")),
            drain_ends=seconds(ends) if ends else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod on a node, as far as a drain cares.

    Attributes:
        leaving: it was told to end.
        grace_seconds: time it wants for that.
        stays: it ended, or belongs to the node: a DaemonSet's, or a static one.
    """

    namespace: str
    name: str
    uid: str
    leaving: bool
    grace_seconds: int
    stays: bool

    @classmethod
    def parse(cls, document: Json) -> Self:
        """The pod in the API server's words."""
        metadata, spec = document["metadata"], document.get("spec") or {}
        phase = (document.get("status") or {}).get("phase")
        owners = metadata.get("ownerReferences") or ()
        grace = spec.get("terminationGracePeriodSeconds")
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            leaving=bool(metadata.get("deletionTimestamp")),
            grace_seconds=30 if grace is None else grace,
            stays=phase in ("Succeeded", "Failed")
            or "kubernetes.io/config.mirror" in (metadata.get("annotations") or {})
            or any(each.get("controller") and each.get("kind") == "DaemonSet" for each in owners),
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def seconds(text: object) -> float:
    """Unix seconds of a moment in RFC 3339; 0 for what is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def stamp(moment: float) -> str:
    """Unix seconds in RFC 3339."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def is_vm(node: Node, vm_id: str) -> bool:
    """Whether the Node's firmware is this VM's.

    Firmware writes the first three groups of a GUID in one byte order or the other (SMBIOS 2.6
    made them little-endian), and a kubelet passes on what it finds.
    """
    found, wanted = _guid(node.system_uuid), _guid(vm_id)
    if found is None or wanted is None:
        return False
    return found.bytes in (wanted.bytes, wanted.bytes_le)


def is_machine(node: Node, *, vm_id: str, host: str) -> bool:
    """Whether the Node is the VM with that vmId, or is said to run on the VM with that id."""
    return is_vm(node, vm_id) or _is_named(node, host)


def not_ready(node: Node | None, *, vm_id: str, host: str, since: float | None) -> str:
    """Why the Node does not count as ready; "" when it does.

    A kubelet writes its heartbeat at its start and every five minutes; the time of the condition
    stays as it is while Ready does. So the latest of them tells when Ready was last claimed, and a
    Node object that is younger than the operation cannot speak of an earlier life.

    Args:
        since: Unix seconds; a claim from before is an earlier life's. None when any claim counts:
            then only the firmware tells this VM from an earlier one of the same name.
    """
    if node is None:
        return "there is no Node of its name"
    ours = is_machine(node, vm_id=vm_id, host=host)
    if ours and since is None and _guid(node.system_uuid) is not None:
        ours = is_vm(node, vm_id)
    if not ours:
        return (
            f"the Node of its name is another machine (systemUUID {node.system_uuid or 'none'}, "
            f"providerID {node.provider_id or 'none'}; the VM is {vm_id})"
        )
    if not node.ready:
        return f"its Node is not Ready ({node.words or 'its kubelet has not said why'})"
    # The API's times have whole seconds.
    if since is not None and node.told < math.floor(since):
        return f"its Node last said Ready at {stamp(node.told)}, before this operation began"
    return ""


def _is_named(node: Node, host: str) -> bool:
    return bool(host) and node.provider_id.lower() == f"azure://{host}".lower()


def _guid(text: str) -> uuid.UUID | None:
    """None also for 32 digits without dashes: that is a machine-id, which says nothing of a VM."""
    try:
        return uuid.UUID(text) if "-" in text else None
    except ValueError:
        return None
