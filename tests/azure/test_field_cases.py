"""What goes wrong in the field, through the whole daemon (field cases A to H).

The double plays Azure's part; time runs three hundred times faster for both.
"""

import asyncio

import aiohttp
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.arm.client import Client
from tests.support.arm.cloud import GROUP
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import AFTER, BEFORE, Fault, error, operation_error
from tests.support.arm.ledger import DISK, NIC, VM
from tests.support.azure import Site, until

pytestmark = pytest.mark.slow

QUOTA = "standardDSv5Family"
"""The family of the built-in on-demand size, of four cores."""


async def foreign(arm: ArmDouble, method: str, path: str, json: object, version: str) -> int:
    """A write of somebody else."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=_context(arm))) as session:
        client = Client(arm, session)
        return (await client.send(method, path, json, version=version)).status


def _context(arm: ArmDouble):
    import ssl

    return ssl.create_default_context(cafile=arm.ca_file)


# A: leaks and deletes


async def test_a_nic_reserved_for_a_failed_vm_is_deleted_when_azure_lets_it_go(tmp_path):
    """A1: its deletion is refused with 400 for 180 s."""
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", operation=operation_error("AllocationFailed")))
        site.arm.faults.add(Fault("vm.delete", leave=("nic", "disk")))
        await site.idle(machine)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        await until(lambda: not (site.arm.ledger.alive(NIC) or site.arm.ledger.alive(DISK)))


async def test_the_shell_of_a_failed_allocation_goes_before_its_disk(tmp_path):
    """A8: the failure comes in the poll; a disk that the shell holds cannot be deleted."""
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", operation=operation_error("AllocationFailed")))
        await site.idle(machine)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        refused = [c for c in site.arm.ledger.calls if c.route == "disk.delete" and c.status >= 400]
        assert not refused
        assert len(site.arm.ledger.ever(VM)) == 2


async def test_a_vm_that_came_up_although_its_create_failed_is_adopted(tmp_path):
    """A9, B6: a newer write preempted the create, and the VM is fine."""
    async with Site(tmp_path, speed=100) as site:
        [machine] = await site.ids(1)
        site.arm.quirks.conflict = "preempt"
        await site.create(machine)
        await until(site.arm.vms)
        path = f"{site.arm.vm(machine).id}"
        patched = await foreign(
            site.arm, "PATCH", path, {"tags": dict(site.arm.vm(machine).tags)}, "2026-04-01"
        )
        assert patched == 200
        await site.reaches(machine, "IDLE")
        assert site.arm.ledger.count("vm.put") == 1
        assert site.arm.ledger.count("vm.delete") == 0


@pytest.mark.parametrize("owner", ["somebody-else", None])
async def test_a_foreign_vm_under_our_name_is_never_touched(tmp_path, owner):
    """A10: names prove nothing."""
    async with Site(tmp_path, leaks=True) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        vm = site.arm.vm(machine)
        vm.retag({"bigfleet-managed": "true", "bigfleet-owner": owner} if owner else {})
        await site.reaches(machine, "SPECULATIVE", by_list=True)
        await site.passes(900)
        assert site.arm.ledger.count("vm.delete") == 0
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "exists and is not this operation's" in failed.last_error
        await site.passes(900)
        assert site.arm.ledger.count("vm.delete") == 0


async def test_machines_that_a_list_leaves_out_are_not_taken_for_gone(tmp_path):
    """A11: partial lists, for days."""
    async with Site(tmp_path) as site:
        machines = await site.ids(4)
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        site.arm.lists.hidden.append(machines[0])
        before = site.arm.ledger.count("vm.list")
        await until(lambda: site.arm.ledger.count("vm.list") >= before + 3)
        found = await site.machines()
        assert {found[machine].state for machine in machines} == {pb.MACHINE_STATE_IDLE}


async def test_an_empty_list_loses_nothing(tmp_path):
    """A11, B3."""
    async with Site(tmp_path) as site:
        machines = await site.ids(4)
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        site.arm.lists.empty = True
        before = site.arm.ledger.count("vm.list")
        await until(lambda: site.arm.ledger.count("vm.list") >= before + 3)
        found = await site.machines()
        assert {found[machine].state for machine in machines} == {pb.MACHINE_STATE_IDLE}
        assert site.arm.ledger.count("vm.delete") == 0


async def test_a_lock_on_the_group_makes_a_condition_and_goes_away_with_it(tmp_path):
    """ScopeLocked on a deletion is owed until somebody removes the lock."""
    from tests.support.arm.access import Lock

    async with Site(tmp_path, "--failed-dwell=1m", keep=()) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        lock = Lock(f"/subscriptions/{site.arm.cloud.subscription}/resourceGroups/{GROUP}")
        site.arm.access.locks.append(lock)
        await site.delete(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "ScopeLocked" in failed.last_error
        await site.machines()
        await site.shows("debts", "ScopeLocked")
        site.arm.access.locks.clear()
        await until(lambda: not site.arm.vms())


async def test_a_group_that_is_being_deleted_takes_no_machine(tmp_path):
    """A19: never taken for a machine that exists already."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.access.deleting_groups.add(GROUP)
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "ResourceGroupBeingDeleted" in failed.last_error


# B: creates and operations


@pytest.mark.parametrize("existing", [412, 409])
async def test_a_create_whose_answer_was_lost_is_not_sent_as_another_vm(tmp_path, existing):
    """B1: the PUT is repeated only with If-None-Match, and what exists is adopted."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.quirks.existing = existing
        site.arm.faults.add(Fault("vm.put", drop=AFTER))
        await site.idle(machine)
        assert len(site.arm.ledger.ever(VM)) == 1


async def test_a_create_that_never_arrived_is_sent_again(tmp_path):
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", drop=BEFORE))
        await site.idle(machine)
        assert len(site.arm.ledger.ever(VM)) == 1


@pytest.mark.behaviour(63)
async def test_a_vm_that_stays_in_creating_fails_alone_and_is_removed(tmp_path):
    """B2: a wait without an end stopped a whole scheduler."""
    async with Site(tmp_path, "--create-timeout=4m", "--failed-dwell=1m", keep=None) as site:
        stuck, other = await site.ids(2)
        site.arm.faults.add(Fault("vm.put", name=stuck, seconds=100_000.0))
        await site.create(stuck)
        await site.idle(other)
        failed = await site.reaches(stuck, "FAILED")
        assert "create deadline exceeded after 240s" in failed.last_error
        await site.machines()
        await until(lambda: [vm.name for vm in site.arm.vms()] == [other])


async def test_throttled_reads_at_start_remove_nothing(tmp_path):
    """B3: a pool of 200 was cut to 3 for a 429 at start."""
    async with Site(tmp_path) as site:
        machines = await site.ids(3)
        await asyncio.gather(*(site.configured(machine) for machine in machines))
        await site.kill()
        for route in ("vm.list", "vm.get", "skus", "group.get"):
            site.arm.faults.add(Fault(route, times=None, answer=error(429, "TooManyRequests")))
        await site.boot()
        assert {(await site.machines())[m].state for m in machines} == {pb.MACHINE_STATE_CONFIGURED}
        await site.shows("substrate")
        await site.passes(600)
        assert {(await site.machines())[m].state for m in machines} == {pb.MACHINE_STATE_CONFIGURED}
        site.arm.faults.clear()
        await site.drain(machines[0])
        await site.reaches(machines[0], "IDLE")
        assert site.arm.ledger.count("vm.delete") == 0


async def test_a_guest_that_reports_late_is_waited_for(tmp_path):
    """B9: OSProvisioningTimedOut, and the VM may still come up."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", operation=operation_error("OSProvisioningTimedOut")))
        await site.create(machine)
        await until(lambda: site.arm.vms() and site.arm.vm(machine).state == "Failed")
        await site.passes(60)
        vm = site.arm.vm(machine)
        vm.state, vm.shell, vm.power = "Succeeded", False, "running"
        entry = site.arm.ledger.entry(vm.id)
        assert entry is not None
        entry.failed = False
        await site.reaches(machine, "IDLE")
        assert site.arm.ledger.count("vm.put") == 1


# C: quota and capacity


@pytest.mark.behaviour(67)
async def test_a_family_quota_is_waited_out_and_its_slots_are_withheld(tmp_path):
    """C1."""
    async with Site(tmp_path) as site:
        first, second = await site.ids(2)
        site.arm.capacity.quotas[QUOTA] = 4
        await site.idle(first)
        await site.create(second)
        text = await site.shows("offerings withheld", QUOTA)
        assert "ready" in text
        assert (await site.get(second)).state == pb.MACHINE_STATE_CREATING
        unused = [m for m in (await site.machines()).values() if m.state == 1]
        assert unused
        assert all("-spot-" in machine.id for machine in unused)
        site.arm.capacity.quotas[QUOTA] = 100
        await site.reaches(second, "IDLE")
        assert len(await site.ids(1)) == 1


async def test_a_size_that_is_not_to_be_had_is_found_in_nested_details(tmp_path):
    """C6."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1, "spot")
        nested = error(
            409,
            "InvalidTemplateDeployment",
            "See details.",
            details=[{"code": "SkuNotAvailable", "message": "for Capacity Restrictions"}],
        )
        fault = site.arm.faults.add(Fault("vm.put", times=2, answer=nested))
        await site.create(machine)
        await site.shows("offerings withheld", "SkuNotAvailable")
        await site.reaches(machine, "IDLE")
        assert fault.struck == 2


async def test_a_size_that_the_subscription_may_not_have_is_withheld_for_most_of_a_day(tmp_path):
    """Its refusal is definite for the machine, and what it says about the size is believed."""
    flags = ("--reconcile-interval=0", "--price-refresh=0", "--failed-dwell=0")
    async with Site(tmp_path, *flags) as site:
        [machine] = await site.ids(1)
        no = error(400, "VMSizeNotSupported", "The VM size is not supported.")
        site.arm.faults.add(Fault("vm.put", name=machine, answer=no))
        await site.create(machine)
        await site.reaches(machine, "FAILED", by_list=True)
        await site.shows("2 offerings withheld", "VMSizeNotSupported: short of size standard_d4s")

        async def unused() -> set[str]:
            found = (await site.machines()).values()
            return {one.instance_type for one in found if one.state == pb.MACHINE_STATE_SPECULATIVE}

        assert await unused() == {"Standard_F8s_v2"}
        site.arm.clock.speed = 20_000
        await site.passes(22 * 3600)
        assert await unused() == {"Standard_F8s_v2"}
        async with asyncio.timeout(20):
            while await unused() != {"Standard_D4s_v5", "Standard_F8s_v2"}:
                await site.passes(900)


async def test_a_full_subnet_is_waited_out(tmp_path):
    """C10."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", times=2, answer=error(400, "SubnetIsFull")))
        await site.idle(machine)


async def test_a_read_only_subscription_fails_what_is_asked_and_serves_the_rest(tmp_path):
    """C11."""
    async with Site(tmp_path) as site:
        first, second = await site.ids(2)
        await site.idle(first)
        site.arm.access.read_only_subscription = True
        await site.create(second)
        failed = await site.reaches(second, "FAILED")
        assert "ReadOnlyDisabledSubscription" in failed.last_error
        assert (await site.machines())[first].state == pb.MACHINE_STATE_IDLE


# D: throttling


@pytest.mark.behaviour(67)
async def test_a_throttle_under_a_quotas_code_blocks_nothing(tmp_path):
    """D1: 429 OperationNotAllowed without Retry-After."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        told = '{"operationGroup":"HighCostGetVMScaleSet3Min","allowedRequestCount":162}'
        throttle = error(
            429,
            "OperationNotAllowed",
            "The server rejected the request because too many requests have been received.",
            details=[
                {"code": "TooManyRequests", "target": "HighCostGetVMScaleSet3Min", "message": told}
            ],
        )
        site.arm.faults.add(Fault("vm.put", answer=throttle))
        begun = site.arm.clock.now()
        await site.idle(machine)
        assert site.arm.clock.now() - begun >= 60
        _, text = await site.page("/readyz?verbose")
        assert "withheld" not in text


# G: credentials


async def test_a_wrong_secret_is_one_condition_and_fails_no_machine(tmp_path):
    """G1."""
    from tests.support.arm.identity import CLIENT, SECRET

    async with Site(tmp_path) as site:
        first, second = await site.ids(2)
        await site.idle(first)
        await site.kill()
        site.arm.identity.clients[CLIENT] = "another"
        await site.boot()
        await site.shows("credential", "AADSTS7000215")
        await site.create(second)
        await site.passes(120)
        found = await site.machines()
        assert found[first].state == pb.MACHINE_STATE_IDLE
        assert found[second].state == pb.MACHINE_STATE_CREATING
        site.arm.identity.clients[CLIENT] = SECRET
        await site.reaches(second, "IDLE")
        assert "credential" not in (await site.page("/readyz?verbose"))[1]


# H: Spot


@pytest.mark.behaviour(71, 72)
async def test_an_evicted_idle_machine_walks_to_speculative_and_its_vm_is_deleted(tmp_path):
    """H1: policy Delete, but the evicted VM stays deallocated."""
    async with Site(tmp_path, "--spot-eviction-policy=Deallocate", keep=()) as site:
        [machine] = await site.ids(1, "spot")
        await site.idle(machine)
        site.arm.evict(machine)
        await site.reaches(machine, "DELETING", by_list=True)
        await site.reaches(machine, "SPECULATIVE", by_list=True)
        assert await site.metric("bigfleet_azure_spot_evictions_total") == 1
        await until(lambda: not site.arm.vms())


@pytest.mark.behaviour(70)
async def test_an_evicted_bound_machine_walks_through_draining_to_failed(tmp_path):
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1, "spot")
        await site.configured(machine)
        site.arm.evict(machine)
        await site.reaches(machine, "DRAINING", by_list=True)
        failed = await site.reaches(machine, "FAILED", by_list=True)
        assert "host lost" in failed.last_error
        assert failed.cluster == "blue"


@pytest.mark.behaviour(72)
async def test_a_machine_that_somebody_deleted_or_shut_down_is_given_back(tmp_path):
    async with Site(tmp_path, keep=()) as site:
        gone, stopped = await site.ids(2)
        await asyncio.gather(site.idle(gone), site.idle(stopped))
        site.arm.vanish(gone)
        site.arm.shut_down(stopped)
        for machine in (gone, stopped):
            await site.reaches(machine, "SPECULATIVE", by_list=True)
        await until(lambda: not site.arm.vms())
