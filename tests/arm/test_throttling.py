"""The buckets: what each call costs, what is left, and what an empty one says."""

import json

import pytest

from tests.arm.client import script_body, vm_body
from tests.support.arm.buckets import Bucket
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault, error
from tests.support.arm.identity import CLIENT


def remaining(answer):
    text = answer.headers["x-ms-ratelimit-remaining-resource"]
    return dict(each.removeprefix("Microsoft.Compute/").split(";") for each in text.split(","))


async def test_each_call_tells_what_is_left_of_its_buckets(arm, client):
    put = await client.put_vm()
    assert put.headers["x-ms-ratelimit-remaining-resource"] == (
        "Microsoft.Compute/PutVMSubscriptionMaximum;1499,Microsoft.Compute/PutVMResource;11"
    )
    assert put.headers["x-ms-ratelimit-remaining-subscription-writes"] == "199"
    assert put.headers["x-ms-ratelimit-remaining-subscription-global-writes"] == "2999"
    poll = await client.get(put.headers["Azure-AsyncOperation"])
    assert list(remaining(poll)) == ["GetOperationResource", "GetOperationSubscriptionMaximum"]
    assert poll.headers["x-ms-ratelimit-remaining-subscription-global-reads"] == "3749"
    get = await client.get(client.vm())
    assert remaining(get) == {
        "LowCostGetSubscriptionMaximum": "23999",
        "LowCostGetResource": "35",
    }
    listed = await client.get(client.group + "/providers/Microsoft.Compute/virtualMachines")
    assert remaining(listed) == {"HighCostGetSubscriptionMaximum": "899"}
    deleted = await client.send("DELETE", client.vm())
    assert remaining(deleted)["DeleteVMResource"] == "11"
    assert deleted.headers["x-ms-ratelimit-remaining-subscription-deletes"] == "199"


async def test_start_and_extensions_are_updates_and_deallocate_is_a_delete(arm, client):
    await client.created()
    start = await client.send("POST", client.vm(rest="/start"))
    assert remaining(start)["UpdateVMResource"] == "11"
    await client.ended(start)
    extension = await client.send("PUT", client.vm(rest="/extensions/hook"), script_body())
    assert "UpdateVMResource" in remaining(extension)
    await client.ended(extension)
    assert "DeleteVMResource" in remaining(await client.send("POST", client.vm(rest="/deallocate")))


async def test_one_vm_has_a_bucket_of_its_own(arm, client):
    await client.created("m-1")
    await client.created("m-2", vm_body(arm, "m-2"))
    while (await client.get(client.vm())).status == 200:
        pass
    refused = await client.get(client.vm())
    assert refused.status == 429
    assert remaining(refused)["LowCostGetResource"] == "0"
    assert 1 <= int(refused.headers["Retry-After"]) <= 5
    assert (await client.get(client.vm("m-2"))).status == 200


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("with_header", [True, False])
async def test_a_throttle_of_compute_comes_in_both_shapes(arm, client, wrapped, with_header):
    arm.buckets.shape.wrapped, arm.buckets.shape.retry_after = wrapped, with_header
    arm.buckets.empty("HighCostGet", arm.cloud.subscription)
    answer = await client.get(client.group + "/providers/Microsoft.Compute/virtualMachines")
    assert answer.status == 429
    assert ("Retry-After" in answer.headers) is with_header
    body = answer.body["error"] if wrapped else answer.body
    assert body["code"] == "OperationNotAllowed"
    [detail] = body["details"]
    assert (detail["code"], detail["target"]) == (
        "TooManyRequests",
        "HighCostGetSubscriptionMaximum",
    )
    assert json.loads(detail["message"])["allowedRequestCount"] == 900


async def test_a_throttle_of_arm_is_per_principal(arm, client):
    arm.buckets.empty("writes", arm.cloud.subscription, CLIENT)
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (429, "SubscriptionRequestsThrottled")
    assert answer.headers["Retry-After"] == "1"
    assert (await client.get(client.vm())).status == 404
    other = arm.identity.issue("another-principal")
    assert (await client.put_vm(token=other)).status == 201
    assert [call.route for call in arm.ledger.throttled()] == ["vm.put"]


async def test_others_drain_what_is_shared(arm, client):
    arm.buckets.drain("PutVM", 500 / 60 + 10)
    await client.put_vm()
    await arm.clock.sleep(160)
    answer = await client.put_vm("m-2", vm_body(arm, "m-2"))
    assert answer.status == 429
    assert remaining(answer)["PutVMSubscriptionMaximum"] == "0"
    arm.buckets.drain("PutVM", 0)
    await arm.clock.sleep(int(answer.headers["Retry-After"]) and 1)
    assert (await client.put_vm("m-2", vm_body(arm, "m-2"))).status == 201


async def test_buckets_fill_with_time():
    now = [0.0]
    bucket = Bucket(200, 10.0, lambda: now[0])
    assert all(bucket.take() for _ in range(200))
    assert not bucket.take()
    assert bucket.wait() == 1
    now[0] = 5.0
    assert [bucket.take() for _ in range(51)] == [True] * 50 + [False]
    now[0] = 1e6
    assert bucket.left == 200


async def test_reads_can_have_the_small_budget():
    double = ArmDouble(small_reads=True)
    assert double.buckets.sizes["HighCostGet"] == ((90, 30), None)


async def test_the_network_has_a_window_and_no_header(arm, client):
    arm.buckets.empty("NetworkWrites", arm.cloud.subscription)
    path = client.group + "/providers/Microsoft.Network/publicIPAddresses/one"
    answer = await client.send("PUT", path, {"location": "eastus"})
    assert answer.status == 429
    assert "x-ms-ratelimit-remaining-resource" not in answer.headers


async def test_a_429_of_the_network_need_not_be_a_throttle(arm, client):
    details = [{"code": "ReferencedResourceNotProvisioned", "message": "Updating state"}]
    arm.faults.add(Fault("vm.put", answer=error(429, "RetryableError", details=details)))
    answer = await client.put_vm()
    assert (answer.status, answer.code) == (429, "RetryableError")
    assert "Retry-After" not in answer.headers
    assert (await client.put_vm()).status == 201


async def test_the_ledger_counts_calls_by_bucket(arm, client):
    await client.put_vm()
    counted = arm.ledger.by_bucket()
    assert (counted["PutVM"], counted["writes"]) == (1, 1)
    assert arm.ledger.count("vm.put", method="PUT") == arm.ledger.count() == 1
