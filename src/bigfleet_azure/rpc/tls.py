"""Certificates of the gRPC server: loaded, checked, and read again when the files change.

What is served is always the last good set of files; a broken one is reported and left alone.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.rpc import minimum_tls
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Report = Callable[[str | None], None]
"""Told on the event loop what is wrong with the files, or None when they are good again."""


class TlsError(Exception):
    """The files cannot be served; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of PEM files; with `ca`, clients must show a certificate signed by it."""

    certificate: Path
    key: Path
    ca: Path | None = None

    def contents(self) -> tuple[bytes, bytes, bytes | None]:
        """Certificate chain, key and CA as they are on disk.

        Raises:
            TlsError: a file cannot be read.
        """
        return (
            _read(self.certificate, "certificate"),
            _read(self.key, "key"),
            _read(self.ca, "CA") if self.ca else None,
        )

    def fingerprint(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes when a file was replaced or rewritten; cheap enough for every handshake."""
        return tuple(_stat(path) for path in (self.certificate, self.key, self.ca) if path)


class Certificates:
    """The served certificate, kept up to date.

    gRPC asks for it once per handshake, on threads of its own. Made on the running event loop.

    Raises:
        TlsError: the files cannot be served, or older TLS versions are not ruled out.
    """

    def __init__(self, files: TlsFiles, clock: Clock, metrics: Metrics, report: Report) -> None:
        if not minimum_tls.is_required():
            raise TlsError(
                "TLS 1.3 cannot be made the minimum: "
                "rpc.minimum_tls.require_tls13() was not called before gRPC's import"
            )
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._trouble: str | None = None
        self._ends = 0.0
        self._seen = files.fingerprint()
        self._served = self._load()

    @property
    def mutual(self) -> bool:
        """Whether clients must show a certificate."""
        return self._files.ca is not None

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files."""
        return grpc.dynamic_ssl_server_credentials(
            self._served, self._current, require_client_authentication=self.mutual
        )

    def check(self) -> None:
        """Look at the files and the clock without waiting for a handshake; called by a loop."""
        self._current()

    def _current(self) -> grpc.ServerCertificateConfiguration:
        with self._lock:
            seen = self._files.fingerprint()
            if seen != self._seen:
                try:
                    self._served = self._load()
                except TlsError as error:
                    self._say(f"{error}; the last good certificate stays in use")
                else:
                    self._seen = seen
                    logger.info("TLS files loaded again")
                    self._say(None)
            elif self._trouble is None and self._ends <= self._clock.now():
                self._say(f"the certificate {self._files.certificate} ended at {_date(self._ends)}")
            return self._served

    def _say(self, trouble: str | None) -> None:
        self._trouble = trouble
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, trouble)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        chain, key, ca = self._files.contents()
        begins, ends = _validity(self._files, chain, key, ca)
        now = self._clock.now()
        if now < begins:
            raise TlsError(f"the certificate {self._files.certificate} begins at {_date(begins)}")
        if now >= ends:
            raise TlsError(f"the certificate {self._files.certificate} ended at {_date(ends)}")
        self._ends = ends
        self._metrics.certificate_expiry.set(ends)
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)


def _validity(files: TlsFiles, chain: bytes, key: bytes, ca: bytes | None) -> tuple[float, float]:
    """Begin and end of the certificate in Unix seconds.

    Raises:
        TlsError: something does not parse, or key and certificate do not belong together.
    """
    # Costs 80 ms to import, and most daemons in a trusted network never need it.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    def certificate(path: Path, content: bytes) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificates(content)[0]
        except ValueError as error:
            raise TlsError(f"{path} has no readable PEM certificate") from error

    served = certificate(files.certificate, chain)
    if files.ca is not None and ca is not None:
        certificate(files.ca, ca)
    try:
        fits = load_pem_private_key(key, password=None).public_key() == served.public_key()
    except TypeError as error:
        raise TlsError(f"the key {files.key} is encrypted; it must have no password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsError(f"{files.key} has no readable PEM private key") from error
    if not fits:
        raise TlsError(f"the key {files.key} does not belong to {files.certificate}")
    return served.not_valid_before_utc.timestamp(), served.not_valid_after_utc.timestamp()


def _date(unix_seconds: float) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"the {what} {path} cannot be read: {error.strerror}") from error


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino
