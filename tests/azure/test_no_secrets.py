"""Secrets are planted in the daemon and then searched for in all that it says, writes or shows."""

import asyncio
import base64
import json
import logging
from typing import Any

import pytest

from tests.azure.kills import About
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.arm.identity import SECRET
from tests.support.arm.vms import Vm
from tests.support.azure import Site, until

BLOB = b"kubeadm join --token s3cr3t.blobblobblobblob --discovery-token-ca-cert-hash sha256:5ec2e7"
USER_DATA = b"#cloud-config\nwrite_files: [{content: user-data-s3cr3t}]\n"
PRINTED = "no route to the cluster"


class Talking(Guest):
    """On some machines the hook prints what it was given, as with `set -x`, and fails."""

    def __init__(self) -> None:
        self.machines: set[str] = set()

    def run(self, vm: Vm, script: str) -> ScriptResult:
        if vm.name not in self.machines:
            return ScriptResult()
        said = f"+ {BLOB.decode()}\n{base64.b64encode(BLOB).decode()}\n{PRINTED}"
        return ScriptResult(1, stdout=script[-3000:], stderr=said)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every logger says, libraries' too, at the level at which they say most."""
    kept: list[str] = []
    hand_on = logging.Logger.callHandlers

    def keep(logger: logging.Logger, record: logging.LogRecord) -> None:
        kept.append(f"{record.getMessage()} {record.__dict__}")
        if record.exc_info:
            kept.append(logging.Formatter().formatException(record.exc_info))
        hand_on(logger, record)

    monkeypatch.setattr(logging.Logger, "callHandlers", keep)
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda *_: True)
    return kept


def forms(secret: bytes) -> list[bytes]:
    """How a secret looks when somebody printed it after all."""
    return [secret, base64.b64encode(secret)[:-4], secret.hex().encode(), repr(secret).encode()]


def searched(places: dict[str, bytes], *secrets: bytes) -> None:
    for name, content in places.items():
        for secret in secrets:
            for form in forms(secret):
                assert form not in content, f"{name} shows a secret"


def shown_by_azure(site: Site) -> bytes:
    """All that Azure answered, but for what the guest itself printed."""
    shown: list[Any] = [x.response for x in site.arm.exchanges if x.route != "token"]
    for vm in site.arm.vms():
        shown += [vm.view(instance=True), *(one.view() for one in vm.extensions.values())]
    texts = (json.dumps(one) for one in shown)
    return "\n".join(text for text in texts if PRINTED not in text).encode()


def on_disk(site: Site) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in site.state.parent.glob("state.db*")}


@pytest.mark.behaviour(69)
async def test_no_secret_is_in_logs_metrics_errors_the_state_or_what_azure_shows(tmp_path, lines):
    guest = Talking()
    (tmp_path / "user-data").write_bytes(USER_DATA)
    flags = (f"--base-user-data={tmp_path / 'user-data'}", "--failed-dwell=0")
    async with Site(tmp_path, *flags, guest=guest) as site:
        arm = site.arm
        quiet, talking, troubled, stuck = await site.ids(4)
        guest.machines.add(talking)
        arm.faults.add(Fault("vm.put", name=troubled, answer=error(500, "InternalServerError")))
        await asyncio.gather(*(site.idle(one) for one in (quiet, talking, troubled, stuck)))
        refusal = error(429, "TooManyRequests", "Slower.")
        arm.faults.add(About("extension.put", arm=arm, machine=troubled, answer=refusal))
        broken = operation_error("VMExtensionProvisioningError", "It did not work.")
        arm.faults.add(About("extension.put", arm=arm, machine=troubled, operation=broken))
        waits = About("tags.patch", arm=arm, machine=stuck, delay=1e9, times=None)
        arm.faults.add(waits)
        for machine in (quiet, talking, troubled, stuck):
            await site.configure(machine, "blue", BLOB)
        await until(lambda: waits.struck)
        files = on_disk(site)  # with the blob that waits to be handed over
        failed = await site.reaches(talking, "FAILED")
        assert PRINTED in failed.last_error
        for machine in (quiet, troubled):
            await site.reaches(machine, "CONFIGURED")
        texts = [str(await site.machines())]
        texts += [(await site.page(path))[1] for path in ("/metrics", "/readyz?verbose")]
        assert arm.vm(quiet).custom_bytes == USER_DATA
        await site.kill()
        files |= {f"{name} later": content for name, content in on_disk(site).items()}
        azure = shown_by_azure(site)
        assert b"bigfleet-hook" in azure
        arm.identity.clients.clear()
        await site.boot()
        await site.shows("credential")
        texts += [(await site.page(path))[1] for path in ("/metrics", "/readyz?verbose")]
    assert any("azure" in line and "DEBUG" in line for line in lines)
    tokens = [token.encode() for token in arm.identity._tokens]
    assert tokens
    places = {"texts": "\n".join(texts).encode(), "logs": "\n".join(lines).encode()}
    places |= {"what Azure shows": azure, **files}
    searched(places, BLOB, BLOB[15:38], USER_DATA, b"user-data-s3cr3t", SECRET.encode(), *tokens)
