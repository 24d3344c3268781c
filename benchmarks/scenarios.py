"""What is done to daemons, and the figures that come out of it.

Each scenario starts its daemons on a folder of its own and returns figures by the keys that `rows`
gives them. A figure is always a plain number in the unit of its row.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fill, load
from benchmarks.daemon import Daemon, ledger_file, serving, state_file
from benchmarks.plan import Plan
from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.simulated import history
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind, State
from bigfleet_azure.store.database import CHECKPOINT_PAGES

Figures = dict[str, float]

IN_FLIGHT = 64
GETS_IN_FLIGHT = 16
PER_SECOND = 200
LIST_EVERY_SECONDS = 0.1
"""From one List under load to the next: more than 100 of them beside the paced creates."""

_CHANGES = 20
_WARM_LISTS = 3
_LATENCY = "--fake-latency=2s"
_GRACE_SECONDS = 30
"""More than the latency: simulated workloads end after the shorter of the two."""
_BLOB_BYTES = 3000
"""A typical bootstrap blob (contract section 7: a few KiB)."""

_ROWS_PER_TRANSITION = 2
_FLUSHES_PER_CHECKPOINT = 3
"""The log before it is folded in, the file after it, and the log's header when it begins anew."""


async def used_fleet(plan: Plan, folder: Path, size: str) -> Figures:
    """A fresh durable fleet: its start, creates in id order, and reads once they are done."""
    async with serving(folder, _slots(plan, size)) as daemon:
        ids = daemon.ids()
        figures = {
            f"start.{size}": daemon.start_seconds,
            f"record.{size}": len(daemon.first_list) / len(ids),
        }
        created, untouched = ids[: plan.creates], ids[plan.creates :]
        async with _writes(daemon, created) as writes:
            figures[f"create.{size}"] = await _creates_per_second(daemon, created)
        figures[f"bytes.order.{size}"] = writes.kib
        figures[f"flushes.{size}"] = writes.flushes
        figures |= await _full_lists(plan, daemon, size)
        figures[f"memory.{size}"] = daemon.resident_bytes() / 1e6
        figures |= await _gets(plan, daemon, ids, size)
        if untouched:
            figures |= await _deltas(plan, daemon, untouched, size)
        return figures


async def memory_only(plan: Plan, folder: Path, size: str) -> Figures:
    """The same creates without a state file."""
    async with serving(folder, _slots(plan, size), durable=False) as daemon:
        created = daemon.ids()[: plan.creates]
        return {f"volatile.{size}": await _creates_per_second(daemon, created)}


async def random_ids(plan: Plan, folder: Path, size: str) -> Figures:
    """Creates all over the fleet."""
    async with serving(folder, _slots(plan, size)) as daemon:
        ids = _sample(daemon, plan.random_creates)
        async with _writes(daemon, ids) as writes:
            await _creates_per_second(daemon, ids)
        return {f"bytes.random.{size}": writes.kib}


async def paced(plan: Plan, folder: Path, size: str) -> Figures:
    """Creates all over the fleet at an even pace, with full Lists beside them."""
    async with serving(folder, _slots(plan, size)) as daemon:
        ids = _sample(daemon, plan.paced_creates)
        requests = [load.create(machine_id) for machine_id in ids]
        async with _writes(daemon, ids) as writes:
            started = time.perf_counter()
            writing = asyncio.create_task(load.paced(daemon.call.create, requests, PER_SECOND))
            seconds = await load.beside(writing, daemon.call.list, b"", LIST_EVERY_SECONDS)
            await writing
            pace = len(ids) / (time.perf_counter() - started)
        return {
            f"bytes.paced.{size}": writes.kib,
            f"list.loaded.{size}": load.percentile(seconds, 99) * 1000,
            f"lists.{size}": len(seconds),
            f"pace.{size}": pace,
        }


async def all_in_use(plan: Plan, folder: Path, size: str) -> Figures:
    """A restart on a state file in which every slot is bound. The folder may be used again."""
    slots = _slots(plan, size)
    if not state_file(folder).exists():
        async with serving(folder, slots) as daemon:
            daemon.process.terminate()
        await fill.all_in_use(state_file(folder), ledger_file(folder))
    async with serving(folder, slots) as daemon:
        bound = await daemon.call.list(_states(State.CONFIGURED))
        if len(bound) != len(daemon.first_list):
            raise RuntimeError("some machines are not CONFIGURED after the restart")
        await load.one_by_one(daemon.call.list, b"", _WARM_LISTS)
        figures = {
            "restart": daemon.start_seconds,
            "memory.all": daemon.resident_bytes() / 1e6,
            "record.all": len(bound) / plan.slots[size],
        }
        daemon.process.terminate()
        return figures


async def killed(plan: Plan, folder: Path, size: str) -> Figures:
    """SIGKILL with operations of every kind in flight, and a restart on the same files."""
    slots, count = _slots(plan, size), plan.killed
    async with serving(folder, slots) as daemon:
        ids = daemon.ids()
        of_kind = {
            kind: ids[number * count : (number + 1) * count] for number, kind in enumerate(Kind)
        }
        await _mutate(daemon, Kind.CREATE, ids[count : 4 * count])
        await daemon.settled()
        await _mutate(daemon, Kind.CONFIGURE, of_kind[Kind.DRAIN])
        await daemon.settled()
        daemon.process.terminate()
    async with serving(folder, slots, _LATENCY) as daemon:
        await asyncio.gather(*(_mutate(daemon, kind, of_kind[kind]) for kind in Kind))
        in_flight = await daemon.in_transition()
        goal = {i: TRANSITIONS[kind].target for kind in Kind for i in of_kind[kind]}
        daemon.process.kill()
    async with serving(folder, slots, _LATENCY) as daemon:
        await daemon.settled()
        states = {m.id: State(m.state) for m in (await daemon.call.fleet()).machines}
    reached = sum(states[machine_id] == goal[machine_id] for machine_id in in_flight)
    return {
        "killed.in_flight": len(in_flight),
        "killed.reached": 100 * reached / len(in_flight),
        "killed.doubled": len(history.audit(ledger_file(folder)).doubled),
    }


# Parts of scenarios


@dataclass(slots=True)
class _Writes:
    """What one transition cost the disk, filled in when the block that measures it ends."""

    kib: float = 0.0
    flushes: float = 0.0


@asynccontextmanager
async def _writes(daemon: Daemon, created: Sequence[str]) -> AsyncIterator[_Writes]:
    """Count what is written from here until all is idle and folded in, per created machine."""
    writes = _Writes()
    groups = "bigfleet_azure_store_commit_group_size_count"
    bytes_before, groups_before = daemon.written(), await daemon.metric(groups)
    yield writes
    await daemon.idle()
    count = len(created)
    writes.kib = (daemon.written() - bytes_before) / 1024 / count
    # Each group is one flush of the log. Checkpoints have no metric: one is due for so many rows,
    # were each on a page of its own, and one when idle.
    checkpoints = 1 + count * _ROWS_PER_TRANSITION // CHECKPOINT_PAGES
    flushes = await daemon.metric(groups) - groups_before + checkpoints * _FLUSHES_PER_CHECKPOINT
    writes.flushes = flushes / count
    idle = {m.id for m in (await daemon.call.fleet(states=[State.IDLE])).machines}
    if idle != set(created):
        raise RuntimeError(f"{len(idle)} machines are IDLE, not {count}")


async def _creates_per_second(daemon: Daemon, ids: Sequence[str]) -> float:
    requests = [load.create(machine_id) for machine_id in ids]
    started = time.perf_counter()
    await load.at_once(daemon.call.create, requests, IN_FLIGHT)
    return len(ids) / (time.perf_counter() - started)


async def _full_lists(plan: Plan, daemon: Daemon, size: str) -> Figures:
    """Full Lists of an idle fleet: over the wire, inside the daemon, and read by protobuf too."""
    name, labels = "bigfleet_azure_grpc_request_duration_seconds", {"method": "List"}
    await load.one_by_one(daemon.call.list, b"", _WARM_LISTS)
    sum_before = await daemon.metric(f"{name}_sum", **labels)
    wire = await load.one_by_one(daemon.call.list, b"", plan.lists)
    inside = (await daemon.metric(f"{name}_sum", **labels) - sum_before) / plan.lists

    async def read(request: bytes) -> bytes:
        answer = await daemon.call.list(request)
        pb.MachineList.FromString(answer)
        return answer

    parsed = await load.one_by_one(read, b"", _WARM_LISTS)
    return {
        f"list.{size}": load.percentile(wire, 50) * 1000,
        f"list.inside.{size}": inside * 1000,
        f"list.parsed.{size}": load.percentile(parsed, 50) * 1000,
    }


async def _deltas(plan: Plan, daemon: Daemon, untouched: Sequence[str], size: str) -> Figures:
    """What changed since a cursor: 20 machines of the whole fleet."""
    cursor = (await daemon.call.fleet()).revision
    await _mutate(daemon, Kind.CREATE, untouched[:_CHANGES])
    await daemon.settled()
    request = pb.ListFilter(since_revision=cursor).SerializeToString()
    changed = pb.MachineList.FromString(await daemon.call.list(request)).machines
    if len(changed) != _CHANGES:
        raise RuntimeError(f"the delta has {len(changed)} machines, not {_CHANGES}")
    seconds = await load.one_by_one(daemon.call.list, request, plan.deltas)
    return {f"delta.{size}": load.percentile(seconds, 50) * 1000}


async def _gets(plan: Plan, daemon: Daemon, ids: Sequence[str], size: str) -> Figures:
    requests = [
        pb.MachineRef(id=machine_id).SerializeToString()
        for machine_id in random.Random(1).choices(ids, k=plan.gets)
    ]
    started = time.perf_counter()
    seconds = await load.at_once(daemon.call.get, requests, GETS_IN_FLIGHT)
    return {
        f"get.{size}": plan.gets / (time.perf_counter() - started),
        f"get.p99.{size}": load.percentile(seconds, 99) * 1000,
    }


async def _mutate(daemon: Daemon, kind: Kind, ids: Sequence[str]) -> None:
    blob = random.Random(2).randbytes(_BLOB_BYTES)
    match kind:
        case Kind.CREATE:
            call, requests = daemon.call.create, [load.create(i) for i in ids]
        case Kind.CONFIGURE:
            call = daemon.call.configure
            requests = [
                pb.ConfigureRequest(
                    machine_id=i,
                    cluster_id=fill.CLUSTER,
                    bootstrap_blob=blob,
                    shard_metadata=fill.metadata(number),
                ).SerializeToString()
                for number, i in enumerate(ids)
            ]
        case Kind.DRAIN:
            call = daemon.call.drain
            requests = [
                pb.DrainRequest(
                    machine_id=i, grace_period_seconds=_GRACE_SECONDS
                ).SerializeToString()
                for i in ids
            ]
        case Kind.DELETE:
            call = daemon.call.delete
            requests = [pb.DeleteRequest(machine_id=i).SerializeToString() for i in ids]
    await load.at_once(call, requests, IN_FLIGHT)


def _states(*states: State) -> bytes:
    return pb.ListFilter(states=states).SerializeToString()  # type: ignore[arg-type]


def _slots(plan: Plan, size: str) -> str:
    return f"--seed-count={plan.slots[size]}"


def _sample(daemon: Daemon, count: int) -> list[str]:
    ids = daemon.ids()
    return random.Random(3).sample(ids, min(count, len(ids)))
