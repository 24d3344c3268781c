"""Where the server listens, and what it says about itself."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.errors import Refusal
from bigfleet_azure.rpc.server import ListenError, RpcServer, parse_address
from bigfleet_azure.rpc.servicer import SERVICE
from bigfleet_azure.telemetry.metrics import Metrics
from tests.rpc.support import FakeAck, FakeProvider, Served, channel_to, served
from tests.support.tools import ROOT

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def edge() -> AsyncIterator[Served]:
    async with served(reflection=True) as running:
        yield running


def a_server() -> RpcServer:
    return RpcServer(FakeProvider(), Metrics())


async def health_of(channel: grpc.aio.Channel, service: str) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    status: int = (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status
    return status


@pytest.mark.behaviour(4)
@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_says_serving_from_ready_on_and_not_serving_from_shutdown_on(
    service: str,
) -> None:
    server = a_server()
    port = await server.start("127.0.0.1:0")
    async with channel_to(port) as channel:
        assert await health_of(channel, service) == NOT_SERVING
        await server.ready()
        assert await health_of(channel, service) == SERVING
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=service))
        assert (await watched.read()).status == SERVING
        closing = asyncio.create_task(server.close(0.5))
        assert (await watched.read()).status == NOT_SERVING
        watched.cancel()
        await closing


async def reflect(
    channel: grpc.aio.Channel, version: str, **question: str
) -> reflection_pb2.ServerReflectionResponse:
    call: Any = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    fields: dict[str, Any] = dict(question)
    await call.write(reflection_pb2.ServerReflectionRequest(**fields))
    await call.done_writing()
    answer: reflection_pb2.ServerReflectionResponse = await call.read()
    return answer


@pytest.mark.behaviour(4)
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_the_service(edge: Served, version: str) -> None:
    listed = await reflect(edge.channel, version, list_services="")
    names = {service.name for service in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    described = await reflect(edge.channel, version, file_containing_symbol=SERVICE)
    [raw] = described.file_descriptor_response.file_descriptor_proto
    file = FileDescriptorProto.FromString(raw)
    # As a Go server has it, so that grpcurl prints operationId.
    [ack] = [message for message in file.message_type if message.name == "TransitionAck"]
    assert [field.json_name for field in ack.field] == ["operationId", "machine"]
    for field in (field for message in every(file.message_type) for field in message.field):
        field.ClearField("json_name")
    assert file.SerializeToString() == pb.DESCRIPTOR.serialized_pb


def every(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from every(message.nested_type)


async def test_reflection_is_absent_when_it_is_switched_off() -> None:
    async with served(reflection=False) as edge:
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await reflect(edge.channel, "v1alpha", list_services="")


async def test_shutdown_lets_a_running_call_end(
    edge: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: Command) -> FakeAck | Refusal:
        entered.set()
        await may_end.wait()
        return FakeAck("op-slow", b"")

    monkeypatch.setattr(edge.provider, "submit", slow)
    call = edge.stub.Create(pb.CreateRequest(machine_id="m-000"))
    running = asyncio.ensure_future(_answer(call))
    await entered.wait()
    closing = asyncio.create_task(edge.server.close(30))
    await asyncio.sleep(0)
    may_end.set()
    assert (await running).operation_id == "op-slow"
    await closing


async def test_shutdown_does_not_wait_for_ever(
    edge: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = asyncio.Event()

    async def stuck(_: Command) -> FakeAck | Refusal:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(edge.provider, "submit", stuck)
    running = asyncio.ensure_future(_answer(edge.stub.Create(pb.CreateRequest(machine_id="m-000"))))
    await entered.wait()
    await edge.server.close(0.05)
    with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
        await running


async def _answer(call: Any) -> Any:
    return await call


async def test_a_taken_port_is_an_error_that_names_port_and_flag(edge: Served) -> None:
    with pytest.raises(ListenError, match=rf"--addr: 127\.0\.0\.1:{edge.port} is in use already"):
        await a_server().start(f"127.0.0.1:{edge.port}")


async def test_a_port_taken_on_every_interface_is_an_error_too() -> None:
    server = a_server()
    port = await server.start(":0")
    with pytest.raises(ListenError, match="in use already"):
        await a_server().start(f":{port}")
    await server.close(0)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("9000", "--addr: '9000' is not an address such as :9000"),
        ("192.0.2.1:0", "--addr: cannot listen on 192.0.2.1:0: Cannot assign requested address"),
        ("no-such-host.invalid:0", "--addr: no-such-host.invalid:0 cannot be resolved"),
    ],
)
async def test_an_address_that_is_not_ours_is_an_error_with_its_reason(
    address: str, text: str
) -> None:
    with pytest.raises(ListenError) as caught:
        await a_server().start(address)
    assert str(caught.value).startswith(text)


def connects(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5):
        return True
    return False


async def test_an_address_without_a_host_takes_both_ip_versions() -> None:
    server = a_server()
    port = await server.start(":0")
    assert connects("127.0.0.1", port)
    assert connects("::1", port) or not socket.has_dualstack_ipv6()
    await server.close(0)


IPV4_ONLY = """
import asyncio, socket
from tests.rpc.support import FakeProvider
from bigfleet_azure.rpc.server import RpcServer
from bigfleet_azure.telemetry.metrics import Metrics

async def main():
    server = RpcServer(FakeProvider(), Metrics())
    socket.create_connection(("127.0.0.1", await server.start(":0")), timeout=5).close()
    await server.close(0)
    print("reached over IPv4")

asyncio.run(main())
"""


@pytest.mark.process
def test_an_address_without_a_host_takes_ipv4_where_ipv6_is_off() -> None:
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    switch_off = "ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
    if not shutil.which("unshare") or subprocess.run([*inside, switch_off], check=False).returncode:
        pytest.skip("no network name space of our own in which IPv6 could be switched off")
    result = subprocess.run(
        [*inside, f'{switch_off} && exec "$@"', "sh", sys.executable, "-c", IPV4_ONLY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "reached over IPv4" in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (":9000", ("", 9000)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:9000", ("::1", 9000)),
        ("[fe80::1%eth0]:9000", ("fe80::1%eth0", 9000)),
    ],
)
def test_addresses_are_read_as_go_reads_them(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text", ["", ":", "9000", "::1:9000", ":65536", ":-1", "a:b", "host:", "a b:1", ":9000\n"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as"):
        parse_address(text)
