"""The six methods of CapacityProvider: requests in, the service's ready bytes out.

No rule about machines belongs here; only what the wire can say and the service cannot mean.
"""

from collections.abc import Callable
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.errors import Refusal
from bigfleet_azure.rpc import codec
from bigfleet_azure.rpc.guard import Context, Method, guarded
from bigfleet_azure.rpc.identity import Identify, require_own_token
from bigfleet_azure.rpc.status import Rejection
from bigfleet_azure.telemetry.metrics import Metrics

SERVICE = pb.DESCRIPTOR.services_by_name["CapacityProvider"].full_name

_STATES = frozenset(pb.MachineState.values())

_MUTATIONS: dict[str, Callable[[bytes], Command]] = {
    "Create": codec.create_command,
    "Configure": codec.configure_command,
    "Drain": codec.drain_command,
    "Delete": codec.delete_command,
}


class Ack(Protocol):
    """An accepted mutation: its operation id and the machine as an encoded message."""

    @property
    def operation_id(self) -> str: ...
    @property
    def machine(self) -> bytes: ...


class Provider(Protocol):
    """What the edge needs of the service."""

    async def submit(self, command: Command) -> Ack | Refusal:
        """Accept, repeat or refuse a mutation."""

    def get(self, machine_id: str) -> bytes | None:
        """A machine as an encoded message, None when there is none."""

    def list(self, *, states: frozenset[int], max_results: int, since_revision: bytes) -> bytes:
        """A whole encoded MachineList."""


class Servicer:
    """The methods, and their registration with a server."""

    def __init__(self, provider: Provider, identify: Identify) -> None:
        self._provider = provider
        self._identify = identify

    def handler(self, metrics: Metrics) -> grpc.GenericRpcHandler:
        """What a server is given: every method, guarded.

        Neither side has a serializer: answers are bytes already, and requests are parsed inside the
        guard, where a malformed one is counted and answered like any other bad argument.
        """
        methods = {name: self._mutation(decode) for name, decode in _MUTATIONS.items()}
        methods |= {"Get": self.get, "List": self.list}
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    guarded(
                        name,
                        method,
                        metrics,
                        mutation=name in _MUTATIONS,
                        machine_of=None if name == "List" else _machine_of,
                    )
                )
                for name, method in methods.items()
            },
        )

    def _mutation(self, decode: Callable[[bytes], Command]) -> Method:
        async def mutate(raw: bytes, context: Context) -> bytes:
            shard = self._identify(context)
            try:
                command = decode(raw)
            except DecodeError as error:
                raise _invalid(f"malformed request: {error}") from None
            if shard is not None:
                require_own_token(command.token, shard)
            answer = await self._provider.submit(command)
            if isinstance(answer, Refusal):
                raise Rejection.of(answer)
            return codec.ack(answer.operation_id, answer.machine)

        return mutate

    async def get(self, raw: bytes, context: Context) -> bytes:
        """Get one machine: empty id INVALID_ARGUMENT, unknown id NOT_FOUND."""
        self._identify(context)
        try:
            machine_id = pb.MachineRef.FromString(raw).id
        except DecodeError as error:
            raise _invalid(f"malformed request: {error}") from None
        if not machine_id:
            raise _invalid("get: id is empty")
        machine = self._provider.get(machine_id)
        if machine is None:
            raise Rejection(grpc.StatusCode.NOT_FOUND, f"no machine {machine_id!r}")
        return machine

    async def list(self, raw: bytes, context: Context) -> bytes:
        """List machines.

        UNSPECIFIED in `states` matches nothing, as no machine is ever in it. Numbers that are no
        MachineState, and a negative `max_results`, are INVALID_ARGUMENT: such a caller means
        something we do not know, and an answer that merely looks right would hide that.
        """
        self._identify(context)
        try:
            request = pb.ListFilter.FromString(raw)
        except DecodeError as error:
            raise _invalid(f"malformed request: {error}") from None
        states: frozenset[int] = frozenset(request.states)
        unknown = sorted(states - _STATES)
        if unknown:
            raise _invalid(f"list: {unknown[0]} is not a MachineState")
        if request.max_results < 0:
            raise _invalid(f"list: max_results is {request.max_results}, it must not be negative")
        return self._provider.list(
            states=states,
            max_results=request.max_results,
            since_revision=request.since_revision,
        )


def _machine_of(raw: bytes) -> str:
    """The machine's id in a request; every request that carries one has it as a MachineRef has."""
    try:
        return pb.MachineRef.FromString(raw).id
    except DecodeError:
        return ""


def _invalid(message: str) -> Rejection:
    return Rejection(grpc.StatusCode.INVALID_ARGUMENT, message)
