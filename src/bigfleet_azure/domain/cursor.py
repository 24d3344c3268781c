"""List cursors: the opaque `revision` of an answer (contract section 10).

A cursor is a change number bound to one incarnation of the store and protected by a checksum, so
that junk, tampering and cursors of a lost store are all recognised as "no cursor".
"""

import hashlib

_VERSION = b"\x01"
_CHANGE_BYTES = 8
_CHECK_BYTES = 6


def encode(incarnation: str, change: int) -> bytes:
    """The cursor that stands for everything up to and including change number `change`."""
    number = change.to_bytes(_CHANGE_BYTES, "big")
    return _VERSION + number + _check(incarnation, number)


def decode(incarnation: str, cursor: bytes) -> int | None:
    """The change number in `cursor`, or None when it is not one of this incarnation's."""
    if len(cursor) != 1 + _CHANGE_BYTES + _CHECK_BYTES or cursor[:1] != _VERSION:
        return None
    number = cursor[1 : 1 + _CHANGE_BYTES]
    if cursor[1 + _CHANGE_BYTES :] != _check(incarnation, number):
        return None
    return int.from_bytes(number, "big")


def _check(incarnation: str, number: bytes) -> bytes:
    return hashlib.blake2b(number, key=incarnation.encode(), digest_size=_CHECK_BYTES).digest()
