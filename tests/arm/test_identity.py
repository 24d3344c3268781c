"""The token service, asked by the identity library and by hand."""

import pytest
from azure.identity.aio import WorkloadIdentityCredential

from tests.support.arm.identity import CLIENT, SECRET, TENANT


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


async def test_a_workload_identity_trades_its_file_for_a_token(arm, client, tmp_path):
    arm.identity.assertions = {"federated"}
    file = tmp_path / "token"
    file.write_text("federated")
    async with WorkloadIdentityCredential(
        tenant_id=TENANT,
        client_id=CLIENT,
        token_file_path=str(file),
        authority=arm.authority,
        disable_instance_discovery=True,
        connection_verify=arm.ca_file,
    ) as credential:
        token = await credential.get_token(f"{arm.endpoint}/.default")
    assert (await client.get(client.group, token=token.token)).status == 200


async def test_discovery_leads_back_to_the_double(arm, client):
    url = f"{arm.endpoint}/common/discovery/instance?api-version=1.1"
    async with client.session.get(url) as answer:
        assert (await answer.json())["tenant_discovery_endpoint"].startswith(arm.endpoint)


async def test_revoked_tokens_open_nothing(arm, client):
    arm.identity.revoke_all()
    assert (await client.get(client.group)).status == 401
