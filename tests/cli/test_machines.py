"""`bigfleet-azure machines …` against a scripted daemon."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading

import grpc
import pytest
import trustme
import yaml

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.cli import machines as module
from bigfleet_azure.cli.exits import Exit
from tests.cli.conftest import FakeDaemon, serve

A, B = "azure-eastus-od-d4s-v5-1-000", "azure-eastus-od-d4s-v5-1-001"


# Looking


def test_list_prints_aligned_columns_in_the_order_of_ids(machines, fake):
    fake.add(B, "CONFIGURED", cluster="blue")
    fake.add(A)
    result = machines("list")
    assert result.exit_code == Exit.OK
    assert result.stdout.splitlines() == [
        f"ID{' ' * 28}STATE        SIZE             ZONE      CAPACITY   USD/HOUR  CLUSTER",
        f"{A}  SPECULATIVE  Standard_D4s_v5  eastus-1  ON_DEMAND  0.1920    -",
        f"{B}  CONFIGURED   Standard_D4s_v5  eastus-1  ON_DEMAND  0.1920    blue",
    ]


def test_list_shows_errors_only_when_there_are_some(machines, fake):
    fake.add(A, "FAILED", last_error="no capacity\x1b[31m")
    fake.add(B)
    first, second = machines("list").stdout.splitlines()[1:]
    assert first.endswith(r"no capacity\x1b[31m")
    assert second.split()[-2:] == ["-", "-"]


def test_list_as_names_is_one_id_a_line(machines, fake):
    fake.add(A)
    fake.add(B)
    assert machines("list", "-o", "name").stdout == f"{A}\n{B}\n"


def test_an_empty_fleet_is_an_empty_list(machines):
    assert machines("list", "-o", "name").stdout == ""
    assert json.loads(machines("list", "-o", "json").stdout) == []
    assert machines("list").stdout.startswith("ID")


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_carry_every_field_in_plain_words(machines, fake, output, parse):
    fake.add(
        A,
        "CONFIGURED",
        cluster="blue",
        host=pb.HostRef(provider="azure", ref="/vm"),
        shard_metadata={"k": "a\0b", "é": ""},
        labels={"x": "y"},
        resources=pb.Resources(resources={"cpu": "1"}),
    )
    (found,) = parse(machines("list", "--output", output).stdout)
    assert found == {
        "id": A,
        "state": "CONFIGURED",
        "instance_type": "Standard_D4s_v5",
        "zone": "eastus-1",
        "capacity_type": "ON_DEMAND",
        "price_per_hour": 0.192,
        "interruption_probability": 0.0,
        "host": {"provider": "azure", "ref": "/vm"},
        "cluster": "blue",
        "shard_metadata": {"k": "a\0b", "é": ""},
        "last_error": "",
        "resources": {"cpu": "1"},
        "allocatable": {},
        "labels": {"x": "y"},
    }
    assert parse(machines("get", A, "-o", output).stdout) == found


def test_list_takes_states_separated_by_commas_or_repeated(machines, fake):
    fake.add(A, "IDLE")
    fake.add(B)
    result = machines("list", "--state", "idle,Configured", "--state", "idle", "-o", "name")
    assert result.stdout == f"{A}\n"
    assert list(fake.requests[0].states) == [pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_CONFIGURED]


def test_an_unknown_state_is_a_usage_fault_that_names_the_known_ones(machines):
    result = machines("list", "--state", "idel")
    assert result.exit_code == Exit.USAGE
    assert "'idel' is no state; known are speculative, creating, idle" in result.stderr


def test_get_shows_everything_about_one_machine(machines, fake):
    fake.add(A, "CONFIGURED", cluster="blue", shard_metadata={"b": "2", "a": "1\x07"})
    lines = machines("get", A).stdout.splitlines()
    assert lines[:2] == [
        f"id:                       {A}",
        "state:                    CONFIGURED",
    ]
    assert "host:                     -" in lines
    place = lines.index("shard metadata:")
    assert lines[place + 1 : place + 3] == [r"  a: 1\x07", "  b: 2"]


def test_states_and_capacity_types_this_program_does_not_know_are_shown_as_numbers(machines, fake):
    fake.add(A).state = 77
    fake.machines[A].capacity_type = 1
    (found,) = json.loads(machines("list", "-o", "json").stdout)
    assert (found["state"], found["capacity_type"]) == ("77", "1")


# Driving


def test_a_mutation_answers_with_the_state_and_the_operation(machines, fake):
    fake.add(A)
    assert machines("create", A).stdout == f"{A} is CREATING (operation op-1)\n"
    assert machines("create", A, "-o", "name").stdout == f"{A}\n"
    found = json.loads(machines("create", A, "-o", "json").stdout)
    assert (found["operation_id"], found["machine"]["state"]) == ("op-1", "CREATING")


def test_every_mutation_carries_the_token(machines, fake):
    fake.add(A)
    token = ("--shard", "s-1", "--epoch", "7", "--sequence", "-9")
    for command in (
        ("create", A),
        ("configure", A, "--cluster", "c"),
        ("drain", A),
        ("delete", A),
    ):
        assert machines(*command, *token).exit_code == Exit.OK
    found = [(r.shard_id, r.shard_epoch, r.sequence_number) for r in fake.requests]
    assert found == [("s-1", 7, -9)] * 4


def test_without_token_flags_no_token_is_sent(machines, fake):
    fake.add(A)
    machines("create", A)
    assert fake.requests == [pb.CreateRequest(machine_id=A)]


def test_a_token_beyond_64_bits_is_a_usage_fault(machines):
    result = machines("create", A, "--epoch", str(2**63))
    assert result.exit_code == Exit.USAGE
    assert "does not fit 64 bits" in result.stderr


def test_configure_sends_cluster_metadata_and_the_blob_of_a_file(machines, fake, tmp_path):
    fake.add(A)
    blob = tmp_path / "blob"
    blob.write_bytes(b"\x00\xffjoin")
    result = machines(
        "configure",
        A,
        "--cluster=blue",
        "--blob-file",
        str(blob),
        "--metadata=a=1=2",
        "--metadata",
        "b=",
    )
    assert result.exit_code == Exit.OK
    assert fake.requests == [
        pb.ConfigureRequest(
            machine_id=A,
            cluster_id="blue",
            bootstrap_blob=b"\x00\xffjoin",
            shard_metadata={"a": "1=2", "b": ""},
        )
    ]


def test_configure_takes_the_blob_from_standard_input(machines, fake):
    fake.add(A)
    machines("configure", A, "--cluster=blue", "--blob-file=-", stdin=b"join")
    assert fake.requests[0].bootstrap_blob == b"join"


def test_configure_without_a_cluster_and_bad_metadata_are_usage_faults(machines, fake):
    assert machines("configure", A).exit_code == Exit.USAGE
    result = machines("configure", A, "--cluster=c", "--metadata=novalue")
    assert result.exit_code == Exit.USAGE
    assert "'novalue' is not KEY=VALUE" in result.stderr
    assert fake.requests == []


def test_drain_takes_its_grace_as_a_duration_of_whole_seconds(machines, fake):
    fake.add(A)
    machines("drain", A)
    machines("drain", A, "--grace", "2m")
    machines("drain", A, "--grace=0")
    assert [request.grace_period_seconds for request in fake.requests] == [30, 120, 0]
    for bad, why in (("30", "30s, 30m or 30h"), ("-1s", "negative"), ("1500ms", "whole seconds")):
        result = machines("drain", A, f"--grace={bad}")
        assert result.exit_code == Exit.USAGE
        assert why in result.stderr


# Waiting


def test_wait_follows_the_operation_to_its_goal(machines, fake):
    fake.add(A)
    fake.will_be(A, "CREATING", "IDLE")
    result = machines("create", A, "--wait")
    assert result.exit_code == Exit.OK
    assert result.stdout == f"{A} is IDLE (operation op-1)\n"
    assert result.stderr == f"create {A}: CREATING\n"


def test_wait_prints_the_machine_as_it_is_in_the_end(machines, fake):
    fake.add(A)
    fake.will_be(A, "IDLE")
    found = json.loads(machines("drain", A, "--wait", "-o", "json").stdout)
    assert found["machine"]["state"] == "IDLE"


def test_wait_ends_with_the_reason_when_the_machine_fails(machines, fake):
    fake.add(A)
    fake.will_be(A, "FAILED", last_error="no capacity in eastus-1")
    result = machines("create", A, "--wait")
    assert result.exit_code == Exit.FAILED
    assert f"create {A}: {A} is FAILED: no capacity in eastus-1" in result.stderr
    assert result.stdout == ""


def test_wait_takes_a_machine_that_was_taken_further_as_done(machines, fake):
    fake.add(A)
    fake.will_be(A, "CONFIGURING")
    assert machines("create", A, "--wait").stdout.startswith(f"{A} is CONFIGURING")


def test_wait_takes_a_vanished_id_as_failed(machines, fake):
    fake.add(A)
    original = fake._mutate

    def accept_and_forget(*arguments):
        ack = original(*arguments)
        del fake.machines[A]
        return ack

    fake._mutate = accept_and_forget
    result = machines("create", A, "--wait")
    assert result.exit_code == Exit.FAILED
    assert "offered again under another id" in result.stderr


def test_wait_gives_up_after_its_timeout_and_says_that_the_operation_goes_on(machines, fake):
    fake.add(A)
    result = machines("create", A, "--wait", "--timeout", "50ms")
    assert result.exit_code == Exit.TIMED_OUT
    assert "still CREATING after 50ms; the operation goes on" in result.stderr


def test_wait_outlives_a_daemon_that_is_away_for_a_while(machines, fake):
    fake.add(A)
    server = fake.server
    original = fake._mutate

    def accept_and_stop(*arguments):
        threading.Thread(target=lambda: server.stop(0.05)).start()
        return original(*arguments)

    fake._mutate = accept_and_stop
    result = machines("create", A, "--wait", "--timeout", "1s")
    assert result.exit_code == Exit.TIMED_OUT
    assert f"create {A}: the daemon does not answer, asking again\n" in result.stderr


def test_ctrl_c_while_waiting_leaves_the_operation_running(machines, fake, monkeypatch):
    fake.add(A)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "wait_for", interrupted)
    result = machines("create", A, "--wait")
    assert result.exit_code == Exit.INTERRUPTED
    assert "it goes on" in result.stderr


# Watching


def test_watch_prints_changes_and_outlives_a_daemon_that_is_away(machines, fake, monkeypatch):
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)
    fake.add(A)
    fake.deltas = [
        [fake.add(A, "CONFIGURING", cluster="blue")],
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNAVAILABLE,
        [fake.add(A, "FAILED", cluster="blue", last_error="no capacity")],
        grpc.StatusCode.PERMISSION_DENIED,
    ]
    result = machines("watch")
    assert result.exit_code == Exit.REFUSED
    assert [line.split("  ", 1)[1] for line in result.stdout.splitlines()] == [
        f"{A}  CONFIGURING  cluster blue",
        f"{A}  FAILED  no capacity",
    ]
    assert "watching 1 machines of" in result.stderr
    assert result.stderr.count("asking again every second") == 1
    cursors = [request.since_revision for request in fake.requests]
    assert cursors == [b"", b"first", b"next", b"next", b"next", b"next"]


def test_watch_as_json_is_one_object_a_line(machines, fake, monkeypatch):
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)
    changes = [fake.add(A, "IDLE"), fake.add(B, "FAILED", last_error="x")]
    fake.deltas = [changes, grpc.StatusCode.PERMISSION_DENIED]
    lines = machines("watch", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["IDLE", "FAILED"]


@pytest.mark.process
def test_watch_ends_with_ctrl_c_as_a_success(fake):
    command = [sys.executable, "-m", "bigfleet_azure", "machines", "watch", "--addr", fake.address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert fake.asked.wait(30)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == Exit.OK
    assert "Traceback" not in stderr


# Refusals and trouble


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_trouble(fake):
    for number in range(2000):
        fake.add(f"m-{number}")
    command = [sys.executable, "-m", "bigfleet_azure", "machines", "list", "--addr", fake.address]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (Exit.OK, "")


@pytest.mark.process
def test_ctrl_c_ends_a_call_with_its_own_code(fake):
    fake.hold = threading.Event()
    command = [sys.executable, "-m", "bigfleet_azure", "machines", "list", "--addr", fake.address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert fake.called.wait(30)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    fake.hold.set()
    assert process.returncode == Exit.INTERRUPTED
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (("NOT_FOUND", "no machine 'x'"), (Exit.NOT_FOUND, "machines list -o name")),
        (("FAILED_PRECONDITION", "create of x: stale"), (Exit.REFUSED, "--epoch or --sequence")),
        (("ABORTED", "create of x needs state IDLE"), (Exit.REFUSED, f"machines get {A}")),
        (("PERMISSION_DENIED", "not you"), (Exit.REFUSED, "--tls-cert names the shard")),
        (("INVALID_ARGUMENT", "too long"), (Exit.REFUSED, "change the arguments")),
        (("UNIMPLEMENTED", ""), (Exit.REFUSED, "is no capacity provider")),
        (("INTERNAL", "a bug"), (Exit.REFUSED, "answered INTERNAL; its log")),
        (("UNAVAILABLE", "create of x: disk full"), (Exit.REFUSED, "answered UNAVAILABLE")),
        (("DEADLINE_EXCEEDED", ""), (Exit.UNREACHABLE, "did not answer in time")),
    ],
)
def test_a_refusal_is_one_line_with_machine_reason_advice_and_exit_code(
    machines, fake, refusal, outcome
):
    code, details = refusal
    exit_code, advice = outcome
    fake.add(A)
    fake.refusal = (grpc.StatusCode[code], details)
    result = machines("create", A)
    assert result.exit_code == exit_code
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: create ")
    assert details in result.stderr
    assert advice in result.stderr


def test_a_daemon_that_is_not_there_is_one_line_with_the_address(run, unused_port):
    result = run("machines", "list", "--addr", f"127.0.0.1:{unused_port}")
    assert result.exit_code == Exit.UNREACHABLE
    assert f"no answer from 127.0.0.1:{unused_port}; is the daemon running there" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture
def unused_port():
    daemon = FakeDaemon()
    server, port = serve(daemon)
    server.stop(None).wait()
    return port


def test_the_address_can_come_from_the_environment_or_be_a_bare_port(run, fake):
    fake.add(A)
    result = run("machines", "list", "-o", "name", env={"BIGFLEET_AZURE_SERVER": fake.address})
    assert result.stdout == f"{A}\n"
    assert run("machines", "list", "-o", "name", "--addr", f":{fake.port}").stdout == f"{A}\n"


# TLS


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def secure(authority):
    """A scripted daemon under mutual TLS."""
    certificate = authority.issue_cert("localhost")
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    credentials = grpc.ssl_server_credentials(
        [(certificate.private_key_pem.bytes(), chain)],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    daemon = FakeDaemon()
    daemon.add(A)
    server, daemon.port = serve(daemon, credentials)
    yield daemon
    server.stop(None).wait()


@pytest.fixture
def pems(authority, tmp_path):
    """CA, client certificate and key as files."""
    mine = authority.issue_cert("bigfleet-client")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    return {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}


def test_mutual_tls_takes_a_certificate_a_key_and_a_ca(run, secure, pems):
    flags = [f"--tls-{name}={path}" for name, path in pems.items()]
    address = f"--addr=localhost:{secure.port}"
    assert run("machines", "list", "-o", "name", address, *flags).stdout == f"{A}\n"
    refused = run("machines", "list", address, *flags, "--tls-server-name=other.example")
    assert refused.exit_code == Exit.UNREACHABLE
    assert "check the --tls-… flags" in refused.stderr


def test_another_name_can_be_expected_of_the_certificate(run, secure, pems):
    flags = [f"--tls-{name}={path}" for name, path in pems.items()]
    result = run(
        "machines",
        "list",
        "-o",
        "name",
        f"--addr=localhost:{secure.port}",
        "--tls-server-name=localhost",
        *flags,
    )
    assert result.stdout == f"{A}\n"


def test_a_client_without_tls_is_told_that_tls_may_be_wanted(run, secure):
    result = run("machines", "list", f"--addr=localhost:{secure.port}")
    assert result.exit_code == Exit.UNREACHABLE
    assert "TLS with --tls-ca" in result.stderr


@pytest.mark.parametrize("name", ["cert", "key"])
def test_half_of_a_client_certificate_is_a_usage_fault(run, pems, name):
    result = run("machines", "list", f"--tls-{name}={pems[name]}")
    assert result.exit_code == Exit.USAGE
    assert "--tls-cert and --tls-key are given together" in result.stderr


def test_a_tls_file_that_is_not_there_is_a_usage_fault(run):
    result = run("machines", "list", "--tls-ca=/gone.pem")
    assert result.exit_code == Exit.USAGE
    assert "gone.pem" in result.stderr


# On a terminal


def on_a_terminal(*arguments, env=()):
    """Run the program on a terminal of its own; returns all it wrote there."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "bigfleet_azure", *arguments]
    environment = {**os.environ, "TERM": "xterm", **dict(env)}
    environment.pop("NO_COLOR", None)
    environment.update(env)
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        written = b""
        # The end of the other side is an error on Linux.
        with contextlib.suppress(OSError):
            while part := os.read(leader, 65536):
                written += part
    os.close(leader)
    return process.returncode, written.decode()


@pytest.mark.process
def test_on_a_terminal_states_are_coloured_unless_no_color_is_set(fake):
    fake.add(A, "IDLE")
    arguments = ("machines", "list", "--addr", fake.address)
    _, plain = on_a_terminal(*arguments, env={"NO_COLOR": "1"})
    assert "\x1b[" not in plain
    _, coloured = on_a_terminal(*arguments)
    assert "\x1b[36mIDLE" in coloured


@pytest.mark.process
def test_on_a_terminal_waiting_shows_a_live_line(fake):
    fake.add(A)
    fake.will_be(A, "CREATING", "CREATING", "IDLE")
    code, written = on_a_terminal("machines", "create", A, "--wait", "--addr", fake.address)
    assert code == Exit.OK
    assert f"create {A}: CREATING, 0 s" in written
    assert f"{A} is " in written.splitlines()[-1]
