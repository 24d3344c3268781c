"""`bigfleet-azure state import`: what of the Go provider's state is carried over, and what not."""

import json
import sqlite3
from contextlib import closing

import pytest

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.go_state import OldSlot, old_slot
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.store.files import Lock
from bigfleet_azure.store.inspect import read_only_snapshot, verify
from tests.support.process import client, running

SPOT = "azure-eastus/Spot/Standard_F8s_v2/eastus-1/000"
DEMAND = "azure-eastus/OnDemand/Standard_D4s_v5/eastus-2/011"
SPOT_HERE = "azure-eastus-spot-f8s-v2-1-000"
DEMAND_HERE = "azure-eastus-od-d4s-v5-2-011"
FENCES = {
    SPOT: {"shard-a": {"epoch": 3, "sequence": 41}, "shard-b": {"epoch": 1, "sequence": 7}},
    DEMAND: {"shard-a": {"epoch": 3, "sequence": 40}},
}
BOUND = {DEMAND: {"cluster": "prod", "shard_metadata": {"bigfleet.lucy.sh/assigned-group": "a\0b"}}}
GO_STATE = {
    "fences": FENCES,
    "bindings": BOUND,
    "idempotency": {f"{SPOT}|create": "op-1", f"{DEMAND}|create": "op-2"},
}


class Imports:
    """Runs `state import` on some content; `target` is the new state file."""

    def __init__(self, run, folder):
        self.run = run
        self.file = folder / "go.json"
        self.target = folder / "new.db"

    def __call__(self, content, *arguments):
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))
        return self.run("state", "import", str(self.file), f"--state={self.target}", *arguments)


@pytest.fixture
def imports(run, tmp_path):
    return Imports(run, tmp_path)


def kept(path):
    """The fence marks of a state file, by machine and shard."""
    assert verify(path) == []
    return {
        (side.machine_id, side.mark.shard_id): (side.mark.epoch, side.mark.sequence)
        for side in read_only_snapshot(path).marks
    }


def report(result):
    assert result.exit_code == Exit.OK, result.stderr
    return json.loads(result.stdout)


def test_each_mark_is_kept_under_its_old_id_and_under_the_id_of_the_slot_here(imports):
    result = imports(GO_STATE)
    assert result.exit_code == Exit.OK, result.stderr
    assert kept(imports.target) == {
        (SPOT, "shard-a"): (3, 41),
        (SPOT, "shard-b"): (1, 7),
        (DEMAND, "shard-a"): (3, 40),
        (SPOT_HERE, "shard-a"): (3, 41),
        (SPOT_HERE, "shard-b"): (1, 7),
        (DEMAND_HERE, "shard-a"): (3, 40),
    }
    assert "was made with 6 fence marks" in result.stderr


def test_nothing_but_marks_is_written(imports):
    imports(GO_STATE)
    snapshot = read_only_snapshot(imports.target)
    assert (snapshot.records, snapshot.offerings, snapshot.debts) == ((), (), ())
    assert not snapshot.inventoried
    assert snapshot.head == 0
    assert not imports.target.with_name("new.db.key").exists()


def test_bound_machines_are_listed_for_the_go_provider_to_drain(imports):
    result = imports(GO_STATE, "-o", "json")
    assert report(result) == {
        "fence_marks_read": 3,
        "fence_marks_under_old_ids": 3,
        "fence_marks_under_new_ids": 3,
        "idempotency_keys_ignored": 2,
        "other_keys_ignored": "",
        "bound_machines": [
            {
                "machine": DEMAND,
                "slot_here": DEMAND_HERE,
                "cluster": "prod",
                "host": "",
                "shard_metadata": {"bigfleet.lucy.sh/assigned-group": "a\0b"},
            }
        ],
        "marks_under_old_id_only": [],
    }
    assert "1 machines are bound by the Go provider and are not taken over" in result.stderr


def test_the_table_is_for_people(imports):
    lines = [" ".join(line.split()) for line in imports(GO_STATE).stdout.splitlines()]
    assert lines == [
        "fence marks read: 3",
        "fence marks under old ids: 3",
        "fence marks under new ids: 3",
        "idempotency keys ignored: 2",
        "other keys ignored: -",
        "",
        "bound_machines:",
        "MACHINE SLOT HERE CLUSTER HOST",
        f"{DEMAND} {DEMAND_HERE} prod -",
    ]


def test_a_dry_run_says_the_same_and_writes_nothing(imports):
    dry = imports(GO_STATE, "--dry-run", "-o", "json")
    assert not list(imports.target.parent.glob("new.db*"))
    assert "would be made with 6 fence marks" in dry.stderr
    assert report(dry) == report(imports(GO_STATE, "-o", "json"))


@pytest.mark.process
@pytest.mark.behaviour(28)
def test_a_daemon_on_the_new_state_refuses_stale_callers_and_takes_newer_ones(imports, tmp_path):
    imports({"fences": {SPOT.replace("azure-eastus/", "azure/"): FENCES[SPOT]}})
    old, new = SPOT.replace("azure-eastus/", "azure/"), SPOT_HERE
    with (
        running(tmp_path / "log", f"--state={imports.target}", "--location=eastus") as daemon,
        client(daemon) as calls,
    ):
        for machine, token in ((new, (3, 41)), (new, (2, 99)), (old, (3, 41))):
            with pytest.raises(Exception, match="FAILED_PRECONDITION"):
                stamped(calls, machine, *token)
        with pytest.raises(Exception, match="NOT_FOUND"):
            stamped(calls, old, 3, 42)
        assert stamped(calls, new, 3, 42).machine.id == new


def stamped(calls, machine, epoch, sequence):
    return calls.create(machine, shard_id="shard-a", shard_epoch=epoch, sequence_number=sequence)


@pytest.mark.parametrize(
    "fences",
    [
        FENCES,
        {
            "shard-a": {SPOT: FENCES[SPOT]["shard-a"], DEMAND: FENCES[DEMAND]["shard-a"]},
            "shard-b": {SPOT: FENCES[SPOT]["shard-b"]},
        },
        [
            {"machine_id": machine, "shard_id": shard, **token}
            for machine, shards in FENCES.items()
            for shard, token in shards.items()
        ],
        {
            machine: {
                shard: {"shardEpoch": str(token["epoch"]), "SequenceNumber": token["sequence"]}
                for shard, token in shards.items()
            }
            for machine, shards in FENCES.items()
        },
    ],
    ids=["by machine", "by shard", "as a list", "in other spellings"],
)
@pytest.mark.parametrize("name", ["fences", "FenceMarks", "fence-marks", "marks"])
def test_marks_are_understood_in_each_documented_shape(imports, name, fences):
    assert report(imports({name: fences}, "-o", "json"))["fence_marks_read"] == 3
    assert kept(imports.target)[DEMAND_HERE, "shard-a"] == (3, 40)
    assert kept(imports.target)[SPOT_HERE, "shard-b"] == (1, 7)


@pytest.mark.parametrize(
    "bindings",
    [
        {SPOT: {"cluster": "prod", "shardMetadata": {"k": "v"}, "host": {"ref": "/vm"}}},
        [{"machine_id": SPOT, "ClusterId": "prod", "metadata": {"k": "v"}, "vm": "/vm"}],
    ],
    ids=["by machine", "as a list"],
)
def test_bindings_are_understood_in_each_documented_shape(imports, bindings):
    [bound] = report(imports({"bindings": bindings}, "-o", "json"))["bound_machines"]
    assert bound == {
        "machine": SPOT,
        "slot_here": SPOT_HERE,
        "cluster": "prod",
        "host": "/vm",
        "shard_metadata": {"k": "v"},
    }


def test_a_binding_may_be_its_clusters_name_and_without_a_cluster_it_is_none(imports):
    found = report(imports({"bindings": {SPOT: "prod", DEMAND: {"cluster": ""}}}, "-o", "json"))
    assert [(each["machine"], each["cluster"]) for each in found["bound_machines"]] == [
        (SPOT, "prod")
    ]


def test_maps_that_were_never_made_are_empty(imports):
    found = report(imports('{"fences": null, "bindings": null, "idempotency": {}}', "-o", "json"))
    assert found["fence_marks_read"] == 0
    assert kept(imports.target) == {}


def test_the_newest_of_two_marks_of_one_pair_is_kept(imports):
    entry = {"machine_id": SPOT, "shard_id": "s"}
    tokens = [{"epoch": 2, "sequence": 1}, {"epoch": 1, "sequence": 9}, {"epoch": 2, "sequence": 0}]
    imports({"fences": [{**entry, **token} for token in tokens]})
    assert kept(imports.target)[SPOT, "s"] == (2, 1)


def test_numbers_of_64_bits_are_kept_as_they_are(imports):
    most, least = (1 << 63) - 1, -(1 << 63)
    imports({"fences": {SPOT: {"s": {"epoch": most, "sequence": least}}}})
    assert kept(imports.target)[SPOT_HERE, "s"] == (most, least)


def test_keys_that_are_not_understood_are_named(imports):
    found = report(imports({**GO_STATE, "version": 1, "next_operation": 3}, "-o", "json"))
    assert found["other_keys_ignored"] == "next_operation, version"


def test_slots_are_named_as_a_daemon_with_these_flags_names_them(imports):
    imports(GO_STATE, "--provider", "fleet", "--location", "East US")
    assert ("fleet-eastus-spot-f8s-v2-1-000", "shard-a") in kept(imports.target)


def test_marks_of_slots_that_are_not_offered_stay_under_their_old_ids(imports, tmp_path):
    offerings = tmp_path / "offerings.json"
    offered = {"vm_size": "Standard_D4s_v5", "zone": "eastus-2"}
    offerings.write_text(json.dumps([{**offered, "count": 11}]))
    found = report(imports(GO_STATE, "--offerings", str(offerings), "-o", "json"))
    assert found["marks_under_old_id_only"] == [
        {"machine": DEMAND, "why": "only 11 such slots are offered"},
        {"machine": SPOT, "why": "its size, zone and capacity type are not offered"},
    ]
    assert set(kept(imports.target)) == {
        (machine, shard) for machine, shards in FENCES.items() for shard in shards
    }


@pytest.mark.parametrize("more", [{"labels": {"team": "search"}}, {"os_disk_gib": 100}, {}])
def test_marks_of_slots_that_cannot_be_told_apart_stay_under_their_old_ids(imports, tmp_path, more):
    offerings = tmp_path / "offerings.json"
    offered = {"vm_size": "Standard_D4s_v5", "zone": "eastus-2", "count": 20}
    spot = {"vm_size": "Standard_F8s_v2", "zone": "eastus-1", "capacity_type": "spot", "count": 1}
    offerings.write_text(json.dumps([offered, spot, {**offered, **more}]))
    found = report(imports(GO_STATE, "--offerings", str(offerings), "-o", "json"))
    assert found["marks_under_old_id_only"] == [
        {
            "machine": DEMAND,
            "why": "several entries of the offerings file share its size and zone",
        }
    ]
    assert (SPOT_HERE, "shard-a") in kept(imports.target)


def test_ids_of_no_machine_keep_their_marks_and_overlong_ones_are_named(imports):
    token = {"s": {"epoch": 1, "sequence": 1}}
    found = report(
        imports({"fences": {SPOT: token, "ghost": token, "x" * 254: token}}, "-o", "json")
    )
    assert [each["machine"][:5] for each in found["marks_under_old_id_only"]] == ["ghost", "xxxxx"]
    assert "253 bytes" in found["marks_under_old_id_only"][1]["why"]
    assert set(kept(imports.target)) == {("ghost", "s"), (SPOT, "s"), (SPOT_HERE, "s")}


def test_all_faults_are_told_at_once_with_what_was_expected(imports):
    result = imports(
        {
            "fences": {
                SPOT: {"a": {"epoch": "1x", "sequence": 1}, "b": {"epoch": 1 << 63}, "c": 7},
                DEMAND: [],
            },
            "bindings": {SPOT: {"cluster": 5}, DEMAND: {"cluster": "c", "metadata": {"k": 1}}},
            "operations": "none",
        }
    )
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert not imports.target.exists()
    lines = [line.strip().partition("go.json: ")[2] for line in result.stderr.splitlines()]
    assert lines == [
        f'fences["{DEMAND}"]: must be an object',
        f'fences["{SPOT}"]["a"].epoch: "1x" is no whole number of 64 bits',
        f'fences["{SPOT}"]["b"].epoch: 9223372036854775808 is no whole number of 64 bits',
        f'fences["{SPOT}"]["b"].sequence: is missing or no whole number of 64 bits',
        f'fences["{SPOT}"]["c"]: must be an object with epoch and sequence',
        f'bindings["{SPOT}"].cluster: must be a string',
        f'bindings["{DEMAND}"].metadata: must be an object of strings',
        "operations: must be an object or a list",
        "",
    ]
    assert "expected is a JSON object with fence marks and bindings" in result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"fences": {}, "fences": {}}', 'the key "fences" stands twice'),
        ("[]", "is no JSON object"),
        ("{}", "holds neither fence marks nor bindings nor idempotency keys"),
        ('{"version": 3}', "holds neither fence marks"),
        ('{"fences": {}, "marks": {}}', "has fences and marks, which mean the same"),
        ('{"fences": {"a": {"b": {"epoch": 1, "sequence": 1}}}}', "must stand either on its first"),
        (json.dumps({"fences": {SPOT: {DEMAND: {}}}}), "must stand either on its first"),
        ('{"fences": [{"shard": "s", "epoch": 1, "sequence": 1}]}', "fences[0]: names no machine"),
        ('{"fences": [5]}', "fences[0]: must be an object with epoch and sequence"),
        ('{"bindings": [{"cluster": "c"}]}', "bindings[0]: names no machine"),
        (json.dumps({"fences": {SPOT: {"\ud800": {"epoch": 1, "sequence": 1}}}}), "no valid Unic"),
        (json.dumps({"fences": {SPOT: {"s": {"epoch": True, "sequence": 1}}}}), "true is no whole"),
    ],
)
def test_other_shapes_are_refused_with_their_reason(imports, content, told):
    result = imports(content)
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert "go.json" in result.stderr
    assert told in result.stderr
    assert not imports.target.exists()


def test_a_file_that_is_not_there_is_named(run, tmp_path):
    result = run("state", "import", str(tmp_path / "gone"), "--state", str(tmp_path / "new.db"))
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert "gone: cannot be read: No such file or directory" in result.stderr


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize("content", [b"", b"anything", b"{}"])
def test_a_file_that_exists_is_left_alone(imports, content, dry):
    imports.target.write_bytes(content)
    result = imports(GO_STATE, *dry)
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert "new.db exists, and only a new state file is made" in result.stderr
    assert imports.target.read_bytes() == content


def test_a_state_that_a_daemon_uses_is_left_alone(imports):
    imports(GO_STATE)
    before = kept(imports.target)
    lock = Lock(imports.target.resolve())
    lock.acquire()
    result = imports({"fences": {}})
    lock.release()
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert "is in use by another process" in result.stderr
    assert kept(imports.target) == before


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_key_of_an_earlier_state_beside_it_is_asked_about(imports, dry):
    imports.target.with_name("new.db.key").write_text("k")
    result = imports(GO_STATE, *dry)
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert "shows that it was in use" in result.stderr


def test_offerings_that_are_faulty_are_refused_with_their_own_code(imports, tmp_path):
    offerings = tmp_path / "offerings.json"
    offerings.write_text('[{"zone": "eastus-1"}]')
    result = imports(GO_STATE, "--offerings", str(offerings))
    assert result.exit_code == Exit.USAGE
    assert "[0].vm_size: is required" in result.stderr
    assert not imports.target.exists()


def test_a_location_that_is_none_is_refused(imports):
    result = imports(GO_STATE, "--location", "nowhere!")
    assert result.exit_code == Exit.USAGE
    assert "--location" in result.stderr


def test_a_fault_while_it_is_written_leaves_no_state_behind(imports, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("disk is full")

    monkeypatch.setattr("bigfleet_azure.store.rows.first_marks", full)
    result = imports(GO_STATE)
    assert result.exit_code == Exit.STATE_UNUSABLE
    assert not imports.target.exists()
    monkeypatch.undo()
    assert imports(GO_STATE).exit_code == Exit.OK


def test_the_new_file_is_readable_by_its_owner_alone(imports):
    imports(GO_STATE)
    assert imports.target.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(imports.target)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    "other",
    [
        "azure-eastus-spot-f8s-v2-1-000",
        "azure/Spot/Standard_F8s_v2/eastus-1/00",
        "azure/Spot/Standard_F8s_v2/eastus-1/0001",
        "azure/spot/Standard_F8s_v2/eastus-1/000",
        "/Spot/Standard_F8s_v2/eastus-1/000",
        "azure/Spot/Standard_F8s_v2/000",
        "azure/Spot/Standard_F8s_v2/eastus-1/\u0660\u0660\u0660",
    ],
)
def test_only_the_go_providers_form_is_one_of_its_ids(other):
    assert old_slot(other) is None
    assert old_slot("a/b/Reserved/Standard_F8s_v2/eastus-1/1234") == OldSlot(
        provider="a/b",
        capacity_type=CapacityType.RESERVED,
        vm_size="Standard_F8s_v2",
        zone="eastus-1",
        index=1234,
    )
