"""A certificate authority for tests: server certificates, and client ones with any names."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bigfleet_azure.rpc.tls import TlsFiles

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()

    def issue(
        self,
        *names: x509.GeneralName,
        begins: timedelta = -HOUR,
        ends: timedelta = HOUR,
    ) -> Pair:
        """A certificate with exactly these alternative names; times are relative to now."""
        now = datetime.now(UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(self.pem)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        return Pair(
            certificate=builder.sign(signer, hashes.SHA256()).public_bytes(
                serialization.Encoding.PEM
            ),
            key=pem_of(key),
        )

    def server(self, *, begins: timedelta = -HOUR, ends: timedelta = HOUR) -> Pair:
        return self.issue(x509.DNSName("localhost"), begins=begins, ends=ends)

    def client(self, *uris: str) -> Pair:
        return self.issue(*uri_names(uris))

    def trusting(self, shown: Pair | None = None) -> grpc.ChannelCredentials:
        """What a client needs that trusts this authority, and shows a certificate if it has one."""
        if shown is None:
            return grpc.ssl_channel_credentials(self.pem)
        return grpc.ssl_channel_credentials(self.pem, shown.key, shown.certificate)


def uri_names(uris: Sequence[str]) -> list[x509.GeneralName]:
    return [x509.UniformResourceIdentifier(uri) for uri in uris]


def pem_of(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )


def write(folder: Path, pair: Pair, ca: bytes | None = None) -> TlsFiles:
    """Write the files as an operator's tool would replace them: whole, by renaming."""
    files = TlsFiles(
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        ca=folder / "ca.crt" if ca else None,
    )
    for path, content in (
        (files.certificate, pair.certificate),
        (files.key, pair.key),
        (files.ca, ca),
    ):
        if path and content:
            replace(path, content)
    return files


def replace(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)
