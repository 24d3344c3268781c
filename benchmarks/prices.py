"""`python -m benchmarks.prices`: what prices, eviction rates and notices cost.

Requests are counted at the double of Azure. How long the event loop is held is measured on the
service over a real state file, with Lists asked for all the while, as by a shard.
"""

import asyncio
import gc
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.azure import Row, Scenario, all_reach, main
from benchmarks.fill import in_use
from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.azure.meters import by_size, choose
from bigfleet_azure.backends.azure.retail import RetailPrices, open_session
from bigfleet_azure.daemon.app import GC_THRESHOLDS
from bigfleet_azure.daemon.assembly import Parts, assemble
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.store.sqlite import SqliteStore
from bigfleet_azure.telemetry.metrics import Metrics
from tests.azure.test_live_notices import site_of, token
from tests.support.arm.double import ArmDouble
from tests.support.rig import ScriptedBackend

SLOTS = 100_000
LONGEST_SECONDS = 0.050
NOTICE_SECONDS = 1.0
NOTICES = 500
ORDERS = 24
SIZES = 60

PATH = "/internal/eviction"


@asynccontextmanager
async def prices_of(arm: ArmDouble) -> AsyncIterator[RetailPrices]:
    """The price service of a double."""
    async with open_session(Path(arm.ca_file)) as session:
        yield RetailPrices(
            session, endpoint=arm.prices_endpoint, region="eastus", clock=SystemClock()
        )


async def requests(_: Path) -> list[Row]:
    """Requests for many sizes, and results in any order."""
    names = [f"Standard_D{number}s_v5" for number in range(1, SIZES + 1)]
    async with ArmDouble() as arm, prices_of(arm) as retail:
        for name in names:
            arm.market.price(name, on_demand=0.2, spot=0.04)
        rows = await retail.rows(names)
        asked = arm.ledger.count("prices")
        arm.market.page = -(-len(rows) // 4 // 2)  # each of four groups then has two pages
        await retail.rows(names)
        paged = arm.ledger.count("prices") - asked
        arm.market.page = 50
        results = set()
        for seed in range(ORDERS):
            arm.market.shuffle(seed)
            found = by_size(await retail.rows(names[:15]))
            now = arm.clock.now()
            results.add(
                tuple(
                    tuple(choose(found[n.lower()], size=n, region="eastus", now=now).prices.items())
                    for n in names[:15]
                )
            )
    return [
        Row(f"requests for {SIZES} sizes", "≤ 6", str(asked), asked <= 6),
        Row(
            "requests with one further page a group", str(asked + 4), str(paged), paged == asked + 4
        ),
        Row(f"results of {ORDERS} orders of the rows", "1", str(len(results)), len(results) == 1),
    ]


async def notices(folder: Path) -> list[Row]:
    """How soon a shard sees a notice, and what many at once cost Azure."""
    flags = ("--reconcile-interval=0", "--price-refresh=0")
    async with site_of(folder, *flags, speed=20.0, seed_count=2 * NOTICES, keep=None) as site:
        for quota in ("cores", "lowPriorityCores", "virtualMachines", "NetworkInterfaces"):
            site.arm.capacity.quotas[quota] = 10**6
        machines = await site.ids(NOTICES, "spot")
        for machine in machines:
            await site.create(machine)
        await all_reach(site, machines, pb.MACHINE_STATE_IDLE, 300)
        for machine in machines:
            await site.configure(machine)
        await all_reach(site, machines, pb.MACHINE_STATE_CONFIGURED, 600)
        tokens = {machine: token(site, machine) for machine in machines}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{site.http}") as session:

            async def tell(machine: str) -> None:
                body = {"machine_id": machine, "event_type": "Preempt", "event_id": "E-1"}
                headers = {"Authorization": f"Bearer {tokens[machine]}"}
                async with session.post(PATH, json=body, headers=headers) as answer:
                    assert answer.status == 204, answer.status

            ordinary, first, *rest = machines
            before = Counter(call.route for call in site.arm.ledger.calls)
            await site.drain(ordinary, 30)
            await site.reaches(ordinary, "IDLE", within=120)
            one = Counter(call.route for call in site.arm.ledger.calls) - before
            begun = time.perf_counter()
            await tell(first)
            seen = (await site.machines())[first].state
            took = time.perf_counter() - begun
            before = Counter(call.route for call in site.arm.ledger.calls)
            begun = time.perf_counter()
            await asyncio.gather(*(tell(machine) for machine in rest))
            listed = await site.machines()
            all_took = time.perf_counter() - begun
            await all_reach(site, rest, pb.MACHINE_STATE_FAILED, 600)
        cost = Counter(call.route for call in site.arm.ledger.calls) - before
    drained = sum(listed[m].state == pb.MACHINE_STATE_DRAINING for m in rest)
    drains = Counter({route: count * len(rest) for route, count in one.items()})
    # What is left of an evicted machine is removed, by a look whose it is and a deletion.
    drains += Counter({"vm.delete": len(rest), "vm.get": len(rest)})
    beyond = cost - drains
    writes = {route: n for route, n in beyond.items() if route.partition(".")[2] in _WRITES}
    reads = {r: n for r, n in beyond.items() if r in ("vm.get", "vm.list", "vm.list-all")}
    told = seen == pb.MACHINE_STATE_DRAINING
    return [
        Row("notice → DRAINING in a List", f"≤ {NOTICE_SECONDS:g} s", f"{took:.3f} s",
            told and took <= NOTICE_SECONDS),
        Row(f"{len(rest)} at once → DRAINING in a List", "all",
            f"{drained} in {all_took:.2f} s", drained == len(rest)),
        Row("their ARM writes beyond a Drain's and the removal's", "none",
            str(writes or "none"), not writes),
        Row("their looks at VMs beyond a Drain's and the removal's", "≤ 1", str(reads or "none"),
            sum(reads.values()) <= 1),
    ]  # fmt: skip


_WRITES = frozenset({"put", "patch", "delete", "start"})


class Held:
    """The longest time for which nothing else could run on the loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.perf_counter()
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            self._last = time.perf_counter()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.perf_counter() - self._last)

    def apart(self, seconds: float) -> None:
        """What just ran for so long is not to be counted."""
        self._last += seconds

    def stop(self) -> float:
        self._task.cancel()
        return self.longest


def fleet(offerings: int) -> list[Offer]:
    """So many offerings of Spot, with all slots together."""
    return [
        Offer(
            vm_size=f"Standard_D{number + 1}s_v5",
            zone="eastus-1",
            capacity_type=CapacityType.SPOT,
            count=SLOTS // offerings,
            resources={"cpu": "1", "memory": "2Gi"},
        )
        for number in range(offerings)
    ]


@asynccontextmanager
async def service(
    folder: Path, offers: list[Offer], *, used: bool
) -> AsyncIterator[tuple[Parts, ScriptedBackend]]:
    """The service over a state file, without a daemon around it."""
    clock, metrics, supervisor = SystemClock(), Metrics(), Supervisor()
    store = SqliteStore(folder / "state.db", clock=clock, metrics=metrics)
    snapshot = store.open()
    backend = ScriptedBackend()
    parts = assemble(
        resolve(["--use-fake-backend", "--republish-threshold=0"], {}, str.encode),
        clock=clock,
        metrics=metrics,
        conditions=Conditions(clock, metrics),
        supervisor=supervisor,
        store=store,
        snapshot=snapshot,
        backend=backend,
    )
    await parts.catalogue.apply(offers)
    if used:
        for offering in parts.inventory.offerings():
            first = parts.inventory.reserve(4 * offering.offer.count)
            records = tuple(in_use(offering, itertools.count(first, 4), clock.now()))
            for start in range(0, len(records), 10_000):
                changes = ChangeSet(records=records[start : start + 10_000])
                await store.commit(changes)
                parts.inventory.publish(changes)
    gc.set_threshold(*GC_THRESHOLDS)  # as the daemon does
    gc.collect()
    gc.freeze()
    try:
        yield parts, backend
    finally:
        await supervisor.close()
        await store.close()


async def refresh(folder: Path) -> list[Row]:
    """How long a refresh holds the loop."""
    rows = []
    for offerings, used in ((20, False), (1, True)):
        where = folder / f"{offerings}-{used}"
        where.mkdir()
        async with service(where, fleet(offerings), used=used) as (parts, backend):
            what = f"{SLOTS:,} {'used' if used else 'unused'} slots in {offerings} offerings"
            rows += await _refreshes(what, parts, backend)
        gc.unfreeze()
    return rows


async def _refreshes(what: str, parts: Parts, backend: ScriptedBackend) -> list[Row]:
    ask = parts.provider.list
    revision = _revision(parts)
    held = Held()
    await parts.pricing.take()
    idle = held.stop()
    moved = revision != _revision(parts)
    backend.price *= 1.1
    held = Held()
    taking = asyncio.create_task(parts.pricing.take())
    lists: list[float] = []
    begun = time.perf_counter()
    while not taking.done():
        await asyncio.sleep(0.2)
        start = time.perf_counter()
        ask(states=frozenset(), max_results=0, since_revision=b"")
        lists.append(time.perf_counter() - start)
        held.apart(lists[-1])
    longest = held.stop()
    took = time.perf_counter() - begun
    answer = pb.MachineList.FromString(
        ask(states=frozenset(), max_results=0, since_revision=revision)
    )
    count = len(answer.machines)
    return [
        Row(f"{what}: refresh without a change", "no revision, ≤ 50 ms held",
            f"{'moved' if moved else 'none'}, {idle * 1000:.0f} ms",
            not moved and idle <= LONGEST_SECONDS),
        Row(f"{what}: refresh with one", f"{SLOTS:,} moved, ≤ 50 ms held",
            f"{count:,} in {took:.1f} s, {longest * 1000:.0f} ms "
            f"(slowest List {max(lists) * 1000:.0f} ms)",
            count == SLOTS and longest <= LONGEST_SECONDS),
    ]  # fmt: skip


def _revision(parts: Parts) -> bytes:
    answer = parts.provider.list(states=frozenset(), max_results=0, since_revision=b"")
    return pb.MachineList.FromString(answer).revision


SCENARIOS: dict[str, Scenario] = {
    "requests": requests,
    "notices": notices,
    "refresh": refresh,
}

if __name__ == "__main__":
    raise SystemExit(main(SCENARIOS, "python -m benchmarks.prices", __doc__ or ""))
