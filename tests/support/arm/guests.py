"""What happens inside the VMs: booting, and the scripts that extensions bring.

Tests replace the `Guest` of a double, or a method of it, to decide exit codes and output, or to
let a node appear in a Kubernetes API server.
"""

import base64
import binascii
import gzip
from collections.abc import Awaitable
from dataclasses import dataclass

from tests.support.arm.vms import Vm
from tests.support.arm.wire import Json

OUTPUT_KEPT = 4096
"""Bytes of output that Azure keeps, from the end."""


@dataclass(frozen=True)
class ScriptResult:
    """How a script ended."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    seconds: float | None = None
    """Azure seconds it ran; None = the usual time."""


class Guest:
    """A guest in which all scripts succeed at once and say nothing."""

    def booted(self, vm: Vm) -> None:
        """The VM runs."""

    def stopped(self, vm: Vm) -> None:
        """The VM stopped running: stopped, evicted, or gone."""

    def run(self, vm: Vm, script: str) -> ScriptResult | Awaitable[ScriptResult]:
        """Run the script of an extension; an awaitable is waited for in real time."""
        return ScriptResult()

    def serial_log(self, vm: Vm) -> str:
        return f"[    0.000000] Linux version 6.8.0-azure ({vm.name})\n{vm.name} login: "


class BadScript(Exception):
    """The extension's handler could not make a script of its settings."""


def script_of(settings: Json, protected: Json) -> str:
    """The script that CustomScript would run: decoded, and unpacked where it was packed."""
    for key in ("commandToExecute", "script", "fileUris"):
        if key in settings and key in protected:
            raise BadScript(f"'{key}' was specified in both settings and protectedSettings")
    both = settings | protected
    if "script" in both and "commandToExecute" in both:
        raise BadScript("'commandToExecute' and 'script' are both specified")
    if "commandToExecute" in both:
        return str(both["commandToExecute"])
    if "script" not in both:
        raise BadScript("'commandToExecute' is not specified")
    try:
        data = base64.b64decode(both["script"], validate=True)
    except binascii.Error as problem:
        raise BadScript("failed to decode script") from problem
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    return data.decode()
