"""Who may call under mutual TLS, through real handshakes."""

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.rpc import identity, minimum_tls
from bigfleet_azure.rpc.status import Rejection
from bigfleet_azure.rpc.tls import Certificates, TlsFiles
from bigfleet_azure.telemetry.metrics import Metrics
from tests.rpc.authority import Authority, Pair, write
from tests.rpc.support import Served, served

SHARD = "bigfleet://shard/shard-a"


@pytest.fixture(autouse=True)
def tls13(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "")
    minimum_tls.require_tls13()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def opened(files: TlsFiles, metrics: Metrics) -> Certificates:
    return Certificates(files, SystemClock(), metrics, lambda _: None)


@asynccontextmanager
async def mutual(
    folder: Path, authority: Authority, shown: Pair | None, *, trusted: Authority | None = None
) -> AsyncIterator[Served]:
    files = write(folder, authority.server(), (trusted or authority).pem)
    async with served(
        certificates=lambda metrics: opened(files, metrics),
        credentials=authority.trusting(shown),
    ) as running:
        yield running


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_shard_with_its_own_name_in_its_certificate_may_call(
    tmp_path: Path, authority: Authority
) -> None:
    async with mutual(tmp_path, authority, authority.client(SHARD)) as edge:
        assert await code_of(edge.stub.List(pb.ListFilter())) is grpc.StatusCode.OK
        await edge.stub.Create(pb.CreateRequest(machine_id="m-000", shard_id="shard-a"))
        assert [command.token.shard_id for command in edge.provider.commands] == ["shard-a"]


@pytest.mark.behaviour(84)
async def test_a_client_without_a_certificate_gets_no_connection(
    tmp_path: Path, authority: Authority
) -> None:
    async with mutual(tmp_path, authority, None) as edge:
        code = await code_of(edge.stub.List(pb.ListFilter(), timeout=5))
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.behaviour(84)
async def test_a_client_with_a_certificate_of_another_authority_gets_no_connection(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority().client(SHARD)
    async with mutual(tmp_path, authority, stranger) as edge:
        code = await code_of(edge.stub.List(pb.ListFilter(), timeout=5))
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.behaviour(84)
@pytest.mark.parametrize(
    "uris",
    [
        pytest.param([], id="none"),
        pytest.param([SHARD, "bigfleet://shard/shard-b"], id="two"),
        pytest.param([SHARD, SHARD], id="twice"),
        pytest.param(["spiffe://cluster/ns/x", SHARD], id="one more of another scheme"),
        pytest.param(["bigfleet://operator/shard-a"], id="wrong role"),
        pytest.param(["https://shard/shard-a"], id="wrong scheme"),
        pytest.param(["bigfleet://shard/"], id="no id"),
        pytest.param(["bigfleet://shard"], id="no path"),
        pytest.param(["bigfleet://shard/a/b"], id="two parts"),
        pytest.param(["bigfleet://shard/a%2Fb"], id="hidden slash"),
        pytest.param(["bigfleet://shard/%ff"], id="not UTF-8"),
        pytest.param(["bigfleet://shard/a?b"], id="query"),
        pytest.param(["bigfleet://shard/a#b"], id="fragment"),
        pytest.param(["bigfleet://shard:1/a"], id="port"),
        pytest.param(["bigfleet://[shard/a"], id="unparsable"),
        pytest.param(["bigfleet:shard/a"], id="no authority"),
    ],
)
async def test_a_certificate_that_names_no_single_shard_may_not_call_and_leaves_no_trace(
    tmp_path: Path, authority: Authority, uris: list[str]
) -> None:
    async with mutual(tmp_path, authority, authority.client(*uris)) as edge:
        create = pb.CreateRequest(machine_id="m-000", shard_id="shard-a", sequence_number=1)
        assert await code_of(edge.stub.Create(create)) is grpc.StatusCode.PERMISSION_DENIED
        read = edge.stub.Get(pb.MachineRef(id="m-000"))
        assert await code_of(read) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(edge.stub.List(pb.ListFilter())) is grpc.StatusCode.PERMISSION_DENIED
        assert not edge.provider.commands
        assert not edge.provider.queries


async def test_names_of_other_kinds_beside_the_uri_do_not_matter(
    tmp_path: Path, authority: Authority
) -> None:
    shown = authority.issue(
        x509.DNSName("shard-a.example"),
        x509.DNSName("bigfleet://shard/shard-z"),
        x509.UniformResourceIdentifier(SHARD),
        x509.RFC822Name("ops@example.com"),
    )
    async with mutual(tmp_path, authority, shown) as edge:
        assert await code_of(edge.stub.List(pb.ListFilter())) is grpc.StatusCode.OK


async def test_a_uri_in_a_name_of_another_kind_is_no_identity(
    tmp_path: Path, authority: Authority
) -> None:
    shown = authority.issue(x509.DNSName(SHARD))
    async with mutual(tmp_path, authority, shown) as edge:
        assert await code_of(edge.stub.List(pb.ListFilter())) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.behaviour(85)
@pytest.mark.parametrize(
    ("token", "allowed"),
    [
        (Token("shard-a", 1, 1), True),
        (Token("shard-a", 0, 0), True),
        (Token("", 0, 0), True),
        (Token("shard-b", 1, 1), False),
        (Token("shard-b", 0, 0), False),
        (Token("SHARD-A", 1, 1), False),
        (Token("", 1, 0), False),
        (Token("", 0, 1), False),
    ],
)
async def test_a_shard_may_only_use_its_own_token_or_none(
    tmp_path: Path, authority: Authority, token: Token, allowed: bool
) -> None:
    fields: Mapping[str, Any] = {
        "machine_id": "m-000",
        "shard_id": token.shard_id,
        "shard_epoch": token.epoch,
        "sequence_number": token.sequence,
    }
    async with mutual(tmp_path, authority, authority.client(SHARD)) as edge:
        calls = (
            edge.stub.Create(pb.CreateRequest(**fields)),
            edge.stub.Configure(pb.ConfigureRequest(**fields)),
            edge.stub.Drain(pb.DrainRequest(**fields)),
            edge.stub.Delete(pb.DeleteRequest(**fields)),
        )
        expected = grpc.StatusCode.OK if allowed else grpc.StatusCode.PERMISSION_DENIED
        assert {await code_of(call) for call in calls} == {expected}
        assert len(edge.provider.commands) == (4 if allowed else 0)


async def test_a_percent_encoded_id_is_read_as_it_was_meant() -> None:
    assert identity.shard_of({"peer_uri": [b"bigfleet://shard/shard%20a"]}) == "shard a"


async def test_with_a_server_certificate_only_nobody_is_asked_for_a_name(
    tmp_path: Path, authority: Authority
) -> None:
    files = write(tmp_path, authority.server())
    async with served(
        certificates=lambda metrics: opened(files, metrics), credentials=authority.trusting()
    ) as edge:
        await edge.stub.Create(pb.CreateRequest(machine_id="m-000", shard_id="anyone"))
        assert edge.provider.commands


async def test_health_needs_a_trusted_certificate_but_no_role(
    tmp_path: Path, authority: Authority
) -> None:
    async with mutual(tmp_path, authority, authority.client()) as edge:
        health: Any = health_pb2_grpc.HealthStub(edge.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("version", [[b"TLSv1.2"], [], [b"TLSv1.3", b"TLSv1.2"]])
def test_an_older_connection_is_turned_away_even_if_it_was_let_in(version: list[bytes]) -> None:
    class Context:
        def auth_context(self) -> dict[str, list[bytes]]:
            return {"ssl_tls_version": version, "peer_uri": [SHARD.encode()]}

    for identify in (identity.server_tls, identity.mutual_tls):
        with pytest.raises(Rejection, match=r"TLS 1\.3"):
            identify(Context())  # type: ignore[arg-type]
