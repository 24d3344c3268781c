"""Hosts and parts that no machine has: adopted, removed after a grace, or left and shown."""

import asyncio
from dataclasses import replace

import pytest

from bigfleet_azure.backends.base import Condition, Observation
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.strays import GRACE_SECONDS
from tests.support.rig import (
    EPOCH,
    RetainingStore,
    Rig,
    ScriptedBackend,
    ScriptedHost,
    acked,
    never,
    offer,
    refusing,
    state_name,
)

pytestmark = pytest.mark.looptime

PASS_SECONDS = 120.0
PREDECESSOR = "op-ffff0000-7"
BEFORE = EPOCH - 3600


def host(
    operation: str = PREDECESSOR,
    *,
    cluster: str = "",
    condition: Condition = Condition.RUNNING,
    metadata: dict[str, str] | None = None,
    since: float = BEFORE,
) -> ScriptedHost:
    return ScriptedHost(
        operation,
        cluster=cluster,
        condition=condition,
        metadata=metadata,
        since=since,
        parts="disk-a nic-a",
    )


def part(machine: str, name: str = "nic-9", operation: str = PREDECESSOR) -> Observation:
    return Observation(
        machine_id=machine,
        host=name,
        parts=name,
        operation_id=operation,
        condition=Condition.FAILED,
        leftover=True,
    )


async def passes(rig: Rig, count: int) -> None:
    for _ in range(count):
        await rig.parts.reconciler.reconcile()
        await asyncio.sleep(PASS_SECONDS)


def conditions(rig: Rig) -> dict[str, str]:
    return {c.name: c.message for c in rig.conditions.standing()}


def fresh() -> RetainingStore:
    store = RetainingStore()
    store.created = EPOCH
    return store


def rig_with(hosts: dict[str, ScriptedHost], *flags: str, count: int = 4) -> Rig:
    return Rig(*flags, offers=[offer(count)], backend=ScriptedBackend(hosts=hosts), store=fresh())


PREFIX = "azure-eastus-od-d4s-v5-1"


# Rebuilding


@pytest.mark.behaviour(73)
async def test_after_a_lost_store_bound_machines_come_back_bound_and_free_ones_free() -> None:
    hosts = {
        f"{PREFIX}-000": host(cluster="blue", metadata={"k": "v\x00", "empty": ""}),
        f"{PREFIX}-001": host(cluster="green"),
        f"{PREFIX}-002": host(),
    }
    async with rig_with(hosts) as rig:
        revision = rig.list().revision
        await rig.parts.reconciler.reconcile()
        first, second, third, fourth = (rig.machine(f"{PREFIX}-00{n}") for n in range(4))
        assert (state_name(first), first.cluster) == ("CONFIGURED", "blue")
        assert dict(first.shard_metadata) == {"k": "v\x00", "empty": ""}
        assert first.host.ref == f"/hosts/{first.id}"
        assert (state_name(second), second.cluster) == ("CONFIGURED", "green")
        assert dict(second.shard_metadata) == {}
        assert (state_name(third), third.cluster, third.last_error) == ("IDLE", "", "")
        assert state_name(fourth) == "SPECULATIVE"
        changed = {m.id for m in rig.list(since_revision=revision).machines}
        assert changed == {first.id, second.id, third.id}
        assert len(rig.ids()) == 4
        assert conditions(rig) == {}


@pytest.mark.behaviour(73, 79)
async def test_adopted_machines_survive_a_restart_and_walk_on_by_their_host_and_parts() -> None:
    hosts = {f"{PREFIX}-000": host(cluster="blue"), f"{PREFIX}-001": host()}
    rig = rig_with(hosts)
    await rig.__aenter__()
    await rig.parts.reconciler.reconcile()
    async with await rig.restarted() as again:
        await again.parts.reconciler.reconcile()
        bound, free = f"{PREFIX}-000", f"{PREFIX}-001"
        acked(await again.drain(bound))
        await again.reaches(bound, "IDLE")
        for machine in (bound, free):
            acked(await again.delete(machine))
            await again.reaches(machine, "SPECULATIVE")
        for work in again.backend.work:
            assert (work.created_by, work.parts) == ("", "disk-a nic-a")
        assert again.backend.hosts == {}
        assert again.backend.reclaimed == []


@pytest.mark.behaviour(73)
async def test_a_host_under_a_later_id_of_its_slot_brings_that_id_back() -> None:
    hosts = {f"{PREFIX}-001-r3": host(cluster="blue")}
    async with rig_with(hosts) as rig:
        assert f"{PREFIX}-001" in rig.ids()
        await rig.parts.reconciler.reconcile()
        assert rig.state(f"{PREFIX}-001-r3") == "CONFIGURED"
        assert rig.get(f"{PREFIX}-001") is None
        assert len(rig.ids()) == 4


@pytest.mark.behaviour(73)
async def test_of_two_hosts_of_one_slot_the_bound_one_has_it_and_the_free_one_goes() -> None:
    hosts = {f"{PREFIX}-001-r1": host(), f"{PREFIX}-001": host(cluster="blue")}
    async with rig_with(hosts) as rig:
        await passes(rig, 2)
        assert rig.state(f"{PREFIX}-001") == "CONFIGURED"
        assert list(rig.backend.hosts) == [f"{PREFIX}-001"]


@pytest.mark.behaviour(73, 70)
async def test_a_bound_host_that_stands_still_comes_back_bound_and_is_then_lost() -> None:
    hosts = {f"{PREFIX}-000": host(cluster="blue", condition=Condition.EVICTED)}
    async with rig_with(hosts) as rig:
        await rig.parts.reconciler.reconcile()
        machine = rig.machine(f"{PREFIX}-000")
        assert (state_name(machine), machine.cluster) == ("DRAINING", "blue")
        rig.list()
        await rig.reaches(machine.id, "FAILED", within=5)


@pytest.mark.behaviour(73)
@pytest.mark.parametrize("condition", [Condition.STOPPED, Condition.EVICTED, Condition.FAILED])
async def test_a_free_host_that_is_of_no_use_is_removed_and_never_a_machine(
    condition: Condition,
) -> None:
    machine = f"{PREFIX}-000"
    async with rig_with({machine: host(condition=condition)}) as rig:
        await passes(rig, 2)
        assert rig.state(machine) == "SPECULATIVE"
        assert [(d.operation, d.host, d.parts) for d in rig.backend.reclaimed] == [
            (0, f"/hosts/{machine}", "disk-a nic-a")
        ]


@pytest.mark.behaviour(73)
async def test_a_host_whose_binding_is_only_half_known_is_neither_free_nor_removed() -> None:
    machine = f"{PREFIX}-000"
    async with rig_with({machine: host(metadata={"k": "v"})}) as rig:
        await passes(rig, 6)
        assert rig.state(machine) == "SPECULATIVE"
        assert machine in rig.backend.hosts
        assert machine in conditions(rig)["unplaced-machines"]


@pytest.mark.behaviour(73, 74)
async def test_a_bound_host_without_a_slot_is_shown_and_placed_once_its_slot_is_offered() -> None:
    other = offer(2, vm_size="Standard_F8s_v2")
    machine = "azure-eastus-od-f8s-v2-1-001"
    async with rig_with({machine: host(cluster="blue")}) as rig:
        await passes(rig, 6)
        assert machine in rig.backend.hosts
        assert f"{machine} (blue)" in conditions(rig)["unplaced-machines"]
        await rig.parts.catalogue.apply([*rig.offers, other])
        await rig.parts.reconciler.reconcile()
        assert rig.state(machine) == "CONFIGURED"
        assert conditions(rig) == {}


@pytest.mark.behaviour(73, 74)
async def test_a_bound_host_beyond_the_offered_count_is_kept_until_it_is_empty() -> None:
    bound, free = f"{PREFIX}-007", f"{PREFIX}-008"
    async with rig_with({bound: host(cluster="blue"), free: host()}) as rig:
        await passes(rig, 2)
        assert rig.state(bound) == "CONFIGURED"
        assert list(rig.backend.hosts) == [bound]
        acked(await rig.drain(bound))
        await rig.reaches(bound, "IDLE")
        acked(await rig.delete(bound))
        await asyncio.sleep(5)
        assert rig.get(bound) is None
        assert len(rig.ids()) == 4


@pytest.mark.behaviour(73)
async def test_a_create_accepted_while_the_list_was_on_its_way_keeps_its_slot() -> None:
    machine = f"{PREFIX}-000"
    async with rig_with({machine: host(cluster="blue")}) as rig:
        rig.backend.steps[Kind.CREATE] = never
        rig.store.gate.clear()
        creating = asyncio.create_task(rig.create(machine))
        await asyncio.sleep(0)
        comparing = asyncio.create_task(rig.parts.reconciler.reconcile())
        await asyncio.sleep(1)
        rig.store.gate.set()
        acked(await creating)
        await comparing
        assert rig.state(machine) == "CREATING"


@pytest.mark.behaviour(73)
async def test_a_create_of_a_slot_keeps_a_later_id_of_it_from_taking_the_slot() -> None:
    machine = f"{PREFIX}-000"
    async with rig_with({f"{machine}-r1": host(cluster="blue")}) as rig:
        rig.backend.steps[Kind.CREATE] = never
        rig.store.gate.clear()
        creating = asyncio.create_task(rig.create(machine))
        await asyncio.sleep(0)
        comparing = asyncio.create_task(rig.parts.reconciler.reconcile())
        await asyncio.sleep(1)
        rig.store.gate.set()
        acked(await creating)
        await comparing
        assert rig.state(machine) == "CREATING"
        assert rig.get(f"{machine}-r1") is None


@pytest.mark.behaviour(73)
async def test_a_host_that_is_owed_already_is_not_adopted_when_it_comes_up_after_all() -> None:
    machine = f"{PREFIX}-000"
    async with rig_with({machine: host(condition=Condition.CREATING)}) as rig:
        released = asyncio.Event()

        async def slowly(_: Debt) -> None:
            await released.wait()

        rig.backend.reclaiming = slowly
        await passes(rig, 2)
        rig.backend.hosts[machine].condition = Condition.RUNNING
        await passes(rig, 2)
        assert rig.state(machine) == "SPECULATIVE"
        released.set()
        await asyncio.sleep(1)
        assert machine not in rig.backend.hosts


@pytest.mark.behaviour(94)
async def test_a_first_inventory_is_remembered_only_when_it_succeeded() -> None:
    backend = ScriptedBackend(rebuilds=True)
    async with Rig(backend=backend, store=fresh()) as rig:
        backend.listing = BackendError(FailureKind.TRANSIENT, "unreachable")
        assert not await rig.parts.reconciler.reconcile()
        assert not rig.store.inventoried
        backend.listing = None
        assert await rig.parts.reconciler.reconcile()
        assert rig.store.inventoried


# Orphans


async def gone(rig: Rig, machine: str) -> None:
    """Use a slot and empty it, so that its id is known and has no host."""
    await rig.idle(machine)
    acked(await rig.delete(machine))
    await rig.reaches(machine, "SPECULATIVE")


@pytest.mark.behaviour(73)
async def test_an_orphan_is_removed_after_its_grace_and_two_passes() -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        await gone(rig, machine)
        rig.backend.hosts[machine] = host("op-0123abcd-3", since=rig.clock.now())
        await passes(rig, 3)
        assert machine in rig.backend.hosts
        assert 3 * PASS_SECONDS > GRACE_SECONDS
        await passes(rig, 1)
        assert machine not in rig.backend.hosts
        (debt,) = rig.backend.reclaimed
        assert (debt.machine_id, debt.operation, debt.host) == (machine, 0, f"/hosts/{machine}")
        assert rig.backend.reclaimed_for == [""]
        assert rig.store.debts == {}


@pytest.mark.behaviour(73)
async def test_an_old_orphan_too_is_seen_twice_before_it_is_removed() -> None:
    async with rig_with({"nobody-knows-000": host()}) as rig:
        await passes(rig, 1)
        assert rig.backend.hosts
        del rig.backend.hosts["nobody-knows-000"]
        await passes(rig, 1)
        rig.backend.hosts["nobody-knows-000"] = host()
        await passes(rig, 1)
        assert rig.backend.hosts
        await passes(rig, 1)
        assert rig.backend.hosts == {}


@pytest.mark.behaviour(73)
async def test_an_orphan_of_unknown_age_is_as_old_as_it_was_first_seen() -> None:
    async with rig_with({"nobody-knows-000": host(since=0.0)}) as rig:
        await passes(rig, 3)
        assert rig.backend.hosts
        await passes(rig, 1)
        assert rig.backend.hosts == {}


@pytest.mark.behaviour(73)
async def test_parts_that_nobody_holds_are_removed_each_by_itself() -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        kept = part(machine, "NIC-1")
        rig.backend.leftovers = [kept, part(machine, "nic-8"), part("nobody-000", "disk-9")]
        await passes(rig, 4)
        assert sorted(d.host for d in rig.backend.reclaimed) == ["disk-9", "nic-8"]
        assert rig.backend.leftovers == [kept]
        assert rig.backend.count("inspect") == 0
        assert rig.state(machine) == "IDLE"
        assert machine in rig.backend.hosts
        assert conditions(rig) == {}


@pytest.mark.behaviour(73)
async def test_what_an_operation_in_flight_works_on_is_left_alone() -> None:
    async with rig_with({}, "--create-timeout", "1h") as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = never
        acked(await rig.create(machine))
        rig.backend.hosts[machine] = host("op-0123abcd-99", condition=Condition.CREATING)
        rig.backend.leftovers = [part(machine)]
        await passes(rig, 6)
        assert rig.backend.reclaimed == []
        assert rig.state(machine) == "CREATING"


@pytest.mark.behaviour(73)
async def test_what_is_owed_already_is_not_owed_twice() -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]

        async def reserved(_: Debt) -> None:
            raise BackendError(FailureKind.TRANSIENT, "reserved")

        rig.backend.reclaiming = reserved
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
        operation = acked(await rig.create(machine)).operation_id
        await rig.reaches(machine, "FAILED")
        rig.backend.hosts[machine] = host(operation, condition=Condition.FAILED)
        rig.backend.leftovers = [part(machine, operation=operation), part("nobody-000")]
        await passes(rig, 8)
        assert sorted((d.machine_id, d.operation > 0) for d in rig.store.debts.values()) == [
            (machine, True),
            ("nobody-000", False),
        ]


@pytest.mark.behaviour(73)
async def test_a_create_waits_for_an_orphan_under_its_id_to_be_removed() -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        await gone(rig, machine)
        released = asyncio.Event()

        async def slowly(_: Debt) -> None:
            await released.wait()

        rig.backend.reclaiming = slowly
        rig.backend.hosts[machine] = host("op-0123abcd-3")
        await passes(rig, 2)
        acked(await rig.create(machine))
        await asyncio.sleep(60)
        assert rig.backend.count("create", machine) == 1
        released.set()
        await rig.reaches(machine, "IDLE", within=10)
        assert rig.backend.count("create", machine) == 2


@pytest.mark.behaviour(73)
async def test_a_create_accepted_right_before_an_orphan_is_owed_keeps_it_from_being_owed() -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        await gone(rig, machine)
        rig.backend.hosts[machine] = host("op-0123abcd-3")
        await passes(rig, 1)
        rig.backend.steps[Kind.CREATE] = never
        rig.store.gate.clear()
        creating = asyncio.create_task(rig.create(machine))
        await asyncio.sleep(0)
        comparing = asyncio.create_task(rig.parts.reconciler.reconcile())
        await asyncio.sleep(1)
        rig.store.gate.set()
        acked(await creating)
        await comparing
        assert rig.store.debts == {}
        assert machine in rig.backend.hosts


async def test_a_list_that_is_not_believed_removes_nothing() -> None:
    async with rig_with({}, count=24) as rig:
        machines = rig.ids()[:20]
        await asyncio.gather(*(rig.idle(machine) for machine in machines))
        rig.backend.hosts["nobody-knows-000"] = host()
        await passes(rig, 1)
        rig.backend.unlisted.update(machines)
        await passes(rig, 3)
        assert "nobody-knows-000" in rig.backend.hosts
        rig.backend.unlisted.clear()
        await passes(rig, 1)
        assert "nobody-knows-000" not in rig.backend.hosts


async def test_the_spelling_of_a_reference_makes_no_orphan_of_a_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        observe = ScriptedBackend._observe
        monkeypatch.setattr(
            ScriptedBackend,
            "_observe",
            lambda self, i: replace(observe(self, i), host=f"/HOSTS/{i}".upper(), cluster=""),
        )
        await passes(rig, 6)
        assert rig.backend.reclaimed == []
        assert rig.state(machine) == "CONFIGURED"


@pytest.mark.behaviour(68)
async def test_a_part_owed_under_a_failed_machine_s_id_does_not_stand_for_its_host() -> None:
    async with rig_with({}, "--failed-dwell", "10m") as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        released = asyncio.Event()

        async def slowly(debt: Debt) -> None:
            if debt.host == "nic-9":
                await released.wait()

        rig.backend.reclaiming = slowly
        rig.backend.leftovers = [part(machine)]
        await passes(rig, 4)
        rig.backend.steps[Kind.CONFIGURE] = refusing(FailureKind.INVALID)
        acked(await rig.configure(machine))
        await rig.reaches(machine, "FAILED")
        rig.list()
        await asyncio.sleep(700)
        assert machine not in rig.backend.hosts
        assert rig.state(machine) == "FAILED"
        released.set()
        await rig.reaches(f"{machine}-r1", "SPECULATIVE", within=60)


# Neighbours


@pytest.mark.behaviour(73)
async def test_what_another_store_made_after_ours_began_is_another_daemon_s_and_not_touched() -> (
    None
):
    neighbour = "op-aaaa1111-5"
    hosts = {
        f"{PREFIX}-000": host(neighbour, since=EPOCH + 60),
        f"{PREFIX}-001": host(neighbour),
        f"{PREFIX}-002": host(neighbour, cluster="blue"),
        "nobody-000": host(neighbour, condition=Condition.FAILED),
        f"{PREFIX}-003": host(),
    }
    async with rig_with(dict(hosts)) as rig:
        rig.backend.leftovers = [part("nobody-001", operation=neighbour)]
        await asyncio.sleep(120)
        await passes(rig, 6)
        states = [rig.state(f"{PREFIX}-00{n}") for n in range(4)]
        assert states == ["SPECULATIVE", "SPECULATIVE", "SPECULATIVE", "IDLE"]
        assert rig.backend.reclaimed == []
        assert set(rig.backend.hosts) == set(hosts)
        message = conditions(rig)["owner-shared"]
        assert f"{PREFIX}-000" in message
        assert "aaaa1111" in message
        del rig.backend.hosts[f"{PREFIX}-000"]
        await passes(rig, 6)
        assert rig.backend.reclaimed == []
        assert "owner-shared" in conditions(rig)
        rig.backend.hosts.clear()
        rig.backend.leftovers.clear()
        await passes(rig, 1)
        assert "owner-shared" not in conditions(rig)


@pytest.mark.behaviour(73)
async def test_what_an_earlier_store_made_before_ours_began_is_no_other_daemon_s() -> None:
    async with rig_with({"nobody-000": host(since=EPOCH - 1)}) as rig:
        await passes(rig, 4)
        assert rig.backend.hosts == {}
        assert conditions(rig) == {}


@pytest.mark.behaviour(73)
@pytest.mark.parametrize("binder", ["op-aaaa1111-5", ""])
async def test_an_idle_machine_that_another_store_bound_is_shown_once_two_lists_say_so(
    binder: str,
) -> None:
    async with rig_with({}) as rig:
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        await rig.reaches(machine, "IDLE")
        host = rig.backend.hosts[machine]
        host.cluster, host.bound_by = "green", binder or f"op-{rig.store.incarnation}-99"
        await passes(rig, 1)
        assert conditions(rig) == {}
        await passes(rig, 1)
        if not binder:
            assert conditions(rig) == {}
            return
        message = conditions(rig)["owner-shared"]
        assert f"{machine} (green)" in message
        assert "aaaa1111" in message
        assert rig.state(machine) == "IDLE"
        host.cluster = host.bound_by = ""
        await passes(rig, 1)
        assert conditions(rig) == {}


async def test_a_dry_run_names_what_belongs_to_nobody_and_removes_nothing() -> None:
    hosts = {"elsewhere-000": host()}
    async with rig_with(hosts, "--leftovers=report") as rig:
        rig.backend.leftovers = [part("elsewhere-001", "nic-9")]
        await passes(rig, 5)
        plan = conditions(rig)["leftovers"]
        assert "/hosts/elsewhere-000" in plan
        assert "nic-9" in plan
        assert rig.backend.reclaimed == []
        rig.backend.hosts.clear()
        rig.backend.leftovers = []
        await passes(rig, 1)
        assert "leftovers" not in conditions(rig)
