"""What the tests of the gRPC edge share: a provider that answers as it is told, and servers."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from prometheus_client import CollectorRegistry

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb.provider_pb2_grpc import CapacityProviderStub
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.errors import Refusal
from bigfleet_azure.rpc.server import MAX_MESSAGE_BYTES, RpcServer
from bigfleet_azure.rpc.tls import Certificates
from bigfleet_azure.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from bigfleet_azure._pb.provider_pb2_grpc import CapacityProviderAsyncStub

Answer = Refusal | Exception | None

MACHINE = pb.Machine(
    id="m-000", state=pb.MACHINE_STATE_CREATING, instance_type="Standard_D4s_v5", zone="eastus-1"
)


@dataclass
class FakeAck:
    operation_id: str
    machine: bytes


@dataclass
class FakeProvider:
    """Knows one machine, accepts every mutation, and remembers what it was asked."""

    answer: Answer = None
    listed: pb.MachineList = field(default_factory=lambda: pb.MachineList(machines=[MACHINE]))
    commands: list[Command] = field(default_factory=list)
    queries: list[tuple[frozenset[int], int, bytes]] = field(default_factory=list)

    async def submit(self, command: Command) -> FakeAck | Refusal:
        self.commands.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Refusal):
            return self.answer
        return FakeAck("op-1", MACHINE.SerializeToString())

    def get(self, machine_id: str) -> bytes | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return MACHINE.SerializeToString() if machine_id == MACHINE.id else None

    def list(self, *, states: frozenset[int], max_results: int, since_revision: bytes) -> bytes:
        self.queries.append((states, max_results, since_revision))
        return self.listed.SerializeToString()


@dataclass
class Served:
    """A running server and a client of it."""

    server: RpcServer
    provider: FakeProvider
    metrics: Metrics
    port: int
    channel: grpc.aio.Channel
    stub: "CapacityProviderAsyncStub"

    def sample(self, name: str, labels: Mapping[str, str]) -> float | None:
        registry: CollectorRegistry = self.metrics.registry
        return registry.get_sample_value(f"bigfleet_azure_{name}", dict(labels))


@asynccontextmanager
async def served(
    *,
    reflection: bool = False,
    certificates: Callable[[Metrics], Certificates] | None = None,
    credentials: grpc.ChannelCredentials | None = None,
) -> AsyncIterator[Served]:
    """Run a server on a free port of this machine, with a client connected to it."""
    provider, metrics = FakeProvider(), Metrics()
    server = RpcServer(
        provider,
        metrics,
        certificates=certificates(metrics) if certificates else None,
        reflection=reflection,
    )
    port = await server.start("127.0.0.1:0")
    await server.ready()
    try:
        async with channel_to(port, credentials) as channel:
            stub = CapacityProviderStub(channel)
            yield Served(server, provider, metrics, port, channel, stub)
    finally:
        await server.close(0)


def channel_to(port: int, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    """A connection of its own: gRPC shares connections between channels of equal arguments."""
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    return grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options)
