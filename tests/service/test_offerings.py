"""Offerings that change: at a restart, and on a running daemon."""

import asyncio

import pytest

from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.service.catalogue import OffersRefused
from tests.support.rig import Rig, acked, offer

pytestmark = pytest.mark.looptime


def changed(rig: Rig, cursor: bytes) -> list[str]:
    """Ids in the delta since `cursor`, sorted."""
    return sorted(machine.id for machine in rig.list(since_revision=cursor).machines)


@pytest.mark.behaviour(74)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_added_slots_appear_and_a_delta_shows_just_them(restart: bool) -> None:
    async with Rig() as rig:
        before, cursor = rig.ids(), rig.list().revision
        async with await _offering(rig, [offer(6)], restart=restart) as now:
            assert len(now.ids()) == 6
            assert set(before) < set(now.ids())
            assert changed(now, cursor) == sorted(set(now.ids()) - set(before))


async def _offering(rig: Rig, offers: list[Offer], *, restart: bool) -> Rig:
    if restart:
        return await rig.restarted(offers=offers)
    await rig.parts.catalogue.apply(offers)
    return _Entered(rig)


class _Entered(Rig):
    """A rig that runs already, for `async with`."""

    def __init__(self, rig: Rig) -> None:
        self.__dict__ = rig.__dict__

    async def __aenter__(self) -> Rig:
        return self


@pytest.mark.behaviour(74, 60)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_unused_surplus_slots_go_and_used_ones_stay_until_they_are_empty(
    restart: bool,
) -> None:
    async with Rig() as rig:
        last = rig.ids()[-1]
        await rig.configured(last)
        revision = rig.list().revision
        async with await _offering(rig, [offer(2)], restart=restart) as now:
            assert now.ids() == [*rig_ids(now, 2), last]
            assert now.list().revision != revision
            assert now.get(last[:-1] + "2") is None
            acked(await now.drain(last))
            await now.reaches(last, "IDLE")
            assert last in now.ids()
            revision = now.list().revision
            acked(await now.delete(last))
            await asyncio.sleep(1)
            assert now.ids() == rig_ids(now, 2)
            assert now.get(last) is None
            assert now.list().revision != revision


def rig_ids(rig: Rig, count: int) -> list[str]:
    """The first `count` ids of the rig's only offering."""
    prefix = rig.ids()[0].rpartition("-")[0]
    return [f"{prefix}-{index:03d}" for index in range(count)]


@pytest.mark.behaviour(74)
async def test_a_surplus_machine_that_fails_leaves_for_good() -> None:
    async with Rig() as rig:
        last = rig.ids()[-1]
        await rig.idle(last)
        await rig.parts.catalogue.apply([offer(2)])

        async def refuse(_: object) -> None:
            raise ValueError

        rig.backend.steps = dict.fromkeys(rig.backend.steps, refuse)
        acked(await rig.delete(last))
        await rig.reaches(last, "FAILED")
        await asyncio.sleep(1)
        rig.list()
        await asyncio.sleep(3600)
        assert rig.ids() == rig_ids(rig, 2)


@pytest.mark.behaviour(74)
async def test_slots_taken_away_and_offered_again_return_as_changed() -> None:
    async with Rig() as rig:
        ids, cursor = rig.ids(), rig.list().revision
        await rig.parts.catalogue.apply([offer(2)])
        assert changed(rig, cursor) == []
        cursor = rig.list().revision
        await rig.parts.catalogue.apply([offer(4)])
        assert rig.ids() == ids
        assert changed(rig, cursor) == ids[2:]
        await rig.idle(ids[3])


@pytest.mark.behaviour(74)
async def test_a_used_surplus_slot_that_is_offered_again_just_goes_on() -> None:
    async with Rig() as rig:
        ids = rig.ids()
        await rig.configured(ids[3])
        await rig.parts.catalogue.apply([offer(2)])
        await rig.parts.catalogue.apply([offer(4)])
        assert rig.ids() == ids
        assert rig.state(ids[3]) == "CONFIGURED"
        acked(await rig.drain(ids[3]))
        await rig.reaches(ids[3], "IDLE")
        acked(await rig.delete(ids[3]))
        await rig.reaches(ids[3], "SPECULATIVE")
        assert rig.ids() == ids


@pytest.mark.behaviour(74, 55)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_a_new_price_changes_exactly_the_machines_that_show_it(restart: bool) -> None:
    cheap, other = offer(3), offer(2, vm_size="Standard_F8s_v2")
    async with Rig(offers=[cheap, other]) as rig:
        used = next(i for i in rig.ids() if "d4s" in i)
        await rig.configured(used)
        cursor = rig.list().revision
        shown = [cheap, offer(2, vm_size="Standard_F8s_v2", labels={"team": "red"})]
        async with await _offering(rig, shown, restart=restart) as now:
            assert changed(now, cursor) == [i for i in now.ids() if "f8s" in i]
            cursor = now.list().revision
            now.backend.price = 0.9
            async with await _offering(now, shown, restart=restart) as later:
                assert changed(later, cursor) == later.ids()
                assert {m.price_per_hour for m in later.list().machines} == {0.9}
                assert later.state(used) == "CONFIGURED"


@pytest.mark.behaviour(55, 74)
async def test_equal_offers_in_another_order_change_nothing() -> None:
    offers = [
        offer(3),
        offer(2, vm_size="Standard_F8s_v2"),
        offer(2, capacity_type=CapacityType.SPOT),
    ]
    async with Rig(offers=offers) as rig:
        await rig.configured(rig.ids()[0])
        answer, commits = rig.list(), len(rig.store.commits)
        applied = await rig.parts.catalogue.apply(offers[::-1])
        assert (applied.added, applied.removed, applied.changed) == (0, 0, 0)
        assert rig.list() == answer
        assert len(rig.store.commits) == commits
        async with await rig.restarted(offers=offers[1:] + offers[:1]) as again:
            assert again.list() == answer


@pytest.mark.behaviour(74, 60)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_an_offering_taken_out_goes_but_for_the_machines_in_use(restart: bool) -> None:
    kept, dropped = offer(2), offer(2, vm_size="Standard_F8s_v2")
    async with Rig(offers=[kept, dropped]) as rig:
        used = next(i for i in rig.ids() if "f8s" in i)
        await rig.idle(used)
        async with await _offering(rig, [kept], restart=restart) as now:
            assert [i for i in now.ids() if "f8s" in i] == [used]
            acked(await now.delete(used))
            await asyncio.sleep(1)
            assert [i for i in now.ids() if "f8s" in i] == []
            await now.parts.catalogue.apply([kept])
            async with await _offering(now, [kept, dropped], restart=restart) as back:
                assert len([i for i in back.ids() if "f8s" in i]) == 2
                await back.idle(used)


@pytest.mark.behaviour(74)
async def test_nothing_offered_any_more_leaves_only_what_is_in_use() -> None:
    async with Rig() as rig:
        used = rig.ids()[1]
        await rig.idle(used)
        await rig.parts.catalogue.apply([])
        assert rig.ids() == [used]
        assert rig.machine(used).instance_type == "Standard_D4s_v5"


@pytest.mark.behaviour(74)
async def test_a_create_accepted_while_its_offering_is_taken_out_is_not_lost() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.store.gate.clear()
        applying = asyncio.create_task(rig.parts.catalogue.apply([]))
        await asyncio.sleep(1)
        creating = asyncio.create_task(rig.create(machine))
        await asyncio.sleep(1)
        rig.store.gate.set()
        acked(await creating)
        await applying
        await rig.reaches(machine, "IDLE", within=60)
        assert rig.ids() == [machine]
        async with await rig.restarted(offers=[]) as again:
            assert again.state(machine) == "IDLE"


@pytest.mark.behaviour(74)
async def test_two_reloads_at_once_end_as_the_later_one_says() -> None:
    async with Rig() as rig:
        rig.store.gate.clear()
        reloads = [
            asyncio.create_task(rig.parts.catalogue.apply([offer(count), _big(count)]))
            for count in (9, 3)
        ]
        await asyncio.sleep(1)
        rig.store.gate.set()
        await asyncio.gather(*reloads)
        assert len(rig.ids()) == 6
        assert len({offering.number for offering in rig.parts.inventory.offerings()}) == 2
        ids = rig.ids()
        async with await rig.restarted(offers=[offer(3), _big(3)]) as again:
            assert again.ids() == ids


def _big(count: int) -> Offer:
    return offer(count, vm_size="Standard_D32s_v5")


@pytest.mark.behaviour(74)
async def test_a_number_is_not_given_to_another_offering_while_anything_remembers_it() -> None:
    first, second = offer(2), offer(2, vm_size="Standard_F8s_v2")
    async with Rig(offers=[first, second]) as rig:
        used = next(i for i in rig.ids() if "f8s" in i)
        await rig.idle(used)
        await rig.parts.catalogue.apply([first])
        await rig.parts.catalogue.apply([first, _big(2)])
        assert rig.machine(used).instance_type == "Standard_F8s_v2"
        assert len(rig.ids()) == 5


async def test_the_substrate_is_told_which_offers_are_in_force_also_when_others_are_refused() -> (
    None
):
    async with Rig() as rig:
        kept, refused = offer(2, vm_size="Standard_F8s_v2"), offer(1, vm_size="m5.large")
        await rig.parts.catalogue.apply([kept])
        assert rig.backend.in_force == [kept]
        rig.backend.absent.add("m5.large")
        with pytest.raises(OffersRefused):
            await rig.parts.catalogue.apply([refused])
        assert rig.backend.in_force == [kept]


async def test_what_a_substrate_said_of_a_size_stays_when_it_knows_the_size_no_longer() -> None:
    async with Rig() as rig:
        before = {machine.id: machine for machine in rig.list().machines}
        rig.backend.price, rig.backend.forgotten = 9.0, True
        await rig.parts.catalogue.apply([offer(len(before))])
        assert {machine.id: machine for machine in rig.list().machines} == before
        new = offer(1, vm_size="Standard_F8s_v2")
        await rig.parts.catalogue.apply([offer(len(before)), new])
        [added] = [one for one in rig.list().machines if one.id not in before]
        assert added.price_per_hour == 9.0
