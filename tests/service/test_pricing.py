"""Prices that change under a served fleet: what is published, what moves, what shards take over."""

import asyncio
from collections.abc import Callable

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.base import Refreshed
from bigfleet_azure.domain.errors import FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType, Kind
from bigfleet_azure.kit.locks import KeyedLocks
from bigfleet_azure.service.republishing import WAIT_SECONDS, WAVES
from tests.support.rig import Rig, acked, offer, refusing

pytestmark = pytest.mark.looptime

SPOT = offer(20, vm_size="Standard_F8s_v2", capacity_type=CapacityType.SPOT)
PLAIN = offer(5)


async def refresh(rig: Rig) -> None:
    await rig.parts.pricing.take()
    await asyncio.sleep(0)


def standing(rig: Rig) -> list[tuple[str, str]]:
    return [(one.name, one.message) for one in rig.conditions.standing()]


def prices(rig: Rig) -> dict[str, float]:
    return {machine.id: machine.price_per_hour for machine in rig.list().machines}


class Shard:
    """What a shard knows: it takes a record over only when its state changed (section 11)."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.known: dict[str, pb.Machine] = {}
        self.fewest = 10**6
        self.pass_()

    def pass_(self) -> None:
        listed = {machine.id: machine for machine in self.rig.list().machines}
        self.fewest = min(self.fewest, len(listed))
        self.known = {
            name: machine
            if name not in self.known or self.known[name].state != machine.state
            else self.known[name]
            for name, machine in listed.items()
        }

    async def follow(self, passes: int = 3 * WAVES) -> None:
        for _ in range(passes):
            await asyncio.sleep(5)
            self.pass_()

    def costs(self) -> set[tuple[float, float]]:
        return {
            (machine.price_per_hour, machine.interruption_probability)
            for machine in self.known.values()
        }


@pytest.mark.behaviour(55)
async def test_a_refresh_that_changes_nothing_moves_no_revision_and_writes_nothing() -> None:
    async with Rig(offers=[SPOT, PLAIN]) as rig:
        await rig.configured(rig.ids()[0])
        before, commits = rig.list(), len(rig.store.commits)
        await refresh(rig)
        await asyncio.sleep(60)
        assert rig.backend.refreshes == 1
        assert rig.list() == before
        assert len(rig.store.commits) == commits


@pytest.mark.behaviour(55)
async def test_a_new_price_moves_exactly_the_machines_whose_bytes_changed() -> None:
    async with Rig("--republish-threshold=0", offers=[SPOT, PLAIN]) as rig:
        spot = [name for name in rig.ids() if "spot" in name]
        await rig.configured(spot[0])
        await rig.idle(spot[1])
        cursor = rig.list().revision
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        moved = rig.list(since_revision=cursor)
        assert sorted(machine.id for machine in moved.machines) == spot
        assert {machine.price_per_hour for machine in moved.machines} == {0.5}
        assert moved.revision != cursor
        assert rig.machine(spot[0]).price_per_hour == 0.5
        assert {price for name, price in prices(rig).items() if "spot" not in name} == {0.2}


async def test_cached_entries_and_fresh_ones_say_the_same_after_a_new_price() -> None:
    """Entries are patched in place; metadata that holds the same bytes must not be."""
    async with Rig("--republish-threshold=0", offers=[offer(600)]) as rig:
        ids = rig.ids()
        shared = rig.parts.inventory.shared_fields(rig.parts.inventory.offerings()[0])
        awkward = {"odd": shared.decode("latin-1")}
        for name in (ids[0], ids[300]):
            await rig.configured(name, metadata={"plain": "1"} if name == ids[0] else awkward)
        rig.list()
        rig.backend.price = 0.7
        await refresh(rig)
        listed = {machine.id: machine for machine in rig.list().machines}
        assert listed == {name: rig.machine(name) for name in ids}
        assert {machine.price_per_hour for machine in listed.values()} == {0.7}
        assert listed[ids[300]].shard_metadata == awkward


async def test_what_was_learnt_is_kept_and_given_back_to_the_next_process() -> None:
    async with Rig() as rig:
        assert rig.backend.recalled == [""]
        rig.backend.refreshed = Refreshed(kept="what prices were")
        await refresh(rig)
        commits = len(rig.store.commits)
        await refresh(rig)
        assert len(rig.store.commits) == commits
        async with await rig.restarted():
            assert rig.backend.recalled == ["", "what prices were"]


async def test_a_failed_refresh_is_a_condition_until_one_succeeds() -> None:
    async with Rig() as rig:
        rig.backend.refreshed = Refreshed(troubles=("the price service did not answer",))
        await refresh(rig)
        assert standing(rig) == [("prices", "the price service did not answer")]
        rig.backend.refreshed = Refreshed()
        await refresh(rig)
        assert standing(rig) == []


async def test_sizes_at_a_guessed_price_are_named_for_people() -> None:
    async with Rig() as rig:
        rig.backend.guessed = ("Standard_D4s_v5", "Standard_Zz9")
        # Only what is offered: the backend may know more sizes.
        assert rig.parts.notes() == {"prices": "guessed, since none is known: Standard_D4s_v5"}


async def test_sizes_that_are_new_are_asked_about_once() -> None:
    async with Rig() as rig:
        rig.backend.refreshed = Refreshed(kept="known")
        await rig.parts.pricing.ask_about_new(rig.offers)
        await rig.parts.pricing.ask_about_new(rig.offers)
        assert rig.backend.refreshes == 1, "nothing was known"
        rig.backend.guessed = ("Standard_D4s_v5",)
        for _ in range(3):
            await rig.parts.pricing.ask_about_new(rig.offers)
        assert rig.backend.refreshes == 2
        rig.backend.guessed = ("Standard_D4s_v5", "Standard_F8s_v2")
        await rig.parts.pricing.ask_about_new(rig.offers)
        assert rig.backend.refreshes == 3
        await refresh(rig)
        assert rig.backend.refreshes == 3, "it was just asked"
        await refresh(rig)
        assert rig.backend.refreshes == 4


@pytest.mark.parametrize(
    "move",
    [
        lambda rig: rig.backend.prices.update(Standard_F8s_v2=0.25),
        lambda rig: setattr(rig.backend, "probability", 0.25),
    ],
    ids=["price", "probability"],
)
async def test_a_shard_takes_a_new_cost_of_unused_slots_over(move: Callable[[Rig], None]) -> None:
    async with Rig(offers=[SPOT]) as rig:
        shard = Shard(rig)
        known = shard.costs()
        move(rig)
        await refresh(rig)
        await shard.follow()
        now = {
            (machine.price_per_hour, machine.interruption_probability)
            for machine in rig.list().machines
        }
        assert shard.costs() == now != known
        assert len(shard.known) == 20
        # A tenth of the offering at a time.
        assert shard.fewest == 18


async def test_a_small_move_is_published_and_leaves_no_slot_out() -> None:
    async with Rig(offers=[SPOT]) as rig:
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 0.2 * 1.19
        await refresh(rig)
        await shard.follow()
        assert shard.fewest == 20
        assert set(prices(rig).values()) == {0.2 * 1.19}
        # But it is not forgotten: together with the next small move it is a large one.
        rig.backend.prices["Standard_F8s_v2"] = 0.25
        await refresh(rig)
        await shard.follow()
        assert {price for price, _ in shard.costs()} == {0.25}


async def test_what_shards_took_over_is_remembered_over_a_restart() -> None:
    async with Rig(offers=[SPOT]) as rig:
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        await asyncio.sleep(1)  # it waits for a List that never comes
        async with await rig.restarted() as again:
            assert len(again.list().machines) == 20
            shard.rig = again
            again.parts.republisher.follow()
            await shard.follow()
            assert {price for price, _ in shard.costs()} == {0.5}


async def test_slots_are_not_left_out_for_ever_when_nobody_lists() -> None:
    async with Rig(offers=[SPOT]) as rig:
        ids = rig.ids()
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        await asyncio.sleep(WAIT_SECONDS + 1)
        assert rig.ids() == ids
        # It is due still: somebody who lists later gets there in the end.
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 0.6
        await refresh(rig)
        await shard.follow()
        assert {price for price, _ in shard.costs()} == {0.6}


async def test_a_fleet_in_use_waits_for_no_list() -> None:
    async with Rig(offers=[SPOT]) as rig:
        for name in rig.ids():
            await rig.configured(name)
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        revision = rig.list().revision
        await refresh(rig)
        await asyncio.sleep(1)
        (offering,) = rig.parts.inventory.offerings()
        assert (offering.taken, offering.left_out) == (None, (0, 0))
        assert rig.list().revision != revision


async def test_get_and_create_know_slots_that_are_left_out() -> None:
    async with Rig(offers=[SPOT]) as rig:
        ids = rig.ids()
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        await asyncio.sleep(1)
        cursor = rig.list(since_revision=b"").revision
        await asyncio.sleep(1)
        hidden = sorted(set(ids) - set(rig.ids()))
        assert len(hidden) == 2
        assert rig.machine(hidden[0]).price_per_hour == 0.5
        acked(await rig.create(hidden[0]))
        assert hidden[0] in rig.ids()
        await rig.reaches(hidden[0], "IDLE")
        assert cursor


async def test_used_machines_are_never_left_out() -> None:
    async with Rig(offers=[SPOT]) as rig:
        ids = rig.ids()
        for name in ids[:10]:
            await rig.configured(name)
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        for _ in range(3 * WAVES):
            await asyncio.sleep(5)
            assert set(ids[:10]) <= set(rig.ids())
        assert rig.ids() == ids


async def test_slots_that_were_used_once_are_published_anew_too() -> None:
    async with Rig(offers=[SPOT]) as rig:
        name = rig.ids()[0]
        await rig.idle(name)
        acked(await rig.delete(name))
        await rig.reaches(name, "SPECULATIVE")
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        await shard.follow()
        assert shard.known[name].price_per_hour == 0.5


@pytest.mark.behaviour(55)
async def test_the_revision_moves_whenever_slots_are_left_out_or_come_back() -> None:
    async with Rig(offers=[SPOT]) as rig:
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        seen: dict[bytes, list[str]] = {}
        await refresh(rig)
        for _ in range(4 * WAVES):
            await asyncio.sleep(1)
            answer = rig.list()
            listed = sorted(machine.id for machine in answer.machines)
            assert seen.setdefault(answer.revision, listed) == listed
        # The end of one wave is the beginning of the next.
        assert len(seen) == WAVES + 1


async def test_a_delta_brings_every_slot_that_came_back() -> None:
    async with Rig(offers=[SPOT]) as rig:
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        cursor = rig.list().revision
        seen: set[str] = set()
        await refresh(rig)
        for _ in range(4 * WAVES):
            await asyncio.sleep(1)
            rig.list()
            answer = rig.list(since_revision=cursor)
            cursor = answer.revision
            seen |= {machine.id for machine in answer.machines}
        assert seen == set(rig.ids())


async def test_a_price_that_moves_again_meanwhile_is_taken_over_in_the_end() -> None:
    async with Rig(offers=[SPOT]) as rig:
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 0.5
        await refresh(rig)
        await shard.follow(5)
        rig.backend.prices["Standard_F8s_v2"] = 0.05
        await refresh(rig)
        await shard.follow(6 * WAVES)
        assert {price for price, _ in shard.costs()} == {0.05}


async def test_a_threshold_of_nothing_leaves_everything_listed() -> None:
    async with Rig("--republish-threshold=0", offers=[SPOT]) as rig:
        shard = Shard(rig)
        rig.backend.prices["Standard_F8s_v2"] = 5.0
        await refresh(rig)
        await shard.follow()
        assert shard.fewest == 20


async def test_a_block_that_ends_while_a_price_is_published_loses_neither() -> None:
    """Both number slots anew; a process that dies between must not take one for done."""
    async with Rig("--republish-threshold=0", offers=[offer(30)]) as rig:
        ids = rig.ids()
        for name in ids[:10]:
            await rig.idle(name)
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.QUOTA, "no room")
        acked(await rig.create(ids[10]))
        await asyncio.sleep(1)
        cursor = rig.list().revision
        rig.backend.price = 0.4
        rig.store.gate.clear()
        taking = asyncio.ensure_future(rig.parts.pricing.take())
        await asyncio.sleep(0)
        rig.parts.blocks.lift(rig.parts.inventory.offerings()[0].offer)
        rig.store.gate.set()
        await taking
        await asyncio.sleep(1)
        moved = rig.list(since_revision=cursor).machines
        assert {machine.id for machine in moved} >= set(ids[:10])
        assert set(prices(rig).values()) == {0.4}
        (offering,) = rig.parts.inventory.offerings()
        assert offering.published


async def test_slots_that_are_used_while_they_are_renumbered_keep_what_they_became() -> None:
    """Many machines change under their locks in one write; a call to one of them goes between."""
    async with Rig("--republish-threshold=0", offers=[offer(300)]) as rig:
        ids = rig.ids()
        for name in ids[:250]:
            await rig.idle(name)
        rig.backend.price = 0.4
        taking = asyncio.ensure_future(rig.parts.pricing.take())
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(rig.configure(name) for name in ids[:250:10]))
        await taking
        assert all(acked(answer).operation_id for answer in answers)
        for name in ids[:250:10]:
            machine = await rig.reaches(name, "CONFIGURED")
            assert (machine.cluster, machine.price_per_hour) == ("blue", 0.4)


async def test_locks_of_many_are_all_given_back_when_the_wait_for_one_is_given_up() -> None:
    locks = KeyedLocks()
    async with locks.hold("b"):

        async def wait() -> None:
            async with locks.hold_all(["a", "b", "c"]):
                raise AssertionError("b is held")

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert locks.held("a")
        assert not locks.held("c")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not locks.held("a")
    assert not locks.held("b")
    async with locks.hold_all(["a", "b", "c"]):
        assert all(locks.held(key) for key in "abc")
    assert not any(locks.held(key) for key in "abc")
