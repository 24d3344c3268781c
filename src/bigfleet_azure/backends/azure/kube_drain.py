"""Emptying a Node: cordon, evict as long as the grace lasts, delete what is left, and the Node.

As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does it, except that a grace
that is over ends the waiting for PodDisruptionBudgets. Whose Node it is was settled before.
"""

import logging
from datetime import timedelta

from bigfleet_azure.backends.azure.kube_api import KubeApi
from bigfleet_azure.backends.azure.kube_objects import DRAIN_ENDS, Node, Pod, stamp
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""Between two rounds over the pods that are left: kubectl looks every second whether a pod is gone,
and tries an eviction again after five."""


async def drain(
    api: KubeApi, clock: Clock, node: Node, *, grace_seconds: int, keep_node: bool
) -> None:
    """Empty the Node and delete it, or leave it cordoned.

    The end of the grace is written on the Node, so that a restart does not begin it anew.

    Raises:
        BackendError: TRANSIENT; the cluster cannot be asked, or the Node was made anew.
    """
    ends = await _cordon(api, clock, node, grace_seconds)
    if ends is None:
        return
    waited_for = ""
    while pods := await api.pods(node.name):
        left = ends - clock.now()
        if left <= 0:
            await _delete(api, node, pods, waited_for)
            break
        for pod in pods:
            if not pod.leaving:
                waited_for = await _evict(api, pod, ends - clock.now()) or waited_for
        await clock.sleep(min(PAUSE_SECONDS, left))
    if keep_node:
        await api.patch_node(node, cordoned=True, annotations={DRAIN_ENDS: None})
    elif not await api.delete_node(node):
        raise _made_anew(node)


async def _cordon(api: KubeApi, clock: Clock, node: Node, grace_seconds: int) -> float | None:
    """Unix seconds at which the grace is over; None when the Node is gone."""
    latest = clock.now() + grace_seconds
    if node.cordoned and node.drain_ends is not None:
        return min(node.drain_ends, latest)
    if await api.patch_node(node, cordoned=True, annotations={DRAIN_ENDS: stamp(latest)}):
        return latest
    if await api.node(node.name) is not None:
        raise _made_anew(node)
    return None


async def _evict(api: KubeApi, pod: Pod, left: float) -> str:
    """Ask for the pod to leave; why it may not yet, or ""."""
    grace = max(0, int(left))
    refusal = await api.evict(pod, grace if grace < pod.grace_seconds else None)
    return f"{pod}: {refusal}" if refusal else ""


async def _delete(api: KubeApi, node: Node, pods: list[Pod], waited_for: str) -> None:
    logger.warning(
        "the grace is over, pods are deleted",
        extra={"machine": node.name, "pods": len(pods), "waited_for": waited_for},
    )
    for pod in pods:
        await api.delete_pod(pod)


def _made_anew(node: Node) -> BackendError:
    return BackendError(
        FailureKind.TRANSIENT,
        f"the Node of {node.name} was made anew while it was drained; it is looked at again",
        code="NodeReplaced",
        retry_after=timedelta(),
    )
