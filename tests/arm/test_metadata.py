"""Tokens of managed identities, asked for by the identity library and by hand."""

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import CredentialUnavailableError
from azure.identity.aio import ManagedIdentityCredential

from tests.support.arm.faults import Fault
from tests.support.arm.identity import CLIENT
from tests.support.arm.wire import Answer


@pytest.fixture
def ask(arm, client):
    async def get(headers=None, **query):
        query = {"api-version": "2018-02-01", "resource": arm.endpoint} | query
        url = f"{arm.metadata_endpoint}/metadata/identity/oauth2/token"
        given = {"Metadata": "true"} if headers is None else headers
        async with client.session.get(url, params=query, headers=given) as answer:
            return answer.status, await answer.json()

    return get


@pytest.fixture
async def identity(arm, monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", arm.metadata_endpoint)
    async with ManagedIdentityCredential() as found:
        yield found


async def token_of(credential, arm):
    return (await credential.get_token(f"{arm.endpoint}/.default")).token


async def test_the_identity_of_the_vm_gets_a_token_that_opens_arm(arm, client, identity):
    token = await token_of(identity, arm)
    assert (await client.get(client.group, token=token)).status == 200
    assert arm.identity.requests == {"metadata": 1}


async def test_an_assigned_identity_is_chosen_by_its_client_id(arm, identity, ask):
    async with ManagedIdentityCredential(client_id=CLIENT) as assigned:
        assert await token_of(assigned, arm)
    status, body = await ask(client_id=CLIENT)
    assert (status, body["client_id"]) == (200, CLIENT)


async def test_an_identity_that_was_not_assigned_is_refused(arm, identity):
    async with ManagedIdentityCredential(client_id="another") as assigned:
        with pytest.raises(CredentialUnavailableError, match="has not been assigned"):
            await token_of(assigned, arm)


@pytest.mark.parametrize(
    ("assigned", "said"), [((), "Identity not found"), (("a", "b"), "Multiple user assigned")]
)
async def test_without_an_identity_of_its_own_the_choice_must_be_clear(arm, ask, assigned, said):
    arm.metadata.system = False
    arm.metadata.assigned = set(assigned)
    status, body = await ask()
    assert status == 400
    assert said in body["error_description"]
    arm.metadata.assigned = {"a"}
    assert (await ask())[1]["client_id"] == "a"


async def test_a_request_that_some_website_could_make_is_refused(ask):
    status, body = await ask(headers={})
    assert (status, body["error"]) == (400, "invalid_request")
    assert "metadata header" in body["error_description"]


@pytest.mark.parametrize("query", [{"api-version": "1999-01-01"}, {"resource": ""}])
async def test_a_request_must_be_complete(ask, query):
    assert (await ask(**query))[0] == 400


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404),
        Answer(410),
        Answer(429, None, {"Retry-After": "1"}),
        Answer(500),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_an_outage_that_passes_is_ridden_out_by_the_library(arm, identity, answer):
    arm.faults.add(Fault("metadata.token", answer=answer))
    assert await token_of(identity, arm)
    assert arm.ledger.count("metadata.token") == 2


async def test_what_the_library_does_not_try_again_is_an_authentication_error(arm, identity):
    arm.faults.add(Fault("metadata.token", answer=Answer(401, {"error": "unknown_source"})))
    with pytest.raises(ClientAuthenticationError):
        await token_of(identity, arm)
