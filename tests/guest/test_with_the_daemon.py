"""The agent in a machine and the daemon that made it: from Azure's announcement to the shard."""

import copy
from email.utils import formatdate
from pathlib import Path

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.azure.test_live_notices import site_of, token
from tests.guest.agents import Agent
from tests.guest.imds import Imds, preempt
from tests.support.azure import _free_port

pytestmark = pytest.mark.process


@pytest.mark.behaviour(70)
async def test_an_eviction_that_azure_announces_in_the_machine_drains_it(
    tmp_path: Path, agent: Agent, imds: Imds, imds_url: str
) -> None:
    port = _free_port()
    async with site_of(tmp_path, f"--callback-addr=127.0.0.1:{port}", keep=None) as site:
        machine, other = await site.ids(2, "spot")
        await site.configured(machine)
        await site.idle(other)
        agent.token.write_text(token(site, machine) + "\n")
        imds.name = machine
        settings = {
            "BIGFLEET_TEST_IMDS": imds_url,
            "BIGFLEET_CALLBACK_URL": f"http://127.0.0.1:{port}",
            "BIGFLEET_MACHINE_ID": machine,
        }
        async with agent.running(**settings):
            document = copy.deepcopy(preempt())
            before = formatdate(site.arm.clock.now() + 600, usegmt=True)
            document["Events"][0] |= {"Resources": [machine], "NotBefore": before}
            imds.document = document
            await site.reaches(machine, "DRAINING", "FAILED", by_list=True)
            failed = await site.reaches(machine, "FAILED", by_list=True)
        assert document["Events"][0]["EventId"] in failed.last_error
        assert (await site.get(other)).state == pb.MACHINE_STATE_IDLE
        assert await site.metric("bigfleet_azure_notices_total", outcome="taken") == 1
        assert token(site, machine) not in agent.words()


@pytest.mark.behaviour(77)
async def test_an_agent_with_the_token_of_an_earlier_life_ends_refused(
    tmp_path: Path, agent: Agent, imds: Imds, imds_url: str
) -> None:
    async with site_of(tmp_path) as site:
        machine = (await site.ids(1, "spot"))[0]
        await site.idle(machine)
        agent.token.write_text(token(site, machine) + "\n")
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        await site.idle(machine)
        document = copy.deepcopy(preempt())
        document["Events"][0]["Resources"] = [machine]
        imds.document, imds.name = document, machine
        settings = {
            "BIGFLEET_TEST_IMDS": imds_url,
            "BIGFLEET_CALLBACK_URL": f"http://127.0.0.1:{site.http}",
            "BIGFLEET_MACHINE_ID": machine,
        }
        async with agent.running(**settings):
            await agent.says("401")
        assert (await site.get(machine)).state == pb.MACHINE_STATE_IDLE
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
