"""`python -m benchmarks.azure`: what the Azure backend costs and survives, against the ARM double.

Counts are exact. Times are Azure seconds: the double and the daemon share a clock that runs a few
times faster than life, so that every wait keeps its proportion to the network's and the
interpreter's own time.
"""

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import BEFORE, Fault, error, operation_error
from tests.support.arm.operations import RetryAfter
from tests.support.azure import Site, azure_flags, environment, until
from tests.support.process import Client, running

SPEED = 4.0
"""Azure seconds in a real one while a ratio is measured: enough for the daemon and the double to
share two cores without adding to the times."""

COUNTED_SPEED = 60.0
"""While only counts matter."""

ENOUGH = 10**6
POLL_AT = (10.0, 45.0)
"""Seconds after a PUT at which recorded Retry-After values (10 and 35) allow the first polls."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    must: str
    found: str
    met: bool


Scenario = Callable[[Path], Coroutine[Any, Any, list[Row]]]


def plenty(arm: ArmDouble) -> None:
    """Quota for everybody."""
    for name in ("cores", "lowPriorityCores", "standardDSv5Family", "virtualMachines"):
        arm.capacity.quotas[name] = ENOUGH
    arm.capacity.quotas["NetworkInterfaces"] = ENOUGH


async def all_reach(site: Site, machines: Iterable[str], state: int, within: float) -> None:
    """Wait (real seconds) until all of them are in the state, by Lists."""
    left = set(machines)
    async with asyncio.timeout(within):
        while left:
            found = await site.machines()
            left = {m for m in left if m not in found or found[m].state != state}
            await asyncio.sleep(0.1)


async def writes(folder: Path) -> list[Row]:
    """ARM writes of one machine's life."""
    rows = []
    async with Site(folder, speed=COUNTED_SPEED, keep=()) as site:
        [machine] = await site.ids(1)
        steps: tuple[tuple[str, Callable[[], Awaitable[object]], str, int], ...] = (
            ("create", lambda: site.create(machine), "IDLE", 1),
            ("configure", lambda: site.configure(machine, a="b"), "CONFIGURED", 2),
            ("drain", lambda: site.drain(machine, 30), "IDLE", 2),
            ("delete", lambda: site.delete(machine), "SPECULATIVE", 1),
        )
        for name, call, state, most in steps:
            before = len(site.arm.ledger.calls)
            await call()
            await site.reaches(machine, state)
            sent = [c for c in site.arm.ledger.calls[before:] if c.method not in ("GET", "POST")]
            told = ", ".join(c.route for c in sent)
            found = f"{len(sent)} ({told})"
            rows.append(Row(f"ARM writes per {name}", f"≤ {most}", found, len(sent) <= most))
    return rows


def oracle(site: Site, machines: list[str]) -> float:
    """When all would be made, had each PUT been sent at the first instant that ARM allows."""
    lasting = [site.arm.operations.durations.of("vm.create", m) for m in machines]
    return max(max(0.0, (n - 200) / 10) + seconds for n, seconds in enumerate(lasting))


async def burst(folder: Path, *, small: bool, count: int = 1000) -> list[Row]:
    """So many creates at once."""
    what = f"{count} creates{', small read budgets' if small else ''}"
    async with Site(
        folder,
        speed=SPEED,
        seed_count=4 * count,
        small_reads=small,
        record=False,
        true=False,
    ) as site:
        plenty(site.arm)
        site.arm.operations.retry_after = RetryAfter()
        site.arm.operations.durations.spread = 0.3
        machines = await site.ids(count)
        before, begun = len(site.arm.ledger.calls), site.arm.clock.now()
        await asyncio.gather(*(site.create(machine) for machine in machines))
        await all_reach(site, machines, pb.MACHINE_STATE_IDLE, 600)
        took = site.arm.clock.now() - begun
        calls = site.arm.ledger.calls[before:]
        throttled = len(site.arm.ledger.throttled())
        ideal = oracle(site, machines)
        failed = sum(m.state == pb.MACHINE_STATE_FAILED for m in (await site.machines()).values())
    routes = Counter(call.route for call in calls)
    told = ", ".join(f"{name} {number}" for name, number in routes.most_common(4))
    each = len(calls) / count
    rows = [Row(f"429s, {what}", "0", str(throttled), throttled == 0)]
    if small:
        return [*rows, Row(f"FAILED, {what}", "0", str(failed), failed == 0)]
    return [
        *rows,
        Row(f"ARM calls per machine, {what}", "≤ 2.0", f"{each:.2f} ({told})", each <= 2.0),
        Row(
            f"÷ oracle, {what}",
            "≤ 1.15",
            f"{took / ideal:.2f} ({took:.0f} s ÷ {ideal:.0f} s)",
            took / ideal <= 1.15,
        ),
    ]


async def latency(folder: Path, count: int = 50) -> list[Row]:
    """Added to Azure's own time and its Retry-After, with few machines under way."""
    added = []
    async with Site(folder, "--reconcile-interval=0", speed=SPEED, seed_count=4 * count) as site:
        plenty(site.arm)
        site.arm.operations.retry_after = RetryAfter()
        site.arm.operations.durations.spread = 0.9
        left = {}
        for machine in await site.ids(count):
            left[machine] = site.arm.clock.now()
            await site.create(machine)
        while left:
            found = await site.machines()
            now = site.arm.clock.now()
            for machine in [m for m in left if found[m].state == pb.MACHINE_STATE_IDLE]:
                took = now - left.pop(machine)
                own = site.arm.operations.durations.of("vm.create", machine)
                # Azure forbids to ask between the first poll and the second.
                legal = own if own > POLL_AT[1] else next(at for at in POLL_AT if at >= own)
                added.append(took - legal)
            await asyncio.sleep(0.05)
    added.sort()
    middle, last = added[len(added) // 2], added[-1]
    return [
        Row("added latency p50, one machine", "≤ 3 s", f"{middle:.1f} s", middle <= 3),
        Row(f"added latency, slowest of {count}", "≤ 7 s", f"{last:.1f} s", last <= 7),
    ]


async def sigkill(folder: Path, count: int = 200) -> list[Row]:
    """A real process, killed with so many creates under way, and started again."""
    arm = ArmDouble(speed=1, record=False)
    async with arm:
        plenty(arm)
        arm.operations.retry_after.none()
        arm.operations.durations.seconds["vm.create"] = 12.0
        flags = [
            *azure_flags(arm),
            f"--seed-count={4 * count}",
            f"--state={folder / 'state.db'}",
            "--reconcile-interval=0",
        ]

        base = ("--addr=127.0.0.1:0", "--metrics-addr=")

        def killed() -> list[str]:
            with running(folder / "killed.log", *flags, env=environment(arm), base=base) as daemon:
                with daemon.channel() as channel:
                    client = Client(channel)
                    found = [m.id for m in client.list().machines if "-od-" in m.id][:count]
                    for machine in found:
                        client.create(machine)
                time.sleep(3)
                daemon.kill()
            return found

        def resumed(machines: list[str]) -> int:
            log, done, end = folder / "resumed.log", 0, time.monotonic() + 120
            with (
                running(log, *flags, env=environment(arm), base=base) as daemon,
                daemon.channel() as channel,
            ):
                client = Client(channel)
                while done < len(machines) and time.monotonic() < end:
                    states = {m.id: m.state for m in client.list().machines}
                    done = sum(states[m] == pb.MACHINE_STATE_IDLE for m in machines)
                    time.sleep(0.2)
            return done

        machines = await asyncio.to_thread(killed)
        done = await asyncio.to_thread(resumed, machines)
        doubled = len(arm.ledger.doubled())
        leaked = len(arm.ledger.leaks(machines))
    what = f"SIGKILL with {count} in flight"
    return [
        Row(f"completed, {what}", str(count), str(done), done == count),
        Row(f"doubled, leaked, {what}", "0, 0", f"{doubled}, {leaked}", not doubled + leaked),
    ]


async def storm(folder: Path, count: int = 500) -> list[Row]:
    """Three creates in ten fail, each in its own way."""
    ways = (
        Fault("vm.put", operation=operation_error("AllocationFailed")),
        Fault("vm.put", operation=operation_error("ZonalAllocationFailed")),
        Fault("vm.put", operation=operation_error("OverconstrainedAllocationRequest")),
        Fault("vm.put", operation=operation_error("InternalExecutionError")),
        Fault("vm.put", answer=error(409, "SkuNotAvailable", "for Capacity Restrictions")),
        Fault("vm.put", answer=error(400, "InvalidParameter", "Scripted.")),
        Fault("vm.put", answer=error(403, "RequestDisallowedByPolicy", "Scripted.")),
        Fault("vm.put", answer=error(503, "ServiceUnavailable", "Scripted.")),
        Fault("vm.put", drop=BEFORE),
        Fault("vm.put", operation=operation_error("OperationPreempted")),
    )
    rpc_errors = 0
    async with Site(
        folder,
        "--failed-dwell=30s",
        speed=COUNTED_SPEED,
        seed_count=4 * count,
        record=False,
        true=False,
    ) as site:
        plenty(site.arm)
        machines = await site.ids(count)
        for number, machine in enumerate(machines):
            if number % 10 < 3:
                way = ways[number // 10 % len(ways)]
                site.arm.faults.add(Fault(**{**vars(way), "name": machine, "times": 1}))

        async def one(machine: str) -> None:
            nonlocal rpc_errors
            try:
                await site.create(machine)
            except grpc.RpcError:
                rpc_errors += 1

        await asyncio.gather(*(one(machine) for machine in machines))
        settled = (pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_SPECULATIVE)
        usable = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(240):
                while usable < 4 * count:
                    usable = sum(m.state in settled for m in (await site.machines()).values())
                    await asyncio.sleep(0.5)
        keep = [m for m, found in (await site.machines()).items() if found.state == settled[0]]
        with suppress(TimeoutError):
            await until(lambda: not site.arm.ledger.leaks(keep), 60)
        leaked = len(site.arm.ledger.leaks(keep))
    what = f"fault storm, {count} creates"
    return [
        Row(f"slots usable again, {what}", str(4 * count), str(usable), usable == 4 * count),
        Row(f"leaked, {what}", "0", str(leaked), leaked == 0),
        Row(f"RPC errors, {what}", "0", str(rpc_errors), rpc_errors == 0),
    ]


async def minute(folder: Path, count: int = 40) -> list[Row]:
    """A bad minute: throttled, without quota, without room."""
    rows = []
    for name, code, status in (
        ("429", "TooManyRequests", 429),
        ("quota", "QuotaExceeded", 409),
        ("no capacity", "SkuNotAvailable", 409),
    ):
        place = folder / code
        place.mkdir()
        flags = [f"--{kind}-timeout=8m" for kind in ("create", "configure", "drain", "delete")]
        async with Site(place, *flags, speed=20, seed_count=4 * count, record=False) as site:
            plenty(site.arm)
            machines = await site.ids(count)
            site.arm.faults.add(Fault("vm.put", times=None, answer=error(status, code)))
            await asyncio.gather(*(site.create(machine) for machine in machines))
            await site.passes(60)
            site.arm.faults.clear()
            states: Counter[int] = Counter()
            with suppress(TimeoutError):
                async with asyncio.timeout(60):
                    while states[pb.MACHINE_STATE_IDLE] < count:
                        found = await site.machines()
                        states = Counter(found[m].state for m in machines if m in found)
                        await asyncio.sleep(0.2)
            idle, failed = states[pb.MACHINE_STATE_IDLE], states[pb.MACHINE_STATE_FAILED]
            rows.append(
                Row(
                    f"FAILED after 60 s of {name}",
                    "0",
                    f"{failed} ({idle} of {count} IDLE)",
                    failed == 0 and idle == count,
                )
            )
    return rows


async def wiped(folder: Path, count: int = 50) -> list[Row]:
    """The store is lost while machines serve clusters."""
    async with Site(folder, speed=COUNTED_SPEED, seed_count=4 * count, record=False) as site:
        plenty(site.arm)
        machines = await site.ids(count)
        await asyncio.gather(*(site.create(machine) for machine in machines))
        await all_reach(site, machines, pb.MACHINE_STATE_IDLE, 120)
        for number, machine in enumerate(machines):
            await site.configure(machine, f"cluster-{number}", priority=str(number), group="a\0b")
        await all_reach(site, machines, pb.MACHINE_STATE_CONFIGURED, 120)
        await site.wipe()
        await site.boot()
        found = await site.machines()
        idle = sum(m.state == pb.MACHINE_STATE_IDLE for m in found.values())
        back = sum(found[m].cluster == f"cluster-{n}" for n, m in enumerate(machines))
        metadata = sum(
            found[m].shard_metadata == {"priority": str(n), "group": "a\0b"}
            for n, m in enumerate(machines)
        )
    what = f"store wiped with {count} bound"
    return [
        Row(f"reported IDLE, {what}", "0", str(idle), idle == 0),
        Row(f"clusters back, {what}", str(count), str(back), back == count),
        Row(f"metadata back, {what}", str(count), str(metadata), metadata == count),
    ]


async def neighbours(folder: Path, count: int = 10) -> list[Row]:
    """Two daemons in one group with equal offerings, each of which loses its store once."""
    arm = ArmDouble(speed=COUNTED_SPEED, record=False)
    async with arm:
        plenty(arm)
        arm.operations.retry_after.none()
        sites = []
        for name in ("one", "two"):
            place = folder / name
            place.mkdir()
            more = (f"--provider=azure-{name}",)
            sites.append(Site(place, *more, arm=arm, leaks=True, true=False))
        async with sites[0] as first, sites[1] as second:
            made = {}
            for site in (first, second):
                made[site] = await site.ids(4)
                await asyncio.gather(*(site.idle(machine) for machine in made[site]))
            vms = {vm.name: vm.vm_id for vm in arm.vms()}
            for site in (first, second):
                await site.wipe()
                await site.boot()
            await first.passes(1200)
            now = {vm.name: vm.vm_id for vm in arm.vms()}
            touched = sum(now.get(name) != vm_id for name, vm_id in vms.items())
            for site in (first, second):
                await all_reach(site, made[site], pb.MACHINE_STATE_IDLE, 30)
    return [Row("machines of the neighbour touched", "0", str(touched), touched == 0)]


async def cold_import(folder: Path) -> list[Row]:
    """What the backend loads before a leftover has to be deleted."""
    script = (
        "import sys; import bigfleet_azure.backends.azure.backend as b; "
        "from bigfleet_azure.backends.azure import connection; connection._load_sdk(); "
        "print('azure.mgmt.network' in sys.modules)"
    )
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = ended.stdout.strip() == "True"
    return [Row("network SDK loaded by a start", "no", "yes" if loaded else "no", not loaded)]


SCENARIOS: dict[str, Scenario] = {
    "writes": writes,
    "burst": lambda folder: burst(folder, small=False),
    "burst-small": lambda folder: burst(folder, small=True),
    "latency": latency,
    "sigkill": sigkill,
    "storm": storm,
    "minute": minute,
    "wiped": wiped,
    "neighbours": neighbours,
    "import": cold_import,
}


def main(scenarios: dict[str, Scenario], program: str, description: str) -> int:
    """Measure, print; 1 when a figure is not met."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--only", default="", metavar="TEXT", help="only scenarios named so")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    table = Table("what", "must reach", "found", "")
    rows: list[Row] = []
    for name, scenario in scenarios.items():
        if options.only not in name:
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows += asyncio.run(scenario(Path(folder)))
    for row in rows:
        table.add_row(row.what, row.must, row.found, "met" if row.met else "MISSED")
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(SCENARIOS, "python -m benchmarks.azure", __doc__ or ""))
