"""A real etcd and kube-apiserver on loopback, with RBAC; no controllers and no kubelet run.

So a test writes what those would: Node status, pod phases, the status of a disruption budget.
"""

import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from scripts.build_kubernetes import PROGRAMS
from tests.support.tools import require_tool

Json = dict[str, Any]

ADMIN_TOKEN = "admin-token"
PROVIDER_TOKEN = "provider-token"
STRANGER_TOKEN = "stranger-token"
TOKENS = f"""{ADMIN_TOKEN},admin,1,system:masters
{PROVIDER_TOKEN},bigfleet-azure,2
{STRANGER_TOKEN},stranger,3
"""
READY_SECONDS = 60.0


class KubeServers:
    """The two processes.

    Attributes:
        url: of the API server.
        ca: file with the certificate that it proves itself by.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._etcd_program, self._api_program = (require_tool(each.file) for each in PROGRAMS)
        self._etcd_url = f"http://127.0.0.1:{_free_port()}"
        self._port = _free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca = folder / "certificates" / "apiserver.crt"
        self._etcd: subprocess.Popen[bytes] | None = None
        self._api: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self._folder / "tokens.csv").write_text(TOKENS, encoding="utf-8")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        peers = f"http://127.0.0.1:{_free_port()}"
        self._etcd = self._run(
            self._etcd_program,
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        self.start_api()

    def start_api(self) -> None:
        """Start the API server, and wait until it serves."""
        self._api = self._run(
            self._api_program,
            f"--etcd-servers={self._etcd_url}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.ca.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder / 'sa.key'}",
            f"--service-account-signing-key-file={self._folder / 'sa.key'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        self._await_ready()

    def stop_api(self) -> None:
        """End the API server at once; etcd, and so every object, stays."""
        _end(self._api)

    def stop(self) -> None:
        _end(self._api)
        _end(self._etcd)

    def ask(self, method: str, path: str, body: Any = None, *, patch: str = "merge-patch") -> Json:
        """The answer to an administrator; AssertionError with the server's words for a refusal."""
        kind = f"application/{patch}+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._trust()) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error
        found = json.loads(text) if text.startswith(b"{") else {}
        assert isinstance(found, dict)
        return found

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _await_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.ask("GET", "/readyz")
            except (AssertionError, OSError) as error:
                assert self._api is not None
                over = time.monotonic() > until or self._api.poll() is not None
                if over:
                    log = (self._folder / "kube-apiserver.log").read_text(errors="replace")
                    raise AssertionError(f"the API server is not ready: {log[-3000:]}") from error
                time.sleep(0.1)
            else:
                return

    def _run(self, program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        name = "etcd" if program == self._etcd_program else "kube-apiserver"
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
