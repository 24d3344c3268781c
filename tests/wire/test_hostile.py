"""A caller that wants to break the daemon. The shared daemon's teardown looks for bugs it met."""

import json
import random
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.process import Client, DaemonProcess, client, eventually, running

pytestmark = pytest.mark.process

SERVICE = "bigfleet.v1alpha1.CapacityProvider"
METHODS = ("Create", "Configure", "Drain", "Delete", "Get", "List")
MIB = 1024 * 1024


def raw(channel: grpc.Channel, method: str, content: bytes, timeout: float = 60) -> bytes:
    answer: bytes = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=lambda data: data,
        response_deserializer=lambda data: data,
    )(content, timeout=timeout)
    return answer


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def resident(daemon: DaemonProcess) -> int:
    return int(psutil.Process(daemon.popen.pid).memory_info().rss)


@pytest.mark.behaviour(15)
def test_an_empty_id_is_invalid_on_every_call_that_takes_one(speaking: Client) -> None:
    for call in (
        lambda: speaking.create(""),
        lambda: speaking.configure(""),
        lambda: speaking.drain(""),
        lambda: speaking.delete(""),
        lambda: speaking.get(""),
    ):
        assert code_of(call) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", METHODS)
def test_rubbish_is_a_bad_argument_of_every_method(daemon: DaemonProcess, method: str) -> None:
    chance = random.Random(method)
    with daemon.channel() as channel, client(daemon) as speaking:
        before = speaking.list().revision
        for number in range(60):
            content = chance.randbytes(chance.choice([1, 2, 7, 100, 5000]))
            if number == 0:
                content = b"\x0a\x02\xff\xfe"  # an id that is not UTF-8
            if number == 1:
                content = b"\x0a\xff\xff\xff\xff\x0f"  # longer than it is
            if number == 2:
                content = b"\x0b" * 5000  # groups in groups
            code = code_of(lambda content=content: raw(channel, method, content))  # type: ignore[misc]
            known = {
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.FAILED_PRECONDITION,
            }
            # Rubbish may be a legal message by chance: unknown fields are none of our business.
            assert code in known | ({grpc.StatusCode.OK} if method == "List" else set()), content
        assert speaking.list().revision == before


def test_unknown_methods_and_services_are_unimplemented(daemon: DaemonProcess) -> None:
    with daemon.channel() as channel:
        for path in (f"/{SERVICE}/Watch", "/bigfleet.v1alpha1.Shard/Get", "/", "/a/b/c"):
            call: Any = channel.unary_unary(
                path, request_serializer=None, response_deserializer=None
            )
            assert code_of(lambda call=call: call(b"", timeout=10)) in (  # type: ignore[misc]
                grpc.StatusCode.UNIMPLEMENTED,
                grpc.StatusCode.UNKNOWN,
            )


@pytest.mark.behaviour(3)
def test_requests_are_taken_up_to_256_mib_and_what_is_too_large_in_them_is_refused(
    log: Path,
) -> None:
    with running(log) as daemon, client(daemon) as speaking, daemon.channel() as channel:
        machine_id = speaking.list().machines[0].id
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        request = pb.ConfigureRequest(
            machine_id=machine_id, cluster_id="blue", bootstrap_blob=bytes(250 * MIB)
        )
        assert code_of(lambda: raw(channel, "Configure", request.SerializeToString())) is (
            grpc.StatusCode.INVALID_ARGUMENT
        )
        assert speaking.get(machine_id).state == pb.MACHINE_STATE_IDLE
        assert code_of(lambda: raw(channel, "Create", bytes(257 * MIB))) in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )
        assert speaking.get(machine_id).state == pb.MACHINE_STATE_IDLE
        eventually(lambda: resident(daemon) < 400 * MIB, "the memory is given back")


@pytest.mark.behaviour(20, 21, 44)
def test_blob_and_metadata_are_taken_up_to_their_limits_and_not_beyond(
    speaking: Client, fresh: Callable[[], str]
) -> None:
    machine_id = fresh()
    speaking.create(machine_id)
    speaking.reaches(machine_id, "IDLE")

    def configure(blob: int, **metadata: str) -> grpc.StatusCode:
        return code_of(
            lambda: speaking.configure(
                machine_id, bootstrap_blob=bytes(blob), shard_metadata=metadata
            )
        )

    for blob, size in ((192 * 1024 + 1, 1), (3 * MIB, 1), (1, 256 * 1024), (1, 2 * MIB)):
        assert configure(blob, k="x" * size) is grpc.StatusCode.INVALID_ARGUMENT
        machine = speaking.get(machine_id)
        assert machine.state == pb.MACHINE_STATE_IDLE
        assert not machine.cluster
    assert configure(192 * 1024, k="\0" * (256 * 1024 - 12)) is grpc.StatusCode.OK
    machine = speaking.reaches(machine_id, "CONFIGURED")
    assert machine.shard_metadata == {"k": "\0" * (256 * 1024 - 12)}
    speaking.drain(machine_id)
    assert not speaking.reaches(machine_id, "IDLE").shard_metadata


def test_marks_of_thousands_of_unknown_ids_cost_little_memory(
    daemon: DaemonProcess, speaking: Client
) -> None:
    before, revision = resident(daemon), speaking.list().revision
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        clients = [stack.enter_context(client(daemon)) for _ in range(8)]

        def flood(worker: int) -> set[grpc.StatusCode]:
            return {
                code_of(
                    lambda number=number: clients[worker].delete(  # type: ignore[misc]
                        f"ghost-{worker}-{number}", shard_id=f"s{number}", sequence_number=1
                    )
                )
                for number in range(250)
            }

        assert set().union(*pool.map(flood, range(8))) == {grpc.StatusCode.NOT_FOUND}
    assert resident(daemon) - before < 40 * MIB
    assert speaking.list().revision == revision


def odd_ids() -> Iterator[str]:
    yield from ("a\0b", "a\nb", "\r\n{}", "\x1b[31mred\x1b[0m", "ünïcødé", "\u202etxt", "x" * 253)
    yield from ('"},{"level":"error","event":"forged"', "%s%n%d", "../../etc/passwd", "' OR 1=1 --")


def test_odd_ids_are_unknown_and_can_be_told_back(speaking: Client) -> None:
    for odd in odd_ids():
        calls: tuple[Any, ...] = (
            speaking.create,
            speaking.configure,
            speaking.drain,
            speaking.delete,
        )
        for number, call in enumerate(calls):
            with pytest.raises(grpc.RpcError) as unknown:
                call(odd, shard_id="s\n\0", sequence_number=number)
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
            assert unknown.value.details()
        assert code_of(lambda odd=odd: speaking.get(odd)) is grpc.StatusCode.NOT_FOUND  # type: ignore[misc]
    for call in (speaking.create, speaking.delete):
        assert code_of(lambda call=call: call("x" * 254)) is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[misc]
        assert code_of(lambda call=call: call("x", shard_id="s" * 254)) is (  # type: ignore[misc]
            grpc.StatusCode.INVALID_ARGUMENT
        )
    huge = "\u20ac" * (2 * MIB)
    assert code_of(lambda: speaking.get(huge)) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("form", ["json", "console"])
def test_nothing_a_caller_sends_can_forge_a_log_line(log: Path, form: str) -> None:
    flags = ("--log-level=debug", f"--log-format={form}", "--fake-faults")
    with running(log, *flags) as daemon, client(daemon) as speaking:
        machine_id = speaking.list().machines[0].id
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        for number, odd in enumerate(odd_ids()):
            token = {"shard_id": f"s{odd}"[:250], "shard_epoch": -number, "sequence_number": 1}
            for _ in range(2):
                code_of(lambda odd=odd, token=token: speaking.create(odd, **token))  # type: ignore[misc]
            code_of(lambda odd=odd: speaking.get(odd))  # type: ignore[misc]
        bound = "fault-error-\n\x1b[2J forged=yes"
        speaking.configure(machine_id, bound, shard_metadata={"\n": "\x1b"})
        code_of(lambda: speaking.configure(machine_id, "other\nforged"))
        speaking.reaches(machine_id, "FAILED")
        assert daemon.terminate() == 0
    content = log.read_bytes()
    for line in content.decode().splitlines():
        assert "\x1b" not in line
        assert "\0" not in line
        if form == "json":
            assert json.loads(line)["event"] != "forged"
        else:
            assert line[:5] == "2026-" or line[:2] == "20", line
            assert not line.startswith("forged")
    assert content.decode().splitlines() == content.decode().split("\n")[:-1]


def test_a_mutation_whose_caller_gave_up_is_done_whole_or_not_at_all(
    speaking: Client, fresh: Callable[[], str]
) -> None:
    ids = [fresh() for _ in range(60)]
    codes = [
        code_of(
            lambda machine_id=machine_id, number=number: speaking.stub.Create(  # type: ignore[misc]
                pb.CreateRequest(machine_id=machine_id, shard_id="s", sequence_number=1),
                timeout=0.0002 * (number % 20),
            )
        )
        for number, machine_id in enumerate(ids)
    ]
    assert grpc.StatusCode.DEADLINE_EXCEEDED in codes
    stable = (pb.MACHINE_STATE_SPECULATIVE, pb.MACHINE_STATE_IDLE)
    eventually(
        lambda: all(speaking.get(machine_id).state in stable for machine_id in ids), "stable"
    )
    for machine_id, code in zip(ids, codes, strict=True):
        begun = speaking.get(machine_id).state == pb.MACHINE_STATE_IDLE
        assert begun or code is not grpc.StatusCode.OK
        again = code_of(lambda m=machine_id: speaking.create(m, shard_id="s", sequence_number=1))  # type: ignore[misc]
        # The mark moved together with the machine.
        assert (again is grpc.StatusCode.FAILED_PRECONDITION) == begun


@contextmanager
def preface(daemon: DaemonProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        yield connection


def test_broken_half_open_and_foreign_connections_do_not_stop_others(
    daemon: DaemonProcess, speaking: Client, fresh: Callable[[], str]
) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(preface(daemon))
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=10))
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 70_000):
            to = ("127.0.0.1", daemon.port)
            with socket.create_connection(to, timeout=10) as connection, suppress(OSError):
                connection.sendall(greeting)
        # Headers of a Create, the message never comes, and the connection is reset.
        for _ in range(20):
            with preface(daemon) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(b"\x00\x00\x05\x01\x04\x00\x00\x00\x01\x83\x86\x04\x01/")
        machine_id = fresh()
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        for _ in range(20):
            cancelled = speaking.stub.List.future(pb.ListFilter(), timeout=30)
            cancelled.cancel()
        assert speaking.list().machines


@pytest.mark.behaviour(53, 57)
def test_odd_filters_and_cursors_neither_fail_nor_invent_machines(speaking: Client) -> None:
    chance = random.Random(4)
    everything = {machine.id for machine in speaking.list().machines}
    real = speaking.list().revision
    cursors = [b"", b"x", bytes(4096), real + b"!", b"~" + real, real + b"\0\xff", real[:-1]]
    cursors += [chance.randbytes(chance.randrange(1, 64)) for _ in range(50)]
    cursors += [
        real[:at] + bytes([real[at] ^ 1 << bit]) + real[at + 1 :]
        for at in range(len(real))
        for bit in range(8)
    ]
    for cursor in cursors:
        found = {machine.id for machine in speaking.list(since_revision=cursor).machines}
        assert found == everything, cursor
    assert not speaking.list(since_revision=real).machines
    assert code_of(lambda: speaking.list(since_revision=bytes(3 * MIB))) is grpc.StatusCode.OK
    assert not speaking.list(states=[0]).machines
    for unknown in (9, 100, -1, 2**31 - 1):
        assert code_of(lambda u=unknown: speaking.list(states=[u])) is (  # type: ignore[misc]
            grpc.StatusCode.INVALID_ARGUMENT
        )
    assert code_of(lambda: speaking.list(max_results=-1)) is grpc.StatusCode.INVALID_ARGUMENT
    assert len(speaking.list(max_results=2**31 - 1).machines) == len(everything)
    assert len(speaking.list(states=[1, 1, 1] * 10_000, max_results=1).machines) == 1
