"""A shard as strict as the real one drives the service through many hours of life.

What it takes in, drops and rejects is written from contract sections 11 to 13, not from our code.
"""

import asyncio
import math
from dataclasses import dataclass, field
from random import Random

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.base import Condition
from bigfleet_azure.backends.simulated import sizes
from bigfleet_azure.backends.sizes import size_of
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import CapacityType, Kind
from bigfleet_azure.domain.quantity import parse
from bigfleet_azure.service.provider import Ack
from tests.support.rig import Rig, ScriptedBackend, acked, offer, state_name

pytestmark = pytest.mark.looptime

FORBIDDEN = {
    *("instance-type", "instance_type", "instanceType", "zone", "availability-zone"),
    *("availability_zone", "capacity-type", "capacity_type", "capacityType"),
}
TAKEN_IN = {
    *(("SPECULATIVE", "CREATING"), ("CREATING", "IDLE"), ("CREATING", "FAILED")),
    *(("IDLE", "CONFIGURING"), ("IDLE", "DELETING"), ("CONFIGURING", "CONFIGURED")),
    *(("CONFIGURING", "FAILED"), ("CONFIGURING", "IDLE"), ("CONFIGURED", "DRAINING")),
    *(("DRAINING", "IDLE"), ("DRAINING", "FAILED"), ("DELETING", "SPECULATIVE")),
    ("DELETING", "FAILED"),
}
WITH_HOST = {"IDLE", "CONFIGURING", "CONFIGURED", "DRAINING", "DELETING"}
BOUND = {"CONFIGURING", "CONFIGURED", "DRAINING"}
CYCLE_SECONDS = 10


def faults(machine: pb.Machine) -> list[str]:
    """Every rule of contract section 11 that a record breaks."""
    state = state_name(machine)
    spot = machine.capacity_type == pb.CAPACITY_TYPE_SPOT
    quantities = [*machine.resources.resources.values(), *machine.allocatable.resources.values()]
    rules = {
        "id": machine.id and len(machine.id) <= 60 and machine.id == machine.id.lower(),
        "state": state != "UNSPECIFIED",
        "type": machine.instance_type and machine.zone and machine.capacity_type,
        "price": math.isfinite(machine.price_per_hour) and machine.price_per_hour >= 0,
        "probability": (0 < machine.interruption_probability <= 1)
        if spot
        else 0 <= machine.interruption_probability <= 1,
        "quantities": all(parse(text) > 0 for text in quantities),
        "allocatable": {"cpu", "memory", "ephemeral-storage", "pods"}
        <= set(machine.allocatable.resources),
        "labels": not FORBIDDEN & set(machine.labels)
        and {"kubernetes.io/arch", "kubernetes.io/os"} <= set(machine.labels),
        "host": state == "FAILED" or machine.HasField("host") == (state in WITH_HOST),
        "host parts": not machine.HasField("host") or (machine.host.provider and machine.host.ref),
        "cluster": state == "FAILED" or bool(machine.cluster) == (state in BOUND),
        "metadata": state == "FAILED" or state in BOUND or not machine.shard_metadata,
        "error": bool(machine.last_error) == (state == "FAILED"),
    }
    return [name for name, kept in rules.items() if not kept]


@dataclass
class Shard:
    """Wants some machines bound, and believes only what the real one would."""

    rig: Rig
    wanted: int
    known: dict[str, str] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    dropped: list[tuple[str, str, str]] = field(default_factory=list)
    refusals: list[object] = field(default_factory=list)
    sequence: int = 0
    random: Random = field(default_factory=lambda: Random(7))

    def token(self) -> Token:
        self.sequence += 1
        return Token("shard-1", 1, self.sequence)

    def poll(self) -> None:
        answer = {machine.id: machine for machine in self.rig.list().machines}
        self.known = {i: s for i, s in self.known.items() if i in answer}
        for machine in answer.values():
            self.rejected += [f"{machine.id}: {fault}" for fault in faults(machine)]
            state, before = state_name(machine), self.known.get(machine.id)
            if before is None or before == state or (before, state) in TAKEN_IN:
                self.known[machine.id] = state
            else:
                self.dropped.append((machine.id, before, state))

    async def call(self, kind: Kind, machine: str) -> None:
        calls = {
            Kind.CREATE: lambda: self.rig.create(machine, self.token()),
            Kind.CONFIGURE: lambda: self.rig.configure(
                machine, "blue", {"k": machine}, token=self.token()
            ),
            Kind.DRAIN: lambda: self.rig.drain(machine, 10, self.token()),
            Kind.DELETE: lambda: self.rig.delete(machine, self.token()),
        }
        answer = await calls[kind]()
        if isinstance(answer, Ack):
            shown = pb.Machine.FromString(answer.machine)
            self.rejected += [f"ack of {machine}: {fault}" for fault in faults(shown)]
            self.known[machine] = state_name(shown)
        else:
            self.refusals.append(answer)
            self.known[machine] = "FAILED"  # for good: a shard never retries

    def having(self, *states: str) -> list[str]:
        return sorted(machine for machine, state in self.known.items() if state in states)

    async def cycle(self) -> None:
        self.poll()
        missing = self.wanted - len(self.having("CREATING", "IDLE", "CONFIGURING", "CONFIGURED"))
        for machine in self.having("SPECULATIVE")[: max(0, missing)]:
            await self.call(Kind.CREATE, machine)
        lacking = self.wanted - len(self.having("CONFIGURING", "CONFIGURED"))
        for machine in self.having("IDLE")[: max(0, lacking)]:
            await self.call(Kind.CONFIGURE, machine)
        for machine in self.having("CONFIGURED")[: max(0, -lacking)]:
            await self.call(Kind.DRAIN, machine)
        if lacking <= 0:
            for machine in self.having("IDLE")[:1]:
                await self.call(Kind.DELETE, machine)
        await asyncio.sleep(CYCLE_SECONDS)

    async def live(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.cycle()


@dataclass
class Trouble:
    """A substrate that takes its time and now and then fails, in a reproducible way."""

    rig: Rig
    random: Random
    rate: float = 0.0

    def step(self, kind: Kind):
        async def step(_: object) -> None:
            await asyncio.sleep(self.random.uniform(0, 40))
            if self.random.random() < self.rate:
                reason = self.random.choice(
                    [FailureKind.INVALID, FailureKind.GONE, FailureKind.THROTTLED]
                )
                raise BackendError(reason, f"{kind} went wrong")

        return step

    def install(self) -> None:
        self.rig.backend.steps = {kind: self.step(kind) for kind in Kind}

    async def lose_one(self) -> None:
        hosts = sorted(self.rig.backend.hosts)
        if not hosts:
            return
        machine = self.random.choice(hosts)
        kind = self.random.choice([Condition.GONE, Condition.EVICTED, Condition.STOPPED])
        if kind is Condition.GONE:
            del self.rig.backend.hosts[machine]
        else:
            self.rig.backend.hosts[machine].condition = kind
        await self.rig.parts.reconciler.reconcile()


OFFERS = [offer(14), offer(6, vm_size="Standard_F8s_v2", capacity_type=CapacityType.SPOT)]


@pytest.mark.behaviour(10, 46, 68, 70, 71)
@pytest.mark.parametrize(
    ("seed", "hours"), [(1, 3), *(pytest.param(n, 24, marks=pytest.mark.slow) for n in range(6))]
)
async def test_a_shard_never_rejects_a_record_or_drops_a_transition_and_capacity_returns(
    seed: int, hours: int
) -> None:
    async with Rig(offers=OFFERS) as rig:
        trouble = Trouble(rig, Random(seed), rate=0.08)
        trouble.install()
        shard = Shard(rig, wanted=9)
        for hour in range(hours):
            shard.wanted = trouble.random.choice([0, 4, 9, 12])
            await shard.live(180)
            await trouble.lose_one()
            await shard.live(180)
            if hour % 4 == 2:
                await rig.parts.catalogue.apply(OFFERS)
        assert shard.rejected == []
        assert shard.dropped == []
        assert shard.refusals == []
        trouble.rate = 0
        shard.wanted = 9
        await shard.live(360)
        assert len(shard.having("CONFIGURED")) == 9
        assert "FAILED" not in shard.known.values()
        assert len(shard.known) == 20
        assert set(rig.backend.hosts) == set(shard.having("CONFIGURED", "IDLE"))


@pytest.mark.behaviour(10, 46, 80)
async def test_a_shard_notices_nothing_of_restarts_of_the_provider() -> None:
    rig = Rig(offers=OFFERS)
    await rig.__aenter__()
    trouble = Trouble(rig, Random(3))
    trouble.install()
    shard = Shard(rig, wanted=6)
    for round_ in range(12):
        shard.wanted = 3 + round_ % 5
        await shard.live(7)
        rig = await rig.restarted()
        await rig.__aenter__()
        shard.rig = trouble.rig = rig
        trouble.install()
    await shard.live(60)
    assert (shard.rejected, shard.dropped, shard.refusals) == ([], [], [])
    assert len(shard.having("CONFIGURED")) == shard.wanted
    assert len(shard.known) == 20
    await rig.stop()


@pytest.mark.behaviour(46, 47, 50, 51)
async def test_every_record_in_every_state_keeps_the_rules_with_real_facts() -> None:
    forbidden = dict.fromkeys(FORBIDDEN, "x") | {"team": "red"}
    names = [
        *("Standard_D4s_v5", "Standard_F8s_v2", "Standard_NC24ads_A100_v4"),
        *("Standard_D4ps_v5", "Standard_E64-16s_v5", "Standard_B1ls"),
    ]
    offers = [
        offer(8, vm_size=name, capacity_type=capacity, labels=forbidden)
        for name in names
        for capacity in CapacityType
    ]

    class RealFacts(ScriptedBackend):
        def facts(self, offer):
            return sizes.facts(offer)

    async with Rig(offers=offers, backend=RealFacts()) as rig:
        ids = rig.ids()
        seen = set()
        publish = rig.parts.inventory.publish

        def published(changes: object) -> None:
            publish(changes)  # type: ignore[arg-type]
            for machine in rig.list().machines:
                assert faults(machine) == []
                seen.add(state_name(machine))

        rig.parts.inventory.publish = published  # type: ignore[method-assign]
        for machine in ids[::29]:
            await rig.configured(machine, metadata={"k": "v"})
            acked(await rig.drain(machine))
            await rig.reaches(machine, "IDLE")
            acked(await rig.delete(machine))
            await rig.reaches(machine, "SPECULATIVE")

        async def refuse(_: object) -> None:
            raise BackendError(FailureKind.INVALID, "no")

        rig.backend.steps[Kind.CREATE] = refuse
        acked(await rig.create(ids[1]))
        await rig.reaches(ids[1], "FAILED", within=5)
        assert len(seen) == 8
        for shown in rig.list().machines:
            assert shown.labels["team"] == "red"
            assert shown.labels["topology.kubernetes.io/region"] == "eastus"
            assert shown.labels["kubernetes.io/os"] == "linux"
            arm = "D4ps" in shown.instance_type
            assert shown.labels["kubernetes.io/arch"] == ("arm64" if arm else "amd64")
            gpu = "A100" in shown.instance_type
            assert ("nvidia.com/gpu" in shown.allocatable.resources) == gpu
            size = size_of(shown.instance_type)
            usable = shown.allocatable.resources
            assert parse(usable["cpu"]) < size.vcpus
            assert parse(usable["memory"]) < size.memory_gib * 2**30
