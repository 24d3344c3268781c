"""Shapes: what is kept of a value, and which differences count."""

import pytest

from tests.support.arm.truth import headers
from tests.support.arm.truth.shapes import kind_of, missing_or_extra, shape

GUID = "00000000-0000-4000-8000-000000000001"
OPERATION = "https://management.azure.com/subscriptions/s/providers/Microsoft.Compute"


def told(ours: object, *recorded: object, known: bool = False) -> list[str]:
    differences = missing_or_extra(ours, shape(*recorded), known=lambda _place: known)
    return [f"{each.what} {each.path}" for each in differences]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (GUID, "guid"),
        (f'W/"{GUID}"', "etag"),
        ("2024-02-06T22:07:09.9541568+00:00", "time"),
        ("/subscriptions/s/resourceGroups/g", "arm-id"),
        ("https://x/y", "url"),
        ("192.0.2.1", "ipv4"),
        ("4", "whole"),
        ("Succeeded", "text"),
        (True, "boolean"),
        (1, "number"),
        (1.5, "number"),
        (None, "null"),
        ({}, "object"),
        ([], "list"),
    ],
)
def test_values_are_known_by_their_kind(value: object, kind: str) -> None:
    assert kind_of(value) == kind


def test_a_key_that_every_recording_has_must_be_there() -> None:
    assert told({"a": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}) == ["missing $.b"]


def test_a_key_that_some_recordings_have_may_be_there_or_not() -> None:
    recordings = ({"a": 1, "b": 2}, {"a": 1})
    assert told({"a": 1}, *recordings) == []
    assert told({"a": 1, "b": 3}, *recordings) == []


def test_a_key_that_no_recording_has_is_extra_unless_a_schema_knows_it() -> None:
    assert told({"a": 1, "c": 1}, {"a": 1}) == ["extra $.c"]
    assert told({"a": 1, "c": 1}, {"a": 1}, known=True) == []


def test_kinds_must_agree() -> None:
    assert told({"a": "1"}, {"a": 1}) == ["kind $.a"]
    assert told({"a": None}, {"a": "x"}) == ["kind $.a"]
    assert told({"a": {}}, {"a": []}) == ["kind $.a"]


def test_a_telling_format_binds_and_a_plain_text_does_not() -> None:
    assert told({"vmId": "abc"}, {"vmId": GUID}) == ["kind $.vmId"]
    assert told({"name": GUID}, {"name": "abc"}) == []
    assert told({"name": "abc"}, {"name": "4"}) == []


def test_items_of_lists_are_compared_with_all_recorded_items() -> None:
    recorded = {"value": [{"a": 1, "b": 1}, {"a": 1}]}
    assert told({"value": [{"b": 1}, {"a": "x"}]}, recorded) == [
        "missing $.value[0].a",
        "kind $.value[1].a",
    ]
    assert told({"value": []}, recorded) == []
    assert told({"value": [{"q": 1}]}, {"value": []}) == []


def test_names_that_people_choose_are_not_compared() -> None:
    assert told({"tags": {"mine": "x"}}, {"tags": {"theirs": "y"}}) == []
    assert told({"tags": {"mine": 1}}, {"tags": {"theirs": "y"}}) == ["kind $.tags.mine"]
    assert told({}, {"tags": {}}) == []


def test_a_thin_record_asks_no_more_than_its_kin() -> None:
    thin = shape({"a": 1, "b": 1})
    thin.loosen(shape({"a": 1, "b": 1}, {"a": 1}), enough=3)
    assert missing_or_extra({"a": 1}, thin) == []
    assert [each.path for each in missing_or_extra({"b": 1}, thin)] == ["$.a"]


def header_faults(ours: dict[str, str], *recorded: dict[str, str]) -> list[str]:
    return [f"{each.what} {each.path}" for each in headers.compare(ours, recorded)]


def test_headers_are_compared_without_regard_to_case() -> None:
    assert header_faults({"CACHE-CONTROL": "no-cache"}, {"Cache-Control": "no-cache"}) == []
    assert header_faults({}, {"Cache-Control": "no-cache"}) == ["missing header cache-control"]


def test_headers_of_the_server_software_are_not_held() -> None:
    assert (
        header_faults({}, {"Date": "x", "Content-Length": "1", "X-Cache": "CONFIG_NOCACHE"}) == []
    )


def test_a_retry_after_is_whole_seconds() -> None:
    assert header_faults({"Retry-After": "0.5"}, {"Retry-After": "10"}) == [
        "kind header retry-after"
    ]


def test_a_telling_header_that_no_recording_has_is_extra() -> None:
    assert header_faults({"Location": "https://x"}, {"Pragma": "no-cache"}) == [
        "missing header pragma",
        "extra header location",
    ]


def test_operation_urls_keep_their_form_and_their_query_keys() -> None:
    recorded = {"Azure-AsyncOperation": f"{OPERATION}/locations/westus/operations/1?p=1&t=2"}
    name = "Azure-AsyncOperation"
    good = (
        "https://127.0.0.1:1/subscriptions/z/providers/Microsoft.Compute/locations/x/operations/9"
    )
    assert header_faults({name: f"{good}?p=9&t=8"}, recorded) == []
    assert header_faults({name: f"{good}?p=9"}, recorded) == [f"missing header {name.lower()} ?t"]
    plain = good.replace("https", "http")
    assert header_faults({name: f"{plain}?p=9&t=8"}, recorded) == [f"kind header {name.lower()}"]
    other = good.replace("operations", "operationResults")
    assert header_faults({name: f"{other}?p=9&t=8"}, recorded) == [f"value header {name.lower()}"]
    braces = f"{good}?p={{}}&t=8"
    assert header_faults({name: braces}, recorded) == [f"value header {name.lower()}"]


def test_bucket_names_are_compared_where_current_ones_were_recorded() -> None:
    name = headers.BUCKETS
    current = {name: "Microsoft.Compute/PutVMResource;11"}
    assert header_faults({name: "Microsoft.Compute/PutVMResource;3"}, current) == []
    assert header_faults({name: "Microsoft.Compute/Other;3"}, current) == [f"value header {name}"]
    old = {name: "Microsoft.Compute/PutVM3Min;239"}
    assert header_faults(current, old) == []


def test_a_text_that_is_echoed_may_be_any_text() -> None:
    assert told({"forceUpdateTag": "op-1"}, {"forceUpdateTag": GUID}) == []
    assert told({"forceUpdateTag": 1}, {"forceUpdateTag": GUID}) == ["kind $.forceUpdateTag"]


def test_a_disk_of_a_deallocated_vm_may_lack_its_size() -> None:
    assert told({"name": "d"}, {"name": "d", "diskSizeGB": 30}) == []
