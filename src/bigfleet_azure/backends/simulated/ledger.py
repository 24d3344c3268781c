"""The region's ledger: one JSON line for each thing that happened to a VM, only ever appended.

It is what the simulated region has in place of Azure's memory: VMs outlive the daemon's process.
Each line is one write(2), so a killed process loses nothing; nothing is flushed to the disk, so a
power cut may lose the newest lines. Here are the form of the file and its handling; what lines
mean belongs to `history`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

Event = Sequence[str | int | float | None]

_HEADER: Event = ("bigfleet-azure simulated region", 1)

_FOREIGN = "this is no ledger of a simulated region"

_PIECE_BYTES = 64 * 1024
"""Lines are parsed in pieces of about this size: the events of a whole ledger at once would be
several times its memory."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class LedgerError(Exception):
    """The ledger cannot be used as it is; the text says where and what to do."""

    def __init__(self, path: Path, line: int, fault: str) -> None:
        super().__init__(
            f"ledger of the simulated region {path}, line {line}: {fault}; restore the file from "
            "a copy, or move it away to begin with an empty region"
        )


class Ledger:
    """An open ledger file. Events must come from one thread at a time.

    Attributes:
        lines: lines it had when it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._file: BinaryIO | None = None
        self._size = 0

    def open(self) -> Iterator[Event]:
        """Open or begin the file and give its events, without the header.

        A last line that was cut short by a kill is taken off. Blocks; run it in a thread.

        Raises:
            LedgerError: the file is foreign or damaged.
            OSError: it cannot be read or written.
        """
        self._file = file = self.path.open("a+b", buffering=0)
        file.seek(0)
        content = file.read()
        self._size = _complete(self.path, content)
        self.lines = content.count(b"\n")
        file.truncate(self._size)
        if not self._size:
            self.append(_HEADER)
        return _events(self.path, content)

    def append(self, event: Event) -> None:
        """Write one event, all of it or nothing.

        Raises:
            OSError: the disk is full or failing.
        """
        assert self._file is not None
        line = _line(event)
        try:
            complete = self._file.write(line) == len(line)
            if not complete:
                raise OSError(f"{self.path}: no space for one more line")
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size += len(line)

    def rewrite(self, events: Iterable[Event]) -> None:
        """Replace the file by one that holds just these events. Blocks; run it in a thread."""
        assert self._file is not None
        fresh = self.path.with_name(f"{self.path.name}.new")
        with fresh.open("wb") as file:
            file.write(_line(_HEADER))
            file.writelines(_line(event) for event in events)
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()
        fresh.replace(self.path)
        self._file.close()
        self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file; harmless when it is not open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read(path: Path) -> Iterator[Event]:
    """The events of a ledger that may be in use, without changing it.

    Raises:
        LedgerError: the file is foreign or damaged.
        OSError: it cannot be read.
    """
    return _events(path, path.read_bytes())


def _line(event: Event) -> bytes:
    return _encode(event).encode() + b"\n"


def _complete(path: Path, content: bytes) -> int:
    """The length of the file's complete lines, 0 when not even the header is."""
    size = content.rfind(b"\n") + 1
    if not size and not _line(_HEADER).startswith(content):
        raise LedgerError(path, 1, _FOREIGN)
    return size


def _events(path: Path, content: bytes) -> Iterator[Event]:
    """The events in the complete lines of a file."""
    size = _complete(path, content)
    if not size:
        return
    start = content.index(b"\n") + 1
    _check_header(path, content[:start])
    number = 2
    while start < size:
        end = content.find(b"\n", min(start + _PIECE_BYTES, size - 1))
        lines = content[start:end]
        try:
            # One call for many lines takes a third of the time of one call per line.
            events = json.loads(b"[" + lines.replace(b"\n", b",") + b"]")
        except ValueError:
            events = _line_by_line(path, lines, number)
        yield from events
        number += lines.count(b"\n") + 1
        start = end + 1


def _check_header(path: Path, line: bytes) -> None:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    match header:
        case [name, int(version)] if name == _HEADER[0]:
            if version != _HEADER[1]:
                raise LedgerError(path, 1, f"version {version} was written by a newer daemon")
        case _:
            raise LedgerError(path, 1, _FOREIGN)


def _line_by_line(path: Path, lines: bytes, first: int) -> Iterator[Event]:
    for number, line in enumerate(lines.split(b"\n"), start=first):
        try:
            event = json.loads(line)
        except ValueError:
            raise LedgerError(path, number, "it is damaged") from None
        yield event
