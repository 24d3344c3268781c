"""Every refusal of the table of errors, met by the whole daemon.

A definite refusal ends in FAILED with Azure's code; one that may pass is waited out, and the
machine reaches its goal. No refusal is an RPC error, doubles a machine or leaves anything behind.
"""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.errors import RETRYABLE
from tests.azure.refusals import EXAMPLES, Example
from tests.support.arm.faults import BEFORE, Fault, error, operation_error
from tests.support.azure import Site

OF_THE_GUEST = ("VMExtension", "VMAgent")
"""Codes of operations on extensions; all others of operations are on VMs."""

NOT_INJECTED = ("Credential", "invalid_client")
"""No token: the call is not sent at all. Met by the tests of credentials."""


def fault_of(example: Example, route: str, name: str) -> Fault:
    """The double's fault that gives the example's answer once."""
    failure = example.failure
    details = [
        {"code": each.code, "message": each.message, "target": each.target}
        for each in failure.details
    ]
    if failure.status == 0:
        return Fault(route, name=name, drop=BEFORE)
    if failure.status == 200:
        told = operation_error(failure.code, failure.message, details=details)
        return Fault(route, name=name, operation=told)
    wait = failure.retry_after
    headers = {} if wait is None else {"Retry-After": f"{wait.total_seconds():.0f}"}
    return Fault(
        route,
        name=name,
        answer=error(
            failure.status, failure.code, failure.message, details=details, headers=headers
        ),
    )


def examples(belongs: Callable[[Example], bool]) -> list[Example]:
    """Those that can be injected, and of which the test is."""
    return [e for e in EXAMPLES if belongs(e) and e.failure.code not in NOT_INJECTED]


def of_the_guest(example: Example) -> bool:
    codes = (example.failure.code, *(each.code for each in example.failure.details))
    return any(code.startswith(OF_THE_GUEST) for code in codes)


def at_create(example: Example) -> bool:
    return example.failure.call == "vm.put" or (
        example.failure.call == "compute.operation"
        and not of_the_guest(example)
        # An address that is forgotten is an answer to a poll; a guest that is late is a field case.
        and example.failure.status == 200
        and example.code != "OSProvisioningTimedOut"
    )


async def ends(site: Site, machines: Iterable[str], within: float) -> dict[str, pb.Machine]:
    """The machines once none is on its way any more."""
    settled = {
        pb.MACHINE_STATE_IDLE,
        pb.MACHINE_STATE_CONFIGURED,
        pb.MACHINE_STATE_SPECULATIVE,
        pb.MACHINE_STATE_FAILED,
    }
    async with asyncio.timeout(within):
        while True:
            found = await site.machines()
            left = [found[m] for m in machines if m in found and found[m].state not in settled]
            if not left:
                return {m: found.get(m, pb.Machine()) for m in machines}
            await asyncio.sleep(0.1)


def judge(example: Example, machine: pb.Machine, goal: int) -> str:
    """What is wrong with a machine's end; "" when nothing is."""
    state = pb.MachineState.Name(machine.state)
    if example.kind in RETRYABLE or "exists" in example.flags:
        return "" if machine.state == goal else f"{example}: {state}: {machine.last_error}"
    if machine.state != pb.MACHINE_STATE_FAILED:
        return f"{example}: {state}, not FAILED"
    if example.code.lower() not in machine.last_error.lower():
        return f"{example}: FAILED without {example.code}: {machine.last_error}"
    return ""


@pytest.mark.behaviour(62, 67)
async def test_each_refusal_of_a_create_ends_as_the_table_says(tmp_path):
    told = examples(at_create)
    flags = ("--failed-dwell=0", "--reconcile-interval=0")
    async with Site(tmp_path, *flags, seed_count=4 * len(told)) as site:
        for name in ("cores", "standardDSv5Family"):
            site.arm.capacity.quotas[name] = 10_000
        machines = await site.ids(len(told))
        for machine, example in zip(machines, told, strict=True):
            site.arm.faults.add(fault_of(example, "vm.put", machine))
        await asyncio.gather(*(site.create(machine) for machine in machines))
        found = await ends(site, machines, within=60)
        wrong = [
            text
            for machine, example in zip(machines, told, strict=True)
            if (text := judge(example, found[machine], pb.MACHINE_STATE_IDLE))
        ]
        assert not wrong, "\n".join(wrong)
        assert all(fault.struck == 1 for fault in site.arm.faults.all)


@pytest.mark.behaviour(62, 67)
async def test_each_refusal_of_a_configure_ends_as_the_table_says(tmp_path):
    told = examples(lambda e: of_the_guest(e) or e.failure.call in ("extension.put", "tags.patch"))
    async with Site(tmp_path, "--failed-dwell=0", seed_count=4 * len(told)) as site:
        for name in ("cores", "standardDSv5Family"):
            site.arm.capacity.quotas[name] = 10_000
        machines = await site.ids(len(told))
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        for machine, example in zip(machines, told, strict=True):
            # The tags API names the VM by its whole path.
            tags = example.failure.call == "tags.patch"
            route, name = ("tags.patch", f"*/{machine}") if tags else ("extension.put", machine)
            site.arm.faults.add(fault_of(example, route, name))
        await asyncio.gather(*(site.configure(machine) for machine in machines))
        found = await ends(site, machines, within=60)
        wrong = []
        for machine, example in zip(machines, told, strict=True):
            # What the guest's agent could not do is tried again until the deadline.
            again = of_the_guest(example) and found[machine].state == pb.MACHINE_STATE_CONFIGURED
            text = judge(example, found[machine], pb.MACHINE_STATE_CONFIGURED)
            if text and not again:
                wrong.append(text)
        assert not wrong, "\n".join(wrong)
        assert all(fault.struck == 1 for fault in site.arm.faults.all)


@pytest.mark.behaviour(62, 67)
async def test_each_refusal_of_a_delete_ends_as_the_table_says(tmp_path):
    told = examples(lambda e: e.failure.call == "vm.delete" and "gone" not in e.flags)
    async with Site(tmp_path, "--failed-dwell=0", seed_count=4 * len(told)) as site:
        machines = await site.ids(len(told))
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        for machine, example in zip(machines, told, strict=True):
            site.arm.faults.add(fault_of(example, "vm.delete", machine))
            await site.delete(machine)
        found = await ends(site, machines, within=30)
        wrong = [
            text
            for machine, example in zip(machines, told, strict=True)
            if (text := judge(example, found[machine], pb.MACHINE_STATE_SPECULATIVE))
        ]
        assert not wrong, "\n".join(wrong)


async def test_reads_that_are_refused_on_the_way_lose_no_machine(tmp_path):
    told = examples(lambda e: e.failure.call == "vm.get" and e.kind in RETRYABLE)
    assert told
    async with Site(tmp_path, seed_count=4 * len(told)) as site:
        machines = await site.ids(len(told))
        for machine, example in zip(machines, told, strict=True):
            site.arm.faults.add(fault_of(example, "vm.get", machine))
        await asyncio.gather(*(site.idle(machine) for machine in machines))


async def test_an_operation_whose_address_is_forgotten_is_found_by_its_vm(tmp_path):
    [example] = [e for e in EXAMPLES if e.name == "an operation that is forgotten"]
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        fault = site.arm.faults.add(fault_of(example, "compute.operation", "*"))
        await site.idle(machine)
        assert fault.struck == 1
        assert site.arm.ledger.count("vm.put") == 1
