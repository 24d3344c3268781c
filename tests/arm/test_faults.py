"""Scripted faults strike the calls that they name, and the ledger tells what they led to."""

import aiohttp
import pytest

from tests.arm.client import vm_body
from tests.support.arm.faults import AFTER, BEFORE, Fault, error


async def test_a_fault_strikes_the_calls_it_names_and_no_others(arm, client):
    arm.faults.add(Fault("vm.put", name="m-2", skip=1, times=1, answer=error(500, "Oops")))
    for name, status in (("m-1", 201), ("m-2", 201), ("m-2", 500), ("m-2", 409)):
        assert (await client.put_vm(name, vm_body(arm, name))).status == status


async def test_an_answer_may_have_any_body(arm, client):
    for body in ("<html>Bad gateway</html>", {"code": "Bare", "message": "no wrapper"}, None):
        scripted = error(502, "X")
        scripted.body = body
        arm.faults.add(Fault("group.get", answer=scripted))
        async with client.session.get(
            arm.endpoint + client.group + "?api-version=2021-04-01",
            headers={"Authorization": f"Bearer {client.token}"},
        ) as answer:
            assert answer.status == 502
            text = await answer.text()
            assert text == ("" if body is None else text)
            assert ("html" in text) is isinstance(body, str)


async def test_a_connection_that_breaks_before_acceptance_leaves_nothing(arm, client):
    arm.faults.add(Fault("vm.put", drop=BEFORE, times=2))
    with pytest.raises(aiohttp.ClientError):
        await client.put_vm()
    assert arm.vms() == []


async def test_a_connection_that_breaks_after_acceptance_leaves_a_vm(arm, client):
    # The transport sends a PUT again by itself when a kept connection breaks.
    arm.faults.add(Fault("vm.put", drop=AFTER, times=2))
    with pytest.raises(aiohttp.ClientError):
        await client.put_vm(headers={"If-None-Match": "*"})
    assert [vm.name for vm in arm.vms()] == ["m-1"]
    assert len(arm.ledger.ever("Microsoft.Compute/virtualMachines")) == 1
    assert {each.status for each in arm.exchanges} == {0}


async def test_a_delay_is_in_azure_seconds(arm, client):
    arm.faults.add(Fault("vm.get", delay=120))
    before = arm.clock.now()
    await client.get(client.vm())
    assert arm.clock.now() - before >= 120


async def test_exchanges_hold_both_sides(arm, client):
    await client.put_vm(headers={"If-None-Match": "*"})
    exchange = arm.exchanges[-1]
    assert (exchange.method, exchange.route, exchange.name) == ("PUT", "vm.put", "m-1")
    assert exchange.template.endswith("/virtualMachines/{vmName}")
    assert exchange.query == {"api-version": "2026-04-01"}
    assert exchange.request["location"] == "eastus"
    assert exchange.request_headers["If-None-Match"] == "*"
    assert "Authorization" not in exchange.request_headers
    assert (exchange.status, exchange.response["name"]) == (201, "m-1")
    assert exchange.headers["Azure-AsyncOperation"].startswith(arm.endpoint)


async def test_the_ledger_finds_two_vms_of_one_machine(arm, client):
    tags = {"bigfleet-machine-id": "m-1", "bigfleet-owner": "us"}
    await client.created("m-1", vm_body(arm, "m-1", tags=tags))
    await client.deleted("m-1")
    await client.created("m-1", vm_body(arm, "m-1", tags=tags, attempt="a2"))
    arm.ledger.assert_nothing_doubled()
    await client.put_vm("twin", vm_body(arm, "twin", tags=tags))
    with pytest.raises(AssertionError, match="two VMs for one machine"):
        arm.ledger.assert_nothing_doubled()


async def test_the_ledger_finds_what_should_be_gone(arm, client):
    await client.created()
    arm.ledger.assert_nothing_leaked()
    arm.ledger.assert_nothing_leaked(keep=["m-1"])
    with pytest.raises(AssertionError, match="should be gone"):
        arm.ledger.assert_nothing_leaked(keep=[])


async def test_a_vm_that_somebody_deletes_takes_its_parts_along(arm, client):
    await client.created()
    arm.vanish("m-1")
    assert (await client.get(client.vm())).status == 404
    arm.ledger.assert_nothing_leaked(keep=())
