"""Starting, signals and stopping of the real process."""

import json
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.process import (
    COMMAND,
    Client,
    DaemonProcess,
    client,
    eventually,
    refused,
    running,
)

pytestmark = pytest.mark.process

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
WEB = "--metrics-addr=127.0.0.1:0"


def serving_lines(daemon: DaemonProcess) -> list[str]:
    return [line for line in daemon.lines() if "serving CapacityProvider" in line]


@pytest.mark.behaviour(80, 92)
def test_sigterm_ends_within_ten_seconds_and_leaves_what_was_accepted_to_the_next_process(
    log: Path, state: Path
) -> None:
    operations: dict[str, str] = {}
    ended = threading.Event()
    outcomes: list[grpc.StatusCode] = []

    def keep_calling(daemon: DaemonProcess) -> None:
        with client(daemon) as speaking:
            while not ended.is_set():
                try:
                    speaking.list()
                except grpc.RpcError as error:
                    outcomes.append(error.code())
                    return

    with running(log, "--fake-latency=30s", f"--state={state}") as daemon:
        with client(daemon) as speaking:
            for machine in speaking.list().machines:
                operations[machine.id] = speaking.create(machine.id).operation_id
            callers = [threading.Thread(target=keep_calling, args=(daemon,)) for _ in range(4)]
            for caller in callers:
                caller.start()
            assert daemon.terminate(within=10) == 0
            ended.set()
            for caller in callers:
                caller.join(30)
        assert set(outcomes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", daemon.port), timeout=5)
    assert "Traceback" not in log.read_text()
    with running(log, "--fake-latency=1ms", f"--state={state}") as daemon:
        with client(daemon) as speaking:
            for machine_id, operation in operations.items():
                assert speaking.create(machine_id).operation_id == operation
                assert speaking.get(machine_id).state == pb.MACHINE_STATE_CREATING
        # Nothing of it was said to be done: the region provisions for 30 s from the accept on.
        daemon.send(signal.SIGINT)
        assert daemon.popen.wait(10) == 0


@pytest.mark.behaviour(92)
def test_health_turns_off_at_the_first_signal_and_a_second_one_ends_the_process_at_once(
    log: Path,
) -> None:
    # A health watch never ends by itself, so the first signal waits for it.
    with running(log) as daemon, daemon.channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=30)
        assert next(watch).status == SERVING
        daemon.send(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        assert daemon.popen.poll() is None
        daemon.send(signal.SIGTERM)
        assert daemon.popen.wait(4) == 130
        with suppress(grpc.RpcError):
            list(watch)


def offer(count: int, size: str = "Standard_D4s_v5") -> dict[str, object]:
    return {
        "vm_size": size,
        "zone": "eastus-1",
        "capacity_type": "on_demand",
        "count": count,
        "resources": {"cpu": "1", "memory": "2Gi"},
        "labels": {"team": "blue"},
    }


def ids(speaking: Client) -> set[str]:
    return {machine.id for machine in speaking.list().machines}


@pytest.mark.behaviour(74)
def test_sighup_applies_a_changed_offerings_file_and_a_faulty_one_changes_nothing(
    log: Path, state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "offerings.json"
    file.write_text(json.dumps([offer(4)]))
    flags = (f"--offerings={file}", f"--state={state}", WEB)
    with running(log, *flags) as daemon, client(daemon) as speaking:
        first = ids(speaking)
        assert len(first) == 4
        used = max(first)
        speaking.create(used)
        speaking.reaches(used, "IDLE")

        file.write_text(json.dumps([offer(6), offer(2, "Standard_F8s_v2")]))
        daemon.send(signal.SIGHUP)
        eventually(lambda: len(ids(speaking)) == 8, "the added slots are listed")
        assert first < ids(speaking)

        revision = speaking.list().revision
        file.write_text(json.dumps([offer(-1), {"vm_size": "x", "nonsense": 1}]))
        daemon.send(signal.SIGHUP)
        eventually(lambda: "offerings" in daemon.web("/readyz?verbose").text, "the condition")
        shown = daemon.web("/readyz?verbose")
        assert shown.status == 200
        assert "nonsense" in shown.text
        assert speaking.list(since_revision=revision).revision == revision

        file.write_text(json.dumps([offer(1)]))
        daemon.send(signal.SIGHUP)
        eventually(lambda: len(ids(speaking)) == 2, "unused slots are gone, the used one stays")
        assert used in ids(speaking)
        eventually(lambda: daemon.web("/readyz?verbose").text == "ready\n", "the condition ends")
        speaking.delete(used)
        eventually(lambda: len(ids(speaking)) == 1, "the used one goes when it is empty")
        assert daemon.terminate() == 0


@pytest.mark.behaviour(91)
def test_a_taken_metrics_port_leaves_grpc_served_and_shows_as_a_condition(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with running(log, f"--metrics-addr={address}") as daemon, client(daemon) as speaking:
            assert len(speaking.list().machines) == 32
            eventually(lambda: "metrics-listener" in log.read_text(), "it is said")
            assert f"{address} is in use already" in log.read_text()
            assert daemon.terminate() == 0


def test_a_taken_grpc_port_is_a_clear_error_with_its_own_exit_code(
    log: Path, tmp_path: Path
) -> None:
    with running(log, "--addr=:0") as daemon:
        # Every interface is taken by the other one: no half of the address may be shared.
        for address in (f"127.0.0.1:{daemon.port}", f":{daemon.port}"):
            code, text = refused(f"--addr={address}", f"--state={tmp_path / 'other.db'}")
            assert code == 9
            assert f"{daemon.port} is in use already" in text
        with client(daemon) as speaking:
            assert len(speaking.list().machines) == 32


@pytest.mark.behaviour(90)
def test_an_address_without_a_host_is_reached_over_ipv4(log: Path) -> None:
    with running(log, "--addr=:0", "--metrics-addr=:0") as daemon, client(daemon) as speaking:
        assert len(speaking.list().machines) == 32  # the channel dials 127.0.0.1
        assert daemon.web("/healthz").text == "ok"


@pytest.mark.parametrize("form", ["json", "console"])
def test_one_line_says_that_it_serves_where_over_what_and_how_safely(log: Path, form: str) -> None:
    with running(log, f"--log-format={form}") as daemon:
        [line] = serving_lines(daemon)
        assert daemon.terminate() == 0
        assert len(serving_lines(daemon)) == 1
    if form == "json":
        said = json.loads(line)
        assert said["event"] == "serving CapacityProvider"
        assert said["address"] == daemon.address
        assert said["backend"] == "simulated"
        assert said["security"] == "insecure"
        for other in log.read_text().splitlines():
            json.loads(other)
    else:
        for word in (f"address={daemon.address}", "backend=simulated", "security=insecure"):
            assert word in line
        assert "\033" not in log.read_text()


@pytest.mark.behaviour(84)
@pytest.mark.parametrize("security", ["TLS", pytest.param("mTLS", marks=pytest.mark.slow)])
def test_with_certificates_the_line_says_so_and_plaintext_is_not_answered(
    log: Path, tmp_path: Path, security: str
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    flags = [f"--tls-cert={tmp_path / 'cert.pem'}", f"--tls-key={tmp_path / 'key.pem'}"]
    if security == "mTLS":
        flags.append(f"--tls-ca={tmp_path / 'ca.pem'}")
    with running(log, *flags, "--log-format=console") as daemon:
        [line] = serving_lines(daemon)
        assert f"security={security} " in line
        with client(daemon) as speaking, pytest.raises(grpc.RpcError) as plaintext:
            speaking.list()
        assert plaintext.value.code() is grpc.StatusCode.UNAVAILABLE
        trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        options = [("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(daemon.address, trusted, options) as channel:
            if security == "TLS":
                assert len(Client(channel).list().machines) == 32
            else:
                with pytest.raises(grpc.RpcError) as nameless:
                    Client(channel).list()
                assert nameless.value.code() is grpc.StatusCode.UNAVAILABLE


def test_without_a_choice_the_simulated_region_is_loudly_named(log: Path) -> None:
    base = ("--addr=127.0.0.1:0", "--metrics-addr=")
    with running(log, base=base):
        assert "SIMULATED REGION" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_before_it_serves_is_obeyed(log: Path, number: signal.Signals) -> None:
    with log.open("a") as stderr:
        popen = subprocess.Popen(
            [*COMMAND, "--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr="],
            stderr=stderr,
        )
    try:
        caught = Path(f"/proc/{popen.pid}/status")

        def takes_signals() -> bool:
            text = caught.read_text()
            mask = next(line for line in text.splitlines() if line.startswith("SigCgt"))
            return bool(int(mask.split()[1], 16) >> (number - 1) & 1)

        eventually(takes_signals, "it handles the signal")
        popen.send_signal(number)
        if number is signal.SIGHUP:
            eventually(lambda: "offerings applied" in log.read_text(), "it read its offers again")
            popen.terminate()
        assert popen.wait(10) == 0
    finally:
        popen.kill()
        popen.wait(10)
