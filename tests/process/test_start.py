"""What keeps the daemon from starting, what does not, and every way to give it a setting."""

import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from bigfleet_azure.daemon.options import AZURE_OPTIONS, OPTIONS, Option
from tests.daemon_settings.test_azure_settings import SAMPLES as AZURE_SAMPLES
from tests.support.process import BASE, COMMAND, client, refused, running

pytestmark = pytest.mark.process

PLAIN = ("--addr=127.0.0.1:0", "--metrics-addr=")


@pytest.mark.behaviour(87, 93)
def test_all_faults_of_the_settings_are_told_at_once_and_nothing_is_served(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("drain-timeout: never\nnonsense: 1\n")
    code, text = refused(
        "--seed-count=many",
        "--use-fake-backend",
        "--azure-backend=azure",
        "--tls-cert=/etc/cert.pem",
        "--colour=blue",
        f"--config={config}",
        f"--state={tmp_path / 'state.db'}",
        env={"BIGFLEET_AZURE_LOG_LEVEL": "loud"},
    )
    assert code == 2
    for part in (
        "--seed-count=many",
        "--use-fake-backend",
        "--azure-backend=azure",
        "--tls-cert=/etc/cert.pem",
        "--tls-key",
        "--colour",
        "drain-timeout: never",
        "nonsense",
        "BIGFLEET_AZURE_LOG_LEVEL=loud",
    ):
        assert part in text, part
    assert len([line for line in text.splitlines() if line.startswith("Error: ")]) == 7
    assert not (tmp_path / "state.db").exists()


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("flags", [("--azure-backend=azure",), ("--location=westeurope",)])
def test_the_azure_backend_is_refused_without_what_it_needs(flags: tuple[str, ...]) -> None:
    code, text = refused(*flags, base=PLAIN)
    assert code == 2
    for part in (*flags, "--subscription-id", "--resource-group", "--subnet-id"):
        assert part in text, part
    assert "--use-fake-backend" in text


@pytest.mark.behaviour(93)
def test_all_faults_of_an_offerings_file_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "offerings.json"
    good = '{"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 1}'
    file.write_text(
        f'[{good}, {{"vm_size": "Standard_D4s_v5", "count": 1}},'
        ' {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 1,'
        ' "capacity_type": "bare_metal", "colour": 1}]'
    )
    code, text = refused(f"--offerings={file}", f"--state={tmp_path / 'state.db'}")
    assert code == 2
    for part in (str(file), "zone", "capacity_type", "colour"):
        assert part in text, part
    assert not (tmp_path / "state.db").exists()
    file.write_text("[]")
    code, text = refused(f"--offerings={file}")
    assert code == 2
    assert str(file) in text


@pytest.mark.behaviour(81, 83, 93)
def test_a_state_file_that_is_not_ours_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state.db"

    def refuses(*parts: str) -> None:
        before = state.read_bytes()
        code, text = refused(f"--state={state}")
        assert code == 8, text
        for part in parts:
            assert part in text, text
        assert state.read_bytes() == before

    state.write_text('{"machines": {}}')
    refuses("JSON state file of the Go provider", "another path")
    state.write_bytes(b"\x7fELF, certainly")
    refuses("not a state file")
    state.unlink()
    connection = sqlite3.connect(state)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    refuses("another program")


@pytest.mark.behaviour(83, 93)
def test_a_state_file_in_use_or_from_the_future_is_refused(log: Path, state: Path) -> None:
    with running(log, f"--state={state}") as daemon:
        code, text = refused(f"--state={state}")
        assert code == 8
        assert "in use by another process" in text
        with client(daemon) as speaking:
            assert len(speaking.list().machines) == 32
        assert daemon.terminate() == 0
    connection = sqlite3.connect(state)
    connection.execute("PRAGMA user_version = 999")
    connection.commit()
    connection.close()
    code, text = refused(f"--state={state}")
    assert code == 8
    assert "newer version" in text


def test_a_damaged_ledger_of_the_region_ends_the_start_with_what_to_do(
    log: Path, state: Path
) -> None:
    with running(log, f"--state={state}") as daemon, client(daemon) as speaking:
        machine_id = speaking.list().machines[0].id
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        daemon.kill()
    ledger = Path(f"{state}.region")
    ledger.write_bytes(b"rubbish\n" + ledger.read_bytes())
    # The region is looked at after gRPC is open, so this one serves for a moment.
    ended = subprocess.run(
        [*COMMAND, *BASE, f"--state={state}"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 2
    assert f"ledger of the simulated region {ledger}, line 1" in ended.stderr
    assert "Traceback" not in ended.stderr


def written(option: Option) -> str:
    """A legal value other than the default."""
    samples = {
        "addr": "127.0.0.1:0",
        "metrics-addr": "127.0.0.1:0",
        "reflection": "false",
        "provider": "certify",
        "location": "westeurope",
        "azure-backend": "fake",
        "use-fake-backend": "true",
        "seed-count": "5",
        "zone-a": "westeurope-3",
        "zone-b": "westeurope-2",
        "create-timeout": "1h30m",
        "configure-timeout": "1.5h",
        "drain-timeout": "20m",
        "delete-timeout": "90s",
        "transition-timeout": "2m0.5s",
        "failed-dwell": "0",
        "leftovers": "report",
        "reconcile-interval": "0s",
        "price-refresh": "30m",
        "callback-url": "https://daemon.test:9443",
        "callback-addr": "127.0.0.1:0",
        "log-level": "debug",
        "log-format": "json",
        "state-key": "ab" * 32,
        "fake-latency": "1500us",
        "fake-faults": "true",
    }
    if option.name in samples:
        return samples[option.name]
    if option in AZURE_OPTIONS:
        return AZURE_SAMPLES[option.name][0]
    if option.name.startswith("fake-") and option.name not in ("fake-seed", "fake-quota"):
        return "0.0"
    return "7"


def settings(tmp_path: Path) -> dict[str, str]:
    chosen = {option.name: written(option) for option in OPTIONS}
    offerings = tmp_path / "offerings.json"
    offerings.write_text(
        '[{"vm_size": "Standard_D4s_v5", "zone": "westeurope-1", "count": 3}]', encoding="utf-8"
    )
    key = tmp_path / "key"
    key.write_text("cd" * 32)
    config = tmp_path / "settings.yaml"
    config.write_text("seed-count: 31\n")
    chosen |= {"offerings": str(offerings), "state": str(tmp_path / "s.db"), "config": str(config)}
    for name in ("tls-cert", "tls-key", "tls-ca", "state-key-file"):
        del chosen[name]
        chosen.pop(f"callback-{name}", None)
    chosen["callback-key-file"] = str(key)
    chosen["state-key-file"] = str(key)
    return chosen


FORMS = (
    lambda name, value: [f"--{name}={value}"],
    lambda name, value: [f"--{name}", value],
    lambda name, value: [f"-{name}={value}"],
    lambda name, value: [f"-{name}", value],
)


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2, 3))]
)
def test_every_flag_is_taken_in_the_forms_of_go(log: Path, tmp_path: Path, first: int) -> None:
    """Four daemons give each flag in all four forms; a boolean has the bare form as well."""
    chosen = settings(tmp_path)
    booleans = {option.name for option in OPTIONS if option.boolean}
    secret = {option.name for option in OPTIONS if option.env_only}
    flags: list[str] = []
    for number, (name, value) in enumerate(chosen.items(), start=first):
        if name in booleans:
            flags += [f"--{name}"] if value == "true" and number % 2 else [f"-{name}={value}"]
        elif name not in secret:
            flags += FORMS[number % len(FORMS)](name, value)
    with running(log, *flags, base=()) as daemon, client(daemon) as speaking:
        as_chosen(speaking.list().machines)
        assert daemon.web("/healthz").text == "ok"
    assert "error" not in log.read_text().lower()


def as_chosen(machines: object) -> None:
    found = {(m.host.provider, m.zone, m.id) for m in machines}  # type: ignore[attr-defined]
    assert len(found) == 3 + 8  # three offered, and the eight slots of --fake-faults
    assert {machine_id for _, _, machine_id in found if machine_id.startswith("faultcreate-")} == {
        f"faultcreate-{number}" for number in range(8)
    }
    assert any(machine_id.startswith("certify-westeurope-") for _, _, machine_id in found)


@pytest.mark.behaviour(90)
def test_every_setting_is_taken_from_the_environment_and_a_flag_goes_before_it(
    log: Path, tmp_path: Path
) -> None:
    chosen = settings(tmp_path)
    del chosen["state-key-file"]
    env = {option.env: chosen[option.name] for option in OPTIONS if option.name in chosen}
    env["BIGFLEET_AZURE_SEED_COUNTS"] = "1"
    env["BIGFLEET_AZURE_SERVICE_HOST"] = "10.0.0.1"
    with running(log, "--fake-faults", base=(), env=env) as daemon, client(daemon) as speaking:
        as_chosen(speaking.list().machines)
        text = log.read_text()
        assert "BIGFLEET_AZURE_SEED_COUNTS is no setting" in text
        assert "SERVICE_HOST" not in text
        assert env["BIGFLEET_AZURE_STATE_KEY"] not in text
    flags = ("--offerings=", "--fake-faults=false", "--seed-count=9")
    with running(log, *flags, base=(), env=env) as daemon, client(daemon) as speaking:
        assert len(speaking.list().machines) == 9


@pytest.mark.behaviour(90)
def test_a_configuration_file_stands_below_environment_and_flags(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("seed-count: 5\nprovider: from-file\nzone-a: eastus-7\n")
    env = {"BIGFLEET_AZURE_CONFIG": str(config), "BIGFLEET_AZURE_PROVIDER": "from-env"}
    with running(log, "--seed-count", "6", env=env) as daemon, client(daemon) as speaking:
        machines = speaking.list().machines
        assert len(machines) == 6
        assert {machine.zone for machine in machines} == {"eastus-7", "eastus-2"}
        assert all(machine.id.startswith("from-env-") for machine in machines)


METRICS = {
    "bigfleet_azure_api_calls_total": {"op", "outcome"},
    "bigfleet_azure_api_duration_seconds_count": {"op"},
    "bigfleet_azure_grpc_requests_total": {"method", "code"},
    "bigfleet_azure_grpc_request_duration_seconds_count": {"method"},
    "bigfleet_azure_panics_total": set(),
    "bigfleet_azure_reconcile_total": {"outcome"},
    "bigfleet_azure_spot_evictions_total": set(),
    "process_resident_memory_bytes": set(),
    "bigfleet_azure_machines": {"state"},
    "bigfleet_azure_operations_in_flight": {"kind"},
    "bigfleet_azure_oldest_operation_age_seconds": {"kind"},
    "bigfleet_azure_operation_duration_seconds_count": {"kind", "outcome"},
    "bigfleet_azure_fence_rejections_total": {"method"},
    "bigfleet_azure_store_commit_duration_seconds_count": set(),
    "bigfleet_azure_store_commit_group_size_count": set(),
    "bigfleet_azure_debts": set(),
    "bigfleet_azure_build_info": {"version", "python", "backend"},
}


@pytest.mark.behaviour(90)
def test_the_http_listener_answers_as_operators_expect(log: Path, state: Path) -> None:
    flags = ("--metrics-addr=127.0.0.1:0", "--reconcile-interval=50ms", f"--state={state}")
    with running(log, *flags) as daemon, client(daemon) as speaking:
        machine_id = speaking.list().machines[0].id
        speaking.create(machine_id)
        speaking.reaches(machine_id, "IDLE")
        assert daemon.web("/healthz").text == "ok"
        ready = daemon.web("/readyz")
        assert (ready.status, ready.text) == (200, "ready")
        assert daemon.web("/readyz?verbose").text == "ready\n"
        assert daemon.web("/readyz?verbose", accept="application/json").text == (
            '{"ready": true, "conditions": [], "notes": {}}'
        )
        for path in ("/", "/metric", "/internal/eviction", "/readyz/", "/%00", "/../etc/passwd"):
            assert daemon.web(path).status == 404, path
        page = daemon.web("/metrics")
        samples = re.findall(r"^(\w+)(?:\{(.*?)\})? \S+$", page.text, re.MULTILINE)
        found = {name: set(re.findall(r"(\w+)=", labels)) for name, labels in samples}
        for name, labels in METRICS.items():
            assert found.get(name) == labels, name
        assert 'grpc_requests_total{code="OK",method="Create"} 1.0' in page.text
        assert 'bigfleet_azure_machines{state="IDLE"} 1.0' in page.text
        assert 'bigfleet_azure_api_calls_total{op="CreateVM",outcome="success"} 1.0' in page.text
        # Label values are bounded sets: an id is none.
        assert machine_id not in page.text
