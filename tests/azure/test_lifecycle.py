"""What a machine goes through, well and badly: the whole daemon over the ARM double.

Kills and lost stores are `test_durability`'s and `test_lost_store`'s.
"""

import asyncio
import base64
import json
import os
from collections.abc import Awaitable
from pathlib import Path

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.azure import tags
from tests.azure.kills import scripts_run
from tests.support.arm.access import Lock
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.arm.ledger import DISK, NIC, PARTS, VM
from tests.support.arm.vms import Vm
from tests.support.azure import Site, until

NEVER = 1e9
MIXED = {
    **{f"bigfleet.lucy.sh/assigned-{number}": str(number) for number in range(40)},
    **{f"nul\0{number}": f"a\0b{number}" for number in range(5)},
    **{f"control\x01{number}": "\x7f\n\t" for number in range(4)},
    **{f"ключ-{number}": "värde 機" for number in range(3)},
    **{f"empty-{number}": "" for number in range(3)},
}
assert len(MIXED) == 55

TARGETS = {"create": "IDLE", "configure": "CONFIGURED", "drain": "IDLE", "delete": "SPECULATIVE"}
KINDS = list(TARGETS)


class Scripted(Guest):
    """A guest whose scripts end as told, by machine; else they succeed at once.

    Attributes:
        results: how the script ends; an event is waited for first.
        ran: machine and operation of each script.
    """

    def __init__(self) -> None:
        self.results: dict[str, ScriptResult | asyncio.Event] = {}
        self.scripts: dict[str, list[str]] = {}

    def run(self, vm: Vm, script: str) -> ScriptResult | Awaitable[ScriptResult]:
        self.scripts.setdefault(vm.name, []).append(script)
        result = self.results.get(vm.name, ScriptResult())
        return self._after(result) if isinstance(result, asyncio.Event) else result

    @staticmethod
    async def _after(event: asyncio.Event) -> ScriptResult:
        await event.wait()
        return ScriptResult()


async def ask(site: Site, kind: str, machine: str) -> pb.TransitionAck:
    ack: pb.TransitionAck = await getattr(site, kind)(machine)
    return ack


async def start_of(site: Site, kind: str, machine: str) -> None:
    """Bring the machine to where a call of that kind starts from."""
    if kind == "drain":
        await site.configured(machine)
    elif kind != "create":
        await site.idle(machine)


async def one_of_each(site: Site) -> dict[str, str]:
    """A machine by kind, each where a call of that kind starts from."""
    machines = dict(zip(KINDS, await site.ids(4), strict=True))
    await asyncio.gather(*(start_of(site, kind, machine) for kind, machine in machines.items()))
    return machines


async def refused(attempt: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as refusal:
        await attempt
    code: grpc.StatusCode = refusal.value.code()
    return code


# Well


@pytest.mark.behaviour(6, 7, 10, 38)
async def test_two_full_rounds_leave_nothing_behind(tmp_path):
    async with Site(tmp_path, "--public-ip", keep=()) as site:
        [machine] = await site.ids(1)
        operations: list[str] = []
        for number in range(2):
            for kind in KINDS:
                ack = await ask(site, kind, machine)
                operations.append(ack.operation_id)
                ended = await site.reaches(machine, TARGETS[kind])
                bound = kind == "configure"
                assert ended.cluster == ("blue" if bound else "")
                assert ended.HasField("host") == (kind != "delete")
                assert not ended.last_error
                if kind == "drain":
                    assert not tags.unbinding_tags(site.arm.vm(machine).tags)
            assert len(site.arm.ledger.ever(VM)) == number + 1
            assert not any(site.arm.ledger.alive(part) for part in (VM, *PARTS))
        assert len(set(operations)) == 8
        assert scripts_run(site.arm) == dict.fromkeys(operations[1:3] + operations[5:7], 1)


@pytest.mark.behaviour(20, 41, 42, 43)
async def test_metadata_is_echoed_kept_on_the_vm_and_gone_after_a_drain(tmp_path):
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        ack = await site.configure(machine, "blue", b"join me", **MIXED)
        assert dict(ack.machine.shard_metadata) == MIXED
        bound = await site.reaches(machine, "CONFIGURED")
        assert dict(bound.shard_metadata) == MIXED
        assert dict((await site.machines())[machine].shard_metadata) == MIXED
        vm = site.arm.vm(machine)
        assert vm.tags["bigfleet-cluster"] == "blue"
        assert tags.metadata_of(vm.tags) == MIXED
        await site.drain(machine)
        free = await site.reaches(machine, "IDLE")
        assert not free.shard_metadata
        assert not tags.unbinding_tags(vm.tags)
        await site.configure(machine, "green", b"join me", other="1")
        again = await site.reaches(machine, "CONFIGURED")
        assert dict(again.shard_metadata) == {"other": "1"}
        assert tags.metadata_of(vm.tags) == {"other": "1"}


@pytest.mark.behaviour(41, 79)
async def test_metadata_too_large_for_tags_is_echoed_all_the_same_and_fails_nothing(tmp_path):
    large = {f"key-{number}": os.urandom(200).hex() for number in range(60)}
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        await site.configure(machine, "blue", b"join me", **large)
        assert dict((await site.reaches(machine, "CONFIGURED")).shard_metadata) == large
        assert site.arm.vm(machine).tags["bigfleet-cluster"] == "blue"
        await site.kill()
        await site.boot()
        assert dict((await site.get(machine)).shard_metadata) == large


@pytest.mark.behaviour(21)
async def test_a_blob_of_128_kib_reaches_the_guest_and_one_of_3_mib_is_refused(tmp_path):
    guest, blob = Scripted(), os.urandom(128 * 1024)
    async with Site(tmp_path, guest=guest) as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        code = await refused(site.configure(machine, "blue", os.urandom(3 * 1024 * 1024)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        untouched = await site.get(machine)
        assert (untouched.state, untouched.cluster) == (pb.MACHINE_STATE_IDLE, "")
        await site.configure(machine, "blue", blob)
        await site.reaches(machine, "CONFIGURED")
        [script] = guest.scripts[machine]
        assert base64.b64encode(blob).decode() in script


@pytest.mark.behaviour(76)
async def test_a_machine_is_configuring_until_the_hook_has_ended(tmp_path):
    guest, joined = Scripted(), asyncio.Event()
    async with Site(tmp_path, guest=guest) as site:
        [machine] = await site.ids(1)
        guest.results[machine] = joined
        await site.idle(machine)
        await site.configure(machine)
        await until(lambda: machine in guest.scripts)
        for _ in range(4):
            await site.passes(100)
            assert (await site.get(machine)).state == pb.MACHINE_STATE_CONFIGURING
        joined.set()
        await site.reaches(machine, "CONFIGURED")


# Badly


def breakage(site: Site, guest: Scripted, machines: dict[str, str]) -> None:
    """Let each of the four operations be refused for good."""
    invalid = error(400, "InvalidParameter", "The VM size is not good.")
    site.arm.faults.add(Fault("vm.put", name=machines["create"], times=None, answer=invalid))
    said = ScriptResult(exit_code=3, stdout="asking for the token", stderr="kubeadm: no route")
    guest.results |= {machines["configure"]: said, machines["drain"]: said}
    held = f"{site.arm.vm(machines['delete']).id}"
    site.arm.access.locks.append(Lock(held))


@pytest.mark.behaviour(62, 65, 66)
async def test_a_refusal_by_azure_or_the_guest_ends_in_failed_and_stays_readable(tmp_path):
    guest = Scripted()
    async with Site(tmp_path, "--failed-dwell=0", guest=guest) as site:
        machines = await one_of_each(site)
        breakage(site, guest, machines)
        for kind, machine in machines.items():
            await ask(site, kind, machine)
        failed = {kind: await site.reaches(m, "FAILED") for kind, m in machines.items()}
        assert "InvalidParameter: The VM size is not good." in failed["create"].last_error
        for kind in ("configure", "drain"):
            assert "failed with exit 3" in failed[kind].last_error
            assert "kubeadm: no route" in failed[kind].last_error
            assert failed[kind].cluster == "blue"
        assert "ScopeLocked" in failed["delete"].last_error
        for _ in range(2):
            listed = await site.machines()
            for kind, machine in machines.items():
                assert listed[machine] == failed[kind] == await site.get(machine)
                for attempt in KINDS:
                    code = await refused(ask(site, attempt, machine))
                    assert code is not grpc.StatusCode.FAILED_PRECONDITION
            await site.passes(200)
        assert site.arm.ledger.count("vm.put") == 4
        site.arm.access.locks.clear()


@pytest.mark.behaviour(62)
@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ScriptResult(1, stderr="no such\ntoken"), "failed with exit 1; the guest's last lines: "),
        (ScriptResult(126), "hook missing in image"),
        (ScriptResult(127), "hook missing in image"),
    ],
)
async def test_the_hooks_exit_and_last_lines_are_told(tmp_path, result, told):
    guest = Scripted()
    async with Site(tmp_path, guest=guest) as site:
        [machine] = await site.ids(1)
        guest.results[machine] = result
        await site.idle(machine)
        await site.configure(machine)
        failed = await site.reaches(machine, "FAILED")
        assert told in failed.last_error
        assert f"exit {result.exit_code}" in failed.last_error
        if result.stderr:
            assert "no such | token" in failed.last_error
        assert len(guest.scripts[machine]) == 1


def hang(site: Site) -> None:
    """From now on Azure takes work and never ends it."""
    for route in ("vm.put", "extension.put", "vm.delete"):
        site.arm.faults.add(Fault(route, times=None, seconds=NEVER))


SHORT = [f"--{kind}-timeout=3m" for kind in KINDS]


@pytest.mark.behaviour(63, 66, 76)
async def test_each_kinds_deadline_ends_in_failed_and_says_so(tmp_path):
    async with Site(tmp_path, "--failed-dwell=0", leaks=True) as site:
        machines = await one_of_each(site)
        hang(site)
        await site.kill()
        await site.boot(*SHORT, "--transition-timeout=3m")
        for kind, machine in machines.items():
            await ask(site, kind, machine)
        for kind, machine in machines.items():
            failed = await site.reaches(machine, "FAILED")
            assert f"{kind} deadline exceeded after 180s" in failed.last_error
            assert failed == await site.get(machine)


@pytest.mark.behaviour(64, 73)
@pytest.mark.parametrize("late", ["its operation", "its request"])
async def test_a_vm_that_comes_after_the_deadline_changes_nothing_and_is_removed(tmp_path, late):
    """The request that is under way for so long is born when all was cleared up already."""
    quick = ("--create-timeout=5m", "--failed-dwell=2h", "--reconcile-interval=30s")
    async with Site(tmp_path, *quick, keep=()) as site:
        [machine] = await site.ids(1)
        fault = Fault("vm.put", seconds=600) if late == "its operation" else None
        site.arm.faults.add(fault or Fault("vm.put", delay=600))
        # Nothing is taken away before it has come.
        busy = error(409, "ConflictingConcurrentWriteNotAllowed")
        deleting = site.arm.faults.add(Fault("vm.delete", times=None, answer=busy))
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "create deadline exceeded" in failed.last_error
        await until(lambda: site.arm.vms() and site.arm.vms()[0].state == "Succeeded")
        assert [len(site.arm.ledger.alive(kind)) for kind in (VM, NIC, DISK)] == [1, 1, 1]
        await site.passes(60)
        assert await site.get(machine) == failed
        site.arm.faults.all.remove(deleting)
        await until(lambda: not any(site.arm.ledger.alive(kind) for kind in (VM, *PARTS)))
        assert await site.get(machine) == failed


@pytest.mark.behaviour(64)
async def test_a_hook_that_ends_after_the_deadline_changes_nothing_and_its_vm_goes(tmp_path):
    guest, ended = Scripted(), asyncio.Event()
    async with Site(tmp_path, "--failed-dwell=5m", guest=guest, keep=()) as site:
        joining, leaving = await site.ids(2)
        await asyncio.gather(site.idle(joining), site.configured(leaving))
        guest.results |= {joining: ended, leaving: ended}
        await site.kill()
        await site.boot("--transition-timeout=2m")
        await asyncio.gather(site.configure(joining), site.drain(leaving))
        failed = [await site.reaches(machine, "FAILED") for machine in (joining, leaving)]
        ended.set()
        await site.passes(120)
        assert [await site.get(machine) for machine in (joining, leaving)] == failed
        await site.machines()
        await until(lambda: not any(site.arm.ledger.alive(kind) for kind in (VM, *PARTS)))


TROUBLES: dict[str, list[Fault]] = {
    "429 at every write": [
        Fault(route, times=2, answer=error(429, "TooManyRequests", headers={"Retry-After": "7"}))
        for route in ("vm.put", "tags.patch", "extension.put", "vm.delete")
    ],
    "conflicts": [
        Fault(route, times=3, answer=error(409, "AnotherOperationInProgress"))
        for route in ("tags.patch", "extension.put", "vm.delete")
    ],
    "trouble inside": [
        Fault("vm.put", times=2, answer=error(500, "InternalExecutionError")),
        Fault("tags.patch", times=2, answer=error(503, "ServiceUnavailable")),
        Fault("extension.put", operation=operation_error("InternalExecutionError")),
        Fault("vm.delete", operation=operation_error("InternalExecutionError")),
        Fault("vm.delete", answer=error(504, "GatewayTimeout"), skip=1),
    ],
    "no room": [
        Fault("vm.put", operation=operation_error("AllocationFailed")),
        Fault("vm.put", operation=operation_error("ZonalAllocationFailed"), skip=1),
        Fault("vm.put", answer=error(409, "SkuNotAvailable"), skip=2),
        Fault("vm.put", answer=error(409, "QuotaExceeded"), skip=3),
    ],
    "a network that is throttled inside": [
        Fault("vm.put", operation=operation_error("NetworkingInternalOperationError")),
        Fault("vm.put", operation=operation_error("RetryableError"), skip=1),
    ],
}


@pytest.mark.behaviour(67)
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_that_passes_inside_the_deadline_is_no_failure(tmp_path, trouble):
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1, "spot")
        faults = [
            site.arm.faults.add(
                Fault(
                    one.route,
                    skip=one.skip,
                    times=one.times,
                    answer=one.answer,
                    operation=one.operation,
                )
            )
            for one in TROUBLES[trouble]
        ]
        for kind in KINDS:
            ack = await ask(site, kind, machine)
            ended = await site.reaches(machine, TARGETS[kind], "FAILED")
            assert not ended.last_error
            assert ack.machine.state != ended.state
        for fault in faults:
            assert fault.struck == fault.times
        assert set(scripts_run(site.arm).values()) == {1}


@pytest.mark.behaviour(68, 60)
async def test_failed_capacity_returns_under_a_new_id_and_none_is_lost(tmp_path):
    guest = Scripted()
    async with Site(tmp_path, "--failed-dwell=2m", guest=guest, keep=()) as site:
        machines = await one_of_each(site)
        total = len(await site.machines())
        breakage(site, guest, machines)
        for kind, machine in machines.items():
            await ask(site, kind, machine)
        for machine in machines.values():
            await site.reaches(machine, "FAILED")
        site.arm.access.locks.clear()
        site.arm.faults.clear()
        guest.results.clear()
        async with asyncio.timeout(10):
            while set(machines.values()) & (listed := await site.machines()).keys():
                assert len(listed) == total
                await asyncio.sleep(0.05)
        assert len(listed) == total
        for machine in machines.values():
            assert await refused(site.get(machine)) is grpc.StatusCode.NOT_FOUND
        assert not any(site.arm.ledger.alive(kind) for kind in (VM, *PARTS))
        fresh = await site.ids(4)
        await asyncio.gather(*(site.idle(machine) for machine in fresh))
        await asyncio.gather(*(site.delete(machine) for machine in fresh))
        for machine in fresh:
            await site.reaches(machine, "SPECULATIVE")


# Offerings


def offerings(folder: Path, count: int) -> str:
    path = folder / "offerings.json"
    offer = {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": count}
    path.write_text(json.dumps([offer]))
    return f"--offerings={path}"


@pytest.mark.behaviour(74)
async def test_slots_follow_the_offerings_between_restarts_and_used_ones_stay_until_empty(tmp_path):
    async with Site(tmp_path, offerings(tmp_path, 4)) as site:
        slots = await site.ids(4)
        await asyncio.gather(site.idle(slots[2]), site.configured(slots[3]))
        await site.kill()
        await site.boot(offerings(tmp_path, 1))
        assert sorted(await site.machines()) == [slots[0], *slots[2:]]
        assert (await site.get(slots[3])).state == pb.MACHINE_STATE_CONFIGURED
        await site.delete(slots[2])
        await until(lambda: len(site.arm.vms()) == 1)
        await site.passes(30)
        assert sorted(await site.machines()) == [slots[0], slots[3]]
        await site.kill()
        await site.boot(offerings(tmp_path, 6))
        grown = await site.machines()
        assert len(grown) == 6
        assert set(slots) <= grown.keys()
        assert grown[slots[3]].state == pb.MACHINE_STATE_CONFIGURED
        await site.idle(slots[2])


# Loss


@pytest.mark.behaviour(70, 71)
async def test_a_lost_machine_takes_a_step_only_after_a_list_has_shown_the_last_one(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s", keep=()) as site:
        bound, free = await site.ids(2)
        await asyncio.gather(site.configured(bound, group="1"), site.idle(free))
        site.arm.vanish(bound)
        site.arm.vanish(free)
        await site.reaches(bound, "DRAINING")
        await site.reaches(free, "DELETING")
        await site.passes(200)
        assert (await site.get(bound)).state == pb.MACHINE_STATE_DRAINING
        assert (await site.get(free)).state == pb.MACHINE_STATE_DELETING
        await site.machines()
        failed = await site.reaches(bound, "FAILED")
        assert "host lost" in failed.last_error
        assert (failed.cluster, dict(failed.shard_metadata)) == ("blue", {"group": "1"})
        empty = await site.reaches(free, "SPECULATIVE")
        assert not empty.HasField("host")
        await site.idle(free)
        await site.delete(free)
        await site.reaches(free, "SPECULATIVE")


@pytest.mark.behaviour(72)
async def test_a_vm_in_state_failed_is_given_back_when_free_and_left_alone_when_bound(tmp_path):
    async with Site(tmp_path, "--reconcile-interval=30s") as site:
        bound, free = await site.ids(2)
        await asyncio.gather(site.configured(bound), site.idle(free))
        for machine in (bound, free):
            site.arm.vm(machine).state = "Failed"
        await site.reaches(free, "SPECULATIVE", by_list=True)
        await until(lambda: [vm.name for vm in site.arm.vms()] == [bound])
        await site.passes(120)
        assert (await site.get(bound)).state == pb.MACHINE_STATE_CONFIGURED
        await site.drain(bound)
        await site.reaches(bound, "IDLE", "FAILED")


@pytest.mark.behaviour(72)
async def test_a_machine_lost_amid_an_operation_fails_and_says_so(tmp_path):
    guest = Scripted()
    async with Site(tmp_path, guest=guest, keep=()) as site:
        machines = await one_of_each(site)
        for route in ("vm.put", "extension.put", "vm.delete"):
            site.arm.faults.add(Fault(route, times=None, seconds=300))
        for kind, machine in machines.items():
            await ask(site, kind, machine)
        await until(lambda: len(site.arm.operations.running()) == 4)
        for kind, machine in machines.items():
            if kind != "create":
                site.arm.vanish(machine)
        site.arm.faults.clear()
        for kind in ("configure", "drain"):
            failed = await site.reaches(machines[kind], "FAILED")
            assert "ResourceNotFound" in failed.last_error
        await site.reaches(machines["delete"], "SPECULATIVE")
        await site.reaches(machines["create"], "IDLE")
        await site.delete(machines["create"])
        await site.reaches(machines["create"], "SPECULATIVE")


# What operators see


@pytest.mark.behaviour(90)
async def test_calls_to_azure_are_counted_and_timed_by_what_they_are_for(tmp_path):
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1)
        refusal = error(429, "TooManyRequests", headers={"Retry-After": "5"})
        site.arm.faults.add(Fault("vm.put", answer=refusal))
        for kind in KINDS:
            await ask(site, kind, machine)
            await site.reaches(machine, TARGETS[kind])
        calls = "bigfleet_azure_api_calls_total"
        for op in ("CreateVM", "Configure", "Drain", "DeleteVM", "ListVMs", "ResourceSkus"):
            assert await site.metric(calls, op=op, outcome="success") >= 1, op
            assert await site.metric("bigfleet_azure_api_duration_seconds_count", op=op) >= 1, op
        assert await site.metric(calls, op="CreateVM", outcome="error") == 1
        assert await site.metric("bigfleet_azure_reconcile_total", outcome="success") >= 1
        assert await site.metric("bigfleet_azure_panics_total") == 0
        assert (await site.page("/readyz")) == (200, "ready")
