"""Shard metadata, kept packed from accept to answer.

The packed form is the map's own wire form (entries of `Machine.shard_metadata`, field 15), so that
serving a machine copies bytes and never walks the map. Nothing here interprets keys or values.
"""

from collections.abc import Mapping

_FIELD_TAG = bytes([15 << 3 | 2])
_KEY_TAG = b"\x0a"
_VALUE_TAG = b"\x12"
_SHORT_VARINTS = [bytes((value,)) for value in range(0x80)]


def varint(value: int) -> bytes:
    """A non-negative integer in protobuf's base-128 form."""
    if value < 0x80:
        return _SHORT_VARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def pack_map(field_tag: bytes, entries: Mapping[str, str]) -> bytes:
    """A string map as repeated length-delimited entries under `field_tag`, keys in order."""
    parts: list[bytes] = []
    for key in sorted(entries):
        raw_key, raw_value = key.encode(), entries[key].encode()
        body = b"".join(
            (_KEY_TAG, varint(len(raw_key)), raw_key, _VALUE_TAG, varint(len(raw_value)), raw_value)
        )
        parts += (field_tag, varint(len(body)), body)
    return b"".join(parts)


def pack(metadata: Mapping[str, str]) -> bytes:
    """Pack shard metadata; an empty map packs to nothing."""
    return pack_map(_FIELD_TAG, metadata)


def unpack(packed: bytes) -> dict[str, str]:
    """The map that `pack` was given."""
    result: dict[str, str] = {}
    position = 0
    while position < len(packed):
        size, position = _read_varint(packed, position + 1)
        end = position + size
        key_size, position = _read_varint(packed, position + 1)
        key = packed[position : position + key_size].decode()
        position += key_size
        value_size, position = _read_varint(packed, position + 1)
        result[key] = packed[position : position + value_size].decode()
        position = end
    return result


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
