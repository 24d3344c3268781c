"""The client: calls that carry ready bytes both ways, and the loops that make load of them.

Requests are encoded before the clock starts and answers are left unparsed, so that the daemon is
measured and not Python's protobuf. What the answers say is checked once the clock has stopped.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain

import grpc

from bigfleet_azure._pb import provider_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["CapacityProvider"].full_name
SHARD = "shard-eastus-0"

Call = Callable[[bytes], Awaitable[bytes]]

_RECONNECT_MS = 20
"""gRPC's own first back-off is a second: a start would be measured in whole seconds."""

_OPTIONS = (
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
)


class Caller:
    """The six methods over one plaintext channel. Use it as a context manager."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.create, self.configure, self.drain, self.delete, self.get, self.list = (
            self._call(name) for name in ("Create", "Configure", "Drain", "Delete", "Get", "List")
        )

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def _call(self, name: str) -> Call:
        # Without serializers the channel passes bytes through.
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{SERVICE}/{name}"
        )

        async def call(request: bytes) -> bytes:
            return await method(request, wait_for_ready=True, timeout=60)

        return call

    async def fleet(self, **filters: object) -> pb.MachineList:
        """List, parsed."""
        request = pb.ListFilter(**filters)  # type: ignore[arg-type]
        return pb.MachineList.FromString(await self.list(request.SerializeToString()))


def create(machine_id: str) -> bytes:
    """A CreateRequest with a token, as a shard sends it."""
    return pb.CreateRequest(
        machine_id=machine_id, shard_id=SHARD, shard_epoch=1, sequence_number=1
    ).SerializeToString()


async def at_once(call: Call, requests: Sequence[bytes], in_flight: int) -> list[float]:
    """Send all requests, so many of them at any time; seconds that each took."""
    waiting = iter(requests)

    async def work() -> list[float]:
        return [await _timed(call, request) for request in waiting]

    return list(chain.from_iterable(await asyncio.gather(*(work() for _ in range(in_flight)))))


async def paced(call: Call, requests: Sequence[bytes], per_second: float) -> None:
    """Send requests evenly in time, however long their answers take."""
    started = time.perf_counter()
    async with asyncio.TaskGroup() as sent:
        for number, request in enumerate(requests):
            await asyncio.sleep(started + number / per_second - time.perf_counter())
            sent.create_task(_await(call(request)))


async def _await(answer: Awaitable[bytes]) -> None:
    await answer


async def one_by_one(call: Call, request: bytes, count: int) -> list[float]:
    """Repeat one request; seconds that each took."""
    return [await _timed(call, request) for _ in range(count)]


async def beside(
    other: asyncio.Task[None], call: Call, request: bytes, every_seconds: float
) -> list[float]:
    """Repeat one request until `other` has ended; seconds that each took."""
    seconds: list[float] = []
    while not other.done():
        seconds.append(await _timed(call, request))
        await asyncio.sleep(every_seconds - seconds[-1])
    return seconds


async def _timed(call: Call, request: bytes) -> float:
    started = time.perf_counter()
    await call(request)
    return time.perf_counter() - started


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
