"""Log lines in both formats, from the first one on."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.telemetry import logs

logger = logging.getLogger("bigfleet_azure.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Give pytest its handlers and levels back."""
    names = ("", "asyncio", "grpc", "aiohttp")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers
    yield
    logging.getLogger().handlers = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_from_before_the_end_of_the_start_are_written_with_their_own_times() -> None:
    stream = io.StringIO()
    logs.begin("info")
    logger.info("early %d", 1, extra={"machine": "m-000"})
    logger.debug("not wanted")
    assert stream.getvalue() == ""
    logs.finish("json", stream)
    logger.warning("late")
    early, late = lines(stream)
    assert early == {
        "timestamp": early["timestamp"],
        "level": "info",
        "logger": "bigfleet_azure.test",
        "event": "early 1",
        "machine": "m-000",
    }
    assert late["level"] == "warning"
    assert early["timestamp"] <= late["timestamp"]
    assert early["timestamp"].endswith("+00:00")


def test_no_line_is_lost_or_doubled_while_the_start_ends() -> None:
    stream = io.StringIO()
    logs.begin("info")
    enough = threading.Event()

    def write() -> None:
        for number in range(2000):
            logger.info("line", extra={"number": number})
            if number == 500:
                enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    enough.wait()
    logs.finish("json", stream)
    writer.join()
    assert sorted(line["number"] for line in lines(stream)) == list(range(2000))


def test_json_lines_hold_a_trace_without_local_variables() -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish("json", stream)
    fail()
    [line] = lines(stream)
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].endswith("ZeroDivisionError: division by zero")
    assert "hunter2" not in stream.getvalue()


def test_console_lines_hold_a_trace_without_local_variables() -> None:
    stream = Terminal()
    logs.begin("info")
    logs.finish("console", stream)
    fail()
    assert "ZeroDivisionError: division by zero" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def fail() -> None:
    password = bytes.fromhex("68756e74657232").decode()
    try:
        len(password) / 0
    except ZeroDivisionError:
        logger.exception("it broke")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_secrets_are_masked_at_any_depth(log_format: logs.Format) -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish(log_format, stream)
    secret = Secret(b"hunter2")
    logger.info("text %s %r", secret, secret, extra={"blob": secret, "deep": {"er": [secret]}})
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("***") == 4


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_extra_fields_appear_under_their_keys(log_format: logs.Format) -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish(log_format, stream)
    logger.info("create succeeded", extra={"machine": "m-000", "seconds": 1.5})
    written = stream.getvalue()
    assert "create succeeded" in written
    for key, value in (("machine", "m-000"), ("seconds", "1.5")):
        assert f"{key}={value}" in written or f'"{key}": ' in written


def test_auto_is_console_with_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    logs.begin("info")
    logs.finish("auto", stream)
    logger.info("hello")
    assert "\x1b[" in stream.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.begin("info")
    logs.finish("auto", stream)
    logger.info("hello")
    assert "hello" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


def test_console_lines_in_a_file_have_no_colours() -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish("console", stream)
    logger.info("hello")
    assert "[info     ] hello" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


def test_auto_is_json_elsewhere() -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish("auto", stream)
    logger.info("hello")
    assert lines(stream)[0]["event"] == "hello"


def test_debug_level_keeps_the_libraries_quiet() -> None:
    stream = io.StringIO()
    logs.begin("debug")
    logs.finish("json", stream)
    logger.debug("ours")
    for name in ("asyncio", "grpc._cython.cygrpc", "aiohttp.server"):
        logging.getLogger(name).debug("theirs")
    assert [line["event"] for line in lines(stream)] == ["ours"]


def test_a_line_of_any_content_stays_one_json_line() -> None:
    stream = io.StringIO()
    logs.begin("info")
    logs.finish("json", stream)
    logger.info("a\nb\x00 \udc80", extra={"object": object(), "bytes": b"\xff"})
    [line] = lines(stream)
    assert line["event"].startswith("a\nb\x00")
    assert line["bytes"] == r"b'\xff'"
