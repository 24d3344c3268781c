"""Tokens with which one machine speaks for itself, and for nobody else.

A token is an HMAC over the id of the key, the machine and the Create that made its host, so that
what an earlier life of the slot was given is worthless. It names its key, so that keys can be
replaced while machines hold older tokens. It has no date: it ends with the machine.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MIN_KEY_CHARACTERS = 32
"""32 random characters of base64 are 192 bits: as much as HMAC-SHA256 is worth."""

_KEY_ID_CHARACTERS = 8
_TOKEN = re.compile(r"bf1\.([0-9a-f]{8})\.([A-Za-z0-9_-]{43})")
MAX_TOKEN_CHARACTERS = len("bf1.") + _KEY_ID_CHARACTERS + len(".") + 43


@dataclass(frozen=True, slots=True)
class Key:
    """One signing key; its id is a digest of it, which says nothing of it."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """What a token calls it."""
        return hashlib.sha256(b"bigfleet-azure callback key id\0" + self.secret).hexdigest()[
            :_KEY_ID_CHARACTERS
        ]


def read_keys(content: bytes) -> tuple[Key, ...]:
    """The keys of a key file, one a line, the newest first.

    Raises:
        ValueError: the rest of a sentence that begins with the file; no key is in it.
    """
    lines = [line.strip() for line in content.splitlines()]
    keys = [(number, line) for number, line in enumerate(lines, 1) if line and line[:1] != b"#"]
    if not keys:
        raise ValueError("holds no key; write one with `openssl rand -base64 32`")
    for number, line in keys:
        if len(line) < MIN_KEY_CHARACTERS:
            raise ValueError(
                f"has a key of {len(line)} characters in line {number}; a key needs "
                f"{MIN_KEY_CHARACTERS} or more, such as those of `openssl rand -base64 32`"
            )
    return tuple(Key(line) for _, line in keys)


def sign(key: Key, machine_id: str, operation_id: str) -> str:
    """The token of the machine that `operation_id` made."""
    mac = base64.urlsafe_b64encode(_mac(key, machine_id, operation_id)).rstrip(b"=").decode()
    return f"bf1.{key.id}.{mac}"


def verify(keys: Sequence[Key], token: str, machine_id: str, operation_id: str) -> bool:
    """Whether `token` was made with one of `keys` for the machine that `operation_id` made."""
    match = _TOKEN.fullmatch(token)
    if match is None or not operation_id:
        return False
    for key in keys:
        if hmac.compare_digest(key.id, match[1]):
            expected = sign(key, machine_id, operation_id)
            return hmac.compare_digest(expected, token)
    return False


def formed(token: str) -> bool:
    """Whether a text is formed like such a token; says nothing of its worth."""
    return _TOKEN.fullmatch(token) is not None


def _mac(key: Key, machine_id: str, operation_id: str) -> bytes:
    text = f"bigfleet-azure callback token\0{key.id}\0{machine_id}\0{operation_id}"
    return hmac.digest(key.secret, text.encode(), "sha256")
