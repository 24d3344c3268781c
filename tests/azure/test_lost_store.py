"""The store is lost, torn, corrupt or cannot be written: the whole daemon over the ARM double."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.store.base import StoreUnusable
from tests.azure.kills import About, Moment, Side, crash
from tests.support.arm.cloud import GROUP, LOCATION, SUBSCRIPTION
from tests.support.arm.double import ArmDouble
from tests.support.arm.ledger import DISK, NIC, PARTS, PUBLIC_IP, VM
from tests.support.arm.network_models import NetworkModels
from tests.support.arm.resources import Resource, resource_id
from tests.support.azure import Site, until

pytestmark = pytest.mark.slow

METADATA = {"group": "a\0b", "empty": "", "ключ": "värde"}
OFTEN = "--reconcile-interval=30s"
SETTLES_AFTER = 400.0
"""Seconds in which the sweep of what belongs to nobody has come: its grace and three passes."""

EITHER = ""
"""A machine again if it is up before its grace is over, else removed."""

IN_FLIGHT: dict[tuple[str, str, Side], str] = {
    ("create", "vm.put", Side.UNSENT): "SPECULATIVE",
    ("create", "vm.put", Side.LOST): "IDLE",
    ("create", "vm.put", Side.RUNNING): EITHER,
    ("create", "vm.put", Side.FAILED): "SPECULATIVE",
    ("configure", "tags.patch", Side.UNSENT): "IDLE",
    ("configure", "tags.patch", Side.LOST): "CONFIGURED",
    ("configure", "extension.put", Side.RUNNING): "CONFIGURED",
    ("configure", "extension.put", Side.ENDED): "CONFIGURED",
    ("drain", "extension.put", Side.UNSENT): "CONFIGURED",
    ("drain", "extension.put", Side.RUNNING): "CONFIGURED",
    ("drain", "tags.patch", Side.UNSENT): "CONFIGURED",
    ("drain", "tags.patch", Side.LOST): "IDLE",
    ("delete", "vm.delete", Side.UNSENT): "IDLE",
    ("delete", "vm.delete", Side.RUNNING): "SPECULATIVE",
    ("delete", "nic.get", Side.UNSENT): "SPECULATIVE",
}
"""What an operation that was in flight when the store was lost comes back as."""


def states(found: dict[str, pb.Machine], machines: list[str]) -> list[str]:
    names = (pb.MachineState.Name(found[machine].state) for machine in machines)
    return [name.removeprefix("MACHINE_STATE_") for name in names]


async def begin(site: Site, kind: str, machine: str) -> None:
    if kind == "configure":
        await site.configure(machine, "blue", b"join me", **METADATA)
    else:
        await getattr(site, kind)(machine)


def somebodys(arm: ArmDouble, kind: str, name: str, tags: dict[str, str]) -> str:
    """A part that was there before and that nothing holds; its id."""
    identity = resource_id(SUBSCRIPTION, GROUP, kind, name)
    models = NetworkModels(arm.cloud)
    match kind:
        case "Microsoft.Network/networkInterfaces":
            inner = {"subnet": {"id": arm.cloud.subnet_id}}
            body = {"ipConfigurations": [{"name": "main", "properties": inner}]}
            part: Resource = models.nic(identity, LOCATION, body, tags)
        case "Microsoft.Network/publicIPAddresses":
            part = models.address(identity, LOCATION, {"sku": {"name": "Standard"}}, tags)
        case _:
            part = Resource(id=identity, type=kind, location=LOCATION, tags=tags)
    arm.world.add(part, seeded=True)
    return identity


@pytest.mark.behaviour(41, 73, 79)
async def test_without_the_store_bound_machines_come_back_bound_and_free_ones_free(tmp_path):
    async with Site(tmp_path) as site:
        bound, plain, free, unused = await site.ids(4)
        await asyncio.gather(
            site.configured(bound, cluster="blue", **METADATA),
            site.configured(plain, cluster="green"),
            site.idle(free),
        )
        before = {machine: (await site.get(machine)).host.ref for machine in (bound, plain, free)}
        await site.wipe()
        await site.boot()
        found = await site.machines()
        assert states(found, [bound, plain, free, unused]) == [
            "CONFIGURED",
            "CONFIGURED",
            "IDLE",
            "SPECULATIVE",
        ]
        assert (found[bound].cluster, found[plain].cluster) == ("blue", "green")
        assert dict(found[bound].shard_metadata) == METADATA
        assert not found[plain].shard_metadata
        assert {machine: found[machine].host.ref for machine in before} == before
        await asyncio.gather(*(site.drain(machine) for machine in (bound, plain)))
        for machine in (bound, plain):
            drained = await site.reaches(machine, "IDLE")
            assert not drained.shard_metadata
        await asyncio.gather(*(site.delete(machine) for machine in before))
        for machine in before:
            await site.reaches(machine, "SPECULATIVE")
        assert not any(site.arm.ledger.alive(kind) for kind in (VM, *PARTS))


@pytest.mark.behaviour(73)
async def test_what_was_in_flight_when_the_store_was_lost_leaks_nothing_and_is_never_bound_and_free(
    tmp_path,
):
    async with Site(tmp_path, OFTEN, seed_count=2 * len(IN_FLIGHT)) as site:
        arm = site.arm
        machines = dict(zip(await site.ids(len(IN_FLIGHT)), IN_FLIGHT, strict=True))
        await asyncio.gather(
            *(
                site.configured(machine, **METADATA) if kind == "drain" else site.idle(machine)
                for machine, (kind, *_) in machines.items()
                if kind != "create"
            )
        )
        moments = []
        for machine, (kind, route, side) in machines.items():
            moments.append(Moment(arm, machine, route, side))
            if route == "nic.get":
                leave = ("nic", "disk")
                arm.faults.add(About("vm.delete", arm=arm, machine=machine, leave=leave))
            await begin(site, kind, machine)
        await until(lambda: all(moment.reached for moment in moments))
        for moment in moments:
            moment.end()
        tagged = {vm.name for vm in arm.vms() if "bigfleet-cluster" in vm.tags}
        await site.wipe()
        arm.faults.clear()
        await site.boot()
        found = await site.machines()
        assert {m.id for m in found.values() if m.state == pb.MACHINE_STATE_CONFIGURED} == tagged
        for moment in moments:
            moment.let_go()
        for machine, step in machines.items():
            if IN_FLIGHT[step] != EITHER:
                ended = await site.reaches(machine, IN_FLIGHT[step])
                assert dict(ended.shard_metadata) == (METADATA if machine in tagged else {}), step
        sure = {m for m, step in machines.items() if IN_FLIGHT[step] in ("IDLE", "CONFIGURED")}
        async with asyncio.timeout(20):
            while True:
                held = await _held(site)
                if sure <= held == _there(arm) and not arm.ledger.leaks():
                    break
                await asyncio.sleep(0.05)
        assert len(held - sure) <= 1


async def _held(site: Site) -> set[str]:
    return {machine.id for machine in (await site.machines()).values() if machine.host.ref}


def _there(arm: ArmDouble) -> set[str]:
    return {vm.name for vm in arm.vms()}


@pytest.mark.behaviour(73)
async def test_without_store_and_slots_what_is_free_is_removed_and_what_is_bound_stays_and_is_shown(
    tmp_path,
):
    async with Site(tmp_path, OFTEN, "--public-ip", seed_count=12) as site:
        arm = site.arm
        kept, surplus, free, lone, leaving, _ = await site.ids(6)
        assert [one[-5:] for one in (kept, surplus, lone)] == ["1-000", "1-001", "2-000"]
        await asyncio.gather(
            *(site.idle(machine) for machine in (kept, free, leaving)),
            *(site.configured(machine) for machine in (surplus, lone)),
        )
        arm.faults.add(About("vm.delete", arm=arm, machine=leaving, leave=("nic", "ip", "disk")))
        stuck = Moment(arm, leaving, "nic.get", Side.UNSENT)
        await site.delete(leaving)
        await until(lambda: stuck.reached)
        assert len(arm.ledger.leaks()) == 3
        tags = {"bigfleet-managed": "true", "bigfleet-machine-id": leaving}
        another = tags | {"bigfleet-owner": "another"}
        foreign = [somebodys(arm, kind, "another", another) for kind in PARTS]
        foreign += [somebodys(arm, kind, "untagged", {}) for kind in PARTS]
        await site.wipe()
        arm.faults.clear()
        await site.boot("--seed-count=1")
        assert states(await site.machines(), [kept, surplus]) == ["IDLE", "CONFIGURED"]
        text = await site.shows("unplaced-machines", lone)
        assert free not in text
        await until(lambda: {vm.name for vm in arm.vms()} == {kept, surplus, lone})
        await until(lambda: not arm.ledger.leaks())
        assert all(arm.world.get(one) for one in foreign)
        assert len(arm.ledger.alive(PUBLIC_IP)) == 3
        assert await site.metric("bigfleet_azure_strays_total", outcome="owed") == 3


@pytest.mark.behaviour(73)
async def test_a_second_daemon_with_our_owner_id_is_told_of_and_nothing_of_it_is_touched(tmp_path):
    (tmp_path / "other").mkdir()
    async with (
        ArmDouble(speed=300) as arm,
        Site(tmp_path, OFTEN, arm=arm, leaks=True) as ours,
        Site(tmp_path / "other", OFTEN, arm=arm, leaks=True) as other,
    ):
        arm.operations.retry_after.none()
        mine, its, gone = await ours.ids(3)
        await asyncio.gather(ours.configured(mine), other.idle(its), other.idle(gone))
        await ours.shows("owner-shared", its, gone)
        await other.shows("owner-shared", mine)
        # Parts that nothing holds are left alone as well.
        arm.faults.add(About("vm.delete", arm=arm, machine=gone, leave=("nic", "disk")))
        stuck = Moment(arm, gone, "nic.get", Side.UNSENT)
        await other.delete(gone)
        await until(lambda: stuck.reached)
        await ours.passes(SETTLES_AFTER)
        assert [len(arm.ledger.alive(kind)) for kind in (VM, NIC, DISK)] == [2, 3, 3]
        assert arm.ledger.count("vm.delete") == 1
        assert arm.ledger.count("nic.delete") + arm.ledger.count("disk.delete") == 0
        assert states(await ours.machines(), [mine, its]) == ["CONFIGURED", "SPECULATIVE"]
        assert states(await other.machines(), [mine, its]) == ["SPECULATIVE", "IDLE"]


@pytest.mark.behaviour(73)
@pytest.mark.parametrize("asked", ["delete", "configure"])
async def test_an_idle_machine_that_another_store_bound_is_never_removed(tmp_path, asked):
    """Another daemon with our owner id took it for its own after losing its store."""
    async with Site(tmp_path, OFTEN, "--failed-dwell=5s", "--configure-timeout=5m") as site:
        [machine] = await site.ids(1)
        await site.idle(machine)
        vm = site.arm.vm(machine)
        born = dict(vm.tags)
        bound = {"bigfleet-cluster": "green", "bigfleet-meta": "1 op-ffffffff-9 0 00000000"}
        vm.retag(born | bound)
        await site.shows("owner-shared", f"{machine} (green)", "ffffffff")
        await getattr(site, asked)(machine)
        failed = await site.reaches(machine, "FAILED", by_list=True)
        assert "op-ffffffff-9" in failed.last_error
        await site.shows("debts", machine, "another daemon uses this owner id", within=60)
        assert [one.name for one in site.arm.vms()] == [machine]
        assert site.arm.ledger.count("vm.delete") == 0
        vm.retag(born)
        await until(lambda: not site.arm.vms())


@pytest.mark.behaviour(73)
async def test_two_daemons_in_one_group_touch_nothing_of_each_other_when_each_loses_its_store(
    tmp_path,
):
    (tmp_path / "other").mkdir()
    async with (
        ArmDouble(speed=300) as arm,
        Site(tmp_path, "--owner-id=one", "--provider=one", OFTEN, arm=arm) as one,
        Site(tmp_path / "other", "--owner-id=two", "--provider=two", OFTEN, arm=arm) as two,
    ):
        arm.operations.retry_after.none()
        for site in (one, two):
            free, bound = await site.ids(2)
            await asyncio.gather(site.idle(free), site.configured(bound))
        for site in (one, two):
            await site.wipe()
            await site.boot()
        await one.passes(SETTLES_AFTER)
        for site in (one, two):
            found = [m for m in (await site.machines()).values() if m.host.ref]
            assert sorted(states({m.id: m for m in found}, [m.id for m in found])) == [
                "CONFIGURED",
                "IDLE",
            ]
        assert len(arm.vms()) == 4
        assert arm.ledger.count("vm.delete") == 0


# Torn, corrupt, unwritable


def _junk_in_the_middle(state: Path) -> None:
    with state.open("r+b") as file:
        file.seek(state.stat().st_size // 2)
        file.write(b"\xa5" * 4096)


def _cut_short(state: Path) -> None:
    with state.open("r+b") as file:
        file.truncate(state.stat().st_size // 2)


@pytest.mark.behaviour(81)
@pytest.mark.parametrize(
    "damage", [_junk_in_the_middle, _cut_short, Path.unlink, lambda state: state.write_bytes(b"")]
)
async def test_a_damaged_store_is_refused_and_azure_is_not_asked_for_anything(
    tmp_path, damage: Callable[[Path], object]
):
    """Starting from nothing would rebuild from tags what the store knew better."""
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        await site.configured(machine)
        await site.kill()
        damage(site.state)
        asked = len(site.arm.exchanges)
        await site.boot(wait=False)
        task, site._task = site._task, None
        assert task is not None
        with pytest.raises(StoreUnusable, match=r"state\.db .*restore"):
            await task
        assert len(site.arm.exchanges) == asked


@pytest.mark.behaviour(81)
async def test_junk_behind_the_last_commit_loses_nothing_that_was_acknowledged(tmp_path):
    async with Site(tmp_path) as site:
        free, bound = await site.ids(2)
        await asyncio.gather(site.idle(free), site.configured(bound, **METADATA))
        ack = await site.create(free)
        log = site.state.with_name("state.db-wal")
        assert log.stat().st_size
        await crash(site)
        with log.open("ab") as file:
            file.write(b"\xa5" * 5000)
        await site.boot()
        assert states(await site.machines(), [free, bound]) == ["IDLE", "CONFIGURED"]
        assert dict((await site.get(bound)).shard_metadata) == METADATA
        assert (await site.create(free)).operation_id == ack.operation_id


@pytest.mark.behaviour(82)
async def test_a_mutation_that_cannot_be_stored_is_refused_and_never_reaches_azure(tmp_path):
    async with Site(tmp_path) as site:
        free, unused = await site.ids(2)
        await site.idle(free)
        hidden = site.state.rename(tmp_path / "moved-away")
        for attempt in (site.create(unused), site.configure(free), site.delete(free)):
            with pytest.raises(grpc.RpcError) as refusal:
                await attempt
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
        await site.shows("store (for")
        await site.passes(120)
        assert states(await site.machines(), [free, unused]) == ["IDLE", "SPECULATIVE"]
        assert site.arm.ledger.count("vm.put") == 1
        assert not site.arm.ledger.scripts
        assert site.arm.ledger.count("vm.delete") == 0
        hidden.rename(site.state)
        await site.create(unused)
        await site.reaches(unused, "IDLE")
