"""Kills at every step, lost and damaged stores, and an Azure that is not there: the whole daemon.

At the end of each test nothing may be leaked or doubled (`tests.support.azure`).
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.store.sqlite import SqliteStore
from tests.azure.kills import LATE_SECONDS, About, Moment, Side, crash, freeze, scripts_run
from tests.support.arm.ledger import DISK, NIC, VM
from tests.support.azure import Site, until

pytestmark = pytest.mark.slow

METADATA = {"group": "a\0b", "empty": "", "ключ": "värde"}
REQUESTS: dict[str, Any] = {
    "create": pb.CreateRequest,
    "configure": pb.ConfigureRequest,
    "drain": pb.DrainRequest,
    "delete": pb.DeleteRequest,
}
GOAL = {"create": "IDLE", "configure": "CONFIGURED", "drain": "IDLE", "delete": "SPECULATIVE"}
ON_THE_WAY = {
    "create": "CREATING",
    "configure": "CONFIGURING",
    "drain": "DRAINING",
    "delete": "DELETING",
}
ALL_SIDES = [Side.UNSENT, Side.LATE, Side.LOST, Side.RUNNING, Side.ENDED]
STEPS: dict[str, list[tuple[str, Side, int]]] = {
    "create": [
        *(("vm.put", side, 0) for side in ALL_SIDES),
        ("vm.put", Side.FAILED, 0),
        ("vm.get", Side.UNSENT, 0),
    ],
    "configure": [
        ("vm.get", Side.UNSENT, 0),
        ("tags.patch", Side.UNSENT, 0),
        ("tags.patch", Side.LOST, 0),
        *(("extension.put", side, 0) for side in ALL_SIDES),
        ("vm.get", Side.UNSENT, 1),
        ("extension.get", Side.UNSENT, 0),
    ],
    "drain": [
        ("vm.get", Side.UNSENT, 0),
        *(("extension.put", side, 0) for side in ALL_SIDES),
        ("tags.patch", Side.UNSENT, 0),
        ("tags.patch", Side.LOST, 0),
    ],
    "delete": [
        ("vm.get", Side.UNSENT, 0),
        *(("vm.delete", side, 0) for side in ALL_SIDES),
        ("vm.get", Side.UNSENT, 1),
        ("nic.get", Side.UNSENT, 0),
        ("disk.get", Side.UNSENT, 0),
        ("nic.delete", Side.UNSENT, 0),
        ("nic.delete", Side.LOST, 0),
        ("disk.delete", Side.UNSENT, 0),
        ("disk.delete", Side.LOST, 0),
    ],
}
"""By kind: the call at which the daemon is stopped, where in it, and calls of that name before."""

NO_SWEEP = "--reconcile-interval=0"
"""What an operation leaves is not to be cleared up by somebody else."""

KILLS = 4
"""Of one seed: twenty in all."""


async def call(site: Site, kind: str, machine: str, *token: int, shard: str = "s") -> str:
    """Make the call with a fence token; its operation id."""
    more: dict[str, Any] = {}
    if token:
        more = {"shard_id": shard, "shard_epoch": token[0], "sequence_number": token[1]}
    if kind == "configure":
        more |= {"cluster_id": "blue", "bootstrap_blob": b"join", "shard_metadata": METADATA}
    method = getattr(site.stub, kind.capitalize())
    ack = await method(REQUESTS[kind](machine_id=machine, **more), timeout=30)
    operation: str = ack.operation_id
    return operation


async def prepared(site: Site, machine: str, kind: str) -> None:
    """Bring the machine to where a call of that kind starts from."""
    if kind == "drain":
        await site.configured(machine)
    elif kind != "create":
        await site.idle(machine)


async def refused_as_stale(site: Site, kind: str, machine: str, *token: int) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        await call(site, kind, machine, *token)
    assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.behaviour(78, 79, 80)
@pytest.mark.parametrize("kind", STEPS)
async def test_an_operation_killed_at_any_step_reaches_its_goal_and_nothing_is_done_twice(
    tmp_path, kind
):
    steps = STEPS[kind]
    async with Site(tmp_path, NO_SWEEP, seed_count=2 * len(steps)) as site:
        arm = site.arm
        machines = await site.ids(len(steps))
        await asyncio.gather(*(prepared(site, machine, kind) for machine in machines))
        named = dict(zip(machines, steps, strict=True))
        moments = {
            machine: Moment(arm, machine, route, side, skip=skip)
            for machine, (route, side, skip) in named.items()
        }
        for machine, (route, *_) in named.items():
            if route.startswith(("nic.", "disk.")):
                leave = ("nic", "disk")
                arm.faults.add(About("vm.delete", arm=arm, machine=machine, leave=leave))
        acks = {machine: await call(site, kind, machine, 5, 7) for machine in machines}
        await until(lambda: all(moment.reached for moment in moments.values()))
        all_arrived = arm.clock.now() + LATE_SECONDS
        for moment in moments.values():
            moment.end()
        await crash(site)
        arm.faults.clear()
        await site.boot()
        found = await site.machines()
        for machine, step in named.items():
            state = pb.MachineState.Name(found[machine].state)
            assert state.endswith((ON_THE_WAY[kind], GOAL[kind])), (step, found[machine])
        for moment in moments.values():
            moment.let_go()
        for machine in machines:
            await site.reaches(machine, GOAL[kind])
        for machine in machines:
            await refused_as_stale(site, kind, machine, 5, 7)
            await refused_as_stale(site, kind, machine, 4, 9)
            assert await call(site, kind, machine, 5, 8) == acks[machine]
        await site.passes(all_arrived - arm.clock.now())
        _as_it_should_be(site, kind, named, acks, await site.machines())


def _as_it_should_be(
    site: Site,
    kind: str,
    named: dict[str, tuple[str, Side, int]],
    acks: dict[str, str],
    found: dict[str, pb.Machine],
) -> None:
    """One VM, one run of the hook, the binding where it belongs, nothing left."""
    arm = site.arm
    ran = scripts_run(arm)
    for machine, step in named.items():
        assert found[machine].state == pb.MachineState.Value(f"MACHINE_STATE_{GOAL[kind]}"), step
        made = [vm for vm in arm.ledger.ever(VM) if vm.name == machine]
        assert len(made) == (2 if step[1] is Side.FAILED else 1), step
        if kind in ("configure", "drain"):
            assert ran[acks[machine]] == 1, step
        bound = kind == "configure"
        assert found[machine].cluster == ("blue" if bound else ""), step
        assert dict(found[machine].shard_metadata) == (METADATA if bound else {}), step
        if kind != "delete":
            assert ("bigfleet-cluster" in arm.vm(machine).tags) == bound, step
    if kind == "delete":
        assert not any(arm.ledger.alive(part) for part in (VM, NIC, DISK))


@pytest.mark.behaviour(78)
async def test_every_call_that_an_operation_makes_is_among_the_steps(tmp_path):
    known = {kind: {route for route, *_ in steps} for kind, steps in STEPS.items()}
    async with Site(tmp_path, keep=()) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(
            About("vm.delete", arm=site.arm, machine=machine, leave=("nic", "disk"))
        )
        for kind in STEPS:
            before = len(site.arm.exchanges)
            await call(site, kind, machine)
            await site.reaches(machine, GOAL[kind])
            made = {one.route for one in site.arm.exchanges[before:] if machine in one.path}
            assert made <= known[kind], kind


class Shard:
    """Walks machines through full lives over the daemon's deaths, and remembers what it was told.

    Attributes:
        tired: whether machines that end a life begin no other.
    """

    def __init__(self, site: Site) -> None:
        self.tired = False
        self._site = site
        self._deaths = 0
        self._up = asyncio.Event()
        self._up.set()

    def freeze(self) -> dict[str, bytes]:
        """End the daemon's work; nothing that it says from now on is heard."""
        self._deaths += 1
        self._up.clear()
        return freeze(self._site)

    async def next_daemon(self, kept: dict[str, bytes]) -> None:
        await crash(self._site, kept)
        await self._site.boot()
        self._up.set()

    async def walk(self, machine: str) -> None:
        while not self.tired:
            for kind, goal in GOAL.items():
                told = await self._insist(call, self._site, kind, machine)
                await self._reaches(machine, goal)
                assert await self._insist(call, self._site, kind, machine) == told

    async def _reaches(self, machine: str, goal: str) -> None:
        while True:
            found = await self._insist(self._site.get, machine)
            assert found.state != pb.MACHINE_STATE_FAILED, found
            assert dict(found.shard_metadata) == (METADATA if found.cluster else {})
            if found.state == pb.MachineState.Value(f"MACHINE_STATE_{goal}"):
                return
            await asyncio.sleep(0.02)

    async def _insist(self, ask: Callable[..., Coroutine[Any, Any, Any]], *what: Any) -> Any:
        """The answer; asked again when the daemon died before it was heard."""
        while True:
            await self._up.wait()
            deaths = self._deaths
            asked = asyncio.create_task(ask(*what))
            await asyncio.wait({asked})
            if deaths == self._deaths:
                return asked.result()
            if not asked.cancelled():
                asked.exception()


class Commits:
    """Ends the daemon at one of its commits.

    Attributes:
        death: what lay on the disk then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shard: Shard) -> None:
        self.death: asyncio.Future[dict[str, bytes]] = asyncio.Future()
        self._shard = shard
        self._left = 0
        self._durable = False
        commit = SqliteStore.commit

        def counted(store: SqliteStore, changes: ChangeSet) -> asyncio.Future[None]:
            self._left -= 1
            if self._left == 0 and not self._durable:
                self._die()
                never: asyncio.Future[None] = asyncio.Future()
                never.cancel()
                return never
            done = commit(store, changes)
            if self._left == 0:
                done.add_done_callback(lambda _: self._die())  # before anybody hears of it
            return done

        monkeypatch.setattr(SqliteStore, "commit", counted)

    def die_at(self, number: int, *, durable: bool) -> None:
        self.death = asyncio.Future()
        self._left, self._durable = number, durable

    def _die(self) -> None:
        self.death.set_result(self._shard.freeze())


@pytest.mark.behaviour(38, 78, 79, 80)
@pytest.mark.parametrize("seed", range(5))
async def test_ten_machines_live_on_over_daemons_that_are_killed_at_random_moments(
    tmp_path, monkeypatch, seed
):
    chance = random.Random(seed)
    async with Site(tmp_path, NO_SWEEP, seed_count=20, keep=()) as site:
        shard = Shard(site)
        commits = Commits(monkeypatch, shard)
        machines = await site.ids(10)
        walks = [asyncio.create_task(shard.walk(machine)) for machine in machines]
        for death in range(KILLS):
            if death % 2:
                await asyncio.sleep(chance.uniform(0.0, 0.25))
                kept = shard.freeze()
            else:
                commits.die_at(chance.randrange(1, 40), durable=chance.random() < 0.5)
                either: set[asyncio.Future[Any]] = {commits.death, *walks}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                for walk in walks:
                    assert not walk.done(), walk.exception()
                kept = commits.death.result()
            await shard.next_daemon(kept)
        shard.tired = True
        async with asyncio.timeout(20):
            await asyncio.gather(*walks)
        assert set(scripts_run(site.arm).values()) == {1}
        await until(lambda: not site.arm.ledger.alive(VM))
