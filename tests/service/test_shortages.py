"""What is short beyond one offering: named by refusals, found by surveys, lifted by success."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.service.blocks import PROBE_EVERY_SECONDS
from bigfleet_azure.service.catalogue import OffersRefused
from tests.support.rig import Rig, Step, acked, at_once, offer, refusing

pytestmark = pytest.mark.looptime

FAMILY = offer(3)
BIGGER = offer(3, vm_size="Standard_D8s_v5")
OTHER = offer(3, vm_size="Standard_F8s_v2")


def of_family(asked: Offer) -> bool:
    return "_D" in asked.vm_size


def family(seconds: float = 600, covers: Callable[[Offer], bool] = of_family) -> Shortage:
    return Shortage(
        key="quota standardDSv5Family",
        text="standardDSv5Family: 100 of 100 vCPUs in use",
        seconds=seconds,
        covers=covers,
    )


def short(shortage: Shortage, retry_after: float | None = None) -> Step:
    async def step(_: Assignment) -> None:
        raise BackendError(
            FailureKind.QUOTA,
            "QuotaExceeded",
            retry_after=None if retry_after is None else timedelta(seconds=retry_after),
            shortage=shortage,
        )

    return step


def listed(rig: Rig) -> set[str]:
    """Sizes of which unused slots are listed."""
    return {m.instance_type for m in rig.list(1).machines}


async def refused_once(rig: Rig, shortage: Shortage) -> str:
    """Let a Create run into `shortage`; returns its machine."""
    machine = next(i for i in rig.ids() if "d4s" in i)
    rig.backend.steps[Kind.CREATE] = short(shortage)
    acked(await rig.create(machine))
    await asyncio.sleep(1)
    return machine


@pytest.mark.behaviour(67)
async def test_a_refusal_withholds_every_offering_that_needs_what_is_short() -> None:
    async with Rig(offers=[FAMILY, BIGGER, OTHER]) as rig:
        machine = await refused_once(rig, family())
        assert listed(rig) == {OTHER.vm_size}
        assert rig.state(machine) == "CREATING"
        assert len(rig.ids()) == OTHER.count + 1


@pytest.mark.behaviour(67)
async def test_a_shortage_lasts_as_long_as_it_says_and_no_longer() -> None:
    async with Rig("--create-timeout", "1m", offers=[FAMILY, BIGGER]) as rig:
        await refused_once(rig, family(seconds=300))
        await asyncio.sleep(320)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert BIGGER.vm_size not in listed(rig)
        await asyncio.sleep(60)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert BIGGER.vm_size in listed(rig)


@pytest.mark.behaviour(67)
async def test_one_probe_each_half_minute_goes_through_whatever_the_offering() -> None:
    async with Rig(offers=[FAMILY, BIGGER]) as rig:
        machines = rig.ids()
        await refused_once(rig, family())
        for machine in machines[1:]:
            acked(await rig.create(machine))
        await asyncio.sleep(1)
        assert rig.backend.count("create") == 1
        await asyncio.sleep(4 * PROBE_EVERY_SECONDS)
        assert rig.backend.count("create") == 5


@pytest.mark.behaviour(67)
async def test_a_success_lifts_all_that_covered_its_offering() -> None:
    async with Rig(offers=[FAMILY, BIGGER]) as rig:
        machine = await refused_once(rig, family())
        rig.backend.short = [replace(family(), key="region", covers=lambda _: True)]
        await rig.parts.survey.take()
        await asyncio.sleep(1)
        assert listed(rig) == set()
        rig.backend.steps[Kind.CREATE] = at_once
        await rig.reaches(machine, "IDLE", within=2 * PROBE_EVERY_SECONDS)
        await asyncio.sleep(1)
        assert listed(rig) == {FAMILY.vm_size, BIGGER.vm_size}


@pytest.mark.behaviour(67)
async def test_two_shortages_of_one_offering_let_a_probe_through_when_both_do() -> None:
    async with Rig(offers=[FAMILY, BIGGER]) as rig:
        machine = await refused_once(rig, family())
        await asyncio.sleep(20)
        wider = replace(family(), key="region", covers=lambda _: True)
        rig.parts.blocks.record(wider)
        await asyncio.sleep(25)
        assert rig.backend.count("create", machine) == 1
        await asyncio.sleep(10)
        assert rig.backend.count("create", machine) == 2


@pytest.mark.behaviour(67)
async def test_a_shortage_that_does_not_cover_the_offer_refused_is_not_asked_about_in_a_rush() -> (
    None
):
    async with Rig(offers=[FAMILY, OTHER]) as rig:
        await refused_once(rig, family(covers=lambda asked: asked.vm_size == OTHER.vm_size))
        assert listed(rig) == {FAMILY.vm_size}
        await asyncio.sleep(60)
        assert 2 <= rig.backend.count("create") <= 12


@pytest.mark.behaviour(67, 74)
async def test_an_offering_that_is_added_or_edited_during_a_shortage_is_covered_too() -> None:
    async with Rig(offers=[FAMILY, OTHER]) as rig:
        await refused_once(rig, family())
        edited = replace(FAMILY, resources={"cpu": "2", "memory": "4Gi"})
        await rig.parts.catalogue.apply([edited, BIGGER, OTHER])
        assert listed(rig) == {OTHER.vm_size}
        shown = [o for c in rig.store.commits for o in c.offerings if not o.withheld]
        assert BIGGER.vm_size not in {o.offer.vm_size for o in shown}
        rig.backend.steps[Kind.CREATE] = at_once
        rig.parts.blocks.lift(BIGGER)
        await asyncio.sleep(1)
        assert listed(rig) == {FAMILY.vm_size, BIGGER.vm_size, OTHER.vm_size}


@pytest.mark.behaviour(67, 74)
async def test_an_offering_edited_into_another_one_is_no_longer_what_was_refused() -> None:
    async with Rig("--create-timeout", "1m", offers=[FAMILY]) as rig:
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.OUT_OF_CAPACITY)
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        await rig.reaches(machine, "FAILED")
        assert listed(rig) == set()
        await rig.parts.catalogue.apply([replace(FAMILY, count=5)])
        assert listed(rig) == set()
        await rig.parts.catalogue.apply([replace(FAMILY, labels={"team": "blue"})])
        assert listed(rig) == {FAMILY.vm_size}


@pytest.mark.behaviour(67)
async def test_what_a_shortage_covers_may_grow_and_shrink() -> None:
    async with Rig(offers=[FAMILY, BIGGER]) as rig:
        large = family(covers=lambda asked: asked.vm_size == BIGGER.vm_size)
        for told, visible in (
            (large, {FAMILY.vm_size}),
            (family(), set()),
            (large, {FAMILY.vm_size}),
        ):
            rig.backend.short = [told]
            await rig.parts.survey.take()
            await asyncio.sleep(1)
            assert listed(rig) == visible


@pytest.mark.behaviour(67)
async def test_what_a_survey_finds_is_withheld_until_a_survey_does_not_find_it() -> None:
    async with Rig(offers=[FAMILY, OTHER]) as rig:
        rig.backend.short = [family(seconds=900)]
        await rig.parts.survey.take()
        await asyncio.sleep(1)
        assert listed(rig) == {OTHER.vm_size}
        rig.backend.short = []
        await rig.parts.survey.take()
        await asyncio.sleep(1)
        assert listed(rig) == {FAMILY.vm_size, OTHER.vm_size}


@pytest.mark.behaviour(67)
async def test_a_survey_that_fails_is_a_condition_and_leaves_what_is_known_to_end_by_itself() -> (
    None
):
    async with Rig(offers=[FAMILY, OTHER]) as rig:
        rig.backend.short = [family(seconds=900)]
        await rig.parts.survey.take()
        rig.backend.short = BackendError(FailureKind.DENIED, "no right to read usages")
        await asyncio.sleep(600)
        await rig.parts.survey.take()
        (condition,) = rig.conditions.standing()
        assert condition.name == "capacity-survey"
        assert "no right to read usages" in condition.message
        assert listed(rig) == {OTHER.vm_size}
        await asyncio.sleep(301)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert listed(rig) == {FAMILY.vm_size, OTHER.vm_size}
        rig.backend.short = []
        await rig.parts.survey.take()
        assert rig.conditions.standing() == []


@pytest.mark.behaviour(67)
async def test_a_survey_does_not_overrule_a_refusal_of_the_same_thing() -> None:
    async with Rig("--create-timeout", "1m", offers=[FAMILY, BIGGER]) as rig:
        machine = await refused_once(rig, family(seconds=600))
        await rig.reaches(machine, "FAILED", within=61)
        rig.backend.short = [family(seconds=900)]
        await rig.parts.survey.take()
        rig.backend.short = []
        await rig.parts.survey.take()
        await asyncio.sleep(1)
        assert BIGGER.vm_size not in listed(rig)
        await asyncio.sleep(600)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert BIGGER.vm_size in listed(rig)


@pytest.mark.behaviour(67)
async def test_a_refusal_that_ends_leaves_what_a_survey_still_says() -> None:
    async with Rig("--create-timeout", "1m", offers=[FAMILY, BIGGER]) as rig:
        await refused_once(rig, family(seconds=100))
        rig.backend.short = [family(seconds=900)]
        await rig.parts.survey.take()
        await asyncio.sleep(300)
        rig.parts.blocks.expire()
        await asyncio.sleep(1)
        assert BIGGER.vm_size not in listed(rig)


async def test_operators_see_how_much_is_withheld_and_why() -> None:
    async with Rig(offers=[FAMILY, BIGGER, OTHER]) as rig:
        assert rig.parts.notes() == {}
        await refused_once(rig, family())
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.OUT_OF_CAPACITY, "ZonalFailure")
        acked(await rig.create(next(i for i in rig.ids() if "f8s" in i)))
        await asyncio.sleep(1)
        text = rig.parts.notes()["capacity"]
        assert text.startswith("3 offerings withheld: ")
        assert "100 of 100 vCPUs" in text
        assert "Standard_F8s_v2 on_demand in eastus-1: ZonalFailure" in text
        assert rig.conditions.standing() == []
        rig.parts.refresh_metrics()
        sample = rig.metrics.registry.get_sample_value
        assert sample("bigfleet_azure_capacity_blocks", {"source": "refusal"}) == 2
        assert sample("bigfleet_azure_capacity_blocks", {"source": "survey"}) == 0


@pytest.mark.behaviour(67)
async def test_many_refusals_of_one_offering_are_one_block_and_one_look_at_it() -> None:
    async with Rig(offers=[offer(200)]) as rig:
        machines = rig.ids()
        rig.backend.steps[Kind.CREATE] = refusing(FailureKind.QUOTA)
        await asyncio.gather(*(rig.create(machine) for machine in machines[:-1]))
        await asyncio.sleep(1)
        withheld = [c for c in rig.store.commits if any(o.withheld for o in c.offerings)]
        assert len(withheld) == 1


@pytest.mark.behaviour(94)
async def test_an_offer_whose_size_is_not_known_yet_waits_and_does_not_hold_up_others() -> None:
    async with Rig(offers=[OTHER]) as rig:
        rig.backend.unknown = {FAMILY.vm_size}
        applied = await rig.parts.catalogue.apply([FAMILY, OTHER])
        assert (applied.added, applied.unknown) == (0, 1)
        assert listed(rig) == {OTHER.vm_size}
        rig.backend.unknown.clear()
        applied = await rig.parts.catalogue.apply([FAMILY, OTHER])
        assert (applied.added, applied.unknown) == (FAMILY.count, 0)
        assert listed(rig) == {FAMILY.vm_size, OTHER.vm_size}


@pytest.mark.behaviour(94)
async def test_a_known_offer_keeps_what_it_published_while_its_size_is_not_known() -> None:
    rig = Rig(offers=[FAMILY])
    await rig.__aenter__()
    ids = rig.ids()
    again = await rig.restarted()
    again.backend.unknown = {FAMILY.vm_size}
    again.backend.price = 0.9
    async with again:
        assert again.ids() == ids
        assert {m.price_per_hour for m in again.list().machines} == {0.2}
        await again.parts.catalogue.apply([replace(FAMILY, count=5)])
        assert len(again.ids()) == 5
        again.backend.unknown.clear()
        await again.parts.catalogue.apply([replace(FAMILY, count=5)])
        assert {m.price_per_hour for m in again.list().machines} == {0.9}


async def test_a_size_that_does_not_exist_is_refused_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Rig(offers=[OTHER]) as rig:

        def facts(_: object, asked: Offer) -> None:
            raise BackendError(FailureKind.INVALID, f"no size {asked.vm_size}")

        monkeypatch.setattr(type(rig.backend), "facts", facts)
        with pytest.raises(OffersRefused, match="no size Standard_D4s_v5"):
            await rig.parts.catalogue.apply([FAMILY])
