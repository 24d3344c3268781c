"""The part of MessagePack that terraform speaks with its plugins: values, known or not."""

import struct
from typing import Any


class Unknown:
    """A value that is known after apply only."""


UNKNOWN = Unknown()
_UNKNOWN_BYTES = b"\xd4\x00\x00"
"""terraform takes extension type 0 for unknown; what it says more of a value is skipped."""

_SIZED = {
    0xC4: ("B", "bin"),
    0xC5: (">H", "bin"),
    0xC6: (">I", "bin"),
    0xD9: ("B", "str"),
    0xDA: (">H", "str"),
    0xDB: (">I", "str"),
    0xDC: (">H", "array"),
    0xDD: (">I", "array"),
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
    0xC7: ("B", "ext"),
    0xC8: (">H", "ext"),
    0xC9: (">I", "ext"),
}
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: "B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: "b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def pack(value: object) -> bytes:
    """The bytes of a value made of None, booleans, numbers, texts, lists, dicts and UNKNOWN."""
    match value:
        case Unknown():
            return _UNKNOWN_BYTES
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return struct.pack(">Bq", 0xD3, value)
        case float():
            return struct.pack(">Bd", 0xCB, value)
        case str():
            text = value.encode()
            return struct.pack(">BI", 0xDB, len(text)) + text
        case dict():
            items = b"".join(pack(key) + pack(each) for key, each in value.items())
            return struct.pack(">BI", 0xDF, len(value)) + items
        case list():
            return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    raise TypeError(f"terraform has no such value: {value!r}")


def unpack(data: bytes) -> Any:
    """The value of these bytes."""
    return _Reader(data).value()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        first = self._number("B")
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first in _SIZED:
            layout, kind = _SIZED[first]
            return self._sized(kind, self._number(layout))
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first >= 0xD4:
            return self._sized("ext", 1 << (first - 0xD4))
        if first >= 0xA0:
            return self._sized("str", first & 0x1F)
        return self._sized("array" if first >= 0x90 else "map", first & 0x0F)

    def _sized(self, kind: str, size: int) -> Any:
        match kind:
            case "array":
                return [self.value() for _ in range(size)]
            case "map":
                return {self.value(): self.value() for _ in range(size)}
            case "ext":
                self._take(1 + size)
                return UNKNOWN
            case "str":
                return self._take(size).decode()
        return self._take(size)

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]
