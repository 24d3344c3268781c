"""The descriptions accept what Azure was sent and answered, and nothing that is misspelt."""

import copy
from typing import Any

import pytest

from tests.support.arm.truth.allowed import ALLOWED, allowance
from tests.support.arm.truth.handmade import HANDMADE
from tests.support.arm.truth.recordings import QUOTED, Recorded, load
from tests.support.arm.truth.routes import UNSPOKEN
from tests.support.arm.truth.schemas import Validator
from tests.support.arm.truth.walker import (
    MISSING,
    NULL,
    READ_ONLY,
    TYPE,
    UNKNOWN,
    VALUE,
    Fault,
    Walker,
)

VALIDATOR = Validator()
NEWEST = {"api-version": "2026-04-01"}
GROUP = "/subscriptions/s/resourceGroups/g/providers"
VM = f"{GROUP}/Microsoft.Compute/virtualMachines/vm"
NIC = f"{GROUP}/Microsoft.Network/networkInterfaces/nic"
EXTENSION = f"{VM}/extensions/hook"

SPOKEN = [each for each in load() if each.route != UNSPOKEN and each.fidelity != QUOTED]
SENT = [each for each in SPOKEN if isinstance(each.request, dict) and each.method != "GET"]


def versions(recorded: Recorded) -> list[dict[str, str]]:
    """The version that was recorded, and the newest, which only ever added to it."""
    return [dict(recorded.query), {**recorded.query, **NEWEST}]


def machine() -> dict[str, Any]:
    """A virtual machine as the backend makes it: all its parts described inside."""
    address = {
        "name": "ip",
        "sku": {"name": "Standard"},
        "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
    }
    configuration = {
        "name": "ipconfig",
        "properties": {
            "primary": True,
            "subnet": {"id": f"{GROUP}/Microsoft.Network/virtualNetworks/n/subnets/s"},
            "publicIPAddressConfiguration": address,
        },
    }
    nic = {
        "name": "nic",
        "properties": {
            "primary": True,
            "deleteOption": "Delete",
            "ipConfigurations": [configuration],
        },
    }
    return {
        "location": "eastus",
        "tags": {"bigfleet-owner": "x"},
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "networkProfile": {
                "networkApiVersion": "2022-11-01",
                "networkInterfaceConfigurations": [nic],
            },
            "securityProfile": {"securityType": "Standard"},
            "priority": "Spot",
            "evictionPolicy": "Delete",
        },
    }


def only(faults: tuple[Fault, ...]) -> tuple[str, str]:
    assert len(faults) == 1, [str(fault) for fault in faults]
    return faults[0].kind, faults[0].path


@pytest.mark.parametrize("recorded", SENT, ids=lambda each: each.where)
def test_a_recorded_request_is_accepted(recorded: Recorded) -> None:
    for query in versions(recorded):
        verdict = VALIDATOR.request(recorded.method, recorded.path, query, recorded.request)
        assert verdict.source is not None
        # Azure Service Operator sends the name along, which only Azure may set and ARM overlooks.
        rest = [fault for fault in verdict.faults if fault.path != "$.name"]
        assert rest == []


@pytest.mark.parametrize("recorded", SPOKEN, ids=lambda each: each.where)
def test_a_recorded_answer_is_accepted(recorded: Recorded) -> None:
    for query in versions(recorded):
        verdict = VALIDATOR.response(
            recorded.method, recorded.path, query, recorded.status, recorded.response
        )
        assert verdict.faults == ()
        if isinstance(recorded.response, dict) and "monitor" not in query:
            assert verdict.source is not None


@pytest.mark.parametrize("recorded", SPOKEN, ids=lambda each: each.where)
def test_a_recorded_query_is_accepted(recorded: Recorded) -> None:
    assert VALIDATOR.query(recorded.method, recorded.path, recorded.query).faults == ()


@pytest.mark.parametrize(
    "recorded", [each for each in load() if each.fidelity == QUOTED], ids=lambda each: each.where
)
def test_a_quoted_error_is_accepted(recorded: Recorded) -> None:
    if "startTime" in recorded.response:
        verdict = VALIDATOR.handmade("quoted", "ComputeOperation", recorded.response)
    else:
        verdict = VALIDATOR.error("quoted", recorded.response)
    assert verdict.faults == ()


def test_every_entry_of_the_allow_list_is_seen_in_a_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    covered = set()

    def remember(route: str, fault: Fault) -> object:
        entry = allowance(route, fault)
        covered.add(entry)
        return entry

    monkeypatch.setattr("tests.support.arm.truth.schemas.allowance", remember)
    for recorded in SPOKEN:
        for query in versions(recorded):
            VALIDATOR.response(
                recorded.method, recorded.path, query, recorded.status, recorded.response
            )
    assert set(ALLOWED) - covered == set()


def test_a_machine_with_all_its_parts_inside_is_accepted() -> None:
    verdict = VALIDATOR.request("PUT", VM, NEWEST, machine())
    assert verdict.source == "compute-2026-04-01.putbody-schema.json"
    assert verdict.faults == ()


@pytest.mark.parametrize(
    ("place", "key", "value", "kind"),
    [
        ("properties", "hardwareProfil", {}, UNKNOWN),
        ("properties", "Priority", "Spot", UNKNOWN),
        ("properties", "vmId", "x", READ_ONLY),
        ("properties", "provisioningState", "Succeeded", READ_ONLY),
        ("properties", "priority", "spot", VALUE),
        ("properties", "licenseType", None, NULL),
        ("properties", "evictionPolicy", 1, TYPE),
        ("properties.hardwareProfile", "vmSize", ["Standard_D2s_v5"], TYPE),
        ("properties.networkProfile", "networkApiVersion", "2020-01-01", VALUE),
        ("tags", "one", 1, TYPE),
    ],
)
def test_a_planted_fault_in_a_request_is_found_at_its_place(
    place: str, key: str, value: object, kind: str
) -> None:
    body = machine()
    inner = body
    for part in place.split("."):
        inner = inner[part]
    inner[key] = value
    verdict = VALIDATOR.request("PUT", VM, NEWEST, body)
    assert only(verdict.faults) == (kind, f"$.{place}.{key}")


def test_a_fault_deep_inside_lists_is_named_with_its_positions() -> None:
    body = machine()
    nic = body["properties"]["networkProfile"]["networkInterfaceConfigurations"][0]
    nic["properties"]["ipConfigurations"][0]["properties"]["subnet"]["ID"] = "x"
    faults = VALIDATOR.request("PUT", VM, NEWEST, body).faults
    assert str(faults[0]).startswith(
        "$.properties.networkProfile.networkInterfaceConfigurations[0]"
        ".properties.ipConfigurations[0].properties.subnet.ID: unknown key"
    )
    assert "meant 'id'?" in str(faults[0])


def test_what_a_later_version_brought_is_unknown_to_an_earlier_one() -> None:
    body = machine()
    del body["properties"]["securityProfile"]
    verdict = VALIDATOR.request("PUT", VM, {"api-version": "2024-07-01"}, body)
    assert verdict.source == "compute-2024-07-01.openapi.json"
    assert only(verdict.faults) == (VALUE, "$.properties.networkProfile.networkApiVersion")


def test_extension_requests_are_held_to_the_models_of_the_sdk() -> None:
    properties = {
        "publisher": "Microsoft.Azure.Extensions",
        "type": "CustomScript",
        "typeHandlerVersion": "2.1",
        "protectedSettings": {"script": "IyE="},
    }
    body = {"location": "eastus", "properties": properties}
    assert VALIDATOR.request("PUT", EXTENSION, NEWEST, body).faults == ()
    properties["forceUpdatetag"] = "1"
    assert only(VALIDATOR.request("PUT", EXTENSION, NEWEST, body).faults)[0] == UNKNOWN
    del properties["forceUpdatetag"]
    properties["provisioningState"] = "Succeeded"
    assert only(VALIDATOR.request("PUT", EXTENSION, NEWEST, body).faults)[0] == READ_ONLY


def test_a_body_where_none_belongs_is_a_fault() -> None:
    assert VALIDATOR.request("DELETE", VM, NEWEST, {"force": True}).faults
    assert VALIDATOR.request("POST", f"{VM}/start", NEWEST, {"x": 1}).faults
    assert VALIDATOR.request("PUT", VM, NEWEST, None).faults


def test_query_keys_are_held_to_what_the_sdk_sends() -> None:
    query = {**NEWEST, "forceDelete": "true"}
    assert only(VALIDATOR.query("DELETE", VM, query).faults) == (UNKNOWN, "?forceDelete")
    assert VALIDATOR.query("DELETE", VM, {**NEWEST, "forceDeletion": "true"}).faults == ()
    assert only(VALIDATOR.query("GET", VM, {}).faults) == (VALUE, "?api-version")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda body: body["properties"].update(vmID="x"), UNKNOWN),
        (lambda body: body["properties"].update(vmId=None), NULL),
        (lambda body: body["properties"].update(vmId=4), TYPE),
        (lambda body: body["properties"].update(timeCreated="yesterday"), VALUE),
        (lambda body: body.pop("location"), MISSING),
    ],
)
def test_a_planted_fault_in_an_answer_is_found(change: Any, kind: str) -> None:
    good = next(each for each in SPOKEN if each.file == "vm-create-update-delete.json")
    body = copy.deepcopy(good.response)
    assert VALIDATOR.response("PUT", VM, NEWEST, 201, body).faults == ()
    change(body)
    assert only(VALIDATOR.response("PUT", VM, NEWEST, 201, body).faults)[0] == kind


def test_an_open_enumeration_is_open_in_answers_only() -> None:
    body = {"location": "eastus", "properties": {"priority": "Tomorrow"}}
    assert VALIDATOR.response("GET", VM, NEWEST, 200, body).faults == ()
    assert only(VALIDATOR.request("PUT", VM, NEWEST, body).faults)[0] == VALUE


def test_a_status_that_the_sdk_raises_on_is_a_fault() -> None:
    assert only(VALIDATOR.response("PUT", VM, NEWEST, 202, {}).faults[:1])[1] == "status"
    assert VALIDATOR.response("DELETE", VM, NEWEST, 202, None).faults == ()


def test_an_operation_body_has_nothing_but_its_known_keys() -> None:
    path = "/subscriptions/s/providers/Microsoft.Compute/locations/eastus/operations/o"
    body = {"startTime": "2026-01-01T00:00:00.1234567+00:00", "status": "InProgress", "name": "o"}
    assert VALIDATOR.response("GET", path, NEWEST, 200, body).faults == ()
    body["percentComplete"] = "1"
    assert only(VALIDATOR.response("GET", path, NEWEST, 200, body).faults)[0] == UNKNOWN
    network = path.replace("Compute", "Network")
    slim = {"status": "Running"}
    assert only(VALIDATOR.response("GET", network, NEWEST, 200, slim).faults)[0] == VALUE


def test_routes_without_a_description_are_named_and_not_guessed() -> None:
    tags = f"{VM}/providers/Microsoft.Resources/tags/default"
    assert VALIDATOR.request("PATCH", tags, {"api-version": "2021-04-01"}, {"x": 1}).source is None
    assert VALIDATOR.response("GET", tags, {}, 200, {"x": 1}).source is None


def test_every_hand_made_schema_is_closed() -> None:
    for name in HANDMADE.content["definitions"]:
        schema = HANDMADE.model(f"definitions/{name}")
        found = Walker(HANDMADE, request=False).faults(schema, {"surely-unknown": 1})
        assert UNKNOWN in {fault.kind for fault in found}, name
