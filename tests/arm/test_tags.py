"""The tags API, and the limits of tags wherever they are written."""

import pytest

from tests.arm.client import vm_body
from tests.support.arm.faults import Fault, error

VERSION = "2024-03-01"
FIRST = {"bigfleet-machine-id": "m-1", "bigfleet-owner": "us"}


@pytest.fixture
async def tags(client):
    await client.created()

    async def write(operation, values):
        body = {"operation": operation, "properties": {"tags": values}}
        path = client.vm(rest="/providers/Microsoft.Resources/tags/default")
        return await client.send("PATCH", path, body, version=VERSION)

    return write


async def test_merge_adds_and_replaces_and_keeps_the_rest(client, tags):
    answer = await tags("Merge", {"bigfleet-cluster": "blue", "bigfleet-owner": "them"})
    expected = FIRST | {"bigfleet-cluster": "blue", "bigfleet-owner": "them"}
    assert (answer.status, answer.body["properties"]["tags"]) == (200, expected)
    assert answer.body["id"].endswith("/providers/Microsoft.Resources/tags/default")
    assert (await client.get(client.vm())).body["tags"] == expected


async def test_delete_goes_by_the_key_whatever_the_value(client, tags):
    await tags("Merge", {"bigfleet-cluster": "blue"})
    answer = await tags("Delete", {"bigfleet-cluster": "", "never-there": "x"})
    assert answer.body["properties"]["tags"] == FIRST


async def test_replace_takes_all_others_away(client, tags):
    assert (await tags("Replace", {"a": "b"})).body["properties"]["tags"] == {"a": "b"}


async def test_names_are_compared_without_case_and_values_with_it(client, tags):
    answer = await tags("Merge", {"BigFleet-Owner": "Us"})
    assert answer.body["properties"]["tags"] == FIRST | {"bigfleet-owner": "Us"}
    answer = await tags("Delete", {"BIGFLEET-OWNER": ""})
    assert "bigfleet-owner" not in answer.body["properties"]["tags"]


async def test_a_write_may_be_accepted_only_and_done_later(arm, client, tags):
    arm.quirks.tags = 202
    answer = await tags("Merge", {"late": "tag"})
    assert answer.status == 202
    url = answer.headers["Location"]
    assert (await client.get(url)).status == 202
    await arm.clock.sleep(5)
    assert (await client.get(url)).status == 200
    assert (await client.get(client.vm())).body["tags"]["late"] == "tag"


async def test_a_write_during_another_write_conflicts(client, tags):
    accepted = await client.send("PATCH", client.vm(), {"properties": {}})
    answer = await tags("Merge", {"a": "b"})
    assert (answer.status, answer.code) == (409, "ConflictingConcurrentWriteNotAllowed")
    await client.ended(accepted)
    assert (await tags("Merge", {"a": "b"})).status == 200


async def test_a_scripted_conflict_changes_nothing(arm, client, tags):
    arm.faults.add(Fault("tags.patch", answer=error(409, "Conflict")))
    assert (await tags("Merge", {"a": "b"})).status == 409
    assert "a" not in (await client.get(client.vm())).body["tags"]


@pytest.mark.parametrize(
    "values",
    [
        {f"k{number}": "v" for number in range(49)},
        {"k": "v" * 257},
        {"k" * 513: "v"},
        {f"k{number}": "v" * 250 for number in range(9)},
        {"a/b": "v"},
        {"azure-mine": "v"},
    ],
    ids=["51 tags", "long value", "long name", "too much in all", "forbidden", "reserved"],
)
async def test_limits_are_kept_and_refusals_change_nothing(client, tags, values):
    assert (await tags("Merge", values)).status == 400
    assert (await client.get(client.vm())).body["tags"] == FIRST


async def test_what_just_fits_is_taken(client, tags):
    assert (await tags("Merge", {f"k{number}": "v" for number in range(48)})).status == 200
    assert (await tags("Replace", {"k": "v" * 256})).status == 200
    fits = {f"k{number}": "v" * 254 for number in range(8)}
    assert (await tags("Replace", fits)).status == 200


async def test_the_same_limits_hold_at_creation(arm, client):
    answer = await client.put_vm(body=vm_body(arm, tags={"k": "v" * 257}))
    assert answer.status == 400
    answer = await client.put_vm(body=vm_body(arm, tags={"a": "1", "A": "2"}))
    assert answer.status == 400


async def test_a_tag_write_costs_no_update_of_the_vm(arm, client, tags):
    before = arm.ledger.by_bucket()
    await tags("Merge", {"a": "b"})
    after = arm.ledger.by_bucket()
    assert after["writes"] == before["writes"] + 1
    assert after["UpdateVM"] == before["UpdateVM"]


async def test_tags_are_read_put_and_taken_away_as_a_resource(client, tags):
    path = client.vm(rest="/providers/Microsoft.Resources/tags/default")
    assert (await client.get(path)).body["properties"]["tags"] == FIRST
    answer = await client.send("PUT", path, {"properties": {"tags": {"a": "b"}}})
    assert answer.body["properties"]["tags"] == {"a": "b"}
    assert (await client.send("DELETE", path)).status == 200
    assert (await client.get(path)).body["properties"]["tags"] == {}
