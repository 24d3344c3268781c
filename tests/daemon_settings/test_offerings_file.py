"""The offerings file: what is accepted, what is refused, and where it says the fault is."""

import json
import subprocess
import sys

import pytest

from bigfleet_azure.backends.simulated.backend import facts
from bigfleet_azure.daemon.offerings_file import OfferingsError, load
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import FORBIDDEN_LABELS, MAX_SLOTS_PER_OFFERING, Offer

PLAIN = {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 3}


@pytest.fixture
def written(tmp_path):
    """Writes a file and loads it."""

    def write(content):
        path = tmp_path / "offerings.json"
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, facts)

    return write


@pytest.fixture
def faults_of(written, tmp_path):
    """Faults of a file, without the file's name, which each must begin with."""

    def faults(content):
        with pytest.raises(OfferingsError) as caught:
            written(content)
        prefix = f"{tmp_path / 'offerings.json'}: "
        assert all(fault.startswith(prefix) for fault in caught.value.faults)
        return [fault.removeprefix(prefix) for fault in caught.value.faults]

    return faults


@pytest.mark.behaviour(90)
def test_a_full_entry_becomes_an_offer(written):
    entry = {
        **PLAIN,
        "capacity_type": "spot",
        "resources": {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
        "labels": {"team": "a", "example.com/tier": ""},
    }
    offers, warnings = written([entry])
    assert warnings == []
    assert offers == [
        Offer(
            vm_size="Standard_D4s_v5",
            zone="eastus-1",
            capacity_type=CapacityType.SPOT,
            count=3,
            resources={"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
            labels={"team": "a", "example.com/tier": ""},
        )
    ]


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    ("text", "capacity"),
    [
        ("on_demand", CapacityType.ON_DEMAND),
        ("on-demand", CapacityType.ON_DEMAND),
        ("OnDemand", CapacityType.ON_DEMAND),
        ("", CapacityType.ON_DEMAND),
        (None, CapacityType.ON_DEMAND),
        ("SPOT", CapacityType.SPOT),
        ("Reserved", CapacityType.RESERVED),
    ],
)
def test_a_capacity_type_has_the_spellings_of_the_go_provider(written, text, capacity):
    offers, _ = written([{**PLAIN, "capacity_type": text}])
    assert offers[0].capacity_type is capacity


def test_an_absent_capacity_type_is_on_demand(written):
    offers, _ = written([PLAIN])
    assert offers[0].capacity_type is CapacityType.ON_DEMAND


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("text", ["bare_metal", "bare-metal", "metal", "preemptible", "spot "])
def test_other_capacity_types_are_refused(faults_of, text):
    assert faults_of([{**PLAIN, "capacity_type": text}]) == [
        f"[0].capacity_type: {text!r} is unknown; write on_demand, spot or reserved"
    ]


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("content", ["[]", "{}", "null", '"a"', "3"])
def test_anything_but_a_non_empty_array_is_refused(faults_of, content):
    assert faults_of(content) == ["must be a non-empty JSON array of offerings"]


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("content", ["", "[{]", "[" * 100_000, b"[\xff]"])
def test_what_is_not_json_is_refused(faults_of, content):
    (fault,) = faults_of(content)
    assert fault.startswith("is not JSON: ")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(OfferingsError, match=r"gone\.json: cannot be read: No such file"):
        load(tmp_path / "gone.json", facts)


@pytest.mark.behaviour(93)
def test_every_fault_is_reported_at_once_with_its_path(faults_of):
    content = """[
      {"vm_size": "Standard_D4s_v5", "zone": "eastus-1", "count": 1},
      {"vm_size": "", "zone": 7, "capacity_type": "metal", "count": "3",
       "resources": {"cpu": 1, "memory": "0", "nvidia.com/gpu": "many", "Bad_/x": "1"},
       "labels": {"-x": "y", "ok": "not ok", "fine": 5},
       "lables": {}},
      5,
      {"zone": "z", "zone": "y", "count": -1, "resources": []}
    ]"""
    name = (
        "is not 1 to 63 letters, digits, '-', '_' and '.', starting and ending with "
        "a letter or digit"
    )
    assert faults_of(content) == [
        "[3].zone: stands there more than once",
        f"[1].vm_size: '' {name}",
        "[1].zone: must be a string in quotes",
        "[1].capacity_type: 'metal' is unknown; write on_demand, spot or reserved",
        "[1].count: must be a whole number without quotes",
        "[1].resources.cpu: must be a string in quotes",
        "[1].resources.memory: '0' must be more than 0",
        '[1].resources["nvidia.com/gpu"]: '
        "'many' is not a Kubernetes quantity such as 500m, 4 or 16Gi",
        '[1].resources["Bad_/x"]: '
        "'Bad_/x' has a prefix that is not a DNS name such as example.com",
        f"[1].labels[\"-x\"]: '-x' {name}",
        f"[1].labels.ok: 'not ok' {name}",
        "[1].labels.fine: must be a string in quotes",
        "[1].lables: is not a known key; did you mean labels?",
        "[2]: must be an object with the keys of an offering",
        "[3].vm_size: is required",
        "[3].count: must be 0 or more",
        "[3].resources: must be an object of strings",
    ]


def test_a_key_that_resembles_none_is_told_all_that_there_are(faults_of):
    (fault,) = faults_of([{**PLAIN, "xyzzy": 1}])
    assert fault.startswith("[0].xyzzy: is not a known key; known are vm_size, zone, ")
    assert fault.endswith(", boot_diagnostics")


@pytest.mark.parametrize("count", [1.0, True, "1", None, 1e3])
def test_a_count_is_an_integer(faults_of, count):
    assert faults_of([{**PLAIN, "count": count}]) == [
        "[0].count: must be a whole number without quotes"
    ]


def test_vm_size_zone_and_count_are_required(faults_of):
    assert faults_of([{}]) == [
        "[0].vm_size: is required",
        "[0].zone: is required",
        "[0].count: is required",
    ]


def test_a_key_given_twice_is_refused_wherever_it_stands(faults_of):
    content = """[{"vm_size": "Standard_D4s_v5", "zone": "b", "count": 1,
        "labels": {"x": "1", "y": "2", "x": "3"}, "resources": {"cpu": "1", "cpu": "1"}}]"""
    assert faults_of(content) == [
        "[0].labels.x: stands there more than once",
        "[0].resources.cpu: stands there more than once",
    ]


@pytest.mark.behaviour(47)
@pytest.mark.parametrize("key", sorted(FORBIDDEN_LABELS))
def test_a_label_that_must_not_be_published_is_left_out_with_a_warning(written, tmp_path, key):
    offers, warnings = written([PLAIN, {**PLAIN, "labels": {key: "not even valid!", "kept": "1"}}])
    assert offers[1].labels == {"kept": "1"}
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{tmp_path / 'offerings.json'}: [1].labels.{key}: ")


def test_equal_offerings_are_merged_in_the_order_of_the_file(written):
    spot = {**PLAIN, "capacity_type": "spot"}
    offers, _ = written([PLAIN, spot, {**PLAIN, "capacity_type": "OnDemand", "count": 4}])
    assert [(offer.capacity_type.tag, offer.count) for offer in offers] == [
        ("on_demand", 7),
        ("spot", 3),
    ]


def test_a_count_of_zero_offers_nothing_and_all_zeros_are_a_warning(written):
    offers, warnings = written([PLAIN, {**PLAIN, "zone": "eastus-2", "count": 0}])
    assert [offer.count for offer in offers] == [3, 0]
    assert warnings == []
    _, warnings = written([{**PLAIN, "count": 0}])
    assert warnings[0].endswith("every count is 0, so nothing is offered")


def test_one_offering_has_room_for_so_many_slots_also_in_sum(written, faults_of):
    most = {**PLAIN, "count": MAX_SLOTS_PER_OFFERING}
    offers, _ = written([most])
    assert offers[0].count == MAX_SLOTS_PER_OFFERING
    (fault,) = faults_of([{**PLAIN, "count": MAX_SLOTS_PER_OFFERING + 1}])
    assert fault == f"[0].count: is too large; the most is {MAX_SLOTS_PER_OFFERING}"
    (fault,) = faults_of([most, PLAIN])
    assert "equal offerings add up to 1048579 slots" in fault


def test_null_for_an_optional_key_means_absent_as_in_go(written):
    offers, _ = written([{**PLAIN, "resources": None, "labels": None}])
    assert (offers[0].resources, offers[0].labels) == ({}, {})


def test_a_byte_order_mark_is_tolerated(written):
    offers, _ = written(b"\xef\xbb\xbf" + json.dumps([PLAIN]).encode())
    assert offers[0].count == 3


def test_pydantic_is_not_imported_without_an_offerings_file():
    code = (
        "import sys, bigfleet_azure.cli.serve as s; s.resolve(['--use-fake-backend'], {}, str);"
        "print(*{'pydantic', 'yaml', 'click', 'rich', 'difflib'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_label_that_the_machines_have_of_themselves_is_not_overridden_in_silence(written):
    _, [warning] = written([{**PLAIN, "labels": {"kubernetes.io/arch": "arm64", "team": "a"}}])
    assert '[0].labels["kubernetes.io/arch"]' in warning
    assert "'amd64' is what the machines have" in warning
