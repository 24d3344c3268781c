"""Which Node is whose, and when its word counts."""

import pytest

from bigfleet_azure.backends.azure.kube_objects import Node, Pod, is_machine, not_ready
from tests.support.kube.objects import (
    HOST,
    OTHER_VM,
    SWAPPED,
    VM_ID,
    node_document,
    pod_document,
)

NOW = 1_790_000_000.0
MACHINE_ID = "4c4c45440037315081204c5050323331"


def node(created: float = 0.0, **how):
    document = node_document(**how)
    document["metadata"] |= {"uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z"}
    if created:
        document["metadata"]["creationTimestamp"] = "2026-09-21T14:13:20Z"
        assert created == NOW
    return Node.parse(document)


def fault(found, since: float | None = NOW) -> str:
    return not_ready(found, vm_id=VM_ID, host=HOST, since=since)


@pytest.mark.parametrize("system_uuid", [VM_ID, VM_ID.upper(), SWAPPED, SWAPPED.upper()])
def test_a_node_is_the_vm_whose_id_its_firmware_shows_in_either_byte_order(system_uuid):
    assert is_machine(node(system_uuid=system_uuid), vm_id=VM_ID, host="")
    assert is_machine(node(system_uuid=system_uuid), vm_id=VM_ID.upper(), host="")


@pytest.mark.parametrize("provider_id", [f"azure://{HOST}", f"azure://{HOST}".upper()])
def test_a_node_is_the_vm_that_its_provider_id_names_in_any_case(provider_id):
    assert is_machine(node(system_uuid="", provider_id=provider_id), vm_id=VM_ID, host=HOST)


@pytest.mark.behaviour(77)
@pytest.mark.parametrize(
    ("system_uuid", "provider_id"),
    [
        (OTHER_VM, ""),
        (OTHER_VM, f"azure://{HOST}-2"),
        ("", ""),
        ("not a guid", f"aws://{HOST}"),
        (VM_ID[:-1] + "5", ""),
        ("44f2d9b7-e0c5-318a-6c4b-2e9d1a4c7f0f", ""),
    ],
)
def test_a_node_that_is_another_machine_is_no_machine_of_ours_and_never_ready(
    system_uuid, provider_id
):
    found = node(system_uuid=system_uuid, provider_id=provider_id, heartbeat=NOW + 9)
    assert not is_machine(found, vm_id=VM_ID, host=HOST)
    assert "another machine" in fault(found)
    assert "another machine" in fault(found, since=None)


def test_a_vm_without_a_known_id_is_nobody():
    assert not is_machine(node(system_uuid=""), vm_id="", host="")


def test_a_node_that_claimed_ready_after_the_operation_began_is_ready():
    assert fault(node(heartbeat=NOW + 5)) == ""


def test_a_claim_in_the_same_second_counts_since_the_times_of_the_api_have_whole_seconds():
    assert fault(node(heartbeat=NOW), since=NOW + 0.9) == ""


@pytest.mark.behaviour(77)
def test_a_claim_of_an_earlier_life_of_the_same_vm_does_not_count():
    assert "before this operation began" in fault(node(heartbeat=NOW - 2))


def test_a_heartbeat_tells_of_a_new_life_though_ready_never_changed():
    assert fault(node(heartbeat=NOW + 1, transition=NOW - 900)) == ""


def test_a_node_object_made_after_the_operation_began_counts_though_its_vm_s_clock_is_late():
    assert fault(node(created=NOW, heartbeat=NOW - 40)) == ""


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_says_why(ready):
    said = fault(node(ready=ready, heartbeat=NOW + 5))
    assert said == "its Node is not Ready (KubeletNotReady: cni plugin not initialized)"


def test_a_node_without_conditions_is_not_ready():
    document = node_document()
    document["metadata"] |= {"uid": "u", "creationTimestamp": "2026-09-21T14:13:20Z"}
    document["status"]["conditions"] = []
    assert "has not said why" in fault(Node.parse(document))


def test_no_node_is_not_ready():
    assert fault(None) == "there is no Node of its name"


def test_without_a_beginning_any_claim_of_this_vm_counts():
    assert fault(node(heartbeat=NOW - 9999), since=None) == ""
    named = node(system_uuid="", provider_id=f"azure://{HOST}", heartbeat=NOW - 9999)
    assert fault(named, since=None) == ""


@pytest.mark.behaviour(77)
def test_without_a_beginning_the_provider_id_that_an_earlier_vm_left_does_not_count():
    left = node(system_uuid=OTHER_VM, provider_id=f"azure://{HOST}", heartbeat=NOW - 9999)
    assert "another machine" in fault(left, since=None)


def test_a_machine_id_in_place_of_a_firmware_s_says_nothing_against_the_provider_id():
    found = node(system_uuid=MACHINE_ID, provider_id=f"azure://{HOST}", heartbeat=NOW)
    assert fault(found, since=None) == ""


def stays(**how) -> bool:
    document = pod_document("p", **how)
    document["metadata"]["uid"] = "u"
    return Pod.parse(document).stays


def test_pods_that_belong_to_the_node_stay():
    assert stays(owner="DaemonSet")
    assert stays(mirror=True)


@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet", "Job", ""])
def test_all_other_pods_go(owner):
    assert not stays(owner=owner)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_ended_stay(phase):
    document = pod_document("p")
    document["metadata"]["uid"] = "u"
    document["status"]["phase"] = phase
    assert Pod.parse(document).stays
