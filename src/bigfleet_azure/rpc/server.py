"""The gRPC server: where it listens, how it is secured, and when it says it is healthy."""

import errno
import os
import re
import socket

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from bigfleet_azure.rpc import identity
from bigfleet_azure.rpc.reflection import reflection_handlers
from bigfleet_azure.rpc.servicer import SERVICE, Provider, Servicer
from bigfleet_azure.rpc.tls import Certificates
from bigfleet_azure.telemetry.metrics import Metrics

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""What a shard sends and receives at most (contract section 13)."""

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Keepalive as contract section 16 has it.
    ("grpc.max_connection_idle_ms", 15 * 60 * 1000),
    ("grpc.keepalive_time_ms", 2 * 3600 * 1000),
    ("grpc.keepalive_timeout_ms", 20 * 1000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 30 * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Else a second daemon on a taken port would silently share its connections.
    ("grpc.so_reuseport", 0),
)

_SERVICES = ("", SERVICE)
"""Names under which health is asked for: the whole server, and our service."""


class ListenError(Exception):
    """The server cannot listen; the text says where, why, and which flag changes it."""


class RpcServer:
    """One gRPC server: made, started, declared ready, closed, in this order."""

    def __init__(
        self,
        provider: Provider,
        metrics: Metrics,
        *,
        certificates: Certificates | None = None,
        reflection: bool = True,
    ) -> None:
        self._certificates = certificates
        self._server = grpc.aio.server(options=_OPTIONS)
        self._health = health.HealthServicer()
        servicer = Servicer(provider, _identify(certificates))
        self._server.add_generic_rpc_handlers((servicer.handler(metrics),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if reflection:
            self._server.add_generic_rpc_handlers(reflection_handlers())

    async def start(self, address: str) -> int:
        """Listen on `address`, e.g. `:9000` for every interface; health is NOT_SERVING yet.

        Returns:
            The port in use, which matters when `address` asks for port 0.

        Raises:
            ListenError: the address is malformed, taken or not ours.
        """
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        try:
            host, port = parse_address(address)
        except ValueError as error:
            raise ListenError(f"--addr: {error}") from error
        target = f"{_bracketed(host or _EVERY_INTERFACE)}:{port}"
        try:
            if self._certificates is None:
                bound = self._server.add_insecure_port(target)
            else:
                bound = self._server.add_secure_port(target, self._certificates.credentials())
        except RuntimeError as error:
            raise ListenError(f"--addr: {_why(host, port)}") from error
        await self._server.start()
        return bound

    async def ready(self) -> None:
        """Say SERVING."""
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def close(self, grace_seconds: float) -> None:
        """Say NOT_SERVING, accept no more, let running calls end within `grace_seconds`."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_seconds)

    async def _set_health(self, status: int) -> None:
        for service in _SERVICES:
            await self._health.set(service, status)


def _identify(certificates: Certificates | None) -> identity.Identify:
    if certificates is None:
        return identity.plaintext
    return identity.mutual_tls if certificates.mutual else identity.server_tls


_EVERY_INTERFACE = "::"
"""gRPC takes this as both IP versions, and as IPv4 alone where IPv6 is off."""

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]/\s]+)\]|(?P<host>[^:\[\]/\s]*)):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `[v6 address]:port` or `:port`; the host is empty for every interface.

    Raises:
        ValueError: `text` is nothing of that sort.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not an address such as :9000, 127.0.0.1:9000 or [::1]:9000")
    return match["v6"] or match["host"] or "", int(match["port"])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _why(host: str, port: int) -> str:
    """Why gRPC could not listen there, which it does not say: try it ourselves and see."""
    where = f"{_bracketed(host)}:{port}"
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in found:
            socket.create_server(address[:2], family=family).close()
    except socket.gaierror as error:
        return f"{where} cannot be resolved: {error.strerror}"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"{where} is in use already; is another daemon running?"
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"cannot listen on {where}: {reason}"
    return f"cannot listen on {where}"
