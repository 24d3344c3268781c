"""A start while Azure cannot be reached: what is stored is served, and else nothing."""

import asyncio

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.arm.faults import BEFORE, Fault, error
from tests.support.azure import Site, until

pytestmark = pytest.mark.slow

GATEWAY = {"x-ms-failure-cause": "gateway"}
DOWN = error(503, "ServiceUnavailable", headers=GATEWAY)


def outage(form: str) -> Fault:
    """Azure is away: all of it, or ARM alone, which answers in its way or not at all."""
    match form:
        case "nothing answers":
            return Fault("*", times=None, drop=BEFORE)
        case "no connection to ARM":
            return Fault("[!t]*", times=None, drop=BEFORE)
        case _:
            return Fault("[!t]*", times=None, answer=DOWN)


@pytest.mark.behaviour(80, 94)
@pytest.mark.parametrize("form", ["no connection to ARM", "ARM is down"])
async def test_what_is_stored_is_served_while_azure_is_away_and_work_waits_for_it(tmp_path, form):
    async with Site(tmp_path) as site:
        bound, free, creating, unused = await site.ids(4)
        await asyncio.gather(site.configured(bound, group="a\0b"), site.idle(free))
        hold = site.arm.faults.add(Fault("vm.put", name=creating, drop=BEFORE, times=None))
        await site.create(creating)
        await until(lambda: hold.struck)
        before = await site.machines()
        await site.kill()
        site.arm.faults.add(outage(form))
        await site.boot()
        assert await site.machines() == before
        await site.shows("substrate")
        acks = [await site.create(unused), await site.drain(bound), await site.delete(free)]
        assert [ack.machine.state for ack in acks] == [
            pb.MACHINE_STATE_CREATING,
            pb.MACHINE_STATE_DRAINING,
            pb.MACHINE_STATE_DELETING,
        ]
        await site.passes(300)
        found = await site.machines()
        assert {m.id for m in found.values() if m.state == pb.MACHINE_STATE_FAILED} == set()
        assert found[unused].state == pb.MACHINE_STATE_CREATING
        site.arm.faults.clear()
        for machine, goal in (
            (unused, "IDLE"),
            (creating, "IDLE"),
            (bound, "IDLE"),
            (free, "SPECULATIVE"),
        ):
            await site.reaches(machine, goal)
        text = await site.shows("ready")
        assert "substrate" not in text


async def _closed(site: Site) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        await site.machines()
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.behaviour(94)
@pytest.mark.parametrize("form", ["nothing answers", "ARM is down"])
async def test_without_a_stored_inventory_nothing_is_served_until_azure_was_asked(tmp_path, form):
    async with Site(tmp_path) as site:
        [bound] = await site.ids(1)
        await site.configured(bound)
        await site.wipe()
        site.arm.faults.add(outage(form))
        await site.boot(wait=False)
        await site.shows("not ready", "substrate", status=503)
        assert await site.page("/healthz") == (200, "ok")
        await _closed(site)
        await site.passes(300)
        await _closed(site)
        site.arm.faults.clear()
        first = await site.machines(wait_for_ready=True)
        assert first[bound].state == pb.MACHINE_STATE_CONFIGURED
        text = await site.shows("ready")
        assert "substrate" not in text


@pytest.mark.behaviour(94)
async def test_a_first_inventory_that_fails_keeps_the_service_closed_over_a_restart_too(tmp_path):
    async with Site(tmp_path) as site:
        [bound] = await site.ids(1)
        await site.configured(bound)
        await site.wipe()
        site.arm.faults.add(Fault("nic.list", times=None, answer=DOWN))
        for _ in range(2):
            await site.kill()
            await site.boot(wait=False)
            await site.shows("not ready", "substrate-inventory", status=503)
            await _closed(site)
        site.arm.faults.clear()
        first = await site.machines(wait_for_ready=True)
        assert first[bound].state == pb.MACHINE_STATE_CONFIGURED
