"""Who the daemon is to Azure, through the whole daemon: each kind of credential, and its outages.

Tokens live in real time, so that these tests take some seconds.
"""

import asyncio

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault
from tests.support.arm.identity import CLIENT, OUTAGE, TENANT, federated_token
from tests.support.arm.wire import Answer
from tests.support.azure import Site

pytestmark = pytest.mark.slow


@pytest.fixture
async def arm():
    async with ArmDouble(speed=300) as double:
        double.operations.retry_after.none()
        yield double


def workload(arm, file):
    return {
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_FEDERATED_TOKEN_FILE": str(file),
        "AZURE_AUTHORITY_HOST": arm.authority,
    }


async def test_one_credential_renews_its_token_again_and_again(arm, tmp_path):
    """G3: a credential that is closed after its first use works only until the token ends."""
    arm.identity.lifetime = 1
    async with Site(tmp_path, arm=arm, keep=()) as site:
        for machine in await site.ids(3):
            before = arm.identity.requests["secret"]
            await site.idle(machine)
            await asyncio.sleep(1.05)  # tokens live in real time: the library knows no other
            await site.delete(machine)
            await site.reaches(machine, "SPECULATIVE")
            assert arm.identity.requests["secret"] > before
    assert {call.status for call in arm.ledger.calls if call.route == "vm.put"} == {201}


async def test_a_workload_identity_is_chosen_by_its_file(arm, tmp_path):
    file = tmp_path / "token"
    file.write_text(federated_token())
    async with Site(tmp_path, arm=arm, env=workload(arm, file), keep=None) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
    assert arm.identity.requests.keys() == {"assertion"}


async def test_a_federated_token_may_be_rotated_again_and_again(arm, tmp_path):
    """A cluster replaces the token in its file; the one of before is then good for nothing."""
    file = tmp_path / "token"
    arm.identity.lifetime = 1
    rotations = [federated_token(3600 + number) for number in range(3)]
    file.write_text(rotations[0])
    arm.identity.assertions = {rotations[0]}
    async with Site(tmp_path, arm=arm, env=workload(arm, file), keep=None) as site:
        for machine, token in zip(await site.ids(3), rotations, strict=True):
            before = arm.identity.requests["assertion"]
            file.write_text(token)
            arm.identity.assertions = {token}
            await asyncio.sleep(1.05)  # tokens live in real time: the library knows no other
            await site.idle(machine)
            assert arm.identity.requests["assertion"] > before
    assert len(set(rotations)) == 3
    assert arm.identity.requests.keys() == {"assertion"}


async def test_an_expired_federated_token_is_one_condition_and_fails_no_machine(arm, tmp_path):
    file = tmp_path / "token"
    file.write_text(federated_token())
    async with Site(tmp_path, arm=arm, env=workload(arm, file), keep=None) as site:
        [machine] = await site.ids(1)
        await site.kill()
        file.write_text(federated_token(-1))
        await site.boot()
        await site.create(machine)
        await site.shows("credential", "AADSTS700024")
        assert (await site.machines())[machine].state == pb.MACHINE_STATE_CREATING
        await site.kill()
        file.write_text(federated_token())
        await site.boot()
        await site.reaches(machine, "IDLE")


async def test_a_managed_identity_is_used_where_nothing_else_is_given(arm, tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", arm.metadata_endpoint)
    gone = {"error": "gone", "error_description": "Scripted."}
    arm.faults.add(Fault("metadata.token", answer=Answer(410, gone)))
    async with Site(tmp_path, arm=arm, env={}, keep=None) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
    assert arm.identity.requests.keys() == {"metadata"}


async def test_the_identity_of_a_client_id_is_the_one_that_is_asked_for(arm, tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", arm.metadata_endpoint)
    arm.metadata.assigned = {CLIENT, "another"}
    arm.metadata.system = False
    env = {"AZURE_CLIENT_ID": CLIENT}
    async with Site(tmp_path, "--credential=managed-identity", arm=arm, env=env) as site:
        assert await site.ids(1)
    callers = {call.principal for call in arm.ledger.calls if call.route == "group.get"}
    assert callers == {CLIENT}


async def test_an_outage_of_the_token_service_fails_no_machine(arm, tmp_path):
    async with Site(tmp_path, arm=arm, keep=None) as site:
        [machine] = await site.ids(1)
        await site.kill()
        arm.identity.refusing = OUTAGE
        await site.boot()
        await site.create(machine)
        await site.shows("credential", "AADSTS90033")
        arm.identity.refusing = None
        await site.reaches(machine, "IDLE")
