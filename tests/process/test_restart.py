"""SIGKILL at any moment, and what the next process makes of what was left behind."""

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.simulated.history import audit
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.store.inspect import read_only_snapshot
from tests.support.process import (
    BASE,
    COMMAND,
    Client,
    DaemonProcess,
    client,
    eventually,
    refused,
    running,
)

pytestmark = pytest.mark.process

KINDS = ("create", "configure", "drain", "delete")
GOAL = {
    "create": pb.MACHINE_STATE_IDLE,
    "configure": pb.MACHINE_STATE_CONFIGURED,
    "drain": pb.MACHINE_STATE_IDLE,
    "delete": pb.MACHINE_STATE_SPECULATIVE,
}
SOURCE = {
    "create": pb.MACHINE_STATE_SPECULATIVE,
    "configure": pb.MACHINE_STATE_IDLE,
    "drain": pb.MACHINE_STATE_CONFIGURED,
    "delete": pb.MACHINE_STATE_IDLE,
}
SETTLED = {
    pb.MACHINE_STATE_SPECULATIVE,
    pb.MACHINE_STATE_IDLE,
    pb.MACHINE_STATE_CONFIGURED,
    pb.MACHINE_STATE_FAILED,
}
FAST = "--fake-latency=1ms"


def metadata(machine_id: str, round_: int) -> dict[str, str]:
    return {"group": f"{machine_id}\0{round_}", "empty": "", "ключ": "värde"}


@dataclass
class Accepted:
    """An acknowledged call: what a later process must still know about it."""

    kind: str
    operation: str
    sequence: int


@dataclass
class Fleet:
    """Machines by the call they are meant for, and what was acknowledged about them."""

    round: int = 0
    planned: dict[str, list[str]] = field(default_factory=dict)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    attempted: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)
    sequences: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def epoch(self) -> int:
        """What the shard stamps its calls with; the checks of a round use the next one."""
        return 10 * (self.round + 1)

    def call(self, speaking: Client, kind: str, machine_id: str) -> None:
        """Make the planned call and note its acknowledgement."""
        sequence = next(self.sequences)
        fields = {"shard_id": "s1", "shard_epoch": self.epoch, "sequence_number": sequence}
        if kind == "configure":
            fields |= {
                "cluster": f"c-{machine_id[-3:]}",
                "bootstrap_blob": b"join " * 100,
                "shard_metadata": metadata(machine_id, self.round),
            }
        if kind == "drain":
            fields["grace_period_seconds"] = 0
        self.attempted.add(machine_id)
        ack: pb.TransitionAck = getattr(speaking, kind)(machine_id, **fields)
        assert ack.operation_id not in self.operations
        self.operations.add(ack.operation_id)
        self.accepted[machine_id] = Accepted(kind, ack.operation_id, sequence)


def settled(speaking: Client, within: float = 40.0) -> dict[str, pb.Machine]:
    """The fleet, once nothing is under way any more."""
    found: dict[str, pb.Machine] = {}

    def all_settled() -> bool:
        found.clear()
        found.update((machine.id, machine) for machine in speaking.list().machines)
        return all(machine.state in SETTLED for machine in found.values())

    eventually(all_settled, "every machine is settled", within)
    return found


def prepare(fleet: Fleet, speaking: Client, each: int) -> None:
    """Bring `each` machines to where every kind of call starts from."""
    fleet.planned.clear()
    now = settled(speaking)
    free: dict[int, list[str]] = {}
    for machine in now.values():
        free.setdefault(machine.state, []).append(machine.id)
    fresh = free[pb.MACHINE_STATE_SPECULATIVE]
    idle = free.get(pb.MACHINE_STATE_IDLE, [])
    bound = free.get(pb.MACHINE_STATE_CONFIGURED, [])
    fleet.planned["create"] = [fresh.pop() for _ in range(each)]
    while len(idle) < 3 * each:
        speaking.create(idle_now := fresh.pop())
        idle.append(idle_now)
    settled(speaking)
    while len(bound) < each:
        speaking.configure(bound_now := idle.pop(), shard_metadata={"old": "binding"})
        bound.append(bound_now)
    settled(speaking)
    fleet.planned["configure"] = idle[:each]
    fleet.planned["delete"] = idle[each : 2 * each]
    fleet.planned["drain"] = bound[:each]


def kill_amid_calls(fleet: Fleet, daemon: DaemonProcess, chance: random.Random) -> None:
    """Make every planned call from eight callers; SIGKILL at a moment that `chance` chooses."""
    calls = [(kind, machine) for kind, ids in fleet.planned.items() for machine in ids]
    chance.shuffle(calls)
    enough = chance.randrange(len(calls) // 2, len(calls))
    reached = threading.Event()

    def work(mine: list[tuple[str, str]], speaking: Client) -> None:
        try:
            for kind, machine_id in mine:
                fleet.call(speaking, kind, machine_id)
                if len(fleet.accepted) >= enough:
                    reached.set()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:  # from the kill on nobody answers
                raise

    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        workers = [
            pool.submit(work, calls[worker::8], stack.enter_context(client(daemon)))
            for worker in range(8)
        ]
        eventually(lambda: reached.is_set() or all(w.done() for w in workers), "calls are answered")
        with suppress(subprocess.TimeoutExpired):
            daemon.popen.wait(chance.uniform(0.0, 0.4))
        daemon.kill()
        for worker in workers:
            worker.result(60)
    assert reached.is_set()


def check(fleet: Fleet, daemon: DaemonProcess, ledger: Path, cursor: bytes) -> None:
    """Everything acknowledged has come true, and nothing else has."""
    with client(daemon) as speaking:
        delta = {machine.id for machine in speaking.list(since_revision=cursor).machines}
        found = settled(speaking)
        assert fleet.accepted.keys() <= delta
        assert delta <= fleet.attempted or delta == found.keys()
        for kind, ids in fleet.planned.items():
            for machine_id in ids:
                machine = found[machine_id]
                assert machine.state != pb.MACHINE_STATE_FAILED, machine
                if machine_id in fleet.accepted:
                    assert machine.state == GOAL[kind], (kind, machine)
                else:
                    assert machine.state in (GOAL[kind], SOURCE[kind]), (kind, machine)
                if kind == "configure" and machine.state == GOAL[kind]:
                    assert machine.cluster == f"c-{machine_id[-3:]}"
                    assert machine.shard_metadata == metadata(machine_id, fleet.round)
                if machine.state != pb.MACHINE_STATE_CONFIGURED:
                    assert not machine.cluster
                    assert not machine.shard_metadata
        for machine_id, accepted in fleet.accepted.items():
            call = getattr(speaking, accepted.kind)
            names = {"cluster": f"c-{machine_id[-3:]}"} if accepted.kind == "configure" else {}
            with pytest.raises(grpc.RpcError) as stale:
                call(
                    machine_id,
                    shard_id="s1",
                    shard_epoch=fleet.epoch,
                    sequence_number=accepted.sequence,
                    **names,
                )
            assert stale.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            # A shard never heard of before may begin low; a new epoch may begin low as well.
            newcomer = call(machine_id, shard_id=f"n{fleet.round}", shard_epoch=0, **names)
            assert newcomer.operation_id == accepted.operation
        for machine_id, accepted in list(fleet.accepted.items())[::10]:
            names = {"cluster": f"c-{machine_id[-3:]}"} if accepted.kind == "configure" else {}
            again = getattr(speaking, accepted.kind)(
                machine_id, shard_id="s1", shard_epoch=fleet.epoch + 1, sequence_number=0, **names
            )
            assert again.operation_id == accepted.operation
    audited = audit(ledger)
    assert not audited.doubled
    hosts = {i for i, m in found.items() if m.state != pb.MACHINE_STATE_SPECULATIVE}
    assert audited.live == hosts


def one_round(fleet: Fleet, log: Path, state: Path, chance: random.Random, each: int) -> None:
    size = f"--seed-count={6 * each}"
    with running(log, size, FAST, f"--state={state}") as daemon, client(daemon) as speaking:
        prepare(fleet, speaking, each)
        daemon.kill()
    fleet.accepted.clear()
    fleet.attempted.clear()
    slow = f"--fake-latency={chance.uniform(0.2, 0.6):.2f}s"
    with running(log, size, slow, f"--state={state}") as daemon:
        with client(daemon) as speaking:
            cursor = speaking.list().revision
        first = daemon.port
        kill_amid_calls(fleet, daemon, chance)
    # Killed again while it takes up what was left.
    with running(log, size, slow, f"--state={state}") as daemon:
        assert daemon.port != first
        with suppress(subprocess.TimeoutExpired):
            daemon.popen.wait(chance.uniform(0.0, 0.3))
        daemon.kill()
    with running(log, size, slow, f"--state={state}") as daemon:
        check(fleet, daemon, Path(f"{state}.region"), cursor)
    fleet.round += 1


@pytest.mark.behaviour(38, 78, 79, 80)
def test_everything_acknowledged_before_a_sigkill_reaches_its_goal_after_it(
    log: Path, state: Path
) -> None:
    one_round(Fleet(), log, state, random.Random(1), each=20)


@pytest.mark.slow
@pytest.mark.behaviour(38, 78, 79, 80)
@pytest.mark.parametrize("seed", [10, 11, 12])
def test_sigkill_again_and_again_on_one_state_loses_nothing_acknowledged(
    log: Path, state: Path, seed: int
) -> None:
    fleet, chance = Fleet(), random.Random(seed)
    for _ in range(3):
        one_round(fleet, log, state, chance, each=40)


def half_handed_over(log: Path, state: Path) -> tuple[set[str], set[str]]:
    """Kill a daemon amid Configures; which of them had handed their blob over, and which not."""
    with running(log, FAST, f"--state={state}") as daemon, client(daemon) as speaking:
        ids = [machine.id for machine in speaking.list().machines][:16]
        for machine_id in ids:
            speaking.create(machine_id)
        settled(speaking)
        daemon.kill()

    def handed_over() -> set[str]:
        return {
            record.id
            for record in read_only_snapshot(state).records
            if record.state is State.CONFIGURED
            or (record.operation and record.operation.handed_over)
        }

    with running(log, "--fake-latency=1s", f"--state={state}") as daemon:
        with client(daemon) as speaking:
            for machine_id in ids[:8]:
                speaking.configure(machine_id, bootstrap_blob=b"join")
            eventually(lambda: handed_over() == set(ids[:8]), "the first half has its blobs")
            for machine_id in ids[8:]:
                speaking.configure(machine_id, bootstrap_blob=b"join")
        daemon.kill()
    handed = handed_over()
    kept = set(ids) - handed
    assert handed
    assert kept
    return handed, kept


@pytest.mark.behaviour(78, 80)
def test_a_configure_killed_before_or_after_its_blob_was_handed_over_ends_configured(
    log: Path, state: Path
) -> None:
    handed, kept = half_handed_over(log, state)
    with running(log, FAST, f"--state={state}") as daemon, client(daemon) as speaking:
        for machine_id in handed | kept:
            assert speaking.reaches(machine_id, "CONFIGURED").cluster == "blue"


@pytest.mark.behaviour(80)
@pytest.mark.parametrize("loss", ["lost", pytest.param("another", marks=pytest.mark.slow)])
def test_without_the_key_only_configures_whose_blob_is_still_needed_fail(
    log: Path, state: Path, loss: str
) -> None:
    handed, kept = half_handed_over(log, state)
    key = Path(f"{state}.key")
    old = key.read_text().strip()
    key.unlink()
    env = {"BIGFLEET_AZURE_STATE_KEY": "ab" * 32} if loss == "another" else {}
    flags = (FAST, f"--state={state}", "--metrics-addr=127.0.0.1:0")
    with running(log, *flags, env=env) as daemon, client(daemon) as speaking:
        for machine_id in handed:
            speaking.reaches(machine_id, "CONFIGURED")
        for machine_id in kept:
            failed = speaking.reaches(machine_id, "FAILED")
            assert "state key" in failed.last_error
            assert old not in failed.last_error
        assert "state-key" in daemon.web("/readyz?verbose").text
        # New Configures are sealed with the key there is now.
        fresh = speaking.list(states=[pb.MACHINE_STATE_SPECULATIVE]).machines[0].id
        speaking.create(fresh)
        speaking.reaches(fresh, "IDLE")
        speaking.configure(fresh, bootstrap_blob=b"join")
        speaking.reaches(fresh, "CONFIGURED")
    assert "sealed with another state key" in log.read_text()


@pytest.mark.behaviour(78, 79, 80)
def test_a_daemon_killed_while_it_starts_leaves_a_state_that_starts(log: Path, state: Path) -> None:
    chance = random.Random(5)

    def killed_at_start() -> None:
        with log.open("a") as stderr:
            popen = subprocess.Popen(
                [*COMMAND, *BASE, "--fake-latency=300ms", f"--state={state}"], stderr=stderr
            )
        with suppress(subprocess.TimeoutExpired):
            popen.wait(chance.uniform(0.1, 0.7))
        popen.kill()
        assert popen.wait(10) == -9

    for _ in range(3):
        killed_at_start()
    operations: dict[str, str] = {}
    with running(log, "--fake-latency=300ms", f"--state={state}") as daemon:
        with client(daemon) as speaking:
            for machine in speaking.list().machines:
                operations[machine.id] = speaking.create(machine.id).operation_id
        daemon.kill()
    assert len(operations) == 32
    for _ in range(3):
        killed_at_start()
    with running(log, FAST, f"--state={state}") as daemon, client(daemon) as speaking:
        for machine_id, operation in operations.items():
            speaking.reaches(machine_id, "IDLE")
            assert speaking.create(machine_id).operation_id == operation
    audited = audit(Path(f"{state}.region"))
    assert not audited.doubled
    assert audited.live == operations.keys()


@pytest.mark.behaviour(74, 80)
def test_operations_in_flight_are_finished_after_their_slots_were_taken_off_the_offer(
    log: Path, state: Path
) -> None:
    with running(log, "--fake-latency=500ms", f"--state={state}") as daemon:
        with client(daemon) as speaking:
            ids = [machine.id for machine in speaking.list().machines]
            for machine_id in ids[:20]:
                speaking.create(machine_id)
        daemon.kill()
    flags = (FAST, "--seed-count=4", f"--state={state}")
    with running(log, *flags) as daemon, client(daemon) as speaking:
        for machine_id in ids[:20]:
            speaking.reaches(machine_id, "IDLE")
        listed = {machine.id for machine in speaking.list().machines}
        assert set(ids[:20]) <= listed < set(ids)
        for machine_id in ids[:20]:
            speaking.delete(machine_id)
        eventually(lambda: len(speaking.list().machines) == 4, "the surplus is gone")
        with pytest.raises(grpc.RpcError) as gone:
            speaking.get(ids[7])
        assert gone.value.code() is grpc.StatusCode.NOT_FOUND
    assert not audit(Path(f"{state}.region")).live


@pytest.mark.behaviour(59)
def test_without_a_state_file_a_restart_forgets_and_old_cursors_give_the_full_list(
    log: Path,
) -> None:
    with running(log) as daemon, client(daemon) as speaking:
        machine_id = speaking.list().machines[0].id
        first = speaking.create(machine_id, shard_id="s", shard_epoch=5, sequence_number=5)
        speaking.reaches(machine_id, "IDLE")
        cursor = speaking.list().revision
        daemon.kill()
    with running(log) as daemon, client(daemon) as speaking:
        assert speaking.get(machine_id).state == pb.MACHINE_STATE_SPECULATIVE
        assert len(speaking.list(since_revision=cursor).machines) == 32
        again = speaking.create(machine_id, shard_id="s", shard_epoch=1, sequence_number=1)
        assert again.operation_id != first.operation_id


@pytest.mark.behaviour(79, 81)
def test_a_lost_state_file_beside_its_key_or_log_is_never_started_from_nothing(
    log: Path, state: Path
) -> None:
    with running(log, f"--state={state}") as daemon, client(daemon) as speaking:
        speaking.create(speaking.list().machines[0].id)
        daemon.kill()
    content = state.read_bytes()
    state.write_bytes(b"")
    code, text = refused(f"--state={state}")
    assert code == 8
    assert "put the state file back" in text or "restore" in text
    state.unlink()
    code, text = refused(f"--state={state}")
    assert code == 8
    assert "put the state file back" in text
    state.write_bytes(content)
    with running(log, f"--state={state}") as daemon, client(daemon) as speaking:
        eventually(
            lambda: len(speaking.list(states=[pb.MACHINE_STATE_IDLE]).machines) == 1, "it goes on"
        )
    assert all(json.loads(line) for line in log.read_text().splitlines())
