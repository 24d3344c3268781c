"""The whole service against a small model of the contract, under any sequence of events.

The model is written from contract sections 2 to 5, 10 and 15; it shares no code with `decide`.
"""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import BackendError, FailureKind, Refusal
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.provider import Ack
from tests.support.rig import Rig, state_name
from tests.support.virtual import VirtualLoop

DEADLINE = 100
FLAGS = ("--transition-timeout", f"{DEADLINE}s", "--failed-dwell", "0")
STEPS = {
    Kind.CREATE: ("SPECULATIVE", "CREATING", "IDLE"),
    Kind.CONFIGURE: ("IDLE", "CONFIGURING", "CONFIGURED"),
    Kind.DRAIN: ("CONFIGURED", "DRAINING", "IDLE"),
    Kind.DELETE: ("IDLE", "DELETING", "SPECULATIVE"),
}
MOST, LEAST = 2**63 - 1, -(2**63)


@dataclass
class Expected:
    """What the contract says a machine is."""

    state: str = "SPECULATIVE"
    running: Kind | None = None
    deadline: float = 0.0
    on_record: dict[Kind, str] = field(default_factory=dict)
    cluster: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


class Substrate:
    """Finishes what the test tells it to, and nothing else."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[bool]] = {}

    async def step(self, work: Assignment) -> None:
        loop = asyncio.get_running_loop()
        verdict = self.waiting.setdefault(work.machine_id, loop.create_future())
        if not await asyncio.shield(verdict):
            raise BackendError(FailureKind.INVALID, "told to fail")

    def decide(self, machine: str, verdict: bool) -> None:
        self.waiting.pop(machine).set_result(verdict)


NUMBERS = st.one_of(st.integers(-2, 6), st.sampled_from([MOST, LEAST]))
TOKENS = st.one_of(
    st.just(Token("", 0, 0)),
    st.builds(Token, st.sampled_from(["s", "t", ""]), NUMBERS, NUMBERS),
)
WHICH = st.integers(0, 5)
CLUSTERS = st.sampled_from(["blue", "blue", "blue", "green", ""])
MAPS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)


class WholeService(RuleBasedStateMachine):
    """Random calls, substrate verdicts, time, restarts and Lists."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.substrate = Substrate()
        self.rig = self.loop.run(self._started(Rig(*FLAGS)))
        self.rig.backend.steps = dict.fromkeys(Kind, self.substrate.step)
        self.machines = {machine: Expected() for machine in self.rig.ids()}
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}
        self.given: set[str] = set()
        self.cursors: list[tuple[bytes, set[str]]] = []
        self.names = [*self.machines, "nobody", ""]

    @staticmethod
    async def _started(rig: Rig) -> Rig:
        return await rig.__aenter__()

    def teardown(self) -> None:
        self.loop.run(self.rig.stop())
        self.loop.close()

    def changed(self, machine: str) -> None:
        for _, ids in self.cursors:
            ids.add(machine)

    @rule(which=WHICH, token=TOKENS)
    def create(self, which: int, token: Token) -> None:
        self.ask(Kind.CREATE, which, token, lambda m: self.rig.create(m, token))

    @rule(which=WHICH, token=TOKENS, cluster=CLUSTERS, metadata=MAPS)
    def configure(self, which: int, token: Token, cluster: str, metadata: dict[str, str]) -> None:
        def call(machine: str) -> object:
            return self.rig.configure(machine, cluster, metadata, token=token)

        self.ask(Kind.CONFIGURE, which, token, call, cluster=cluster, metadata=metadata)

    @rule(which=WHICH, token=TOKENS, grace=st.sampled_from([0, 30, -1]))
    def drain(self, which: int, token: Token, grace: int) -> None:
        self.ask(Kind.DRAIN, which, token, lambda m: self.rig.drain(m, grace, token), grace=grace)

    @rule(which=WHICH, token=TOKENS)
    def delete(self, which: int, token: Token) -> None:
        self.ask(Kind.DELETE, which, token, lambda m: self.rig.delete(m, token))

    def ask(self, kind, which, token, call, *, cluster="", metadata=None, grace=0) -> None:
        machine = self.names[which]
        expected = self.answer_to(kind, machine, token, cluster, grace)
        now = self.loop.run(self._now())
        answer = self.loop.run(self._settled(call(machine)))
        if expected in ("accept", "repeat"):
            assert isinstance(answer, Ack), (answer, expected)
            new = Expected(deadline=now + DEADLINE, cluster=cluster, metadata=metadata or {})
            self.acknowledged(kind, machine, answer, None if expected == "repeat" else new)
        else:
            assert isinstance(answer, Refusal), (answer, expected)
            assert answer.reason == expected

    async def _now(self) -> float:
        return self.rig.clock.now()

    @staticmethod
    async def _settled(call):
        answer = await call
        await asyncio.sleep(0.001)
        return answer

    def answer_to(self, kind: Kind, machine: str, token: Token, cluster: str, grace: int) -> str:
        """What the call must get, by the order of contract section 3; moves the mark."""
        if not machine:
            return "invalid"
        if token != Token("", 0, 0):
            mark = self.marks.get((token.shard_id, machine))
            if mark is not None and (token.epoch, token.sequence) <= mark:
                return "stale_token"
            self.marks[token.shard_id, machine] = (token.epoch, token.sequence)
        if machine not in self.machines:
            return "unknown_machine"
        if kind is Kind.CONFIGURE and not cluster:
            return "invalid"
        known = self.machines[machine]
        source, via, target = STEPS[kind]
        if kind in known.on_record and known.state in (via, target):
            other = kind is Kind.CONFIGURE and cluster != known.cluster
            return "other_cluster" if other else "repeat"
        if known.state != source:
            return "illegal_state"
        return "invalid" if kind is Kind.DRAIN and grace < 0 else "accept"

    def acknowledged(self, kind, machine, ack, new: Expected | None) -> None:
        known = self.machines[machine]
        if new is None:
            assert ack.operation_id == known.on_record[kind]
        else:
            assert ack.operation_id not in self.given
            self.given.add(ack.operation_id)
            known.state, known.running = STEPS[kind][1], kind
            known.deadline = new.deadline
            if kind is Kind.CREATE:
                known.on_record.pop(Kind.DRAIN, None)
            known.on_record[kind] = ack.operation_id
            if kind is Kind.CONFIGURE:
                known.cluster, known.metadata = new.cluster, new.metadata
            self.changed(machine)
        shown = pb.Machine.FromString(ack.machine)
        assert (shown.id, state_name(shown)) == (machine, known.state)
        assert (shown.cluster, dict(shown.shard_metadata)) == (known.cluster, known.metadata)

    @precondition(lambda self: self.substrate.waiting)
    @rule(which=WHICH, succeeds=st.sampled_from([True, True, True, False]))
    def substrate_finishes(self, which: int, succeeds: bool) -> None:
        machine = sorted(self.substrate.waiting)[which % len(self.substrate.waiting)]
        known = self.machines[machine]
        self.loop.run(self._decided(machine, succeeds))
        self.ended(machine, known, succeeds)

    async def _decided(self, machine: str, verdict: bool) -> None:
        self.substrate.decide(machine, verdict)
        await asyncio.sleep(0.001)

    def ended(self, machine: str, known: Expected, succeeds: bool) -> None:
        kind, known.running = known.running, None
        assert kind is not None
        known.state = STEPS[kind][2] if succeeds else "FAILED"
        if succeeds and kind is Kind.DRAIN:
            known.cluster, known.metadata = "", {}
        self.changed(machine)

    @rule(seconds=st.sampled_from([1, 30, 99, 101]))
    def time_passes(self, seconds: int) -> None:
        now = self.loop.run(self._slept(seconds))
        for machine, known in self.machines.items():
            if known.running and known.deadline <= now:
                self.substrate.waiting.pop(machine, None)
                self.ended(machine, known, False)

    async def _slept(self, seconds: int) -> float:
        await asyncio.sleep(seconds)
        await asyncio.sleep(0.001)
        return self.rig.clock.now()

    @rule()
    def process_is_killed_and_started_again(self) -> None:
        self.loop.run(self._restarted())

    async def _restarted(self) -> None:
        self.rig = await (await self.rig.restarted(*FLAGS)).__aenter__()
        await asyncio.sleep(0.001)

    @rule()
    def list_everything(self) -> None:
        answer = self.rig.list()
        assert sorted(m.id for m in answer.machines) == sorted(self.machines)
        self.cursors.append((answer.revision, set()))

    @precondition(lambda self: self.cursors)
    @rule(which=st.integers(0, 50), cap=st.sampled_from([0, 1, 2]))
    def list_what_changed(self, which: int, cap: int) -> None:
        cursor, changed = self.cursors[which % len(self.cursors)]
        found: list[str] = []
        while page := self.rig.list(max_results=cap, since_revision=cursor).machines:
            found += [machine.id for machine in page]
            if not cap:
                break
            cursor = self.rig.list(max_results=cap, since_revision=cursor).revision
        assert sorted(found) == sorted(changed)

    @rule(junk=st.binary(max_size=20))
    def list_with_junk(self, junk: bytes) -> None:
        assert len(self.rig.list(since_revision=junk).machines) == len(self.machines)

    @invariant()
    def every_machine_is_what_the_contract_says(self) -> None:
        for machine, known in self.machines.items():
            shown = self.rig.machine(machine)
            assert state_name(shown) == known.state, machine
            assert (shown.cluster, dict(shown.shard_metadata)) == (known.cluster, known.metadata)
            assert bool(shown.last_error) == (known.state == "FAILED")
            if known.state in ("SPECULATIVE", "CREATING"):
                assert not shown.HasField("host")
            elif known.state != "FAILED":
                assert shown.HasField("host")
        assert self.rig.get("nobody") is None


TestWholeService = pytest.mark.behaviour(22, 25, 33, 38, 44, 56, 79, 80)(WholeService.TestCase)
TestWholeService.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
