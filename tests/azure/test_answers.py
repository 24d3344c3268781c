"""Reading bodies and headers of any shape."""

import json
from datetime import timedelta
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet_azure.backends.azure import answers
from bigfleet_azure.backends.azure.answers import MAX_RETRY_AFTER, MAX_TEXT
from bigfleet_azure.backends.azure.arm import Detail, Failure
from bigfleet_azure.backends.azure.errors import MAX_MESSAGE, backend_error, classify
from tests.azure.refusals import EXAMPLES, NOW, refused


def codes(failure: Failure) -> list[str]:
    return [failure.code, *(detail.code for detail in failure.details)]


def read(document: object, status: int = 409) -> Failure:
    return refused("vm.put", status, document)


# Bodies


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"code": "Code", "message": "Words", "target": "t"}},
        {"code": "Code", "message": "Words", "target": "t"},
        {"Error": {"Code": "Code", "Message": "Words", "Target": "t"}},
        {"odata.error": {"code": "Code", "message": {"value": "Words"}, "target": "t"}},
        {"properties": {"statusMessage": {"error": {"code": "Code", "message": "Words"}}}},
        {"statusMessage": '{"error": {"code": "Code", "message": "Words"}}'},
        [{"error": {"code": "Code", "message": "Words"}}],
        {"error": '{"code": "Code", "message": "Words"}'},
    ],
)
def test_the_error_is_found_in_every_wrapping(document: object) -> None:
    for form in (document, json.dumps(document), json.dumps(document).encode()):
        failure = read(form)
        assert (failure.code, failure.message) == ("Code", "Words")
    assert (failure.call, failure.status) == ("vm.put", 409)


def test_the_target_is_kept() -> None:
    assert read({"code": "Code", "target": "customData"}).target == "customData"


def test_a_byte_order_mark_does_no_harm() -> None:
    assert read(b'\xef\xbb\xbf{"code": "Code"}').code == "Code"


def test_nested_errors_come_outermost_first() -> None:
    document = {
        "error": {
            "code": "A",
            "details": [
                {"code": "B", "innererror": {"code": "C"}},
                {"code": "D", "InnerError": {"Code": "E", "Details": [{"code": "F"}]}},
            ],
            "innererror": {"code": "G"},
        }
    }
    assert codes(read(document)) == ["A", "B", "C", "D", "E", "F", "G"]


def test_json_inside_a_message_is_read() -> None:
    inner = {"error": {"code": "C", "message": json.dumps({"code": "D"})}}
    document = {"code": "A", "details": [{"code": "B", "message": json.dumps(inner, indent=2)}]}
    assert codes(read(document)) == ["A", "B", "C", "D"]


def test_json_between_other_words_is_not_read() -> None:
    assert codes(read({"code": "A", "message": 'It said {"code": "B"}'})) == ["A"]


def test_words_without_a_code_do_not_hide_one() -> None:
    failure = read({"message": "An error has occurred.", "error": {"code": "Code"}})
    assert failure.code == "Code"
    assert failure.details == (Detail(code="", message="An error has occurred."),)


def test_a_body_of_the_token_service_gives_its_error_and_description() -> None:
    failure = read({"error": "invalid_client", "error_description": "AADSTS1: no"}, 401)
    assert (failure.code, failure.message) == ("invalid_client", "AADSTS1: no")


@pytest.mark.parametrize("empty", [b"", b"  ", "", None, {}, [], b"{}", b"null", 7, True])
def test_a_body_of_nothing_leaves_the_status_as_code(empty: object) -> None:
    failure = read(empty, 502)
    assert (failure.code, failure.message, failure.details) == ("Http502", "", ())


def test_a_page_gives_its_text() -> None:
    page = (
        b"<html><head><title>502</title><script>var a = 1 < 2;</script></head>"
        b"<body><h1>Bad Gateway</h1></body></html>"
    )
    assert (read(page, 502).code, read(page, 502).message) == ("Http502", "502 Bad Gateway")


@pytest.mark.parametrize("field", [None, 1.5, True, [], {}, [1], {"a": 1}, "", "  "])
def test_fields_of_a_wrong_type_count_as_absent(field: object) -> None:
    document = {"code": field, "message": field, "target": field, "details": field}
    failure = read({"error": document}, 400)
    assert (failure.code, failure.message, failure.target) == ("Http400", "", "")


def test_a_code_that_is_a_number_is_kept() -> None:
    assert read({"code": 42, "message": "Words"}).code == "42"


def test_bytes_that_are_no_text_are_read_as_far_as_they_go() -> None:
    assert read(b'{"code": "Code", "message": "caf\xe9"}').message == "caf\ufffd"
    assert read(b"\xff\xfe\x00", 500).code == "Http500"


def test_a_message_can_be_put_into_a_protobuf_string() -> None:
    failure = read(b'{"code": "C\\ud800", "message": "a\\ud800b\\u0000c"}')
    assert f"{failure.code} {failure.message}".encode()
    assert failure.message == "a?b c"


def test_endless_bodies_are_followed_only_so_far() -> None:
    deep: Any = {"code": "X"}
    for _ in range(500):
        deep = {"code": "X", "innererror": deep}
    assert len(read(deep).details) < 50
    assert len(read({"details": [{"code": "X"}] * 10_000}).details) < 50
    assert read(b"[" * 100_000, 500).code == "Http500"
    assert len(read({"code": "X" * 9_999, "message": "x" * 99_999}).message) == MAX_TEXT


def test_an_operation_tells_why_it_failed_or_how_it_ended() -> None:
    def read_end(document: object) -> Failure:
        return answers.operation_failed("compute.operation", document, {}, NOW)

    failed = read_end({"status": "Failed", "error": {"code": "AllocationFailed"}})
    assert (failed.status, failed.code) == (200, "AllocationFailed")
    assert read_end({"status": "Canceled"}).code == "OperationCanceled"
    assert read_end(b"gibberish").code == "OperationFailed"


def test_a_call_without_answer_has_the_status_0() -> None:
    failure = answers.no_answer("vm.get", "Timeout", "60 s")
    assert (failure.status, failure.code, failure.message) == (0, "Timeout", "60 s")


# Good answers


def test_a_good_answer_is_an_object_or_unreadable() -> None:
    assert answers.json_object(b"") == {}
    assert answers.json_object(b' {"a": 1}') == {"a": 1}
    assert answers.json_object(b"[1]") == {"value": [1]}
    assert answers.json_object(b"<html>") is None
    assert answers.json_object(b"7") is None


# Headers


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"Retry-After": formatdate(NOW + 90, usegmt=True)}, 90),
        ({"Retry-After-Ms": "250"}, 0.25),
        ({"X-MS-RETRY-AFTER-MS": "1500"}, 1.5),
        ({"Retry-After": "3", "retry-after-ms": "9000"}, 3),
        ({"Retry-After": "0", "x-ms-retry-after-ms": "9000"}, 9),
        ({"Retry-After": "soon", "retry-after-ms": "9000"}, 9),
    ],
)
def test_waits_are_read_in_all_their_forms(headers: dict[str, str], seconds: float) -> None:
    assert answers.retry_after(headers, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    ["", "0", "0.0", "-5", "nan", "-inf", "soon", formatdate(NOW - 60, usegmt=True), "Mon, 99"],
)
def test_waits_that_say_nothing_count_as_absent(value: str) -> None:
    assert answers.retry_after({"Retry-After": value}, NOW) is None
    assert answers.retry_after({"retry-after-ms": value}, NOW) is None


@pytest.mark.parametrize(
    "value", ["99999", "1e300", "inf", "9" * 400, formatdate(NOW + 10**9, usegmt=True)]
)
def test_absurd_waits_are_bounded(value: str) -> None:
    assert answers.retry_after({"Retry-After": value}, NOW) == MAX_RETRY_AFTER


def test_the_ids_for_support_are_kept_under_their_several_names() -> None:
    ids = {"X-Ms-Request-Id": "r", "x-ms-correlation-request-id": "c"}
    failure = refused("vm.put", 500, b"", ids)
    assert (failure.request_id, failure.correlation_id) == ("r", "c")
    assert refused("vm.put", 500, b"", {"x-ms-arm-service-request-id": "s"}).request_id == "s"


# Anything

_words = st.sampled_from(
    sorted({example.failure.code for example in EXAMPLES} | {"code", "error", "", "\ud800", "{"})
)
_keys = st.sampled_from(
    ["error", "Error", "code", "Code", "message", "details", "innererror", "InnerError", "target",
     "status", "properties", "statusMessage", "error_description", "value"]
)  # fmt: skip
_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | _words
_documents = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_keys | st.text(max_size=5), inner, max_size=5)
        | inner.map(lambda value: json.dumps(value, default=str))
    ),
    max_leaves=25,
)
_bodies = (
    st.binary(max_size=200)
    | st.text(max_size=200)
    | _documents
    | _documents.map(lambda value: json.dumps(value).encode())
)
_headers = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "x-ms-request-id"])
    | st.text(max_size=10),
    st.text(max_size=40) | st.floats().map(str) | st.integers().map(str),
    max_size=5,
)
_calls = st.sampled_from(["vm.put", "vm.get", "vm.delete", "extension.put", "compute.operation"])


def _judge(failure: Failure) -> None:
    verdict = classify(failure)
    error = backend_error(failure, "m-1")
    assert error.kind is verdict.kind
    assert "m-1" in str(error)
    assert len(str(error)) <= MAX_MESSAGE
    assert str(error).encode()
    assert error.retry_after is None or timedelta() < error.retry_after <= MAX_RETRY_AFTER


@settings(max_examples=300, deadline=None)
@given(call=_calls, status=st.integers(0, 999), headers=_headers, document=_bodies)
def test_no_answer_whatever_it_holds_makes_reading_or_judging_fail(
    call: str, status: int, headers: dict[str, str], document: object
) -> None:
    failure = answers.refused(call, status, headers, document, NOW)
    _judge(failure)
    assert not answers.absent(failure) or status == 404
    _judge(answers.operation_failed(call, document, headers, NOW))


@settings(max_examples=50, deadline=None)
@given(content=st.binary(max_size=50))
def test_no_good_answer_whatever_it_holds_makes_reading_fail(content: bytes) -> None:
    document = answers.json_object(content)
    assert document is None or isinstance(document, dict)
