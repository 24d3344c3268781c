"""One HTTP listener: its socket, its TLS files, its end. What is served on it is given to it."""

import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

logger = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 1.0
"""How long an answer under way may hold up the end of the process."""


class HttpListenError(Exception):
    """The listener cannot be opened; the text says where, why, and which flag changes it."""


@dataclass(frozen=True, slots=True)
class HttpTls:
    """PEM files of a listener."""

    certificate: Path
    key: Path


class Listener:
    """One listener, from `start` to `close`.

    Args:
        app: what is served.
        flag: the flag that says where, for messages.
        tls: None for plain HTTP.
        report: told what is wrong with the TLS files, and None when they are good again.
    """

    def __init__(
        self,
        app: web.Application,
        flag: str,
        *,
        tls: HttpTls | None = None,
        report: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._flag = flag
        self._tls = tls
        self._report = report
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[bytes, bytes] = (b"", b"")
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; an empty host means every interface.

        Returns:
            The port in use, which matters when `port` is 0.

        Raises:
            HttpListenError: the address is taken or not ours, or the TLS files cannot be used.
        """
        if self._tls is not None:
            try:
                self._context = _context(self._tls)
                self._loaded = _contents(self._tls)
            except (OSError, ssl.SSLError) as error:
                raise HttpListenError(_tls_fault(self._tls, error)) from error
        try:
            listener = _listen(host, port)
        except OSError as error:
            raise HttpListenError(f"{self._flag}: {_why(host, port, error)}") from error
        await self._runner.setup()
        await web.SockSite(self._runner, listener, ssl_context=self._context).start()
        bound: int = listener.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening; does nothing when it never did."""
        await self._runner.cleanup()

    def check(self) -> None:
        """Use the TLS files anew if they changed; faulty ones leave the last good ones in use."""
        if self._tls is None or self._context is None:
            return
        try:
            contents = _contents(self._tls)
            if contents != self._loaded:
                _context(self._tls)  # a faulty pair must not get half-way into the one in use
                self._context.load_cert_chain(self._tls.certificate, self._tls.key)
                self._loaded = contents
                logger.info("TLS files loaded again", extra={"listener": self._flag})
        except (OSError, ssl.SSLError) as error:
            self._report(f"{_tls_fault(self._tls, error)}; the last good ones stay in use")
        else:
            self._report(None)


def _context(tls: HttpTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A password prompt would hold up the daemon; an encrypted key is refused.
    context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    return context


def _contents(tls: HttpTls) -> tuple[bytes, bytes]:
    return tls.certificate.read_bytes(), tls.key.read_bytes()


def _tls_fault(tls: HttpTls, error: Exception) -> str:
    why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return f"the TLS files {tls.certificate} and {tls.key} cannot be used: {why}"


def _listen(host: str, port: int) -> socket.socket:
    if host:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise
        # No IPv6 here, or none that also takes IPv4.
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 - what no host asks for


def _why(host: str, port: int, error: OSError) -> str:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, socket.gaierror):
        return f"{where} cannot be resolved: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use already"
    return f"cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}"
