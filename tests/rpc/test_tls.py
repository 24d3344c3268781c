"""Certificates: what is refused at start, what is followed afterwards, and the TLS version."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as with_changes
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb.provider_pb2_grpc import CapacityProviderStub
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.rpc import minimum_tls
from bigfleet_azure.rpc.tls import Certificates, TlsError, TlsFiles
from bigfleet_azure.telemetry.metrics import Metrics
from tests.rpc.authority import HOUR, Authority, Pair, pem_of, replace, write
from tests.rpc.support import channel_to, served
from tests.support.tools import ROOT

SHARD = "bigfleet://shard/shard-a"


@pytest.fixture(autouse=True)
def tls13(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "")
    minimum_tls.require_tls13()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


class Watched:
    """Certificates with a clock that can be moved, and what was reported of them."""

    pace = 1.0

    def __init__(self, files: TlsFiles, metrics: Metrics | None = None) -> None:
        self.ahead = timedelta()
        self.reports: list[str | None] = []
        self.metrics = metrics or Metrics()
        self.certificates = Certificates(files, self, self.metrics, self.reports.append)

    def now(self) -> float:
        return SystemClock().now() + self.ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here may wait")

    async def checked(self) -> list[str | None]:
        self.certificates.check()
        await asyncio.sleep(0)
        return self.reports


def shown_by(port: int) -> x509.Certificate:
    """The certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        content = wrapped.getpeercert(binary_form=True)
    assert content
    return x509.load_der_x509_certificate(content)


def first_of(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def encrypted() -> bytes:
    return pem_of(ec.generate_private_key(ec.SECP256R1()), b"password")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda files: files.certificate.unlink(), "certificate .*tls.crt cannot be read: No such"),
        (lambda files: files.key.unlink(), "key .*tls.key cannot be read: No such"),
        (lambda files: files.ca.unlink(), "CA .*ca.crt cannot be read: No such"),
        (lambda files: files.certificate.write_bytes(b"x"), "tls.crt has no readable PEM cert"),
        (lambda files: files.key.write_bytes(b"s3cret"), "tls.key has no readable PEM private key"),
        (lambda files: files.key.write_bytes(encrypted()), "tls.key is encrypted"),
        (lambda files: files.ca.write_bytes(b""), "ca.crt has no readable PEM certificate"),
        (
            lambda files: files.key.write_bytes(Authority().server().key),
            "tls.key does not belong to .*tls.crt",
        ),
    ],
)
async def test_files_that_cannot_be_served_are_refused_at_start(
    tmp_path: Path, authority: Authority, spoil: Callable[[TlsFiles], None], text: str
) -> None:
    files = write(tmp_path, authority.server(), authority.pem)
    spoil(files)
    with pytest.raises(TlsError, match=text) as caught:
        Watched(files)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("begins", "ends", "text"),
    [(-2 * HOUR, -HOUR, "ended at 20.* UTC"), (HOUR, 2 * HOUR, "begins at 20.* UTC")],
)
async def test_a_certificate_outside_its_time_is_refused_at_start(
    tmp_path: Path, authority: Authority, begins: timedelta, ends: timedelta, text: str
) -> None:
    files = write(tmp_path, authority.server(begins=begins, ends=ends))
    with pytest.raises(TlsError, match=text):
        Watched(files)


async def test_the_start_is_refused_where_older_versions_were_not_ruled_out(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_SSL_CIPHER_SUITES")
    with pytest.raises(TlsError, match=r"TLS 1\.3"):
        Watched(write(tmp_path, authority.server()))


async def test_the_end_of_the_served_certificate_is_a_metric(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.server(ends=3 * HOUR)
    watched = Watched(write(tmp_path, pair))
    ends = watched.metrics.registry.get_sample_value(
        "bigfleet_azure_tls_certificate_expiry_timestamp_seconds"
    )
    assert ends == first_of(pair.certificate).not_valid_after_utc.timestamp()


@pytest.mark.behaviour(86)
async def test_a_replaced_certificate_and_key_are_used_for_new_connections(
    tmp_path: Path, authority: Authority
) -> None:
    old, new = authority.server(), authority.server(ends=5 * HOUR)
    files = write(tmp_path, old)
    async with served(
        certificates=lambda metrics: Watched(files, metrics).certificates,
        credentials=authority.trusting(),
    ) as edge:
        assert await asyncio.to_thread(shown_by, edge.port) == first_of(old.certificate)
        await edge.stub.List(pb.ListFilter())
        write(tmp_path, new)
        assert await asyncio.to_thread(shown_by, edge.port) == first_of(new.certificate)
        assert edge.sample("tls_certificate_expiry_timestamp_seconds", {}) == (
            first_of(new.certificate).not_valid_after_utc.timestamp()
        )
        # The connection that stood before goes on.
        await edge.stub.List(pb.ListFilter())


@pytest.mark.behaviour(86)
async def test_a_replaced_ca_decides_about_new_clients(
    tmp_path: Path, authority: Authority
) -> None:
    second = Authority()
    files = write(tmp_path, authority.server(), authority.pem)

    async def code(port: int, shown: Pair) -> grpc.StatusCode:
        async with channel_to(port, authority.trusting(shown)) as channel:
            try:
                await CapacityProviderStub(channel).List(pb.ListFilter(), timeout=5)
            except grpc.aio.AioRpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    async with served(
        certificates=lambda metrics: Watched(files, metrics).certificates,
        credentials=authority.trusting(),
    ) as edge:
        assert await code(edge.port, authority.client(SHARD)) is grpc.StatusCode.OK
        assert await code(edge.port, second.client(SHARD)) is grpc.StatusCode.UNAVAILABLE
        assert files.ca
        replace(files.ca, second.pem)
        assert await code(edge.port, second.client(SHARD)) is grpc.StatusCode.OK
        assert await code(edge.port, authority.client(SHARD)) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.behaviour(86)
async def test_rotated_client_certificates_are_accepted(
    tmp_path: Path, authority: Authority
) -> None:
    files = write(tmp_path, authority.server(), authority.pem)
    async with served(
        certificates=lambda metrics: Watched(files, metrics).certificates,
        credentials=authority.trusting(),
    ) as edge:
        for _ in range(2):
            credentials = authority.trusting(authority.client(SHARD))
            async with channel_to(edge.port, credentials) as channel:
                listed = await CapacityProviderStub(channel).List(pb.ListFilter())
                assert listed.machines


async def test_a_broken_replacement_is_reported_and_the_last_good_pair_stays(
    tmp_path: Path, authority: Authority
) -> None:
    old, new = authority.server(), authority.server()
    files = write(tmp_path, old)
    watched: list[Watched] = []

    def opened(metrics: Metrics) -> Certificates:
        watched.append(Watched(files, metrics))
        return watched[0].certificates

    async with served(certificates=opened, credentials=authority.trusting()) as edge:
        # Half of a rotation: the new key has not arrived yet.
        replace(files.certificate, new.certificate)
        assert await asyncio.to_thread(shown_by, edge.port) == first_of(old.certificate)
        assert "does not belong" in str(watched[0].reports[-1])
        assert "last good certificate stays" in str(watched[0].reports[-1])
        replace(files.key, new.key)
        assert await asyncio.to_thread(shown_by, edge.port) == first_of(new.certificate)
        assert watched[0].reports[-1] is None


async def test_a_file_that_disappears_and_returns_is_noticed(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.server()
    files = write(tmp_path, pair)
    watched = Watched(files)
    assert await watched.checked() == []
    files.key.unlink()
    assert "cannot be read" in str((await watched.checked())[-1])
    replace(files.key, pair.key)
    assert (await watched.checked())[-1] is None


async def test_an_expired_replacement_is_not_taken(tmp_path: Path, authority: Authority) -> None:
    watched = Watched(write(tmp_path, authority.server()))
    write(tmp_path, authority.server(begins=-2 * HOUR, ends=-HOUR))
    assert "ended at" in str((await watched.checked())[-1])


async def test_a_certificate_that_runs_out_while_it_is_served_is_reported_once_until_replaced(
    tmp_path: Path, authority: Authority
) -> None:
    watched = Watched(write(tmp_path, authority.server(ends=HOUR)))
    watched.ahead = 2 * HOUR
    await watched.checked()
    [report] = await watched.checked()
    assert "ended at" in str(report)
    write(tmp_path, authority.server(ends=5 * HOUR))
    assert (await watched.checked())[-1] is None


async def test_unchanged_files_are_not_read_again(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path, authority.server())
    watched = Watched(files)
    reads: list[Path] = []

    class Counted(type(files.key)):  # type: ignore[misc]
        def read_bytes(self) -> bytes:
            reads.append(self)
            content: bytes = super().read_bytes()
            return content

    watched.certificates._files = with_changes(files, key=Counted(files.key))
    await watched.checked()
    assert reads == []


@contextmanager
def daemon(files: TlsFiles) -> Iterator[int]:
    """A server in a process that has to see to the TLS version itself; gives the port."""
    paths = [str(path) for path in (files.certificate, files.key, files.ca) if path]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.rpc.tls_process", *paths],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "GRPC_SSL_CIPHER_SUITES"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield int(process.stdout.readline())
        finally:
            process.kill()


def handshake(port: int, version: ssl.TLSVersion, shown: TlsFiles) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(shown.certificate, shown.key)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.selected_alpn_protocol() == "h2"
        return wrapped.version()


@pytest.mark.process
@pytest.mark.behaviour(84)
@pytest.mark.parametrize("mutual", [False, True], ids=["server certificate", "mutual"])
def test_a_tls_12_handshake_fails_and_a_tls_13_handshake_works(
    tmp_path: Path, authority: Authority, mutual: bool
) -> None:
    (tmp_path / "client").mkdir()
    client = write(tmp_path / "client", authority.client(SHARD))
    files = write(tmp_path, authority.server(), authority.pem if mutual else None)
    with daemon(files) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(port, ssl.TLSVersion.TLSv1_2, client)
        assert handshake(port, ssl.TLSVersion.TLSv1_3, client) == "TLSv1.3"
