"""What every Backend owes the service, whatever stands behind it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from bigfleet_azure.backends.base import Assignment, Condition
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.secret import Secret
from tests.backends.harness import Harness, offer, work

BLOB = Secret(b"join-token")
VM = "azure-eastus-spot-f8s-v2-1-000"


async def created(harness: Harness, machine: str = VM, **fields: Any) -> str:
    host = await harness.run(harness.backend.create(work(machine, "op-a-1", **fields)))
    return host.ref


def bound_work(operation: str, host: str, cluster: str = "blue", **fields: Any) -> Assignment:
    return work(VM, operation, created_by="op-a-1", host=host, cluster=cluster, **fields)


async def configured(harness: Harness, operation: str = "op-a-2") -> Assignment:
    asked = bound_work(operation, await created(harness))
    await harness.run(harness.backend.configure(asked, BLOB))
    await harness.run(harness.backend.wait_ready(asked))
    return asked


def debt(machine: str = VM, host: str = "", parts: str = "") -> Debt:
    return Debt(
        number=7,
        slot=1,
        machine_id=machine,
        operation=1,
        host=host,
        parts=parts,
        reason="test",
        since=0.0,
    )


async def condition_of(harness: Harness, host: str) -> Condition:
    return (await harness.backend.inspect(VM, host)).condition


# Create


async def test_a_created_machine_runs_and_is_tagged_with_its_operation(harness: Harness) -> None:
    host = await created(harness)
    seen = await harness.backend.inspect(VM, host)
    assert (seen.machine_id, seen.host, seen.condition) == (VM, host, Condition.RUNNING)
    assert (seen.operation_id, seen.cluster) == ("op-a-1", "")


async def test_the_host_reference_is_an_arm_id_that_ends_in_the_machine_id(
    harness: Harness,
) -> None:
    host = await created(harness)
    assert host.startswith("/subscriptions/")
    assert host.endswith(f"/providers/Microsoft.Compute/virtualMachines/{VM}")


async def test_create_again_adopts_what_the_operation_has_made(harness: Harness) -> None:
    first = await created(harness)
    assert await created(harness, resumed=True) == first
    assert len(await harness.backend.inventory()) == 1


@pytest.mark.behaviour(35)
async def test_parallel_creates_of_one_operation_make_one_machine(harness: Harness) -> None:
    async def all_at_once() -> set[str]:
        calls = (harness.backend.create(work(VM, "op-a-1")) for _ in range(16))
        return {host.ref for host in await asyncio.gather(*calls)}

    assert len(await harness.run(all_at_once())) == 1
    assert len(await harness.backend.inventory()) == 1


@pytest.mark.behaviour(80)
async def test_a_create_cut_off_by_a_restart_is_finished_by_calling_it_again(
    harness: Harness,
) -> None:
    task = asyncio.ensure_future(harness.backend.create(work(VM, "op-a-1")))
    await harness.begun()
    task.cancel()
    await harness.restart()
    host = await created(harness, resumed=True)
    assert await condition_of(harness, host) is Condition.RUNNING
    assert len(await harness.backend.inventory()) == 1


async def test_a_machine_of_another_operation_is_never_adopted(harness: Harness) -> None:
    host = await created(harness)
    with pytest.raises(BackendError) as caught:
        await harness.run(harness.backend.create(work(VM, "op-a-9")))
    assert caught.value.kind is FailureKind.CONFLICT
    assert (await harness.backend.inspect(VM, host)).operation_id == "op-a-1"


async def test_a_name_that_is_just_being_given_back_is_waited_for(harness: Harness) -> None:
    host = await created(harness)
    deleting = asyncio.ensure_future(harness.backend.delete(bound_work("op-a-2", host)))
    await harness.begun()
    with suppress(BackendError) if harness.patient else pytest.raises(BackendError) as caught:
        await harness.run(harness.backend.create(work(VM, "op-a-3")))
    assert caught is None or caught.value.kind is FailureKind.TRANSIENT
    await harness.run(asyncio.wait_for(deleting, None))
    again = await harness.run(harness.backend.create(work(VM, "op-a-3", resumed=True)))
    assert (await harness.backend.inspect(VM, again.ref)).operation_id == "op-a-3"


@pytest.mark.parametrize("how", ["stopped", "failed", "removed"])
async def test_a_machine_lost_while_it_is_created_fails_its_create(
    harness: Harness, how: str
) -> None:
    if how not in harness.lost_while_created:
        pytest.skip("this substrate shows no such loss before the machine is made")
    task = asyncio.ensure_future(harness.backend.create(work(VM, "op-a-1")))
    await harness.begun()
    harness.lose(VM, how)
    await harness.pass_time(5)
    with pytest.raises(BackendError, match=VM) as caught:
        await task
    assert caught.value.kind in (FailureKind.GONE, FailureKind.TRANSIENT)


# Configure and readiness


@pytest.mark.behaviour(76)
async def test_a_configured_machine_is_ready_in_its_cluster_only_some_time_after_the_blob(
    harness: Harness,
) -> None:
    asked = bound_work("op-a-2", await created(harness))
    await harness.run(harness.backend.configure(asked, BLOB))
    ready = asyncio.ensure_future(harness.backend.wait_ready(asked))
    await harness.pass_time(0)
    assert not ready.done()
    await harness.pass_time(5)
    await ready
    assert (await harness.backend.inspect(VM, asked.host)).cluster == "blue"


async def test_configure_again_changes_nothing(harness: Harness) -> None:
    asked = await configured(harness)
    await harness.run(harness.backend.configure(asked, BLOB))
    await harness.run(harness.backend.wait_ready(asked))


async def test_a_configure_cut_off_by_a_restart_is_finished_by_calling_it_again(
    harness: Harness,
) -> None:
    asked = bound_work("op-a-2", await created(harness))
    task = asyncio.ensure_future(harness.backend.configure(asked, BLOB))
    await harness.begun()
    task.cancel()
    await harness.restart()
    await harness.run(harness.backend.configure(asked, BLOB))
    await harness.run(harness.backend.wait_ready(asked))
    assert (await harness.backend.inspect(VM, asked.host)).cluster == "blue"


@pytest.mark.behaviour(76)
async def test_the_node_of_an_earlier_binding_does_not_count_as_ready(harness: Harness) -> None:
    first = await configured(harness)
    await harness.run(harness.backend.drain(bound_work("op-a-3", first.host, grace_seconds=30)))
    second = bound_work("op-a-4", first.host)
    await harness.run(harness.backend.configure(second, BLOB))
    await harness.run(harness.backend.wait_ready(second))
    with pytest.raises(BackendError) as caught:
        await harness.run(harness.backend.wait_ready(first))
    assert caught.value.kind is FailureKind.GONE


async def test_a_machine_bound_by_another_operation_is_not_bound_again(harness: Harness) -> None:
    first = await configured(harness)
    with pytest.raises(BackendError) as caught:
        await harness.run(
            harness.backend.configure(bound_work("op-a-3", first.host, "green"), BLOB)
        )
    assert caught.value.kind is FailureKind.CONFLICT
    assert (await harness.backend.inspect(VM, first.host)).cluster == "blue"


@pytest.mark.behaviour(62)
async def test_configure_and_drain_of_a_machine_that_is_gone_say_so(harness: Harness) -> None:
    host = await created(harness)
    harness.lose(VM, "removed")
    for call in (
        harness.backend.configure(bound_work("op-a-2", host), BLOB),
        harness.backend.drain(bound_work("op-a-3", host)),
        harness.backend.wait_ready(bound_work("op-a-2", host)),
    ):
        with pytest.raises(BackendError, match=VM) as caught:
            await harness.run(call)
        assert caught.value.kind is FailureKind.GONE


async def test_the_next_life_of_a_name_is_not_mistaken_for_the_machine(harness: Harness) -> None:
    host = await created(harness)
    stale = work(VM, "op-a-5", created_by="op-a-0", host=host, cluster="blue")
    with pytest.raises(BackendError) as caught:
        await harness.run(harness.backend.configure(stale, BLOB))
    assert caught.value.kind is FailureKind.GONE
    await harness.run(harness.backend.delete(stale))
    assert await condition_of(harness, host) is Condition.RUNNING


@pytest.mark.behaviour(76)
@pytest.mark.parametrize("how", ["evicted", "stopped", "failed", "removed"])
async def test_waiting_for_a_node_ends_when_its_machine_is_lost(harness: Harness, how: str) -> None:
    if how not in harness.lost_while_watched:
        pytest.skip("a machine whose last update failed works on here (field case A7)")
    asked = bound_work("op-a-2", await created(harness, offer=offer(CapacityType.SPOT)))
    await harness.run(harness.backend.configure(asked, BLOB))
    ready = asyncio.ensure_future(harness.backend.wait_ready(asked))
    await harness.pass_time(0)
    harness.lose(VM, how)
    await harness.pass_time(5)
    with pytest.raises(BackendError) as caught:
        await ready
    assert caught.value.kind is FailureKind.GONE


# Drain


async def test_a_drained_machine_runs_on_without_a_cluster(harness: Harness) -> None:
    asked = await configured(harness)
    drain = bound_work("op-a-3", asked.host, grace_seconds=30)
    await harness.run(harness.backend.drain(drain))
    seen = await harness.backend.inspect(VM, asked.host)
    assert (seen.condition, seen.cluster) == (Condition.RUNNING, "")
    await harness.run(harness.backend.drain(drain))


@pytest.mark.behaviour(66)
async def test_a_drain_without_grace_ends(harness: Harness) -> None:
    asked = await configured(harness)
    await harness.run(harness.backend.drain(bound_work("op-a-3", asked.host, grace_seconds=0)))
    assert (await harness.backend.inspect(VM, asked.host)).cluster == ""


async def test_a_drain_cut_off_by_a_restart_is_finished_by_calling_it_again(
    harness: Harness,
) -> None:
    asked = await configured(harness)
    drain = bound_work("op-a-3", asked.host, grace_seconds=30)
    task = asyncio.ensure_future(harness.backend.drain(drain))
    await harness.begun()
    task.cancel()
    await harness.restart()
    await harness.run(harness.backend.drain(drain))
    assert (await harness.backend.inspect(VM, asked.host)).cluster == ""


# Delete and reclaim


async def test_a_deleted_machine_is_gone_and_deleting_it_again_is_success(
    harness: Harness,
) -> None:
    host = await created(harness)
    for _ in range(2):
        await harness.run(harness.backend.delete(bound_work("op-a-2", host)))
        assert await condition_of(harness, host) is Condition.GONE
    assert list(await harness.backend.inventory()) == []


async def test_a_delete_cut_off_by_a_restart_is_finished_by_calling_it_again(
    harness: Harness,
) -> None:
    host = await created(harness)
    task = asyncio.ensure_future(harness.backend.delete(bound_work("op-a-2", host)))
    await harness.begun()
    task.cancel()
    await harness.restart()
    await harness.run(harness.backend.delete(bound_work("op-a-2", host)))
    assert await condition_of(harness, host) is Condition.GONE


async def test_a_name_can_live_again_under_a_new_operation(harness: Harness) -> None:
    host = await created(harness)
    await harness.run(harness.backend.delete(bound_work("op-a-2", host)))
    again = await harness.run(harness.backend.create(work(VM, "op-a-3")))
    assert (await harness.backend.inspect(VM, again.ref)).operation_id == "op-a-3"


@pytest.mark.behaviour(64)
async def test_reclaim_removes_what_the_operation_made(harness: Harness) -> None:
    host = await created(harness)
    await harness.run(harness.backend.reclaim(debt(), "op-a-1"))
    assert await condition_of(harness, host) is Condition.GONE
    await harness.run(harness.backend.reclaim(debt(), "op-a-1"))


@pytest.mark.behaviour(64)
async def test_reclaim_leaves_what_another_operation_made(harness: Harness) -> None:
    host = await created(harness)
    await harness.run(harness.backend.reclaim(debt(host=host), "op-a-0"))
    assert await condition_of(harness, host) is Condition.RUNNING


@pytest.mark.behaviour(73)
async def test_reclaim_without_an_operation_goes_by_the_host(harness: Harness) -> None:
    host = await created(harness)
    await harness.run(harness.backend.reclaim(debt(), ""))
    assert await condition_of(harness, host) is Condition.RUNNING
    [found] = await harness.backend.inventory()
    await harness.run(harness.backend.reclaim(debt(host=host, parts=found.parts), ""))
    assert await condition_of(harness, host) is Condition.GONE


# Looking


@pytest.mark.behaviour(70, 71, 72)
@pytest.mark.parametrize(
    ("how", "condition"),
    [
        ("evicted", Condition.EVICTED),
        ("stopped", Condition.STOPPED),
        ("failed", Condition.FAILED),
        ("removed", Condition.GONE),
    ],
)
async def test_a_loss_is_seen_by_inspect_and_inventory_and_outlives_a_restart(
    harness: Harness, how: str, condition: Condition
) -> None:
    # Azure shows an eviction as a deallocated Spot machine, and nothing else does.
    capacity = CapacityType.SPOT if how == "evicted" else CapacityType.ON_DEMAND
    host = await created(harness, offer=offer(capacity))
    harness.lose(VM, how)
    for _ in range(2):
        seen = await harness.backend.inspect(VM, host)
        assert seen.condition is condition
        assert seen.detail
        listed = [found.condition for found in await harness.backend.inventory()]
        assert listed == ([] if condition is Condition.GONE else [condition])
        await harness.restart()


async def test_the_inventory_shows_every_machine_with_its_tags(harness: Harness) -> None:
    asked = await configured(harness)
    other = f"{VM[:-1]}1"
    await harness.run(harness.backend.create(work(other, "op-a-8")))
    seen = {found.machine_id: found for found in await harness.backend.inventory()}
    assert seen.keys() == {VM, other}
    assert (seen[VM].operation_id, seen[VM].cluster, seen[VM].host) == (
        "op-a-1",
        "blue",
        asked.host,
    )
    assert (seen[other].operation_id, seen[other].cluster) == ("op-a-8", "")


async def test_everything_is_found_again_after_a_restart(harness: Harness) -> None:
    asked = await configured(harness)
    before = await harness.backend.inventory()
    await harness.restart()
    assert await harness.backend.inventory() == before
    await harness.run(harness.backend.wait_ready(asked))


# Facts and limits


@pytest.mark.behaviour(50, 51)
@pytest.mark.parametrize("capacity", CapacityType)
async def test_published_facts_keep_the_rules_of_every_record(
    harness: Harness, capacity: CapacityType
) -> None:
    facts = harness.backend.facts(offer(capacity))
    assert facts.price_usd_per_hour > 0
    assert 0 <= facts.interruption_probability <= 1
    assert (facts.interruption_probability > 0) == (capacity is CapacityType.SPOT)
    assert facts.allocatable.keys() >= {"cpu", "memory", "ephemeral-storage", "pods"}
    assert facts.labels.keys() >= {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "bigfleet.io/capacity",
    }


async def test_facts_of_what_is_no_size_are_refused(harness: Harness) -> None:
    with pytest.raises(BackendError, match=r"m5\.large") as caught:
        harness.backend.facts(offer(size="m5.large"))
    assert caught.value.kind is FailureKind.INVALID


async def test_blobs_of_128_kib_can_be_delivered(harness: Harness) -> None:
    assert harness.backend.max_blob_bytes >= 128 * 1024
    assert harness.backend.name
