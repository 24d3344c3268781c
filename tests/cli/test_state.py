"""`bigfleet-azure state show|backup|verify`."""

import json
import re
import signal
import subprocess
import sys

import pytest

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import Mark, SideMark
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Facts, Offer, Offering
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.store import inspect
from bigfleet_azure.store.base import Snapshot

SNAPSHOT = Snapshot(
    incarnation="1f",
    head=9,
    records=(
        Record(slot=1, id="m-000", state=State.IDLE, change=3),
        Record(
            slot=2,
            id="m-001",
            state=State.CREATING,
            change=9,
            operation=Operation(number=9, kind=Kind.CREATE, accepted_at=0, deadline=480),
        ),
    ),
    marks=(SideMark("gone", Mark("s", 1, 1), 0.0),),
    offerings=(
        Offering(
            number=1,
            prefix="m",
            offer=Offer(
                vm_size="Standard_D4s_v5",
                zone="eastus-1",
                capacity_type=CapacityType.SPOT,
                count=4,
            ),
            facts=Facts(
                price_usd_per_hour=0.1, interruption_probability=0.1, allocatable={}, labels={}
            ),
        ),
    ),
    debts=(
        Debt(
            number=5,
            slot=1,
            machine_id="m-000",
            operation=4,
            host="/vm",
            reason="its create failed",
            since=60,
        ),
    ),
)


@pytest.fixture
def snapshot(monkeypatch):
    monkeypatch.setattr(inspect, "read_only_snapshot", lambda path: SNAPSHOT)


def test_show_counts_machines_and_lists_offerings_operations_and_debts(run, snapshot):
    result = run("state", "show", "state.db")
    assert result.exit_code == Exit.OK
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "incarnation: 1f",
        "newest change: 9",
        "fence marks beside machines: 1",
        "machines by state:",
        "CREATING: 1",
        "IDLE: 1",
        "",
        "offerings:",
        "PREFIX SIZE ZONE CAPACITY SLOTS",
        "m Standard_D4s_v5 eastus-1 SPOT 4",
        "",
        "operations:",
        "MACHINE OPERATION KIND ACCEPTED DEADLINE",
        "m-001 op-1f-9 create 1970-01-01T00:00:00+00:00 1970-01-01T00:08:00+00:00",
        "",
        "debts:",
        "MACHINE HOST REASON SINCE ATTEMPTS LAST ERROR",
        "m-000 /vm its create failed 1970-01-01T00:01:00+00:00 0 -",
    ]


def test_show_as_json_is_for_programs(run, snapshot):
    found = json.loads(run("state", "show", "state.db", "-o", "json").stdout)
    assert found["machines_by_state"] == {"CREATING": 1, "IDLE": 1}
    assert found["operations"][0]["operation"] == "op-1f-9"
    assert found["debts"][0]["host"] == "/vm"


@pytest.mark.parametrize("command", [["show"], ["verify"], ["backup"]])
def test_a_file_that_is_no_state_is_named_and_ends_with_its_own_code(run, tmp_path, command):
    for name, content in (("gone.db", None), ("text.db", "not a database, but a long text" * 99)):
        path = tmp_path / name
        if content:
            path.write_text(content)
        target = [str(tmp_path / "copy.db")] if command == ["backup"] else []
        result = run("state", *command, str(path), *target)
        assert result.exit_code == Exit.STATE_UNUSABLE
        assert name in result.stderr
        assert not (tmp_path / "copy.db").exists()


def test_verify_lists_every_problem(run, monkeypatch):
    monkeypatch.setattr(inspect, "verify", lambda path: ["page 3 is torn", "page 9 is torn"])
    result = run("state", "verify", "state.db")
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert result.stdout == ""
    assert [line.strip() for line in result.stderr.splitlines()] == [
        "Error: page 3 is torn",
        "page 9 is torn",
    ]


@pytest.fixture
def running(tmp_path):
    """A daemon with a state file; yields the file's path and the daemon's address."""
    path = tmp_path / "state.db"
    command = [
        *(sys.executable, "-m", "bigfleet_azure", "--use-fake-backend", "--metrics-addr="),
        *("--addr=127.0.0.1:0", f"--state={path}", "--log-format=json"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            address = re.search(r"127\.0\.0\.1:[1-9][0-9]*", line)
            if "serving CapacityProvider" in line and address:
                yield path, address[0]
                break
        else:
            pytest.fail("".join(seen))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@pytest.mark.process
def test_the_state_of_a_running_daemon_can_be_shown_verified_and_copied(run, running, tmp_path):
    path, address = running
    machine = run("machines", "list", "-o", "name", "--addr", address).stdout.split()[0]
    driven = run("machines", "create", machine, "--wait", "--addr", address)
    assert driven.exit_code == Exit.OK, driven.stderr
    copy = tmp_path / "copy.db"
    copied = run("state", "backup", str(path), str(copy))
    assert copied.exit_code == Exit.OK, copied.stderr
    for file in (path, copy):
        verified = run("state", "verify", str(file))
        assert verified.exit_code == Exit.OK, verified.stderr
        assert verified.stdout == f"{file} is sound\n"
        shown = json.loads(run("state", "show", str(file), "-o", "json").stdout)
        assert shown["machines_by_state"] == {"IDLE": 1}
        assert sum(offering["slots"] for offering in shown["offerings"]) == 32
    again = run("state", "backup", str(path), str(copy))
    assert again.exit_code == Exit.STATE_UNUSABLE
    assert "copy.db" in again.stderr
