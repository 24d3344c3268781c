"""Work that was accepted, or left by an earlier process, while the substrate cannot be reached."""

import asyncio

import pytest

from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.executor import OPENING_SECONDS
from tests.support.rig import Rig, acked, at_once, never

pytestmark = pytest.mark.looptime


@pytest.mark.behaviour(94)
async def test_what_is_accepted_meanwhile_waits_and_begins_when_the_substrate_is_there() -> None:
    async with Rig(reachable=False) as rig:
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        await asyncio.sleep(300)
        assert rig.backend.calls == []
        assert rig.state(machine) == "CREATING"
        rig.parts.opened.set()
        await rig.reaches(machine, "IDLE", within=5)


@pytest.mark.behaviour(63, 94)
async def test_a_deadline_passes_also_while_the_substrate_is_away_and_what_is_owed_waits() -> None:
    async with Rig("--create-timeout", "2m", reachable=False) as rig:
        machine = rig.ids()[0]
        acked(await rig.create(machine))
        failed = await rig.reaches(machine, "FAILED", within=121)
        assert "deadline exceeded after 120s" in failed.last_error
        assert "the substrate was not reached yet" in failed.last_error
        await asyncio.sleep(600)
        assert rig.backend.calls == []
        rig.parts.opened.set()
        await asyncio.sleep(1)
        assert rig.backend.calls == [("reclaim", machine)]


@pytest.mark.behaviour(78, 94)
async def test_what_may_have_been_reached_while_we_were_down_waits_for_the_substrate_a_while() -> (
    None
):
    rig = Rig("--create-timeout", "2m")
    await rig.__aenter__()
    first = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = never
    acked(await rig.create(first))
    await asyncio.sleep(1)
    work = rig.backend.work[-1]
    rig.backend.steps[Kind.CREATE] = at_once
    await rig.backend.create(work)
    again = await rig.restarted("--create-timeout", "2m", reachable=False)
    await asyncio.sleep(300)
    async with again:
        await asyncio.sleep(OPENING_SECONDS - 1)
        assert again.state(first) == "CREATING"
        again.parts.opened.set()
        await again.reaches(first, "IDLE", within=1)


@pytest.mark.behaviour(78, 94)
async def test_no_operation_of_an_earlier_process_waits_for_the_substrate_for_ever() -> None:
    rig = Rig("--create-timeout", "2m")
    await rig.__aenter__()
    machine = rig.ids()[0]
    rig.backend.steps[Kind.CREATE] = never
    acked(await rig.create(machine))
    await asyncio.sleep(1)
    again = await rig.restarted("--create-timeout", "2m", reachable=False)
    await asyncio.sleep(300)
    async with again:
        await again.reaches(machine, "FAILED", within=OPENING_SECONDS + 1)
