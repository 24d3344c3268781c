"""Many callers at once, each over a connection of its own."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.backends.simulated import ledger
from tests.support.process import Client, DaemonProcess, client, eventually

pytestmark = pytest.mark.process

Fresh = Callable[[], str]
MANY = 16


@pytest.fixture(scope="module")
def callers(daemon: DaemonProcess) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(client(daemon)) for _ in range(MANY)]


def at_once(callers: list[Client], call: Callable[[Client], pb.TransitionAck]) -> list[object]:
    """What each caller got: an ack, or the code of the error."""
    ready = threading.Barrier(len(callers))

    def work(caller: Client) -> object:
        ready.wait(10)
        try:
            return call(caller)
        except grpc.RpcError as error:
            return error.code()

    with ThreadPoolExecutor(len(callers)) as pool:
        return list(pool.map(work, callers))


def events_of(daemon: DaemonProcess, machine_id: str) -> list[str]:
    """What happened to the machine's VM in the region, by letter."""
    path = daemon.log.parent / "state.db.region"
    return [str(event[0]) for event in ledger.read(Path(path)) if event[1] == machine_id]


@pytest.mark.behaviour(35, 36)
def test_parallel_identical_calls_are_one_operation_with_one_effect(
    daemon: DaemonProcess, callers: list[Client], speaking: Client, fresh: Fresh
) -> None:
    machine_id = fresh()
    ids = set()
    for call, goal, transitional in (
        (lambda c: c.create(machine_id), "IDLE", pb.MACHINE_STATE_CREATING),
        (
            lambda c: c.configure(machine_id, bootstrap_blob=b"join", shard_metadata={"k": "v"}),
            "CONFIGURED",
            pb.MACHINE_STATE_CONFIGURING,
        ),
        (lambda c: c.drain(machine_id), "IDLE", pb.MACHINE_STATE_DRAINING),
        (lambda c: c.delete(machine_id), "SPECULATIVE", pb.MACHINE_STATE_DELETING),
    ):
        acks = at_once(callers, call)
        assert all(isinstance(ack, pb.TransitionAck) for ack in acks), acks
        operations = {ack.operation_id for ack in acks}  # type: ignore[attr-defined]
        assert len(operations) == 1
        ids |= operations
        states = {ack.machine.state for ack in acks}  # type: ignore[attr-defined]
        stable = pb.MachineState.Value(f"MACHINE_STATE_{goal}")
        assert states <= {transitional, stable}
        speaking.reaches(machine_id, goal)
    assert len(ids) == 4
    assert events_of(daemon, machine_id) == ["c", "b", "u", "d"]


@pytest.mark.behaviour(24, 32)
def test_callers_of_a_new_epoch_always_win_over_those_of_an_old_one(
    callers: list[Client], speaking: Client, fresh: Fresh
) -> None:
    for _ in range(5):
        machine_id = fresh()
        speaking.create(machine_id, shard_id="s", shard_epoch=1, sequence_number=1)
        speaking.reaches(machine_id, "IDLE")
        numbers = iter(range(2, 100))
        lock = threading.Lock()
        old, new = callers[:8], set(callers[8:])

        def call(
            caller: Client,
            *,
            new: set[Client] = new,
            numbers: Iterator[int] = numbers,
            lock: threading.Lock = lock,
            machine_id: str = machine_id,
        ) -> pb.TransitionAck:
            with lock:
                number = next(numbers)
            epoch = 2 if caller in new else 1
            return caller.configure(
                machine_id, f"c{epoch}", shard_id="s", shard_epoch=epoch, sequence_number=number
            )

        answers = at_once(callers, call)
        newest = [answer for caller, answer in zip(callers, answers, strict=True) if caller in new]
        # A new one loses to a newer one, or finds the machine bound by an old one before it.
        assert any(answer is not grpc.StatusCode.FAILED_PRECONDITION for answer in newest)
        with pytest.raises(grpc.RpcError) as late:
            old[0].drain(machine_id, shard_id="s", shard_epoch=1, sequence_number=10_000)
        assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        speaking.reaches(machine_id, "CONFIGURED")
        speaking.drain(machine_id, shard_id="s", shard_epoch=2, sequence_number=10_000)
        speaking.reaches(machine_id, "IDLE")


@pytest.mark.behaviour(37, 40)
def test_racing_configures_and_drains_end_in_one_stable_state_with_its_cluster(
    callers: list[Client], speaking: Client, fresh: Fresh
) -> None:
    chance = random.Random(2)
    for _ in range(8):
        machine_id = fresh()
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        todo = ["blue", "green", "", ""] * 4
        chance.shuffle(todo)
        plan = dict(zip(callers, todo, strict=True))

        def call(
            caller: Client,
            *,
            plan: dict[Client, str] = plan,
            machine_id: str = machine_id,
        ) -> pb.TransitionAck:
            cluster = plan[caller]
            if cluster:
                return caller.configure(machine_id, cluster, shard_metadata={"for": cluster})
            return caller.drain(machine_id, grace_period_seconds=0)

        answers = dict(zip(callers, at_once(callers, call), strict=True))
        configured = [
            (plan[caller], answer)
            for caller, answer in answers.items()
            if plan[caller] and isinstance(answer, pb.TransitionAck)
        ]
        # No ack misleads: all of them name the one cluster that won, in all they say.
        winners = {asked for asked, _ in configured}
        assert len(winners) == 1
        for asked, ack in configured:
            if ack.machine.cluster:
                assert ack.machine.cluster == asked
                assert ack.machine.shard_metadata == {"for": asked}
        eventually(
            lambda machine_id=machine_id: (
                speaking.get(machine_id).state  # type: ignore[misc]
                in (pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_CONFIGURED)
            ),
            "it is stable",
        )
        machine = speaking.get(machine_id)
        if machine.state == pb.MACHINE_STATE_CONFIGURED:
            assert {machine.cluster} == winners
            assert machine.shard_metadata == {"for": machine.cluster}
        else:
            assert not machine.cluster
            assert not machine.shard_metadata
        assert not machine.last_error


@pytest.mark.behaviour(6, 38, 39)
def test_parallel_walks_of_many_machines_do_not_touch_each_other(
    callers: list[Client], fresh: Fresh
) -> None:
    operations: list[str] = []

    def walk(caller: Client) -> None:
        mine = [fresh() for _ in range(4)]
        for round_ in range(2):
            operations.extend([caller.create(machine_id).operation_id for machine_id in mine])
            for machine_id in mine:
                caller.reaches(machine_id, "IDLE", within=30)
                bound = {"owner": machine_id, "round": str(round_)}
                ack = caller.configure(machine_id, f"c-{machine_id}"[:63], shard_metadata=bound)
                operations.append(ack.operation_id)
            for machine_id in mine:
                machine = caller.reaches(machine_id, "CONFIGURED", within=30)
                assert machine.cluster == f"c-{machine_id}"[:63]
                assert machine.shard_metadata == {"owner": machine_id, "round": str(round_)}
                operations.append(caller.drain(machine_id).operation_id)
            for machine_id in mine:
                assert not caller.reaches(machine_id, "IDLE", within=30).cluster
                operations.append(caller.delete(machine_id).operation_id)
            for machine_id in mine:
                caller.reaches(machine_id, "SPECULATIVE", within=30)

    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(walk, callers))
    assert len(operations) == MANY * 4 * 2 * 4
    assert len(set(operations)) == len(operations)


@pytest.mark.behaviour(58, 61)
def test_paging_covers_every_machine_once_while_others_change(
    callers: list[Client], speaking: Client, fresh: Fresh
) -> None:
    stop = threading.Event()

    def churn(caller: Client) -> None:
        while not stop.is_set():
            machine_id = fresh()
            caller.create(machine_id)
            caller.reaches(machine_id, "IDLE", within=30)

    everything = {machine.id for machine in speaking.list().machines}
    with ThreadPoolExecutor(4) as pool:
        churning = [pool.submit(churn, caller) for caller in callers[:4]]
        try:
            seen: set[str] = set()
            cursor = b""
            for _ in range(200):
                page = speaking.list(max_results=37, since_revision=cursor)
                cursor = page.revision
                ids = [machine.id for machine in page.machines]
                assert len(ids) == len(set(ids)) <= 37
                seen.update(ids)
                if len(ids) < 37:
                    break
            assert seen == everything
        finally:
            stop.set()
        for one in churning:
            one.result(30)
