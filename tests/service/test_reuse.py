"""A slot that comes back under the same id waits for what its last host left."""

import asyncio

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.debt import Debt
from tests.support.rig import Rig, acked, offer

looptime = pytest.mark.looptime


@looptime
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
