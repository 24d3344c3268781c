"""Waiting for a Node, over an API server that misbehaves to order."""

import asyncio
import logging

import pytest

from bigfleet_azure.domain.errors import BackendError, FailureKind
from tests.azure.kube import held, rig, until
from tests.support.kube.fake import FakeCluster
from tests.support.kube.objects import MACHINE, OTHER_VM, SWAPPED, VM_ID, node_document


@pytest.fixture
async def kube(tmp_path):
    async with rig(tmp_path) as made:
        yield made


async def watching(kube, task):
    """Let the task get as far as its watch."""
    before = kube.fake.watches
    await until(lambda: task.done() or kube.fake.watches > before)
    assert not task.done()


@pytest.mark.behaviour(76)
async def test_a_machine_is_waited_for_until_its_node_is_ready(kube):
    waiting = asyncio.create_task(kube.wait_ready(since=kube.clock.now()))
    await watching(kube, waiting)
    kube.fake.put_node(node_document(ready="False", heartbeat=kube.clock.now()))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    kube.fake.put_node(node_document(heartbeat=kube.clock.now() + 1))
    await asyncio.wait_for(waiting, 5)
    assert kube.fake.count("GET /api/v1/nodes") == 2


async def test_a_node_that_is_there_already_is_seen_by_the_list(kube):
    kube.fake.put_node(node_document(system_uuid=SWAPPED, heartbeat=kube.clock.now()))
    await asyncio.wait_for(kube.wait_ready(), 5)


@pytest.mark.behaviour(77)
async def test_foreign_and_earlier_nodes_of_its_name_do_not_count_until_its_own_comes(kube):
    began = kube.clock.now()
    kube.fake.put_node(node_document(heartbeat=began - 60))
    waiting = asyncio.create_task(kube.wait_ready(since=began))
    await watching(kube, waiting)
    kube.fake.drop_node(MACHINE)
    kube.fake.put_node(node_document(system_uuid=OTHER_VM, heartbeat=began + 60))
    kube.fake.put_node(node_document("another", heartbeat=began + 60))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    kube.fake.drop_node(MACHINE)
    kube.fake.put_node(node_document(heartbeat=began + 60))
    await asyncio.wait_for(waiting, 5)


async def test_machines_that_wait_in_one_cluster_share_one_watch(kube):
    began = kube.clock.now()
    names = [f"machine-{n:04}" for n in range(500)]
    waiting = [asyncio.create_task(kube.wait_ready(began, machine=name)) for name in names]
    await watching(kube, waiting[0])
    for name in names:
        kube.fake.put_node(node_document(name, heartbeat=began + 1))
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert kube.fake.count("GET") == 2


async def test_a_list_of_many_pages_is_read_to_its_end(kube):
    for n in range(450):
        kube.fake.put_node(node_document(f"zzz-{n:04}" if n else MACHINE, heartbeat=1))
    kube.fake.put_node(node_document("zzzz", heartbeat=kube.clock.now()))
    await asyncio.wait_for(kube.wait_ready(machine="zzzz"), 5)
    assert kube.fake.count("GET /api/v1/nodes") >= 3


async def test_who_comes_later_joins_the_watch_that_runs(kube):
    first = asyncio.create_task(kube.wait_ready())
    await watching(kube, first)
    kube.fake.put_node(node_document("second", heartbeat=kube.clock.now()))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(kube.wait_ready(machine="second"), 5)
    assert kube.fake.count("GET /api/v1/nodes") == 2
    first.cancel()


async def test_a_node_that_went_away_is_not_ready_for_who_comes_later(kube):
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    other = asyncio.create_task(kube.wait_ready(machine="other"))
    await watching(kube, other)
    kube.fake.drop_node(MACHINE)
    await asyncio.sleep(0.05)
    said = await held(kube.wait_ready(deadline=kube.clock.now() + 5))
    assert said.endswith("there is no Node of its name")
    other.cancel()


async def test_a_watch_that_breaks_off_is_taken_up_where_it_was(kube):
    waiting = asyncio.create_task(kube.wait_ready())
    await watching(kube, waiting)
    kube.fake.break_watches()
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    await asyncio.wait_for(waiting, 5)
    assert kube.fake.watches == 2
    assert kube.fake.count("GET /api/v1/nodes") == 3


async def test_a_quiet_watch_that_breaks_off_goes_on_from_its_last_bookmark(kube):
    waiting = asyncio.create_task(kube.wait_ready())
    await watching(kube, waiting)
    kube.fake.forget()
    kube.fake.bookmark()
    kube.fake.break_watches()
    await until(lambda: kube.fake.watches == 2)
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    await asyncio.wait_for(waiting, 5)
    assert kube.fake.count("GET /api/v1/nodes") == 3


async def test_all_nodes_are_listed_again_when_a_watch_missed_too_much(kube):
    waiting = asyncio.create_task(kube.wait_ready())
    await watching(kube, waiting)
    kube.fake.put_node(node_document(heartbeat=kube.clock.now(), ready="False"))
    kube.fake.nodes[MACHINE] |= node_document(heartbeat=kube.clock.now())  # told to nobody
    kube.fake.nodes[MACHINE]["metadata"] |= {
        "uid": "u",
        "creationTimestamp": "",
        "resourceVersion": "99",
    }
    kube.fake.forget()
    kube.fake.break_watches()
    await asyncio.wait_for(waiting, 5)
    assert kube.fake.count("GET /api/v1/nodes") >= 4


async def test_a_server_that_is_away_holds_the_operation_and_is_found_again(tmp_path, kube):
    async with FakeCluster().serve() as gone:
        kube.write(gone)
    assert f"cluster prod does not answer (Cannot connect to host {gone.url[7:]}" in await held(
        kube.wait_ready()
    )
    kube.write(kube.fake)
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    await asyncio.wait_for(kube.wait_ready(), 5)


async def test_everybody_who_waits_is_told_of_a_server_that_goes_away(kube):
    waiting = [asyncio.create_task(kube.wait_ready(machine=f"m-{n}")) for n in range(5)]
    await watching(kube, waiting[0])
    kube.fake.refuse("GET /api/v1/nodes", 503, "apiserver is shutting down")
    kube.fake.break_watches()
    for each in waiting:
        said = await held(asyncio.wait_for(each, 5))
        assert said == "cluster prod answers 503 to watch nodes: apiserver is shutting down"


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (401, "Unauthorized", "cluster prod does not know the user of {path}"),
        (
            403,
            'nodes is forbidden: User "me" cannot list resource "nodes"',
            "cluster prod does not let the user of {path} list nodes: nodes is forbidden: "
            'User "me" cannot list resource "nodes"',
        ),
        (429, "slow down", "cluster prod answers 429 to list nodes: slow down"),
        (500, "etcd is away", "cluster prod answers 500 to list nodes: etcd is away"),
    ],
)
async def test_a_refusal_is_held_with_what_is_to_be_done(kube, status, message, said):
    kube.fake.refuse("GET /api/v1/nodes", status, message)
    assert await held(kube.wait_ready()) == said.format(path=kube.path)


async def test_an_answer_that_is_no_json_is_held(kube):
    kube.fake.refuse("GET /api/v1/nodes", 502, ["<html>bad gateway</html>"])
    assert "answers 502 to list nodes" in await held(kube.wait_ready())


async def test_shortly_before_its_deadline_an_operation_is_told_what_is_lacking(kube):
    kube.fake.put_node(node_document(system_uuid=OTHER_VM))
    deadline = kube.clock.now() + 20
    said = await held(kube.wait_ready(deadline=deadline))
    assert said == (
        f"{MACHINE} in cluster prod: the Node of its name is another machine "
        f"(systemUUID {OTHER_VM}, providerID none; the VM is {VM_ID})"
    )
    assert kube.clock.now() >= deadline - 2


async def test_a_look_is_taken_even_after_the_deadline(kube):
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    await asyncio.wait_for(kube.wait_ready(deadline=kube.clock.now() - 60), 5)


async def test_a_wait_that_is_cancelled_leaves_the_others_waiting(kube):
    first, second = (asyncio.create_task(kube.wait_ready()) for _ in range(2))
    await watching(kube, first)
    first.cancel()
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    await asyncio.wait_for(second, 5)
    assert first.cancelled()


async def test_without_a_beginning_a_ready_node_counts_and_is_uncordoned(kube):
    kube.fake.put_node(node_document(heartbeat=1.0, cordoned=True))
    await asyncio.wait_for(kube.wait_ready(since=None), 5)
    assert "unschedulable" not in kube.fake.nodes[MACHINE]["spec"]


async def test_a_new_kubeconfig_is_used_while_machines_wait(kube):
    waiting = asyncio.create_task(kube.wait_ready())
    await watching(kube, waiting)
    async with FakeCluster(token="another").serve() as moved:
        moved.put_node(node_document(heartbeat=kube.clock.now()))
        kube.write(moved)
        await asyncio.wait_for(waiting, 5)


async def test_a_new_kubeconfig_is_used_by_the_next_call(kube):
    await kube.uncordon()
    kube.fake.token = "rotated"
    assert "does not know the user" in await held(kube.uncordon())
    kube.write(kube.fake)
    await kube.uncordon()


async def test_a_rotated_token_file_is_used_by_the_next_call(tmp_path, kube):
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    kube.fake.token = "first"
    kube.write(kube.fake, tokenFile="token")
    await kube.uncordon()
    kube.fake.token = "second-one"
    (tmp_path / "token").write_text("second-one\n", encoding="utf-8")
    await kube.uncordon()


async def test_a_missing_kubeconfig_holds_and_names_itself(kube):
    kube.path.unlink()
    said = f"there is no kubeconfig {kube.path} for cluster prod"
    assert kube.clusters.fault("prod") == said
    assert await held(kube.wait_ready()) == said
    kube.write(kube.fake)
    assert kube.clusters.fault("prod") == ""
    await kube.uncordon()
    kube.path.unlink()
    assert str(kube.path) in await held(kube.wait_ready())


async def test_a_kubeconfig_that_goes_away_holds_those_who_wait(kube):
    waiting = asyncio.create_task(kube.wait_ready())
    await watching(kube, waiting)
    kube.path.unlink()
    assert f"{kube.path} cannot be read" in await held(asyncio.wait_for(waiting, 5))


async def test_a_cluster_whose_id_is_no_file_name_is_refused_for_good(kube):
    for name in ("../prod", "", ".prod", "a/b"):
        with pytest.raises(BackendError, match="no plain file name") as caught:
            await kube.wait_ready(cluster=name)
        assert caught.value.kind is FailureKind.INVALID
        assert "no plain file name" in kube.clusters.fault(name)


async def test_a_kubeconfig_with_broken_certificates_holds(kube):
    kube.write(kube.fake, **{"client-certificate-data": "YWJj", "client-key-data": "YWJj"})
    kube.path.write_text(kube.path.read_text().replace("http:", "https:"), encoding="utf-8")
    assert "its parts do not fit" in await held(kube.wait_ready())


async def test_neither_tokens_nor_bodies_are_logged(kube, caplog):
    caplog.set_level(logging.DEBUG)
    kube.fake.put_node(node_document(heartbeat=kube.clock.now()))
    pod_secret = "hunter2-in-a-pod"
    kube.fake.nodes[MACHINE]["metadata"]["annotations"]["x"] = pod_secret
    await kube.wait_ready()
    await kube.drain(0)
    assert kube.fake.token not in caplog.text
    assert pod_secret not in caplog.text
