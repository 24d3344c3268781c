"""How the agent reads JSON with what a shell has: held against a real parser."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.guest.agents import PROGRAM
from tests.guest.imds import freezing, preempt
from tests.support.tools import require_tool

Json = dict[str, Any]
Event = tuple[str, str, str, str]

NAME = "WestNO_1"
_BEGINNING = "declare -A settled"
_PRINT = """
machine=$1 vm=${1,,}; shift
for document; do
    if parse "$(<"$document")" 2>/dev/null; then
        for ((i = 0; i < ${#ids[@]}; i++)); do
            printf '[%s,%s,%s,%s]' "${types[i]}" "${ids[i]}" "${states[i]}" "${befores[i]}"
        done
        echo
    else
        echo refused
    fi
done
"""


def parsed(folder: Path, *documents: bytes) -> list[list[Event] | None]:
    """What the agent's own functions make of each document; None for a refusal."""
    functions, found, _ = PROGRAM.read_text().partition(f"\n{_BEGINNING}")
    assert found
    (folder / "program").write_text(f"{functions}\n{_PRINT}")
    paths = []
    for number, document in enumerate(documents):
        paths.append(str(folder / str(number)))
        Path(paths[-1]).write_bytes(document)
    run = subprocess.run(
        [require_tool("bash"), folder / "program", NAME, *paths],
        capture_output=True,
        timeout=60,
        check=True,
    )
    lines = run.stdout.decode().splitlines()
    assert len(lines) == len(documents), run.stderr
    return [
        None
        if line == "refused"
        else [tuple(each) for each in json.loads(f"[{line.replace('][', '],[')}]")]
        for line in lines
    ]


def expected(document: Json) -> list[Event]:
    """The same by the rules that README.md gives, read by Python."""
    ours = [
        tuple(each.get(key, "") for key in ("EventType", "EventId", "EventStatus", "NotBefore"))
        for each in document["Events"]
        if any(isinstance(name, str) and name.lower() == NAME.lower() for name in each["Resources"])
    ]
    preempts = [each for each in ours if each[0].lower() == "preempt"]
    return preempts[::-1] + [each for each in ours if each not in preempts]


def test_recorded_documents_are_read(tmp_path: Path) -> None:
    documents = [*freezing(), preempt()]
    raw = [json.dumps(each, indent=indent).encode() for each in documents for indent in (None, 2)]
    assert parsed(tmp_path, *raw) == [expected(each) for each in documents for _ in range(2)]
    assert sum(map(len, map(expected, documents))) == 2


@pytest.mark.parametrize(
    "name", ["\\u0057est\\u004e\\u004f_1", "westno\\u005F1", "WESTNO_1", "WestNO_1"]
)
def test_a_name_may_be_written_with_escapes(tmp_path: Path, name: str) -> None:
    raw = f'{{"Events":[{{"Resources":["{name}"],"EventId":"a\\/b\\"\\\\"}}]}}'
    assert parsed(tmp_path, raw.encode()) == [[("", 'a/b"\\', "", "")]]


def test_the_order_of_fields_and_strange_ones_do_not_matter(tmp_path: Path) -> None:
    raw = b"""
    {"Other": {"Events": [{"Resources": ["WestNO_1"], "EventId": "inner"}]},
     "Events": [
        {"NotBefore": null, "Resources": ["x", 5, null, "WestNO_1", ["WestNO_1"]], "More": [{}, []],
         "EventStatus": "Scheduled", "EventId": "1", "Inner": {"EventId": "2"}, "Number": -1.5e+3},
        {"Resources": [["WestNO_1"]], "EventId": "3"},
        {}],
     "DocumentIncarnation": 7}
    """
    assert parsed(tmp_path, raw) == [[("", "1", "Scheduled", "")]]


def test_what_is_no_document_of_events_is_refused(tmp_path: Path) -> None:
    event = b'{"Resources":["WestNO_1"],"EventId":"1"}'
    whole = b'{"Events":[' + event + b"]}"
    wrong = [
        b"",
        b"<html>no</html>",
        b"[]",
        b"{}",
        b'"Events"',
        b'{"Events":{}}',
        b'{"Events":[}',
        b'{"Events":[' + event + event + b"]}",
        b'{"Events":[' + event + b",]}",
        b'{"Events":[] "x":1}',
        b'{"Events":[],}',
        b'{"Events" []}',
        b"{Events:[]}",
        b'{"Events":[{"EventId":"a\\q"}]}',
        b'{"Events":[{"EventId":"a\nb"}]}',
        b'{"Events":[{"EventId":"\\u12"}]}',
        b'{"Events":[{"EventId":yes}]}',
        whole + b"x",
        whole + whole,
        b"[" * 50_000,
        b'{"Events":' * 20_000,
        b"\xff\xfe{}",
    ]
    wrong += [whole[:end] for end in range(1, len(whole))]
    assert parsed(tmp_path, whole, *wrong) == [[("", "1", "", "")]] + [None] * len(wrong)


TEXT = st.text(max_size=20).filter(lambda text: "][" not in text)
NAMES = st.sampled_from([NAME, NAME.lower(), NAME.upper(), "WestNO_0", "WestNO_11", "", '"', "é"])
EVENTS = st.fixed_dictionaries(
    {"Resources": st.lists(NAMES, max_size=3)},
    optional={
        "EventId": TEXT,
        "EventStatus": st.sampled_from(["Scheduled", "Started"]),
        "EventType": st.sampled_from(["Preempt", "Freeze", "preempt"]),
        "NotBefore": TEXT,
        "Description": TEXT,
        "DurationInSeconds": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "Unknown": st.recursive(
            st.none() | st.booleans() | TEXT,
            lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3),
            max_leaves=5,
        ),
    },
)


@given(
    events=st.lists(EVENTS, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 1]),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_document_is_read_as_a_real_parser_reads_it(
    tmp_path: Path, events: list[Json], ascii_only: bool, indent: int | None
) -> None:
    document = {"DocumentIncarnation": 1, "Events": events}
    raw = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert parsed(tmp_path, raw.encode(errors="surrogatepass")) == [expected(document)]
