"""A process killed at every persisted step, and the next one over what it left."""

import asyncio
from collections import defaultdict
from functools import cache

import pytest

from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind
from bigfleet_azure.service.provider import Ack
from tests.support.rig import MortalStore, Rig, ScriptedBackend, acked, after

pytestmark = pytest.mark.looptime

MACHINES = 3
BLOB = b"kubeadm join"
METADATA = {"a": "1", "\x00": "", "ключ": "значение"}

Acks = dict[tuple[str, Kind], str]


def slow_backend() -> ScriptedBackend:
    """One whose steps take time, so that kills hit operations in the middle."""
    backend = ScriptedBackend()
    backend.steps = {kind: after(2) for kind in Kind}
    backend.ready = after(3)
    return backend


async def ask(rig: Rig, kind: Kind, machine: str) -> Ack:
    match kind:
        case Kind.CREATE:
            return acked(await rig.create(machine))
        case Kind.CONFIGURE:
            return acked(await rig.configure(machine, "blue", METADATA, BLOB))
        case Kind.DRAIN:
            return acked(await rig.drain(machine))
        case Kind.DELETE:
            return acked(await rig.delete(machine))


async def walk(rig: Rig, machine: str, acks: Acks, kinds: list[Kind]) -> None:
    for kind in kinds:
        acks[machine, kind] = (await ask(rig, kind, machine)).operation_id
        await rig.reaches(machine, TRANSITIONS[kind].target.name, within=60)


async def lead(store: MortalStore, backend: ScriptedBackend, acks: Acks) -> None:
    """Walk some machines through all kinds, each of them a step behind the one before."""
    async with Rig("--create-concurrency", "2", store=store, backend=backend) as rig:
        walks = []
        for machine in rig.ids()[:MACHINES]:
            walks.append(asyncio.create_task(walk(rig, machine, acks, list(Kind))))
            await asyncio.sleep(1)
        await asyncio.gather(*walks)


@cache
def commits() -> int:
    """How many commits the whole scenario makes."""

    async def count() -> int:
        store = MortalStore()
        await lead(store, slow_backend(), {})
        return len(store.commits)

    import looptime

    loop = looptime.new_event_loop(start=0)
    try:
        return loop.run_until_complete(count())
    finally:
        loop.close()


def moments() -> list[object]:
    return [
        pytest.param(n, hears, id=f"{'after' if hears else 'amid'} commit {n}")
        for n in range(1, commits() + 1)
        for hears in (False, True)
    ]


@pytest.mark.behaviour(78, 80, 38)
@pytest.mark.parametrize(("lives", "hears_of_it"), moments())
async def test_whatever_was_in_flight_at_a_kill_reaches_its_goal_and_nothing_is_doubled(
    lives: int, hears_of_it: bool
) -> None:
    store, backend, acks = MortalStore(lives, hears_of_it=hears_of_it), slow_backend(), Acks()
    process = asyncio.create_task(lead(store, backend, acks))
    dead = asyncio.create_task(store.died.wait())
    await asyncio.wait({process, dead}, return_when=asyncio.FIRST_COMPLETED)
    await Rig.kill()
    store.lives = None

    async with Rig(store=store, backend=backend) as rig:
        machines = rig.ids()[:MACHINES]
        assert len(rig.ids()) == 4
        promised = {
            machine: [kind for kind in Kind if (machine, kind) in acks] for machine in machines
        }
        for machine in machines:
            await _reaches_what_was_promised(rig, machine, promised[machine])
        for machine in machines:
            last = promised[machine][-1] if promised[machine] else None
            if last is not None and rig.state(machine) == TRANSITIONS[last].target.name:
                assert (await ask(rig, last, machine)).operation_id == acks[machine, last]
            await _finish(rig, machine, acks)
        assert {rig.state(machine) for machine in rig.ids()} == {"SPECULATIVE"}
        await asyncio.sleep(3600)
    _nothing_doubled(backend, acks)
    assert store.blobs == {}
    assert backend.hosts == {}


async def _reaches_what_was_promised(rig: Rig, machine: str, promised: list[Kind]) -> None:
    """At least the goal of the last acknowledged operation; perhaps of one nobody heard of."""
    await asyncio.sleep(30)
    got = rig.machine(machine)
    state = rig.state(machine)
    goals = [TRANSITIONS[kind].target.name for kind in promised[-1:]] or ["SPECULATIVE"]
    unheard = list(Kind)[len(promised)] if len(promised) < len(Kind) else None
    if unheard:
        goals.append(TRANSITIONS[unheard].target.name)
    assert state in goals
    assert dict(got.shard_metadata) == (METADATA if state == "CONFIGURED" else {})


async def _finish(rig: Rig, machine: str, acks: Acks) -> None:
    order = {
        "SPECULATIVE": list(Kind),
        "CONFIGURED": [Kind.DRAIN, Kind.DELETE],
        "IDLE": [Kind.DELETE]
        if (machine, Kind.CONFIGURE) in acks
        else [Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE],
    }
    later: Acks = {}
    if rig.state(machine) == "SPECULATIVE" and (machine, Kind.DRAIN) in acks:
        return
    await walk(rig, machine, later, order[rig.state(machine)])
    for key, operation in later.items():
        assert operation not in {o for k, o in acks.items() if k != key}


def _nothing_doubled(backend: ScriptedBackend, acks: Acks) -> None:
    made = defaultdict(set)
    for work in backend.work:
        made[work.operation_id].add(work.machine_id)
    assert all(len(machines) == 1 for machines in made.values())
    assert len(set(acks.values())) == len(acks)
    assert all(blob == BLOB for blob in backend.blobs)


@pytest.mark.behaviour(78)
async def test_the_scenario_takes_all_kinds_through_all_their_commits() -> None:
    store, acks = MortalStore(), Acks()
    await lead(store, slow_backend(), acks)
    assert set(acks) == {(machine, kind) for machine, _ in acks for kind in Kind}
    assert len(acks) == MACHINES * len(Kind)
    written = {record.state for changes in store.commits for record in changes.records}
    assert {state.name for state in written} == {
        "CREATING",
        "IDLE",
        "CONFIGURING",
        "CONFIGURED",
        "DRAINING",
        "DELETING",
        "SPECULATIVE",
    }
