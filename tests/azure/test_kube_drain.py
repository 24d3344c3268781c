"""Emptying a Node, over an API server that misbehaves to order."""

import asyncio

import pytest

from bigfleet_azure.backends.azure.kube_objects import DRAIN_ENDS, stamp
from bigfleet_azure.backends.azure.kubernetes import Clusters
from tests.azure.kube import Rig, held, rig, until
from tests.support.kube.objects import HOST, MACHINE, OTHER_VM, node_document, pod_document

EVICT = "POST /api/v1/namespaces/default/pods"


@pytest.fixture
async def kube(tmp_path):
    async with rig(tmp_path) as made:
        made.fake.put_node(node_document())
        yield made


def ended(fake) -> bool:
    return MACHINE not in fake.nodes


async def begun(kube: Rig, drain: asyncio.Task[None]) -> None:
    await until(lambda: drain.done() or kube.fake.count("GET /api/v1/pods"))
    assert not drain.done()


async def test_pods_are_evicted_from_a_cordoned_node_that_is_deleted_then(kube):
    kube.fake.put_pod(pod_document("a"))
    kube.fake.put_pod(pod_document("b", owner="ReplicaSet"))
    kube.fake.put_pod(pod_document("elsewhere", node="another"))
    await kube.drain()
    assert list(kube.fake.pods) == ["elsewhere"]
    assert ended(kube.fake)
    order = [call.split(" ")[0] for call in kube.fake.calls]
    assert order == ["GET", "PATCH", "GET", "POST", "POST", "GET", "DELETE"]


async def test_pods_of_the_node_itself_stay_and_hold_nothing_up(kube):
    kube.fake.put_pod(pod_document("proxy", owner="DaemonSet"))
    kube.fake.put_pod(pod_document("static", mirror=True))
    done = kube.fake.put_pod(pod_document("done", owner="Job"))
    done["status"]["phase"] = "Succeeded"
    await kube.drain()
    assert sorted(kube.fake.pods) == ["done", "proxy", "static"]
    assert ended(kube.fake)


async def test_a_pod_that_its_budget_protects_is_asked_again_until_it_may_go(kube):
    kube.fake.put_pod(pod_document("protected"))
    kube.fake.blocked.add("protected")
    draining = asyncio.create_task(kube.drain(600))
    await until(lambda: kube.fake.count(EVICT) >= 3)
    assert not ended(kube.fake)
    kube.fake.blocked.clear()
    await asyncio.wait_for(draining, 5)
    assert ended(kube.fake)
    assert kube.fake.deletions == {}


async def test_what_is_left_when_the_grace_is_over_is_deleted_without_more_time(kube, caplog):
    kube.fake.put_pod(pod_document("protected"))
    kube.fake.put_pod(pod_document("slow", grace_seconds=3600))
    kube.fake.blocked.add("protected")
    kube.fake.lingering.add("slow")
    began = kube.clock.now()
    await kube.drain(20)
    assert kube.clock.now() - began >= 19
    assert {body["gracePeriodSeconds"] for body in kube.fake.deletions.values()} == {0}
    assert set(kube.fake.deletions) == {"protected", "slow"}
    assert ended(kube.fake)
    assert "the grace is over" in caplog.text


async def test_no_pod_is_given_more_time_than_the_grace_has_left(kube):
    kube.fake.put_pod(pod_document("slow", grace_seconds=3600))
    kube.fake.put_pod(pod_document("quick", grace_seconds=5))
    await kube.drain(600)
    given = {
        body["metadata"]["name"]: body["deleteOptions"].get("gracePeriodSeconds")
        for body in kube.fake.evictions
    }
    assert given["quick"] is None
    assert 0 <= given["slow"] <= 600


async def test_a_pod_that_is_leaving_is_waited_for_and_not_evicted_twice(kube):
    kube.fake.put_pod(pod_document("slow"))
    kube.fake.lingering.add("slow")
    draining = asyncio.create_task(kube.drain(600))
    await until(lambda: kube.fake.count("GET /api/v1/pods") >= 4)
    assert len(kube.fake.evictions) == 1
    assert not ended(kube.fake)
    del kube.fake.pods["slow"]
    await asyncio.wait_for(draining, 5)


@pytest.mark.behaviour(66)
async def test_without_grace_pods_are_deleted_at_once(kube):
    kube.fake.put_pod(pod_document("protected"))
    kube.fake.blocked.add("protected")
    await kube.drain(0)
    assert set(kube.fake.deletions) == {"protected"}
    assert ended(kube.fake)
    assert kube.fake.count(EVICT) == 0


async def test_a_node_that_is_kept_stays_cordoned_and_is_uncordoned_later(kube):
    kube.fake.put_pod(pod_document("a"))
    await kube.drain(keep_node=True)
    node = kube.fake.nodes[MACHINE]
    assert node["spec"] == {"unschedulable": True}
    assert node["metadata"]["annotations"] == {}
    assert kube.fake.pods == {}
    await kube.uncordon()
    assert kube.fake.nodes[MACHINE]["spec"] == {}


async def test_uncordoning_what_is_not_cordoned_writes_nothing(kube):
    await kube.uncordon()
    assert kube.fake.count("PATCH") == 0


async def test_a_foreign_node_and_its_pods_are_left_alone(kube):
    kube.fake.drop_node(MACHINE)
    kube.fake.put_node(node_document(system_uuid=OTHER_VM, cordoned=True))
    kube.fake.put_pod(pod_document("theirs"))
    await kube.drain()
    await kube.uncordon()
    assert kube.fake.count("GET") == len(kube.fake.calls)


async def test_a_node_that_its_provider_id_names_is_drained(kube):
    kube.fake.drop_node(MACHINE)
    kube.fake.put_node(node_document(system_uuid="", provider_id=f"azure://{HOST}".upper()))
    await kube.drain()
    assert ended(kube.fake)


async def test_no_node_is_nothing_to_drain(kube):
    kube.fake.drop_node(MACHINE)
    await kube.drain()
    await kube.uncordon()
    assert len(kube.fake.calls) == 2


async def test_a_drain_that_is_called_again_does_not_begin_its_grace_anew(tmp_path, kube):
    kube.fake.put_pod(pod_document("protected"))
    kube.fake.blocked.add("protected")
    began = kube.clock.now()
    draining = asyncio.create_task(kube.drain(200))
    await begun(kube, draining)
    draining.cancel()
    await kube.clock.sleep(100)
    restarted = Clusters(tmp_path, kube.clock)
    how = {"vm_id": "0f7f4c1a-9d2e-4b6c-8a31-5e0c7b9d2f44", "host": HOST}
    await restarted.drain("prod", MACHINE, grace_seconds=200, keep_node=False, **how)
    assert kube.clock.now() - began >= 195
    assert kube.fake.count("PATCH") == 1
    await restarted.close()


async def test_the_end_of_an_earlier_drain_does_not_count_once_the_node_was_uncordoned(kube):
    past = {DRAIN_ENDS: stamp(kube.clock.now() - 3600)}
    kube.fake.put_node(node_document(annotations=past))
    kube.fake.put_pod(pod_document("protected"))
    kube.fake.blocked.add("protected")
    draining = asyncio.create_task(kube.drain(600))
    await begun(kube, draining)
    await until(lambda: kube.fake.count(EVICT) >= 2)
    assert kube.fake.deletions == {}
    draining.cancel()


async def test_a_node_that_was_made_anew_meanwhile_is_not_deleted(kube):
    kube.fake.put_pod(pod_document("a"))
    kube.fake.lingering.add("a")
    draining = asyncio.create_task(kube.drain(600))
    await begun(kube, draining)
    kube.fake.drop_node(MACHINE)
    kube.fake.put_node(node_document())
    kube.fake.pods.clear()
    assert "was made anew while it was drained" in await held(asyncio.wait_for(draining, 5))
    assert MACHINE in kube.fake.nodes


async def test_a_node_that_goes_away_before_it_is_cordoned_is_drained(kube):
    def gone(call: str) -> None:
        if call.startswith("PATCH"):
            kube.fake.nodes.pop(MACHINE, None)

    kube.fake.seen = gone
    await kube.drain()
    assert kube.fake.count("GET /api/v1/pods") == 0


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ("GET /api/v1/nodes", "get nodes"),
        ("PATCH /api/v1/nodes", "patch nodes"),
        ("DELETE /api/v1/nodes", "delete nodes"),
        ("GET /api/v1/pods", "list pods"),
        (EVICT, "create pods/eviction"),
    ],
)
async def test_a_right_that_is_missing_is_named_and_the_drain_goes_on_once_it_is_there(
    kube, call, right
):
    kube.fake.put_pod(pod_document("a"))
    refused = kube.fake.refuse(call, 403, 'User "me" cannot do that to the resource')
    said = await held(kube.drain())
    assert said.startswith(f"cluster prod does not let the user of {kube.path} {right}: ")
    refused.times = 0
    await kube.drain()
    assert ended(kube.fake)


async def test_the_right_to_delete_pods_is_needed_only_for_what_the_grace_leaves(kube):
    kube.fake.refuse("DELETE /api/v1/namespaces", 403, 'User "me" cannot delete pods')
    kube.fake.put_pod(pod_document("a"))
    await kube.drain()
    kube.fake.put_node(node_document())
    kube.fake.put_pod(pod_document("a"))
    assert "delete pods" in await held(kube.drain(0))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Too many requests, please try again later."),
        (500, "This pod has more than one PodDisruptionBudget, which is not supported."),
        (403, 'admission webhook "guard" denied the request'),
        (403, "unable to create new content in namespace x because it is being terminated"),
    ],
)
async def test_a_pod_that_is_refused_by_itself_is_tried_until_the_grace_is_over(
    kube, status, message
):
    kube.fake.put_pod(pod_document("a"))
    kube.fake.refuse(EVICT, status, message)
    await kube.drain(60)
    assert kube.fake.count(EVICT) >= 3
    assert set(kube.fake.deletions) == {"a"}


async def test_a_pod_that_was_made_anew_is_evicted_by_its_own_id(kube):
    kube.fake.put_pod(pod_document("a"))
    kube.fake.refuse(EVICT, 409, "uid mismatch", times=1)
    await kube.drain()
    assert kube.fake.evictions[0]["deleteOptions"]["preconditions"]["uid"]
    assert kube.fake.count(EVICT) == 2


async def test_a_server_that_goes_away_in_the_middle_holds_the_drain(kube):
    kube.fake.put_pod(pod_document("a"))
    kube.fake.blocked.add("a")
    draining = asyncio.create_task(kube.drain(600))
    await begun(kube, draining)
    kube.fake.refuse("GET /api/v1/pods", 503, "away", times=1)
    assert "answers 503 to list pods: away" in await held(asyncio.wait_for(draining, 5))
    kube.fake.blocked.clear()
    await kube.drain(600)
    assert ended(kube.fake)
