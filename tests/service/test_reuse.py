"""What a slot keeps from one life to the next, and what it does not."""

import asyncio

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.catalogue import OffersRefused
from bigfleet_azure.service.janitor import RECLAIM_SECONDS
from tests.support.rig import MortalStore, Rig, acked, at_once, never, offer, refusing

pytestmark = pytest.mark.looptime


@pytest.mark.behaviour(71)
async def test_a_create_after_a_loss_waits_until_the_last_host_is_removed() -> None:
    removed = asyncio.Event()

    async def slow(_: Debt) -> None:
        await removed.wait()

    async with Rig(offers=[offer(1)]) as rig:
        [machine] = rig.ids()
        await rig.idle(machine)
        rig.backend.reclaiming = slow
        rig.backend.hosts[machine].condition = Condition.STOPPED
        await rig.parts.reconciler.reconcile()
        await asyncio.sleep(0)
        rig.list()
        await rig.reaches(machine, "SPECULATIVE")

        acked(await rig.create(machine))
        await asyncio.sleep(60)
        assert rig.state(machine) == "CREATING"
        assert rig.backend.count("create", machine) == 1

        removed.set()
        await rig.reaches(machine, "IDLE")
        assert rig.backend.count("create", machine) == 2


async def test_a_hanging_removal_does_not_keep_the_others_waiting_for_ever() -> None:
    async def hang(debt: Debt) -> None:
        if debt.machine_id == first:
            await asyncio.Event().wait()

    async with Rig("--delete-concurrency", "1", offers=[offer(2)]) as rig:
        first, second = rig.ids()
        rig.backend.reclaiming = hang
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
        acked(await rig.create(first))
        acked(await rig.create(second))
        await asyncio.sleep(RECLAIM_SECONDS + 1)
        assert [debt.machine_id for debt in rig.backend.reclaimed] == [second]


@pytest.mark.behaviour(67)
async def test_creates_that_wait_for_capacity_do_not_hold_up_other_offerings() -> None:
    scarce, plenty = offer(3), offer(3, zone="eastus-2")
    async with Rig("--create-concurrency", "2", offers=[scarce, plenty]) as rig:

        async def step(work) -> None:
            if work.offer.zone == scarce.zone:
                await refusing(FailureKind.QUOTA)(work)

        rig.backend.steps[Kind.CREATE] = step
        ids = rig.ids()
        for machine in ids[:3]:
            acked(await rig.create(machine))
        await asyncio.sleep(1)
        for machine in ids[3:]:
            acked(await rig.create(machine))
            await rig.reaches(machine, "IDLE", within=5)
        assert {rig.state(machine) for machine in ids[:3]} == {"CREATING"}


@pytest.mark.behaviour(76)
async def test_nodes_that_never_come_do_not_hold_up_other_clusters() -> None:
    async with Rig("--configure-concurrency", "1", offers=[offer(2)]) as rig:
        first, second = rig.ids()

        async def ready(work) -> None:
            if work.cluster == "broken":
                await never(work)

        rig.backend.ready = ready
        await rig.idle(first)
        await rig.idle(second)
        acked(await rig.configure(first, "broken"))
        await asyncio.sleep(1)
        acked(await rig.configure(second, "sound"))
        await rig.reaches(second, "CONFIGURED", within=5)
        assert rig.state(first) == "CONFIGURING"


@pytest.mark.behaviour(68, 74)
async def test_a_retired_id_does_not_come_back_when_its_slot_is_offered_again() -> None:
    async with Rig("--failed-dwell", "1m", offers=[offer(2)]) as rig:
        _, retired = rig.ids()
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.INVALID)
        acked(await rig.create(retired))
        await rig.reaches(retired, "FAILED")
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(120)
        assert f"{retired}-r1" in rig.ids()

        await rig.parts.catalogue.apply([offer(1)])
        assert rig.get(f"{retired}-r1") is None
        assert len(rig.ids()) == 1
        before = rig.list().revision
        await rig.parts.catalogue.apply([offer(2)])
        assert rig.get(retired) is None
        [back] = rig.list(since_revision=before).machines
        assert back.id == f"{retired}-r1"


@pytest.mark.behaviour(56, 74)
async def test_a_crash_while_slots_are_shown_again_hides_none_of_them_from_deltas() -> None:
    store = MortalStore()
    rig = Rig(offers=[offer(3)], store=store)
    await rig.__aenter__()
    used = rig.ids()[2]
    await rig.idle(used)
    acked(await rig.delete(used))
    await rig.reaches(used, "SPECULATIVE")
    await rig.parts.catalogue.apply([offer(1)])
    before = rig.list().revision

    store.lives = 1
    growing = asyncio.ensure_future(rig.parts.catalogue.apply([offer(3)]))
    await store.died.wait()
    await rig.kill()
    assert growing.cancelled()

    store.lives = None
    async with await rig.restarted(offers=[offer(3)]) as rig:
        changed = {machine.id for machine in rig.list(since_revision=before).machines}
        assert set(rig.ids()[1:]) <= changed


@pytest.mark.behaviour(48)
async def test_another_provider_name_is_refused_while_machines_carry_the_old_one() -> None:
    async with Rig("--provider", "azure-east", offers=[offer(2)]) as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        other = await rig.restarted("--provider", "azure-west")
        with pytest.raises(OffersRefused, match="--provider"):
            await other.__aenter__()
        await other.stop()
    async with await other.restarted("--provider", "azure-east") as rig:
        rig.backend.steps[Kind.DELETE] = at_once
        acked(await rig.delete(machine))
        await rig.reaches(machine, "SPECULATIVE")
    async with await rig.restarted("--provider", "azure-west") as rig:
        assert rig.machine(machine).state
