"""What an Azure that means harm, and people who help it, could bring about: the whole daemon.

At the end of each test nothing may be leaked or doubled (`tests.support.azure`).
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.azure.market import Market
from bigfleet_azure.backends.azure.options import (
    NO_CALLBACK,
    AzureOptions,
    MarketOptions,
    VmProfile,
)
from bigfleet_azure.backends.azure.planning import Planner
from bigfleet_azure.telemetry.metrics import Metrics
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.ledger import DISK, NIC, PUBLIC_IP, VM
from tests.support.arm.resources import Nic
from tests.support.arm.wire import Answer
from tests.support.azure import Site, until

pytestmark = pytest.mark.slow

Json = dict[str, Any]

OURS = {"bigfleet-managed": "true", "bigfleet-owner": "azure/eastus"}


def report_elsewhere(arm: ArmDouble, route: str, address: str) -> None:
    """Operations of `route` are reported on at another address."""
    original = arm.operations.headers

    def headers(operation: Any, call: Any, *, location: bool) -> dict[str, str]:
        given: dict[str, str] = original(operation, call, location=location)
        if call.route == route:
            reported = {"Azure-AsyncOperation", "Location"} & given.keys()
            given |= dict.fromkeys(reported, address)
        return given

    arm.operations.headers = headers  # type: ignore[method-assign]


async def walk(site: Site, machine: str) -> None:
    """Create, Configure, Drain, Delete."""
    await site.configured(machine)
    await site.drain(machine)
    await site.reaches(machine, "IDLE")
    await site.delete(machine)
    await site.reaches(machine, "SPECULATIVE")


# Operations


@pytest.mark.parametrize("route", ["vm.put", "extension.put", "vm.delete"])
@pytest.mark.parametrize("address", ["https://evil.example/operations/1", "nonsense"])
async def test_an_operation_that_is_reported_on_elsewhere_is_told_by_the_resource(
    tmp_path, route, address
):
    limits = ("--create-timeout=8m", "--delete-timeout=8m")
    async with Site(tmp_path, *limits, keep=(), true=False) as site:
        report_elsewhere(site.arm, route, address)
        [machine] = await site.ids(1)
        await walk(site, machine)


async def test_a_failed_create_whose_operation_is_forgotten_is_told_by_the_vm(tmp_path):
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", operation=operation_error("AllocationFailed")))
        site.arm.faults.add(Fault("compute.operation", times=None, answer=error(404, "NotFound")))
        await site.create(machine)
        await until(lambda: site.arm.ledger.count("vm.delete"))
        await site.reaches(machine, "IDLE")
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")


async def test_a_wait_of_an_hour_for_an_operation_is_not_believed(tmp_path):
    async with Site(tmp_path, "--create-timeout=8m", keep=()) as site:
        site.arm.operations.retry_after.create = 3600
        site.arm.operations.retry_after.create_poll = 3600
        site.arm.operations.retry_after.later_polls = 3600
        [machine] = await site.ids(1)
        await site.idle(machine)
        site.arm.operations.retry_after.none()
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")


async def test_a_deletion_that_failed_while_nobody_watched_is_asked_for_again(tmp_path):
    async with Site(tmp_path, "--delete-timeout=8m", keep=()) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        site.arm.faults.add(
            Fault("vm.delete", seconds=100, operation=operation_error("InternalExecutionError"))
        )
        await site.delete(machine)
        await until(lambda: site.arm.vm(machine).state == "Deleting")
        await site.kill()
        await site.boot()
        await site.reaches(machine, "SPECULATIVE")
        assert site.arm.ledger.count("vm.delete") == 2


# What others did to what is ours


async def test_a_copy_of_a_vm_with_its_tags_is_left_alone_and_hides_nothing(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s", leaks=True, true=False) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        copy(site.arm, machine, "a-copy")
        site.arm.vanish(machine)
        await site.reaches(machine, "SPECULATIVE", by_list=True)
        await site.passes(500)
        assert {vm.name for vm in site.arm.vms()} == {"a-copy"}
        assert not site.arm.ledger.count("vm.delete")
        await site.idle(machine)
        assert await site.metric("bigfleet_azure_debts") == 0
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        assert {vm.name for vm in site.arm.vms()} == {"a-copy"}


def copy(arm: ArmDouble, machine: str, name: str) -> None:
    """Somebody makes a VM like ours, tags and all."""
    from tests.support.arm.vms import Vm

    vm = arm.vm(machine)
    made = Vm(
        id=vm.id.replace(machine, name),
        type=VM,
        location=vm.location,
        tags=dict(vm.tags),
        sent=vm.sent,
        top=vm.top,
        power="running",
        extra={"tagged": True},
    )
    arm.world.add(made)
    entry = arm.ledger.entry(made.id)
    assert entry is not None
    entry.seeded = True


async def test_parts_of_a_machine_that_a_list_leaves_out_are_no_leftovers(tmp_path):
    async with Site(tmp_path) as site:
        machines = await site.ids(3)
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        site.arm.lists.hidden.append(machines[0])
        before = site.arm.ledger.count("vm.list")
        await until(lambda: site.arm.ledger.count("vm.list") >= before + 8)
        assert await site.metric("bigfleet_azure_debts") == 0
        assert await site.metric("bigfleet_azure_strays_total", outcome="owed") == 0


@pytest.mark.parametrize("holder", ["loadBalancers/lb/frontendIPConfigurations/fe", "other-group"])
async def test_a_part_that_somebody_took_elsewhere_is_left_to_them(tmp_path, holder):
    async with Site(tmp_path, "--public-ip", leaks=True) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        site.arm.faults.add(Fault("vm.delete", leave=("nic", "ip", "disk")))
        kind = taken(site.arm, holder)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        assert site.arm.ledger.alive(kind)
        assert not site.arm.ledger.count(DELETIONS[kind])


DELETIONS = {PUBLIC_IP: "ip.delete", DISK: "disk.delete"}


def taken(arm: ArmDouble, holder: str) -> str:
    """Somebody attaches the machine's disk or address to something of theirs; which of the two."""
    other = f"/subscriptions/{arm.cloud.subscription}/resourceGroups/rescue/providers"
    if holder == "other-group":
        [disk] = arm.world.of_type(DISK)
        vm = f"{other}/Microsoft.Compute/virtualMachines/rescue"
        view = disk.view
        disk.view = lambda: view() | {"managedBy": vm}  # type: ignore[method-assign]
        return DISK
    [address], [nic] = arm.world.of_type(PUBLIC_IP), arm.world.of_type(NIC)
    assert isinstance(nic, Nic)
    nic.address_options.clear()
    nic.properties["ipConfigurations"][0]["properties"].pop("publicIPAddress")
    address.properties["ipConfiguration"] = {"id": f"{other}/Microsoft.Network/{holder}"}
    return PUBLIC_IP


async def test_a_disk_that_only_has_the_tags_of_ours_is_somebodys(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s", leaks=True) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        [disk] = site.arm.world.of_type(DISK)
        restored = replace(disk, id=f"{disk.id.rpartition('/')[0]}/restored", extra={})
        site.arm.world.add(restored)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        await site.passes(500)
        assert [each.name for each in site.arm.ledger.alive(DISK)] == ["restored"]


async def test_a_leftover_that_lost_our_tags_before_it_could_be_removed_stays(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s", leaks=True) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", operation=operation_error("AllocationFailed")))
        site.arm.faults.add(Fault("vm.delete", leave=("disk",)))
        refused = error(409, "AnotherOperationInProgress")
        fault = site.arm.faults.add(Fault("disk.delete", answer=refused, times=None))
        await site.idle(machine)
        await until(lambda: fault.struck)
        left = next(
            each for each in site.arm.world.of_type(DISK) if not each.extra.get("managedBy")
        )
        left.retag({"kept": "by somebody"})
        site.arm.faults.clear()
        await site.passes(150)
        assert await site.metric("bigfleet_azure_debts") == 0
        assert left.name in {each.name for each in site.arm.ledger.alive(DISK)}


async def test_a_bound_machine_whose_cluster_somebody_untagged_is_not_free_after_a_lost_store(
    tmp_path,
):
    async with Site(tmp_path, "--reconcile-interval=30s") as site:
        [machine] = await site.ids(1)
        await site.configured(machine, group="a")
        vm = site.arm.vm(machine)
        vm.retag({key: value for key, value in vm.tags.items() if key != "bigfleet-cluster"})
        await site.wipe()
        await site.boot()
        await site.shows("unplaced-machines", machine)
        await site.passes(350)
        assert (await site.get(machine)).state != pb.MACHINE_STATE_IDLE
        assert site.arm.ledger.count("vm.delete") == 0


# Machines that stopped


@pytest.mark.parametrize("power", ["stopped", "deallocated", "starting"])
async def test_a_bound_machine_whose_guest_was_not_drained_is_never_idle(tmp_path, power):
    async with Site(tmp_path, "--reconcile-interval=0", leaks=True) as site:
        [machine] = await site.ids(1)
        await site.configured(machine)
        vm = site.arm.vm(machine)
        vm.power = power
        await site.drain(machine)
        if power == "starting":
            await site.passes(60)
            assert (await site.get(machine)).state == pb.MACHINE_STATE_DRAINING
            vm.power = "running"
            await site.reaches(machine, "IDLE")
            return
        failed = await site.reaches(machine, "FAILED")
        assert power in failed.last_error
        assert failed.cluster == "blue"


async def test_a_stopped_machine_is_started_before_it_is_configured(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=0") as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        site.arm.shut_down(machine)
        await site.configure(machine)
        await site.reaches(machine, "CONFIGURED")
        assert site.arm.vm(machine).power == "running"
        assert site.arm.ledger.count("vm.start") == 1


# Start


async def test_a_right_to_read_providers_that_is_missing_does_not_keep_the_daemon_down(tmp_path):
    async with Site(tmp_path) as site:
        site.arm.access.denied.append("Microsoft.Resources/subscriptions/providers/read")
        await site.wipe()
        await site.boot()
        [machine] = await site.ids(1)
        await site.idle(machine)


# Somebody else acts in the middle


@pytest.mark.parametrize(
    ("code", "tags", "existing"),
    [
        ("AnotherOperationInProgress", 200, 412),
        ("Conflict", 202, 409),
        ("ConflictingConcurrentWriteNotAllowed", 202, 412),
    ],
)
async def test_conflicts_of_every_form_hold_up_and_fail_nothing(tmp_path, code, tags, existing):
    async with Site(tmp_path, keep=()) as site:
        site.arm.quirks.tags, site.arm.quirks.existing = tags, existing
        for route in ("vm.put", "tags.patch", "extension.put", "vm.delete"):
            site.arm.faults.add(Fault(route, times=2, answer=error(409, code)))
        [machine] = await site.ids(1)
        await walk(site, machine)
        assert len(site.arm.ledger.ever(VM)) == 1


async def test_tags_that_are_accepted_and_then_fail_are_written_again(tmp_path):
    """The `Location` of such an operation answers with the error's own status."""
    async with Site(tmp_path, keep=()) as site:
        site.arm.quirks.tags = 202
        for skip, code in enumerate(("InternalServerError", "Conflict")):
            failed = operation_error(code)
            site.arm.faults.add(Fault("tags.patch", skip=skip, operation=failed))
        [machine] = await site.ids(1)
        await walk(site, machine)
        assert site.arm.ledger.count("tags.patch") == 4


async def test_tags_that_are_accepted_first_are_waited_for_and_written_once(tmp_path):
    """202 has no body, and so has the answer of its `Location`."""
    async with Site(tmp_path, keep=()) as site:
        site.arm.quirks.tags = 202
        site.arm.operations.durations.seconds["tags.patch"] = 40
        [machine] = await site.ids(1)
        await walk(site, machine)
        assert site.arm.ledger.count("tags.patch") == 2


async def test_a_refusal_without_a_body_is_understood_by_its_status(tmp_path):
    async with Site(tmp_path, leaks=True, true=False) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("tags.patch", answer=Answer(403)))
        await site.idle(machine)
        await site.configure(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "status 403" in failed.last_error


@pytest.mark.parametrize("how", ["vanish", "evict", "shut_down"])
@pytest.mark.parametrize("kind", ["configure", "drain"])
async def test_a_machine_that_is_lost_while_its_hook_runs_fails(tmp_path, how, kind):
    async with Site(
        tmp_path, "--spot-eviction-policy=Deallocate", "--reconcile-interval=0", leaks=True
    ) as site:
        [machine] = await site.ids(1, "spot")
        await (site.idle if kind == "configure" else site.configured)(machine)
        site.arm.faults.add(
            Fault(
                "extension.put",
                seconds=60,
                operation=operation_error("VMExtensionProvisioningError"),
            )
        )
        before = site.arm.ledger.count("extension.put")
        await getattr(site, kind)(machine)
        await until(lambda: site.arm.ledger.count("extension.put") > before)
        getattr(site.arm, how)(machine)
        found = await site.reaches(machine, "FAILED", "IDLE", "CONFIGURED")
        if (kind, how) == ("configure", "shut_down"):
            assert found.state == pb.MACHINE_STATE_CONFIGURED
            assert site.arm.vm(machine).power == "running"
        else:
            assert found.state == pb.MACHINE_STATE_FAILED, found
            assert "is lost" in found.last_error


async def test_a_vm_that_somebody_puts_in_the_place_of_one_being_created_is_not_taken(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=0", leaks=True) as site:
        [machine] = await site.ids(1)
        await site.create(machine)
        await until(site.arm.vms)
        site.arm.vm(machine).retag({"owner": "somebody"})
        failed = await site.reaches(machine, "FAILED")
        assert "exists and is not this operation's" in failed.last_error
        await site.passes(120)
        assert not site.arm.ledger.count("vm.delete")


# Lists


async def test_a_list_that_breaks_off_or_never_ends_is_no_list(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s") as site:
        site.arm.lists.page = 1
        machines = await site.ids(3)
        await asyncio.gather(*(site.idle(machine) for machine in machines))
        site.arm.faults.add(Fault("vm.list", skip=1, times=None, answer=error(500, "Internal")))
        await site.shows("substrate-inventory")
        site.arm.faults.clear()
        await site.shows("ready")

        address = f"{site.arm.endpoint}{site.arm.vm(machines[0]).id.rpartition('/')[0]}"
        first_page = {"nextLink": f"{address}?api-version=2026-04-01&$skiptoken=0"}
        site.arm.faults.add(Fault("vm.list", times=None, rewrite=lambda body: body | first_page))
        await site.shows("substrate-inventory", "EndlessList")
        states = {machine.state for machine in (await site.machines()).values()}
        assert states == {pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_SPECULATIVE}


# The daemon itself


async def test_a_throw_away_key_is_made_beside_the_event_loop():
    """An RSA key may take seconds."""
    profile = VmProfile(subnet_id="a")
    options = AzureOptions(
        subscription_id="s", resource_group="g", location="eastus", owner="o", profile=profile
    )
    market = Market(MarketOptions(), "eastus")
    planner = Planner(options, Metrics(), market, NO_CALLBACK)
    making = asyncio.ensure_future(planner.prepare())
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_a_stop_with_many_operations_in_flight_is_quick_and_loses_none(tmp_path):
    async with Site(tmp_path, seed_count=80, keep=None) as site:
        machines = await site.ids(40)
        await asyncio.gather(*(site.create(machine) for machine in machines))
        await until(lambda: site.arm.ledger.count("vm.put") > 10)
        assert site.daemon is not None
        assert site._task is not None
        site.daemon._stop.set()
        async with asyncio.timeout(9):
            await site._task
        await site.kill()
        await site.boot()
        await asyncio.gather(*(site.reaches(machine, "IDLE") for machine in machines))
        assert len(site.arm.ledger.ever(VM)) == 40


# Answers that say nothing


@pytest.mark.parametrize("route", ["vm.get", "vm.list", "nic.list", "extension.get"])
async def test_an_answer_that_lost_its_body_loses_no_machine(tmp_path, route):
    async with Site(tmp_path, "--reconcile-interval=30s", true=False) as site:
        bound, other = await site.ids(2)
        await site.configured(bound)
        site.arm.lists.hidden.append(bound)
        fault = site.arm.faults.add(Fault(route, times=6, rewrite=lambda body: {}))
        await site.create(other)
        await site.reaches(other, "IDLE")
        await site.configure(other)
        await site.reaches(other, "CONFIGURED")
        await until(lambda: fault.struck == 6 or route == "extension.get")
        await site.passes(60)
        assert (await site.get(bound)).state == pb.MACHINE_STATE_CONFIGURED


async def test_an_operation_that_does_not_tell_its_state_is_not_over(tmp_path):
    async with Site(tmp_path, true=False) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        site.arm.faults.add(Fault("extension.put", seconds=90))
        site.arm.faults.add(Fault("compute.operation", times=2, rewrite=lambda body: {}))
        await site.configure(machine)
        await site.reaches(machine, "CONFIGURED")
        assert site.arm.vm(machine).operation is None
        site.arm.faults.clear()
        site.arm.faults.add(Fault("extension.put", seconds=90))
        site.arm.faults.add(Fault("compute.operation", times=2, rewrite=lambda body: {}))
        await site.drain(machine)
        await site.reaches(machine, "IDLE")
        assert site.arm.vm(machine).operation is None


# Lists that are late, creates that break


async def test_lists_that_are_a_quarter_of_an_hour_late_confuse_nobody(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s", keep=()) as site:
        site.arm.lists.lag = 900
        [machine] = await site.ids(1)
        for _ in range(2):
            await walk(site, machine)
        await site.passes(400)
        assert (await site.get(machine)).state == pb.MACHINE_STATE_SPECULATIVE
        assert len(site.arm.ledger.ever(VM)) == 2


@pytest.mark.parametrize("how", ["vanish", "evict"])
async def test_a_machine_that_goes_away_while_it_is_created_is_made_or_given_back(tmp_path, how):
    async with Site(tmp_path, "--spot-eviction-policy=Deallocate", keep=None) as site:
        [machine] = await site.ids(1, "spot")
        await site.create(machine)
        await until(site.arm.vms)
        getattr(site.arm, how)(machine)
        if how == "vanish":
            await site.reaches(machine, "IDLE")
            assert len(site.arm.ledger.ever(VM)) == 2
        else:
            await site.reaches(machine, "IDLE", by_list=True)
            await site.reaches(machine, "SPECULATIVE", by_list=True)
            await until(lambda: not site.arm.vms())


async def test_parts_of_a_failed_create_whose_vm_somebody_deleted_are_removed(tmp_path):
    async with Site(tmp_path, "--create-timeout=3m", "--failed-dwell=1m", keep=()) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", seconds=1e6))
        await site.create(machine)
        await until(site.arm.vms)
        site.arm._compute.end(site.arm.vm(machine), frozenset({"nic", "disk"}))
        site.arm.faults.add(Fault("vm.put", times=None, answer=error(503, "ServiceUnavailable")))
        await site.reaches(machine, "FAILED")
        await until(lambda: not site.arm.ledger.alive(NIC) and not site.arm.ledger.alive(DISK))
