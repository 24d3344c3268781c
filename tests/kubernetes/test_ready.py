"""Readiness, as a real API server tells it."""

import asyncio
import time

import pytest

from bigfleet_azure.backends.azure.kube_api import KubeApi
from bigfleet_azure.kit.clock import SystemClock
from tests.azure.kube import held
from tests.support.kube.objects import HOST, MACHINE, OTHER_VM, SWAPPED, VM_ID, node_document
from tests.support.kube.servers import STRANGER_TOKEN

pytestmark = pytest.mark.kubernetes


async def ends(waiting: asyncio.Task[None]) -> None:
    await asyncio.wait_for(waiting, 20)


async def still_waits(waiting: asyncio.Task[None]) -> None:
    await asyncio.wait((waiting,), timeout=0.5)
    assert not waiting.done()


@pytest.mark.behaviour(76)
@pytest.mark.parametrize("system_uuid", [VM_ID, SWAPPED.upper()])
async def test_a_machine_is_ready_once_its_kubelet_says_so(cluster, provider, system_uuid):
    began = time.time()
    waiting = asyncio.create_task(provider.wait_ready(began))
    await still_waits(waiting)
    cluster.put_node(node_document(system_uuid=system_uuid, ready="False", heartbeat=began))
    await still_waits(waiting)
    cluster.put_node(node_document(system_uuid=system_uuid, heartbeat=time.time()))
    await ends(waiting)


async def test_a_provider_id_in_another_case_is_the_machine_too(cluster, provider):
    named = f"azure://{HOST.replace('resourceGroups/fleet', 'resourceGroups/FLEET')}"
    cluster.put_node(node_document(system_uuid="", provider_id=named, heartbeat=time.time()))
    await ends(asyncio.create_task(provider.wait_ready(time.time() - 5)))


@pytest.mark.behaviour(77)
async def test_a_node_of_an_earlier_life_counts_only_with_a_new_heartbeat(cluster, provider):
    cluster.put_node(node_document(heartbeat=time.time() - 600))
    began = time.time() + 2
    waiting = asyncio.create_task(provider.wait_ready(began))
    await still_waits(waiting)
    cluster.put_node(node_document(heartbeat=began + 1, transition=began - 600))
    await ends(waiting)


@pytest.mark.behaviour(77)
async def test_a_node_of_another_machine_never_counts(cluster, provider):
    began = time.time()
    cluster.put_node(node_document(system_uuid=OTHER_VM, heartbeat=began + 60))
    waiting = asyncio.create_task(provider.wait_ready(began))
    await still_waits(waiting)
    cluster.servers.ask("DELETE", f"/api/v1/nodes/{MACHINE}")
    await still_waits(waiting)
    cluster.put_node(node_document(heartbeat=began + 60))
    await ends(waiting)


async def test_without_a_beginning_a_ready_node_counts_and_may_take_pods_again(cluster, provider):
    cluster.put_node(node_document(heartbeat=time.time() - 900, cordoned=True))
    await ends(asyncio.create_task(provider.wait_ready(None)))
    assert "unschedulable" not in cluster.node()["spec"]


async def test_the_deadline_is_told_what_is_lacking(cluster, provider):
    cluster.put_node(node_document(ready="False", heartbeat=time.time()))
    said = await held(provider.wait_ready(0.0, deadline=time.time() + 2))
    assert said == (
        f"{MACHINE} in cluster prod: its Node is not Ready "
        "(KubeletNotReady: cni plugin not initialized)"
    )


async def test_a_server_that_restarts_is_waited_for(cluster, provider):
    began = time.time()
    waiting = asyncio.create_task(provider.wait_ready(began))
    await still_waits(waiting)
    cluster.servers.stop_api()
    assert "does not answer" in await held(asyncio.wait_for(waiting, 20))
    assert "does not answer" in await held(provider.wait_ready(began))
    await asyncio.to_thread(cluster.servers.start_api)
    waiting = asyncio.create_task(provider.wait_ready(began))
    await still_waits(waiting)
    cluster.put_node(node_document(heartbeat=time.time()))
    await ends(waiting)


async def test_a_watch_from_a_version_long_gone_is_answered_as_one_event_without_a_version(
    cluster, provider
):
    cluster.put_node(node_document())
    api = KubeApi("prod", provider.path, SystemClock())
    events = [event async for event in api.watch_nodes("1")]
    await api.close()
    assert len(events) == 1
    assert (events[0].get("object") or {}).get("metadata", {}).get("resourceVersion") is None


async def test_users_that_are_unknown_or_may_nothing_are_held_until_the_kubeconfig_is_right(
    cluster, provider
):
    provider.write(token="nobody's")
    said = await held(provider.wait_ready(0.0))
    assert said == f"cluster prod does not know the user of {provider.path}"
    provider.write(token=STRANGER_TOKEN)
    said = await held(provider.wait_ready(0.0))
    assert said.startswith(f"cluster prod does not let the user of {provider.path} list nodes: ")
    provider.write()
    cluster.put_node(node_document(heartbeat=time.time()))
    await ends(asyncio.create_task(provider.wait_ready(0.0)))
