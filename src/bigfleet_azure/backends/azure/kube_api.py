"""The few calls that are made to a cluster: on Nodes, and on the pods of one.

How a call is made and what its refusal means is `kube_wire`; who waits for what is `kube_watch` and
`kube_drain`. The rights that they need are in deploy/kubernetes/cluster-role.yaml.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from bigfleet_azure.backends.azure.kube_objects import Node, Pod
from bigfleet_azure.backends.azure.kube_wire import KubeWire
from bigfleet_azure.kit.clock import Clock

Json = dict[str, Any]

WATCH_SECONDS = 240
"""After which the server ends a watch; its own choice is between 5 and 10 minutes."""

PAGE = 200
"""Nodes a page: some 3 MB, decoded without holding up the loop for long."""


class KubeApi:
    """One cluster, by the kubeconfig at `path`, which may change at any time."""

    def __init__(self, cluster: str, path: Path, clock: Clock) -> None:
        self.cluster = cluster
        self._wire = KubeWire(cluster, path, clock)

    async def changed(self) -> None:
        """Return once the kubeconfig is not the one in use any more."""
        await self._wire.changed()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    # Nodes

    async def node(self, name: str) -> Node | None:
        """The Node of that name; None when there is none."""
        answer = await self._wire.ask("get nodes", "read_node", name, expected=(404,))
        return None if answer.status == 404 else Node.parse(answer.body)

    async def patch_node(self, node: Node, *, cordoned: bool, annotations: Json) -> bool:
        """Set whether pods may come, and annotations; False when the Node is gone or another's."""
        body = {
            "metadata": {"uid": node.uid, "annotations": annotations},
            "spec": {"unschedulable": cordoned or None},
        }
        answer = await self._wire.ask(
            "patch nodes", "patch_node", node.name, body, expected=(404, 409)
        )
        return answer.status == 200

    async def delete_node(self, node: Node) -> bool:
        """Delete just this Node; False when one of its name was made anew."""
        body = {"preconditions": {"uid": node.uid}}
        answer = await self._wire.ask(
            "delete nodes", "delete_node", node.name, body=body, expected=(404, 409)
        )
        return answer.status != 409

    async def nodes(self) -> tuple[list[Node], str]:
        """All Nodes, and the version that a watch goes on from."""
        found: list[Node] = []
        following = ""
        while True:
            answer = await self._wire.ask(
                "list nodes", "list_node", limit=PAGE, _continue=following or None
            )
            found += [Node.parse(each) for each in answer.body.get("items") or ()]
            metadata = answer.body.get("metadata") or {}
            following = metadata.get("continue") or ""
            if not following:
                return found, str(metadata.get("resourceVersion") or "")

    async def watch_nodes(self, version: str) -> AsyncGenerator[Json, None]:
        """What happens to Nodes after `version`; ends when the server, or the network, does."""
        lines = self._wire.stream(
            "watch nodes",
            "list_node",
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
        )
        async with aclosing(lines):
            async for line in lines:
                yield line

    # Pods

    async def pods(self, node: str) -> list[Pod]:
        """Pods on a node that a drain has to move."""
        answer = await self._wire.ask(
            "list pods",
            "list_pod_for_all_namespaces",
            field_selector=f"spec.nodeName={node}",
        )
        pods = map(Pod.parse, answer.body.get("items") or ())
        return [pod for pod in pods if not pod.stays]

    async def evict(self, pod: Pod, grace_seconds: int | None) -> str:
        """Ask for the pod to leave; why it may not yet, or "" when it goes.

        Args:
            grace_seconds: less than the pod wants; None for that.
        """
        options: Json = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        answer = await self._wire.ask(
            "create pods/eviction",
            "create_namespaced_pod_eviction",
            pod.name,
            pod.namespace,
            body,
            expected=(400, 403, 404, 409, 422, 429, 500),
        )
        # 409: a pod of that name was made anew. It may be elsewhere; the next look tells.
        return "" if answer.status in (200, 201, 202, 404, 409) else answer.message or "refused"

    async def delete_pod(self, pod: Pod) -> None:
        """Delete the pod without any more time."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        await self._wire.ask(
            "delete pods",
            "delete_namespaced_pod",
            pod.name,
            pod.namespace,
            body=body,
            expected=(404, 409),
        )
