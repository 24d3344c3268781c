"""The token service, asked by the identity library and by hand."""

import asyncio

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity.aio import WorkloadIdentityCredential

from tests.support.arm.identity import (
    CLIENT,
    EXPIRED_SECRET,
    OUTAGE,
    SECRET,
    TENANT,
    federated_token,
)


@pytest.fixture
def ask(arm, client):
    async def post(**form):
        url = f"{arm.endpoint}/{TENANT}/oauth2/v2.0/token"
        async with client.session.post(url, data=form) as answer:
            return answer.status, await answer.json()

    return post


async def test_a_service_principal_gets_a_token_that_opens_arm(client, ask):
    status, body = await ask(
        client_id=CLIENT, client_secret=SECRET, grant_type="client_credentials"
    )
    assert (status, body["token_type"]) == (200, "Bearer")
    assert (await client.get(client.group, token=body["access_token"])).status == 200


async def test_a_wrong_secret_is_told_in_the_words_of_entra(ask):
    status, body = await ask(client_id=CLIENT, client_secret="no")
    assert (status, body["error"], body["error_codes"]) == (401, "invalid_client", [7000215])
    assert body["error_description"].startswith("AADSTS7000215: ")


async def test_an_unknown_application_is_told(ask):
    status, body = await ask(client_id="nobody", client_secret="no")
    assert (status, body["error"]) == (400, "unauthorized_client")


@pytest.fixture
async def workload(arm, tmp_path):
    (tmp_path / "token").write_text("federated")
    async with WorkloadIdentityCredential(
        tenant_id=TENANT,
        client_id=CLIENT,
        token_file_path=str(tmp_path / "token"),
        authority=arm.authority,
        disable_instance_discovery=True,
        connection_verify=arm.ca_file,
    ) as credential:
        yield credential


async def test_a_workload_identity_trades_its_file_for_a_token(arm, client, workload):
    arm.identity.assertions = {"federated"}
    token = await workload.get_token(f"{arm.endpoint}/.default")
    assert (await client.get(client.group, token=token.token)).status == 200
    assert arm.identity.requests == {"assertion": 1}


async def test_a_federated_token_that_nobody_knows_is_refused(arm, workload):
    arm.identity.assertions = {"another"}
    with pytest.raises(ClientAuthenticationError, match="AADSTS700213"):
        await workload.get_token(f"{arm.endpoint}/.default")


async def test_a_federated_token_lives_as_long_as_it_says(arm, workload, tmp_path):
    (tmp_path / "token").write_text(federated_token(-1))
    with pytest.raises(ClientAuthenticationError, match="AADSTS700024"):
        await workload.get_token(f"{arm.endpoint}/.default")


async def test_a_secret_can_expire(arm, ask):
    arm.identity.expired_secrets.add(SECRET)
    status, body = await ask(client_id=CLIENT, client_secret=SECRET)
    assert (status, body["error_codes"]) == (401, [EXPIRED_SECRET])


async def test_an_outage_refuses_everybody_and_passes(arm, ask):
    good = {"client_id": CLIENT, "client_secret": SECRET}
    arm.identity.refusing = OUTAGE
    assert (await ask(**good))[0] == 503
    arm.identity.refusing = None
    assert (await ask(**good))[0] == 200
    assert arm.identity.requests == {"secret": 2}


async def test_short_lived_tokens_are_renewed_again_and_again(arm, client, credential):
    arm.identity.lifetime = 1
    tokens = set()
    for _ in range(3):
        token = (await credential.get_token(f"{arm.endpoint}/.default")).token
        assert (await client.get(client.group, token=token)).status == 200
        tokens.add(token)
        await asyncio.sleep(1.01)  # tokens live in real time: the library knows no other
    assert len(tokens) == arm.identity.requests["secret"] == 3


async def test_discovery_leads_back_to_the_double(arm, client):
    url = f"{arm.endpoint}/common/discovery/instance?api-version=1.1"
    async with client.session.get(url) as answer:
        assert (await answer.json())["tenant_discovery_endpoint"].startswith(arm.endpoint)


async def test_revoked_tokens_open_nothing(arm, client):
    arm.identity.revoke_all()
    assert (await client.get(client.group)).status == 401
