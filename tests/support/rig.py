"""The whole service in one process, without gRPC, SQLite or real time.

`Rig` wires the real parts over a scripted backend and a store that keeps its rows over a restart.
Under `looptime` it lives in virtual time: the clock is the loop's, so that deadlines, dwells and
back-offs pass at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.base import Assignment, Condition, Host, Observation, Refreshed
from bigfleet_azure.daemon.assembly import Parts, assemble
from bigfleet_azure.daemon.settings import Settings, resolve
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.errors import BackendError, FailureKind, Refusal
from bigfleet_azure.domain.fence import SideMark, Token
from bigfleet_azure.domain.lifecycle import CapacityType, Kind
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.metadata import pack
from bigfleet_azure.domain.offering import Facts, Offer, Offering
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.provider import Ack
from bigfleet_azure.store.base import Snapshot, StoreError
from bigfleet_azure.telemetry.metrics import Metrics

EPOCH = 1_790_000_000.0
"""Unix seconds at which virtual time begins."""

NO_TOKEN = Token("", 0, 0)


class LoopClock:
    """The running loop's time, as wall-clock time."""

    pace = 1.0

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)


class RetainingStore:
    """A store in memory that can be opened again, and told to fail.

    Attributes:
        failure: raised by every commit while it is set.
        gate: commits wait until it is set, as if a flush took long.
        commits: change sets applied so far, in order.
        incarnation, created: of this store's life.
    """

    def __init__(self) -> None:
        self.failure: StoreError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.commits: list[ChangeSet] = []
        self.wrong_key = ""
        self.blobs: dict[int, Secret] = {}
        self.records: dict[int, Record] = {}
        self.marks: dict[tuple[str, str], SideMark] = {}
        self.offerings: dict[int, Offering] = {}
        self.debts: dict[int, Debt] = {}
        self.head = 0
        self.market = ""
        self.inventoried = False
        self.incarnation = "0123abcd"
        self.created = 0.0

    def open(self) -> Snapshot:
        numbers = [
            self.head,
            *(record.change for record in self.records.values()),
            *(offering.head for offering in self.offerings.values()),
            *self.debts,
        ]
        return Snapshot(
            incarnation=self.incarnation,
            head=max(numbers),
            records=tuple(self.records.values()),
            marks=tuple(self.marks.values()),
            offerings=tuple(self.offerings.values()),
            debts=tuple(self.debts.values()),
            wrong_key=self.wrong_key,
            created=self.created,
            market=self.market,
            inventoried=self.inventoried,
        )

    async def commit(self, changes: ChangeSet) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.commits.append(changes)
        for record in changes.records:
            self.records[record.slot] = record
        for key in changes.dropped_marks:
            self.marks.pop(key, None)
        for side in changes.marks:
            self.marks[side.machine_id, side.mark.shard_id] = side
        for offering in changes.offerings:
            self.offerings[offering.number] = replace(offering, left_out=(0, 0))
        for debt in changes.debts:
            self.debts[debt.number] = debt
        for number in changes.cleared_debts:
            self.debts.pop(number, None)
        if changes.blob is not None:
            self.blobs[changes.blob[0]] = changes.blob[1]
        for slot in changes.handed_over:
            self.blobs.pop(slot, None)
        self.head = max(self.head, changes.head or 0)
        self.market = self.market if changes.market is None else changes.market
        self.inventoried = self.inventoried or changes.inventoried

    async def blob(self, slot: int) -> Secret | None:
        return None if self.wrong_key else self.blobs.get(slot)

    async def close(self) -> None:
        pass


class MortalStore(RetainingStore):
    """A store whose process dies at a chosen commit.

    Attributes:
        lives: commits that are still made durable; None for any number.
        hears_of_it: whether the process still learns that the last one was; else it is durable
            and nobody was told.
        died: set when the process must be killed.
    """

    def __init__(self, lives: int | None = None, *, hears_of_it: bool = False) -> None:
        super().__init__()
        self.lives = lives
        self.hears_of_it = hears_of_it
        self.died = asyncio.Event()

    async def commit(self, changes: ChangeSet) -> None:
        if self.lives == 0:
            await self._die()
        await super().commit(changes)
        if self.lives is not None:
            self.lives -= 1
            if self.lives == 0 and not self.hears_of_it:
                await self._die()

    async def _die(self) -> None:
        self.died.set()
        await asyncio.Event().wait()


Step = Callable[[Assignment], Awaitable[None]]


async def at_once(_: Assignment) -> None:
    """The substrate does it without delay."""


def after(seconds: float) -> Step:
    """The substrate needs `seconds`."""

    async def step(_: Assignment) -> None:
        await asyncio.sleep(seconds)

    return step


async def never(_: Assignment) -> None:
    """The substrate never answers."""
    await asyncio.Event().wait()


def refusing(kind: FailureKind, text: str = "refused", retry_after: float | None = None) -> Step:
    """The substrate refuses each time."""
    pause = None if retry_after is None else timedelta(seconds=retry_after)

    async def step(_: Assignment) -> None:
        raise BackendError(kind, text, code=text, retry_after=pause)

    return step


def in_turn(*steps: Step) -> Step:
    """One step per call; the last one stays."""
    rest = list(steps)

    async def step(work: Assignment) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(work)

    return step


@dataclass(slots=True)
class ScriptedHost:
    """A host of the scripted backend."""

    operation_id: str
    cluster: str = ""
    condition: Condition = Condition.RUNNING
    metadata: Mapping[str, str] | None = None
    since: float = 0.0
    parts: str = ""
    bound_by: str = ""


@dataclass(slots=True)
class ScriptedBackend:
    """A substrate that does what a test says; what it was asked for is kept in `calls`.

    Attributes:
        steps: what happens before each kind of call succeeds.
        ready: what happens before a node is seen Ready.
        hosts: the hosts that exist, by machine id.
        unlisted: ids that `inventory` leaves out although the host exists.
        listing: raised by `inventory` while it is set.
        reclaiming: what happens before a debt is paid.
        reclaimed, reclaimed_for: the debts that were paid, and the operation given with each.
        inspecting: what happens before a host is looked at.
        leftovers: parts that no host holds.
        short: what is short, or what `shortages` raises.
        unknown: sizes that are not known yet.
        absent: names that are no size's.
        forgotten: whether sizes are only guessed at.
        made: counts hosts, so that each has parts of its own.
        price, prices, probability: what everything costs, or sizes of their own, and how often
            Spot is evicted.
        refreshed, refreshes: what becomes of reading prices, and how often they were read.
        recalled: what was given back of an earlier life's prices.
        guessed: sizes without a price.
        in_force: the offers that it was last told of.
    """

    name: str = "scripted"
    max_blob_bytes: int = 4 * 1024 * 1024
    rebuilds: bool = False
    steps: dict[Kind, Step] = field(default_factory=lambda: dict.fromkeys(Kind, at_once))
    ready: Step = at_once
    hosts: dict[str, ScriptedHost] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    listing: BackendError | None = None
    reclaiming: Callable[[Debt], Awaitable[None]] | None = None
    inspecting: Callable[[str], Awaitable[None]] | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    work: list[Assignment] = field(default_factory=list)
    reclaimed: list[Debt] = field(default_factory=list)
    reclaimed_for: list[str] = field(default_factory=list)
    price: float = 0.2
    prices: dict[str, float] = field(default_factory=dict)
    probability: float = 0.125
    refreshed: Refreshed = field(default_factory=Refreshed)
    refreshes: int = 0
    recalled: list[str] = field(default_factory=list)
    guessed: Sequence[str] = ()
    leftovers: list[Observation] = field(default_factory=list)
    short: Sequence[Shortage] | BackendError = ()
    unknown: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    forgotten: bool = False
    made: int = 0
    in_force: list[Offer] = field(default_factory=list)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def watch_facts(self, changed: Callable[[], None]) -> None:
        pass

    def offered(self, offers: Sequence[Offer]) -> None:
        self.in_force = list(offers)

    def recall(self, kept: str) -> None:
        self.recalled.append(kept)

    async def refresh(self) -> Refreshed:
        self.refreshes += 1
        return self.refreshed

    def unpriced(self) -> Sequence[str]:
        return self.guessed

    def facts(self, offer: Offer) -> Facts:
        if offer.vm_size in self.unknown:
            raise BackendError(FailureKind.TRANSIENT, "the sizes are not known yet")
        if offer.vm_size in self.absent:
            raise BackendError(FailureKind.INVALID, f"{offer.vm_size} is no size")
        spot = offer.capacity_type is CapacityType.SPOT
        return Facts(
            price_usd_per_hour=self.prices.get(offer.vm_size, self.price),
            interruption_probability=self.probability if spot else 0.0,
            allocatable={"cpu": "3", "memory": "12Gi", "ephemeral-storage": "20Gi", "pods": "110"},
            labels={"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
            guessed=self.forgotten,
        )

    def _note(self, method: str, work: Assignment) -> None:
        self.calls.append((method, work.machine_id))
        self.work.append(work)

    def count(self, method: str, machine_id: str | None = None) -> int:
        """How often `method` was called, for one machine or for all."""
        return sum(1 for m, i in self.calls if m == method and machine_id in (None, i))

    async def create(self, work: Assignment) -> Host:
        self._note("create", work)
        await self.steps[Kind.CREATE](work)
        host = self.hosts.get(work.machine_id)
        if host is None:
            self.made += 1
            host = ScriptedHost(work.operation_id, parts=f"disk-{self.made} nic-{self.made}")
            self.hosts[work.machine_id] = host
        return Host(ref=f"/hosts/{work.machine_id}", parts=host.parts)

    async def configure(self, work: Assignment, blob: Secret) -> None:
        self._note("configure", work)
        await self.steps[Kind.CONFIGURE](work)
        self.blobs.append(blob.reveal())
        if work.machine_id in self.hosts:
            self.hosts[work.machine_id].cluster = work.cluster

    async def wait_ready(self, work: Assignment) -> None:
        self._note("wait_ready", work)
        await self.ready(work)

    async def drain(self, work: Assignment) -> None:
        self._note("drain", work)
        await self.steps[Kind.DRAIN](work)
        if work.machine_id in self.hosts:
            self.hosts[work.machine_id].cluster = ""

    async def delete(self, work: Assignment) -> None:
        self._note("delete", work)
        await self.steps[Kind.DELETE](work)
        self.hosts.pop(work.machine_id, None)

    async def inspect(self, machine_id: str, host: str) -> Observation:
        self.calls.append(("inspect", machine_id))
        if self.inspecting is not None:
            await self.inspecting(machine_id)
        return self._observe(machine_id)

    async def inventory(self) -> Sequence[Observation]:
        if self.listing is not None:
            raise self.listing
        return [*(self._observe(i) for i in self.hosts if i not in self.unlisted), *self.leftovers]

    def _observe(self, machine_id: str) -> Observation:
        host = self.hosts.get(machine_id)
        return Observation(
            machine_id=machine_id,
            host=f"/hosts/{machine_id}",
            condition=host.condition if host else Condition.GONE,
            operation_id=host.operation_id if host else "",
            cluster=host.cluster if host else "",
            parts=host.parts if host else "",
            metadata=host.metadata if host else None,
            since=host.since if host else 0.0,
            bound_by=host.bound_by if host else "",
        )

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        self.calls.append(("reclaim", debt.machine_id))
        if self.reclaiming is not None:
            await self.reclaiming(debt)
        part = next((one for one in self.leftovers if one.host == debt.host), None)
        if part is not None:
            self.leftovers.remove(part)
        else:
            self.hosts.pop(debt.machine_id, None)
        self.reclaimed.append(debt)
        self.reclaimed_for.append(operation_id)

    async def shortages(self) -> Sequence[Shortage]:
        if isinstance(self.short, BackendError):
            raise self.short
        return self.short


def offer(count: int = 4, **changes: object) -> Offer:
    """An on-demand offer of `count` slots."""
    fields: dict[str, object] = {
        "vm_size": "Standard_D4s_v5",
        "zone": "eastus-1",
        "capacity_type": CapacityType.ON_DEMAND,
        "count": count,
        "resources": {"cpu": "1", "memory": "2Gi"},
        **changes,
    }
    return Offer(**fields)  # type: ignore[arg-type]


class Rig:
    """The service over a scripted backend. Use it as an asynchronous context manager.

    Args:
        offers: what is offered; four on-demand slots when left out.
        flags: settings as a user would write them.
        backend, store: to go on with those of another rig, as after a restart.
        reachable: the backend is started; else `parts.opened` says when it is.
    """

    def __init__(
        self,
        *flags: str,
        offers: Sequence[Offer] | None = None,
        backend: ScriptedBackend | None = None,
        store: RetainingStore | None = None,
        reachable: bool = True,
    ) -> None:
        self.settings: Settings = resolve(["--use-fake-backend", *flags], {}, _no_file)
        self.offers = list(offers) if offers is not None else [offer()]
        self.backend = backend or ScriptedBackend()
        self.store = store or RetainingStore()
        self.reachable = reachable
        self.metrics = Metrics()
        self.clock = LoopClock()
        self.conditions = Conditions(self.clock, self.metrics)
        self.parts: Parts
        self._supervisor = Supervisor()
        self._published = asyncio.Event()

    async def __aenter__(self) -> "Rig":
        snapshot = self.store.open()
        self.parts = assemble(
            self.settings,
            clock=self.clock,
            metrics=self.metrics,
            conditions=self.conditions,
            supervisor=self._supervisor,
            store=self.store,
            snapshot=snapshot,
            backend=self.backend,
        )
        self._tell_of_publications()
        await self.parts.catalogue.apply(self.offers)
        await self.parts.catalogue.show_all()
        if self.reachable:
            self.parts.opened.set()
        self.parts.take_up(snapshot)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _tell_of_publications(self) -> None:
        publish = self.parts.inventory.publish

        def published(changes: ChangeSet) -> None:
            publish(changes)
            self._published.set()

        self.parts.inventory.publish = published  # type: ignore[method-assign]

    async def stop(self) -> None:
        """End every task where it stands, as a killed process would."""
        await self._supervisor.close()

    @staticmethod
    async def kill() -> None:
        """End every other task of the loop in the middle of whatever it does."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def restarted(
        self, *flags: str, offers: Sequence[Offer] | None = None, reachable: bool = True
    ) -> "Rig":
        """A new process over what this one left; enter it with `async with`."""
        await self.stop()
        return Rig(
            *flags,
            offers=self.offers if offers is None else offers,
            backend=self.backend,
            store=self.store,
            reachable=reachable,
        )

    def ids(self) -> list[str]:
        """All listed ids, sorted."""
        return sorted(machine.id for machine in self.list().machines)

    async def submit(self, command: Command) -> Ack | Refusal:
        return await self.parts.provider.submit(command)

    def call(self, kind: Kind) -> Callable[..., Awaitable[Ack | Refusal]]:
        """The method that asks for `kind`."""
        calls: dict[Kind, Callable[..., Awaitable[Ack | Refusal]]] = {
            Kind.CREATE: self.create,
            Kind.CONFIGURE: self.configure,
            Kind.DRAIN: self.drain,
            Kind.DELETE: self.delete,
        }
        return calls[kind]

    async def create(self, machine_id: str, token: Token = NO_TOKEN) -> Ack | Refusal:
        return await self.submit(Command(kind=Kind.CREATE, machine_id=machine_id, token=token))

    async def configure(
        self,
        machine_id: str,
        cluster: str = "blue",
        metadata: Mapping[str, str] | None = None,
        blob: bytes = b"join me",
        token: Token = NO_TOKEN,
    ) -> Ack | Refusal:
        command = Command(
            kind=Kind.CONFIGURE,
            machine_id=machine_id,
            token=token,
            cluster=cluster,
            metadata=pack(metadata or {}),
            blob=Secret(blob),
        )
        return await self.submit(command)

    async def drain(
        self, machine_id: str, grace_seconds: int = 0, token: Token = NO_TOKEN
    ) -> Ack | Refusal:
        command = Command(
            kind=Kind.DRAIN, machine_id=machine_id, token=token, grace_seconds=grace_seconds
        )
        return await self.submit(command)

    async def delete(self, machine_id: str, token: Token = NO_TOKEN) -> Ack | Refusal:
        return await self.submit(Command(kind=Kind.DELETE, machine_id=machine_id, token=token))

    def get(self, machine_id: str) -> pb.Machine | None:
        found = self.parts.provider.get(machine_id)
        return None if found is None else pb.Machine.FromString(found)

    def machine(self, machine_id: str) -> pb.Machine:
        """The machine, which must exist."""
        found = self.get(machine_id)
        assert found is not None, f"no machine {machine_id}"
        return found

    def state(self, machine_id: str) -> str:
        """The state's name without its prefix."""
        return state_name(self.machine(machine_id))

    def list(
        self, *states: int, max_results: int = 0, since_revision: bytes = b""
    ) -> pb.MachineList:
        answer = self.parts.provider.list(
            states=frozenset(states), max_results=max_results, since_revision=since_revision
        )
        return pb.MachineList.FromString(answer)

    async def reaches(self, machine_id: str, state: str, within: float = 3600) -> pb.Machine:
        """Wait, in virtual time, until the machine is in `state`."""
        async with asyncio.timeout(within):
            while True:
                machine = self.get(machine_id)
                if machine is not None and state_name(machine) == state:
                    return machine
                self._published.clear()
                await self._published.wait()

    async def idle(self, machine_id: str) -> pb.Machine:
        """Bring an unused slot to IDLE."""
        assert isinstance(await self.create(machine_id), Ack)
        return await self.reaches(machine_id, "IDLE")

    async def configured(
        self, machine_id: str, cluster: str = "blue", metadata: Mapping[str, str] | None = None
    ) -> pb.Machine:
        """Bring an unused slot to CONFIGURED."""
        await self.idle(machine_id)
        assert isinstance(await self.configure(machine_id, cluster, metadata), Ack)
        return await self.reaches(machine_id, "CONFIGURED")


def state_name(machine: pb.Machine) -> str:
    """CREATING for MACHINE_STATE_CREATING."""
    return pb.MachineState.Name(machine.state).removeprefix("MACHINE_STATE_")


def acked(answer: Ack | Refusal) -> Ack:
    """The acknowledgement, which must not be a refusal."""
    assert isinstance(answer, Ack), answer
    return answer


def refused(answer: Ack | Refusal) -> Refusal:
    """The refusal, which must not be an acknowledgement."""
    assert isinstance(answer, Refusal), answer
    return answer


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(path)
