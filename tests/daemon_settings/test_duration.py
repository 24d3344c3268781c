"""Durations as Go writes them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.kit import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("30s", 30),
        ("2m", 120),
        ("1h", 3600),
        ("1h30m", 5400),
        ("90s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("250μs", 0.00025),
        ("2000ns", 0.000002),
        ("1h1h", 7200),
        ("-1h30m", -5400),
        ("+5s", 5),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text, seconds):
    assert duration.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "-", "h", "1d", "5 m", "1h30", "--5s", "1H", "ten", "1e3s", "٣s", "1.2.3s"]
)
def test_what_go_refuses_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="1h30m"):
        duration.parse(text)


@pytest.mark.parametrize("text", ["30", "1.5", "-7", "00"])
def test_a_bare_number_is_refused_with_the_fix(text):
    with pytest.raises(ValueError, match=f"has no unit; write {text}s, {text}m or {text}h"):
        duration.parse(text)


def test_a_slip_of_many_digits_is_refused():
    with pytest.raises(ValueError, match="hundred years"):
        duration.parse("99999999h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (90, "1m30s"), (5400, "1h30m"), (0.02, "20ms"), (1.5, "1s500ms"), (-120, "-2m")],
)
def test_a_duration_is_spelled_in_whole_units(seconds, text):
    assert duration.spell(timedelta(seconds=seconds)) == text


@given(st.timedeltas(timedelta(days=-36000), timedelta(days=36000)))
def test_what_is_spelled_is_read_back_exactly(value):
    assert duration.parse(duration.spell(value)) == value
