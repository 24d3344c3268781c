"""The gRPC client behind `machines`: the only place of the command line that knows gRPC.

Every call has a deadline, and every failure becomes one line with a documented exit code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb.provider_pb2_grpc import CapacityProviderStub
from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import Machine, fail, printable
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State

CALL_SECONDS = 10.0
LIST_SECONDS = 60.0
"""Longest a call may take: the daemon answers mutations in milliseconds, and a full List of
100,000 machines in well under a second; a slow link may need the rest."""

_MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""What the daemon sends at most (contract section 13)."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the daemon is and how the connection is secured.

    Attributes:
        address: host:port.
        tls_ca: what the server's certificate must come from; None trusts gRPC's own roots.
        tls_server_name: the name its certificate is checked for, when it is not the host.
    """

    address: str
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str = ""

    @property
    def secure(self) -> bool:
        """Any TLS setting turns TLS on."""
        return bool(self.tls_ca or self.tls_cert or self.tls_key or self.tls_server_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A mutation that the daemon took on."""

    operation_id: str
    machine: Machine


class Remote:
    """One connection to a daemon; a context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel = _open(endpoint)
        self._stub = CapacityProviderStub(self._channel)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    @property
    def address(self) -> str:
        """The address, for messages."""
        return self._endpoint.address

    def list(
        self, states: Sequence[State] = (), revision: bytes = b""
    ) -> tuple[list[Machine], bytes]:
        """Machines in any of `states` that changed after `revision`, and the next cursor.

        Empty `states` means all, and so does an empty `revision`.
        """
        request = pb.ListFilter(since_revision=revision)
        request.states.extend(pb.MachineState.ValueType(state) for state in states)
        answer = self._call("list", "", lambda: self._stub.List(request, timeout=LIST_SECONDS))
        return [_in_words(machine) for machine in answer.machines], answer.revision

    def get(self, machine_id: str) -> Machine:
        """One machine."""
        request = pb.MachineRef(id=machine_id)
        return _in_words(
            self._call("get", machine_id, lambda: self._stub.Get(request, timeout=CALL_SECONDS))
        )

    def create(self, machine_id: str, token: Token) -> Accepted:
        """Turn a speculative slot into a host."""
        return self._mutate(
            Kind.CREATE, pb.CreateRequest(machine_id=machine_id, **_fence(token)), self._stub.Create
        )

    def configure(
        self,
        machine_id: str,
        token: Token,
        *,
        cluster: str,
        blob: bytes,
        metadata: Mapping[str, str],
    ) -> Accepted:
        """Bind an idle host to a cluster."""
        request = pb.ConfigureRequest(
            machine_id=machine_id,
            cluster_id=cluster,
            bootstrap_blob=blob,
            shard_metadata=metadata,
            **_fence(token),
        )
        return self._mutate(Kind.CONFIGURE, request, self._stub.Configure)

    def drain(self, machine_id: str, token: Token, *, grace_seconds: int) -> Accepted:
        """Take a host out of its cluster."""
        request = pb.DrainRequest(
            machine_id=machine_id, grace_period_seconds=grace_seconds, **_fence(token)
        )
        return self._mutate(Kind.DRAIN, request, self._stub.Drain)

    def delete(self, machine_id: str, token: Token) -> Accepted:
        """Give an idle host back."""
        return self._mutate(
            Kind.DELETE, pb.DeleteRequest(machine_id=machine_id, **_fence(token)), self._stub.Delete
        )

    def _mutate(
        self, kind: Kind, request: Any, method: Callable[..., pb.TransitionAck]
    ) -> Accepted:
        ack = self._call(kind, request.machine_id, lambda: method(request, timeout=CALL_SECONDS))
        return Accepted(operation_id=ack.operation_id, machine=_in_words(ack.machine))

    def _call(self, what: str, machine_id: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except grpc.RpcError as error:
            code, message = _explained(error, what, machine_id, self._endpoint)
            fail(code, message)


def _open(endpoint: Endpoint) -> grpc.Channel:
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ]
    if not endpoint.secure:
        return grpc.insecure_channel(endpoint.address, options=options)
    if endpoint.tls_server_name:
        options.append(("grpc.ssl_target_name_override", endpoint.tls_server_name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(endpoint.tls_ca),
        private_key=_read(endpoint.tls_key),
        certificate_chain=_read(endpoint.tls_cert),
    )
    return grpc.secure_channel(endpoint.address, credentials, options=options)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}")


def _fence(token: Token) -> dict[str, Any]:
    return {
        "shard_id": token.shard_id,
        "shard_epoch": token.epoch,
        "sequence_number": token.sequence,
    }


def _in_words(machine: pb.Machine) -> Machine:
    host = None
    if machine.HasField("host"):
        host = {"provider": machine.host.provider, "ref": machine.host.ref}
    return Machine(
        id=machine.id,
        state=_name(State, machine.state),
        instance_type=machine.instance_type,
        zone=machine.zone,
        capacity_type=_name(CapacityType, machine.capacity_type),
        price_per_hour=machine.price_per_hour,
        interruption_probability=machine.interruption_probability,
        host=host,
        cluster=machine.cluster,
        shard_metadata=dict(sorted(machine.shard_metadata.items())),
        last_error=machine.last_error,
        resources=dict(sorted(machine.resources.resources.items())),
        allocatable=dict(sorted(machine.allocatable.resources.items())),
        labels=dict(sorted(machine.labels.items())),
    )


def _name(kind: type[State] | type[CapacityType], number: int) -> str:
    """The value's name; a daemon newer than this program may send an unknown one."""
    return kind(number).name if number in {*kind} else str(number)


def _explained(error: Any, what: str, machine_id: str, endpoint: Endpoint) -> tuple[Exit, str]:
    """The exit code, and what happened, to what, and what to do now.

    Args:
        error: what a call raised; it is a grpc.RpcError and a grpc.Call, which has no type.
        what, machine_id, endpoint: the call it is about.
    """
    code: grpc.StatusCode = error.code()
    details = printable(error.details() or "no reason given")
    subject = f"{what} {machine_id}".rstrip()
    # The daemon's own refusals begin with what was asked; those of the connection do not.
    refused = details.startswith(f"{what} of ")
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Exit.UNREACHABLE, (
                f"{subject}: {endpoint.address} did not answer in time; "
                "is it the daemon, and is it overloaded?"
            )
        case grpc.StatusCode.UNAVAILABLE if not refused:
            hint = (
                "check the --tls-… flags against the daemon's"
                if endpoint.secure
                else "is the daemon running there, and does it serve without TLS? "
                "Name another address with --addr, TLS with --tls-ca"
            )
            reason = details.removeprefix("failed to connect to all addresses; last error: ")
            return (
                Exit.UNREACHABLE,
                f"{subject}: no answer from {endpoint.address}; {hint} ({reason})",
            )
        case grpc.StatusCode.NOT_FOUND:
            advice = "`bigfleet-azure machines list -o name` prints every id"
        case grpc.StatusCode.FAILED_PRECONDITION:
            advice = "a newer token was seen, so give a greater --epoch or --sequence"
        case grpc.StatusCode.PERMISSION_DENIED:
            advice = "under mutual TLS --tls-cert names the shard, and --shard must be the same"
        case grpc.StatusCode.ABORTED:
            advice = f"see `bigfleet-azure machines get {machine_id}`"
        case grpc.StatusCode.UNIMPLEMENTED:
            advice = f"what listens on {endpoint.address} is no capacity provider"
        case grpc.StatusCode.INVALID_ARGUMENT:
            advice = "change the arguments"
        case _:
            advice = f"the daemon answered {code.name}; its log may say more"
    outcome = Exit.NOT_FOUND if code is grpc.StatusCode.NOT_FOUND else Exit.REFUSED
    happened = details if refused else f"{subject}: {details}"
    return outcome, f"{happened}; {advice}"
