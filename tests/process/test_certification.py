"""The certification lanes of contract section 17, as far as Python renders them.

The daemon is started as the runner starts it; clients receive at most 4 MiB, as the suites do.
"""

import random
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import quantiles

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.process import Client, DaemonProcess, client, eventually, running

pytestmark = pytest.mark.process

BINARY = (str(Path(sys.executable).with_name("bigfleet-azure")),)
STALE = grpc.StatusCode.FAILED_PRECONDITION


def free_port() -> int:
    """A free port that no outgoing connection takes before the daemon does."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def certified(log: Path, count: int, *more: str) -> Iterator[DaemonProcess]:
    """The runner's start command, word by word; the metrics port is the default one."""
    verbatim = (
        f"--addr=127.0.0.1:{free_port()}",
        "--provider=certify",
        "--use-fake-backend",
        f"--seed-count={count}",
    )
    with running(log, *more, base=verbatim, command=BINARY) as daemon:
        yield daemon


@contextmanager
def suite(daemon: DaemonProcess) -> Iterator[Client]:
    """A client with gRPC's default limits."""
    with grpc.insecure_channel(daemon.address) as channel:
        yield Client(channel)


def code_of(call: object, *arguments: object, **fields: object) -> grpc.StatusCode:
    try:
        call(*arguments, **fields)  # type: ignore[operator]
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


@pytest.mark.behaviour(46, 79, 88, 91)
def test_the_baseline_and_durable_lanes_pass_beside_another_daemon_on_the_same_metrics_port(
    log: Path, state: Path
) -> None:
    with (
        certified(log, 256) as other,
        certified(log, 64, f"--state={state}") as daemon,
        suite(other) as elsewhere,
    ):
        with suite(daemon) as speaking:
            assert len(elsewhere.list().machines) == 256
            listed = speaking.list()
            assert len(listed.machines) == 64
            assert all(machine.host.ByteSize() == 0 for machine in listed.machines)
            one, two = listed.machines[0].id, listed.machines[1].id
            created = speaking.create(one, shard_id="shard-a", shard_epoch=7, sequence_number=9)
            assert created.machine.state == pb.MACHINE_STATE_CREATING
            assert speaking.reaches(one, "IDLE", within=10).host.provider == "certify"
            bound = speaking.configure(
                one, "prod", bootstrap_blob=b"x" * 128 * 1024, shard_metadata={"k\0": ""}
            )
            speaking.reaches(one, "CONFIGURED", within=10)
            speaking.create(two)
            speaking.reaches(two, "IDLE", within=10)
            cursor = speaking.list().revision
            assert not speaking.list(since_revision=cursor).machines
        daemon.kill()
        with certified(log, 64, f"--state={state}") as again, suite(again) as speaking:
            machine = speaking.get(one)
            assert machine.state == pb.MACHINE_STATE_CONFIGURED
            assert machine.cluster == "prod"
            assert machine.shard_metadata == {"k\0": ""}
            assert speaking.configure(one, "prod").operation_id == bound.operation_id
            stale = {"shard_id": "shard-a", "shard_epoch": 7, "sequence_number": 9}
            assert code_of(speaking.create, one, **stale) is STALE
            assert code_of(speaking.create, two, **stale) is grpc.StatusCode.OK
            assert len(speaking.list().machines) == 64
            after = {machine.id for machine in speaking.list(since_revision=cursor).machines}
            assert after in (set(), {machine.id for machine in speaking.list().machines})
            speaking.drain(one, grace_period_seconds=0)
            drained = speaking.reaches(one, "IDLE", within=30)
            assert not drained.cluster
            assert not drained.shard_metadata
            speaking.delete(one)
            speaking.reaches(one, "SPECULATIVE", within=10)
    # Only one of the two daemons can have had the default port.
    assert "metrics-listener" in log.read_text()


@pytest.mark.behaviour(23, 24, 25, 26, 28, 88)
def test_the_extension_lane_holds_random_fence_tokens_against_an_oracle(log: Path) -> None:
    chance = random.Random(17)
    with certified(log, 256) as daemon, suite(daemon) as speaking:
        machines = [machine.id for machine in speaking.list().machines]
        assert len(speaking.list().SerializeToString()) < 4 * 1024 * 1024
        marks: dict[tuple[str, str], tuple[int, int]] = {}
        calls = (speaking.create, speaking.configure, speaking.drain, speaking.delete)
        for _ in range(240):
            pair = (chance.choice([*machines[:3], "unknown"]), chance.choice("ab"))
            low, high = chance.choice([(0, 3), (-5, 5), (-(2**63), 2**63 - 1)])
            token = (chance.randint(0, 3), chance.randint(low, high))
            passes = pair not in marks or token > marks[pair]
            got = code_of(
                chance.choice(calls),
                pair[0],
                shard_id=pair[1],
                shard_epoch=token[0],
                sequence_number=token[1],
            )
            assert (got is not STALE) == passes, (pair, token, marks.get(pair), got)
            if passes:
                marks[pair] = token
                assert (got is grpc.StatusCode.NOT_FOUND) == (pair[0] == "unknown")
        most = 2**63 - 1
        top = {"shard_id": "top", "shard_epoch": most, "sequence_number": most}
        assert code_of(speaking.create, machines[9], **top) is grpc.StatusCode.OK
        assert code_of(speaking.create, machines[9], **top) is STALE


@pytest.mark.behaviour(63, 64, 65, 66, 76, 88)
def test_the_fault_lane_ends_in_failed_in_time_and_stays_there(log: Path) -> None:
    lane = ("--fake-faults", "--transition-timeout", "2s")
    with certified(log, 32, *lane) as daemon, suite(daemon) as speaking:
        listed = speaking.list().machines
        faulty = [m for m in listed if m.labels.get("conformance.fault/create") == "error"]
        assert {m.id for m in faulty} == {f"faultcreate-{number}" for number in range(8)}
        clusters = (
            "fault-error",
            "fault-timeout",
            "fault-slow-ok",
            "fault-readiness-block",
            "fault-drain-error",
        )
        ids = [m.id for m in listed if m not in faulty][: len(clusters)]
        for machine_id in ids:
            speaking.create(machine_id)
        for machine_id in ids:
            speaking.reaches(machine_id, "IDLE", within=10)
        begun = time.monotonic()
        for machine_id, cluster in zip(ids, clusters, strict=True):
            ack = speaking.configure(machine_id, cluster, bootstrap_blob=b"SECRET-BLOB")
            assert ack.machine.state == pb.MACHINE_STATE_CONFIGURING
        for machine in faulty:
            assert speaking.create(machine.id).machine.state == pb.MACHINE_STATE_CREATING
        drained = ids[4]
        speaking.reaches(drained, "CONFIGURED")
        speaking.drain(drained, grace_period_seconds=0)
        texts = {}
        for machine_id in [*ids, *(machine.id for machine in faulty)]:
            failed = speaking.reaches(machine_id, "FAILED", within=7)
            assert failed.last_error
            assert "SECRET-BLOB" not in failed.last_error
            texts[machine_id] = failed.last_error
        for machine_id, cluster in zip(ids, clusters, strict=True):
            late = cluster in ("fault-timeout", "fault-slow-ok", "fault-readiness-block")
            assert ("deadline" in texts[machine_id]) == late, texts[machine_id]
        # The late success of fault-slow-ok comes about four seconds after its Configure.
        eventually(lambda: time.monotonic() - begun > 5.5, "the late success has come")
        for machine_id, text in texts.items():
            machine = speaking.get(machine_id)
            assert machine.state == pb.MACHINE_STATE_FAILED
            assert machine.last_error == text
            for call in (speaking.create, speaking.configure, speaking.drain, speaking.delete):
                code = code_of(call, machine_id)
                assert code not in (grpc.StatusCode.OK, STALE)
        # What is not asked to fail still works beside all that.
        healthy = [m.id for m in listed if m not in faulty][10]
        speaking.create(healthy)
        speaking.reaches(healthy, "IDLE")
        speaking.configure(healthy, "faultless")
        speaking.reaches(healthy, "CONFIGURED")


def fan_out(daemon: DaemonProcess, ids: list[str]) -> list[str]:
    """Parallel Creates of different machines, each over its own connection."""
    with ExitStack() as stack, ThreadPoolExecutor(len(ids)) as pool:
        clients = [stack.enter_context(client(daemon)) for _ in ids]
        acks = pool.map(lambda pair: pair[0].create(pair[1]), zip(clients, ids, strict=True))
        return [ack.operation_id for ack in acks]


def paced(calls: int, call: object) -> float:
    """The 99th percentile of so many calls, in seconds."""
    took = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()  # type: ignore[operator]
        took.append(time.perf_counter() - begun)
    return quantiles(took, n=100)[98]


@pytest.mark.slow
@pytest.mark.behaviour(46, 54, 56, 58, 88)
@pytest.mark.parametrize("count", [8_000, 20_000])
def test_the_scale_lane_stays_in_its_budgets(log: Path, state: Path, count: int) -> None:
    with certified(log, count, f"--state={state}") as daemon, client(daemon) as speaking:
        begun = time.perf_counter()
        machines = {machine.id: machine for machine in speaking.list().machines}
        assert time.perf_counter() - begun < 3
        assert len(machines) == count
        for machine in machines.values():
            assert machine.instance_type
            assert machine.zone
            assert machine.price_per_hour > 0
            spot = machine.capacity_type == pb.CAPACITY_TYPE_SPOT
            assert machine.interruption_probability > 0 or not spot
            assert machine.allocatable.resources.keys() >= {"cpu", "memory", "pods"}
        ids = list(machines)
        operations = fan_out(daemon, ids[:16])
        assert len(set(operations)) == 16
        for machine_id in ids[:16]:
            speaking.reaches(machine_id, "IDLE", within=30)
        fresh = iter(ids[100:200])
        assert paced(120, lambda: speaking.get(ids[5])) < 0.25
        assert paced(60, lambda: speaking.create(next(fresh))) < 0.25
        assert paced(30, speaking.list) < 2
        for machine_id in ids[100:160]:
            speaking.reaches(machine_id, "IDLE")
        cursor = speaking.list().revision
        for machine_id in ids[100:120]:
            speaking.configure(machine_id)
        for machine_id in ids[100:120]:
            speaking.reaches(machine_id, "CONFIGURED")
        changed = speaking.list(since_revision=cursor).machines
        assert sorted(machine.id for machine in changed) == sorted(ids[100:120])
        seen: set[str] = set()
        cursor = b""
        while (page := speaking.list(max_results=500, since_revision=cursor)).machines:
            assert len(page.machines) <= 500
            assert seen.isdisjoint(machine.id for machine in page.machines)
            seen.update(machine.id for machine in page.machines)
            cursor = page.revision
        assert seen == machines.keys()
        assert len(speaking.list().machines) == count
