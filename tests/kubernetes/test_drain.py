"""Draining through the real Eviction subresource and its budgets, with the documented rights."""

import asyncio

import pytest

from bigfleet_azure.domain.errors import BackendError
from tests.azure.kube import held
from tests.kubernetes.things import BUDGETS, PODS, documented_role
from tests.support.kube.objects import MACHINE, OTHER_VM, node_document, pod_document

pytestmark = pytest.mark.kubernetes

NODES = "/api/v1/nodes"


async def happens(true) -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.1)


def cordoned(cluster) -> bool:
    return cluster.node()["spec"].get("unschedulable") is True


async def test_a_node_is_emptied_and_deleted_and_its_own_pods_are_left(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_node(node_document("another", system_uuid=OTHER_VM))
    cluster.put_pod(pod_document("web", owner="ReplicaSet"))
    cluster.put_pod(pod_document("bare"))
    cluster.put_pod(pod_document("proxy", owner="DaemonSet"))
    cluster.put_pod(pod_document("elsewhere", node="another"))
    await asyncio.wait_for(hasty.drain(), 20)
    assert cluster.names(PODS) == ["elsewhere", "proxy"]
    assert cluster.names(NODES) == ["another"]
    await hasty.drain()


async def test_a_budget_is_waited_for(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web", labels={"app": "web"}))
    cluster.put_budget("web", "web", allowed=0)
    draining = asyncio.create_task(hasty.drain(3600))
    await happens(lambda: cordoned(cluster))
    await asyncio.sleep(1)
    assert not draining.done()
    assert cluster.names(PODS) == ["web"]
    cluster.put_budget("web", "web", allowed=1)
    await asyncio.wait_for(draining, 20)
    assert cluster.names(PODS) == []
    assert cluster.names(NODES) == []


async def test_a_grace_that_is_over_ends_the_waiting_for_budgets_and_for_slow_pods(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web", labels={"app": "web"}))
    cluster.put_pod(pod_document("slow", grace_seconds=3600))
    cluster.put_budget("web", "web", allowed=0)
    draining = asyncio.create_task(hasty.drain(20))
    await happens(lambda: "deletionTimestamp" in pod(cluster, "slow")["metadata"])
    assert pod(cluster, "slow")["metadata"]["deletionGracePeriodSeconds"] <= 20
    await asyncio.wait_for(draining, 20)
    assert cluster.names(PODS) == []
    assert cluster.names(NODES) == []


def pod(cluster, name: str):
    return cluster.servers.ask("GET", f"{PODS}/{name}")


@pytest.mark.behaviour(66)
async def test_without_grace_nothing_is_waited_for(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web", labels={"app": "web"}, grace_seconds=30))
    cluster.put_budget("web", "web", allowed=0)
    await asyncio.wait_for(hasty.drain(0), 10)
    assert cluster.names(PODS) == []
    assert cluster.names(NODES) == []


async def test_two_budgets_for_one_pod_which_no_eviction_passes_end_with_the_grace(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web", labels={"app": "web"}))
    cluster.put_budget("one", "web", allowed=1)
    cluster.put_budget("two", "web", allowed=1)
    assert cluster.names(BUDGETS) == ["one", "two"]
    await asyncio.wait_for(hasty.drain(10), 20)
    assert cluster.names(PODS) == []


async def test_a_node_that_is_kept_is_cordoned_until_the_next_configure(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web"))
    await asyncio.wait_for(hasty.drain(keep_node=True), 20)
    assert cordoned(cluster)
    assert cluster.node()["metadata"].get("annotations", {}) == {}
    assert cluster.names(PODS) == []
    await hasty.uncordon()
    assert not cordoned(cluster)


async def test_a_foreign_node_of_the_same_name_keeps_its_pods(cluster, hasty):
    cluster.put_node(node_document(system_uuid=OTHER_VM))
    cluster.put_pod(pod_document("theirs"))
    await hasty.drain()
    await hasty.uncordon()
    assert cluster.names(PODS) == ["theirs"]
    assert not cordoned(cluster)


async def test_a_node_that_was_made_anew_meanwhile_is_not_deleted(cluster, hasty):
    cluster.put_node(node_document())
    cluster.put_pod(pod_document("web", grace_seconds=3600))
    draining = asyncio.create_task(hasty.drain(600))
    await happens(lambda: "deletionTimestamp" in pod(cluster, "web")["metadata"])
    cluster.servers.ask("DELETE", f"{NODES}/{MACHINE}")
    cluster.put_node(node_document())
    cluster.servers.ask("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
    assert "made anew" in await held(asyncio.wait_for(draining, 20))
    assert cluster.names(NODES) == [MACHINE]


def without(verb: str, resource: str):
    """The documented rules but for one right."""
    role, _ = documented_role()
    rules = role["rules"]
    for rule in rules:
        if resource in rule["resources"] and verb in rule["verbs"]:
            rule["verbs"].remove(verb)
    return [rule for rule in rules if rule["verbs"]]


RIGHTS = [
    (verb, resource)
    for rule in documented_role()[0]["rules"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
]


@pytest.mark.parametrize(("verb", "resource"), RIGHTS)
async def test_each_documented_right_is_needed_and_named_where_it_is_missing(
    cluster, hasty, verb, resource
):
    cluster.put_node(node_document(heartbeat=1.0))
    cluster.put_pod(pod_document("web"))
    cluster.grant(without(verb, resource))
    grace = 0 if (verb, resource) == ("delete", "pods") else 60

    async def work() -> None:
        if (verb, resource) == ("watch", "nodes"):
            await hasty.wait_ready(hasty.clock.now() + 3600)
        await hasty.wait_ready(None)
        await hasty.drain(grace)

    async def refused() -> str:
        try:
            await asyncio.wait_for(work(), 2)
        except TimeoutError:
            return ""
        except BackendError as error:
            return str(error)
        cluster.put_node(node_document(heartbeat=1.0))
        if "web" not in cluster.names(PODS):
            cluster.put_pod(pod_document("web"))
        return ""

    # RBAC takes a moment to hear of a change.
    async with asyncio.timeout(20):
        while not (said := await refused()):
            pass
    assert f"does not let the user of {hasty.path} {verb} {resource}: " in said
    assert 'User "bigfleet-azure" cannot' in said
    cluster.grant()


def test_the_rights_are_those_that_the_code_asks_for():
    assert sorted(f"{verb} {resource}" for verb, resource in RIGHTS) == [
        "create pods/eviction",
        "delete nodes",
        "delete pods",
        "get nodes",
        "list nodes",
        "list pods",
        "patch nodes",
        "watch nodes",
    ]
