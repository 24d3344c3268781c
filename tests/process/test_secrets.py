"""Secrets are planted and then searched for in everything that the daemon shows or writes."""

import base64
from pathlib import Path

import grpc
import psutil
import pytest

from tests.support.process import client, eventually, refused, running

pytestmark = [pytest.mark.process, pytest.mark.behaviour(69)]

BLOB = b"kubeadm join --token s3cr3t.blobblobblobblob"
KEY = "5ec2e7" * 10 + "5ec2"


def forms(secret: bytes) -> list[bytes]:
    """How a secret may look when somebody printed it after all."""
    return [secret, base64.b64encode(secret)[:-4], secret.hex().encode(), repr(secret).encode()]


def searched(places: dict[str, bytes], *secrets: bytes) -> None:
    for name, content in places.items():
        for secret in secrets:
            for form in forms(secret):
                assert form not in content, f"{name} shows a secret"


@pytest.mark.parametrize("form", ["json", "console"])
def test_the_blob_and_the_key_appear_nowhere(log: Path, state: Path, form: str) -> None:
    flags = (
        "--log-level=debug",
        f"--log-format={form}",
        "--metrics-addr=127.0.0.1:0",
        "--fake-faults",
        "--fake-latency=300ms",
        f"--state={state}",
    )
    env = {"BIGFLEET_AZURE_STATE_KEY": KEY}
    texts: list[str] = []
    with running(log, *flags, env=env) as daemon, client(daemon) as speaking:
        ids = [m.id for m in speaking.list().machines if not m.id.startswith("faultcreate")]
        for machine_id in ids[:4]:
            speaking.create(machine_id)
        for machine_id in ids[:4]:
            speaking.reaches(machine_id, "IDLE")
        for machine_id, cluster, blob in (
            (ids[0], "blue", BLOB),
            (ids[1], "fault-error", BLOB),
            (ids[4], "blue", BLOB),  # not created
            (ids[2], "", BLOB),  # no cluster
            (ids[2], "blue", BLOB * 5000),  # too large
            ("no-such-machine", "blue", BLOB),
            ("m" * 300, "blue", BLOB),
        ):
            try:
                texts.append(str(speaking.configure(machine_id, cluster, bootstrap_blob=blob)))
            except grpc.RpcError as error:
                texts.append(f"{error.details()} {error}")
        process = psutil.Process(daemon.popen.pid)
        texts += process.cmdline()
        # While it waits to be handed over, it lies sealed in the state file.
        files = {path.name: path.read_bytes() for path in state.parent.iterdir()}
        speaking.reaches(ids[0], "CONFIGURED")
        texts.append(speaking.reaches(ids[1], "FAILED").last_error)
        texts.append(str(speaking.list().machines))
        texts += [daemon.web(path).text for path in ("/metrics", "/readyz?verbose")]
        files |= {f"{path.name} later": path.read_bytes() for path in state.parent.iterdir()}
        assert daemon.terminate() == 0
    files |= {f"{path.name} at the end": path.read_bytes() for path in state.parent.iterdir()}
    assert "state.db.key" not in files  # the environment's key is written nowhere
    assert f"{log.name} at the end" in files
    assert "bug in" not in log.read_text()
    searched(files | {"answers": "\n".join(texts).encode()}, BLOB, KEY.encode(), bytes.fromhex(KEY))


def test_a_faulty_key_is_refused_without_being_shown(log: Path, state: Path) -> None:
    code, text = refused(f"--state={state}", env={"BIGFLEET_AZURE_STATE_KEY": "hunter2hunter2"})
    assert code == 8
    assert "no key" in text
    assert "hunter2" not in text
    key = state.with_name("key")
    key.write_text("hunter2hunter2")
    code, text = refused(f"--state={state}", f"--state-key-file={key}")
    assert code == 8
    assert str(key) in text
    assert "hunter2" not in text
    code, text = refused("--state-key=hunter2hunter2")
    assert code == 2
    assert "BIGFLEET_AZURE_STATE_KEY" in text
    assert "hunter2" not in text


def test_the_key_and_the_state_are_readable_by_their_owner_alone(log: Path, state: Path) -> None:
    with running(log, f"--state={state}") as daemon, client(daemon) as speaking:
        speaking.create(speaking.list().machines[0].id)
        eventually(lambda: Path(f"{state}-wal").exists(), "there is a log")
        for suffix in ("", ".key", ".lock", "-wal", "-shm"):
            mode = Path(f"{state}{suffix}").stat().st_mode & 0o777
            assert mode == 0o600, (suffix, oct(mode))
