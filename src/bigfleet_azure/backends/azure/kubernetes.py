"""What the backend asks of the clusters that its machines join and leave.

Each cluster is known by the kubeconfig that carries its id, in one folder. How a cluster is watched
and a Node emptied is `kube_watch` and `kube_drain`; nothing here knows of Azure but a VM's two ids.
"""

import asyncio
import logging
import math
from datetime import timedelta
from pathlib import Path

from bigfleet_azure.backends.azure import kube_drain, kubeconfig
from bigfleet_azure.backends.azure.kube_api import KubeApi
from bigfleet_azure.backends.azure.kube_objects import DRAIN_ENDS, Node, is_machine, not_ready
from bigfleet_azure.backends.azure.kube_watch import NodeWatch
from bigfleet_azure.backends.azure.kube_wire import HOLD_SECONDS
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)


class _Cluster:
    """One cluster's connection, and the watch on its Nodes."""

    def __init__(self, name: str, path: Path, clock: Clock) -> None:
        self.api = KubeApi(name, path, clock)
        self.nodes = NodeWatch(self.api, clock)

    async def close(self) -> None:
        await self.nodes.close()
        await self.api.close()


class Clusters:
    """All clusters that have a kubeconfig in `folder`.

    In every method a machine is the VM with the vmId `vm_id` and the ARM id `host`; a Node of its
    name that is another VM's is never touched and never counts. All of them raise BackendError:
    INVALID for a cluster id that can be no file's name, else TRANSIENT: the cluster, or its
    kubeconfig, may come back.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._clusters: dict[str, _Cluster] = {}

    def fault(self, cluster: str) -> str:
        """Why there is no kubeconfig for `cluster`; "" when there is one."""
        if fault := kubeconfig.name_fault(cluster):
            return fault
        path = self._folder / cluster
        return "" if path.is_file() else f"there is no kubeconfig {path} for cluster {cluster}"

    async def wait_ready(
        self,
        cluster: str,
        machine_id: str,
        *,
        vm_id: str,
        host: str,
        since: float | None,
        deadline: float = math.inf,
    ) -> None:
        """Return once the machine's Node is Ready, and has said so after `since`.

        Args:
            since: Unix seconds; with None a Node that is Ready already counts, and is uncordoned.
            deadline: shortly before it the waiting ends with what the Node lacks.
        """
        node = await self._at(cluster).nodes.until(
            machine_id,
            lambda found: not_ready(found, vm_id=vm_id, host=host, since=since),
            deadline,
        )
        if since is None and node.cordoned:
            await self.uncordon(cluster, machine_id, vm_id=vm_id, host=host)

    async def drain(
        self,
        cluster: str,
        machine_id: str,
        *,
        vm_id: str,
        host: str,
        grace_seconds: int,
        keep_node: bool,
    ) -> None:
        """Make the machine's Node empty, and then not exist, or stay cordoned (`keep_node`).

        Pods are evicted as their PodDisruptionBudgets allow; what is left when the grace is over
        is deleted.
        """
        api = self._at(cluster).api
        node = await _own(api, machine_id, vm_id=vm_id, host=host)
        if node is not None:
            await kube_drain.drain(
                api, self._clock, node, grace_seconds=grace_seconds, keep_node=keep_node
            )

    async def uncordon(self, cluster: str, machine_id: str, *, vm_id: str, host: str) -> None:
        """Let pods come to the machine's Node again, when it has one."""
        api = self._at(cluster).api
        node = await _own(api, machine_id, vm_id=vm_id, host=host)
        if node is not None and (node.cordoned or node.drain_ends is not None):
            await api.patch_node(node, cordoned=False, annotations={DRAIN_ENDS: None})

    async def close(self) -> None:
        """Close all connections."""
        clusters, self._clusters = list(self._clusters.values()), {}
        await asyncio.gather(*(cluster.close() for cluster in clusters))

    def _at(self, cluster: str) -> _Cluster:
        known = self._clusters.get(cluster)
        if known is not None:
            return known
        if fault := kubeconfig.name_fault(cluster):
            raise BackendError(FailureKind.INVALID, fault, code="ClusterName")
        if fault := self.fault(cluster):
            raise BackendError(
                FailureKind.TRANSIENT,
                fault,
                code="Kubeconfig",
                retry_after=timedelta(seconds=HOLD_SECONDS),
            )
        made = self._clusters[cluster] = _Cluster(cluster, self._folder / cluster, self._clock)
        return made


async def _own(api: KubeApi, machine_id: str, *, vm_id: str, host: str) -> Node | None:
    """The machine's Node; None when there is none, or one of its name is another machine."""
    node = await api.node(machine_id)
    if node is None or is_machine(node, vm_id=vm_id, host=host):
        return node
    logger.warning(
        "the Node of a machine's name is another machine's and is left alone",
        extra={"machine": machine_id, "cluster": api.cluster, "system_uuid": node.system_uuid},
    )
    return None
