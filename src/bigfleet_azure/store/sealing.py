"""Sealing of bootstrap blobs, and the key that does it.

Protects copies and backups of the database; not the disk, when the key lies on it too. Which key
source is used is the daemon's decision; no SQL belongs here.
"""

import base64
import binascii
import os
import secrets
from functools import partial
from pathlib import Path
from typing import NoReturn

from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.store.base import StoreUnusable
from bigfleet_azure.store.files import key_beside, sync_folder

_KEY_BYTES = 32
"""AES-256."""

_NONCE_BYTES = 12
"""The nonce length GCM is made for (NIST SP 800-38D, section 8.2); random ones are safe for 2**32
blobs under one key."""

_FORMAT = b"\x01"
_CHECK_SLOT = -1
_CHECK_TEXT = b"bigfleet-azure key check"


def load_or_create_key(state_path: Path, key_file: Path | None, key_text: str | None) -> Secret:
    """The key from `key_file`, else from `key_text`, else from a file made beside the state file.

    Raises:
        StoreUnusable: the key is missing, unreadable or no key; the text never shows it.
    """
    if key_file is not None:
        return _read(key_file)
    if key_text:
        key = _from_text(key_text.encode())
        return key or _refuse("the state key in the environment", "")
    beside = key_beside(state_path)
    if not beside.exists():
        _create(beside)
    return _read(beside)


def _read(path: Path) -> Secret:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreUnusable(f"cannot read the state key {path}: {error.strerror}") from error
    key = _from_text(content)
    # Raw bytes may be followed by a newline, or be one themselves.
    if key is None and len(content.removesuffix(b"\n")) == _KEY_BYTES:
        key = Secret(content.removesuffix(b"\n"))
    if key is None and len(content) == _KEY_BYTES:
        key = Secret(content)
    return key or _refuse(f"the state key {path}", "raw, ")


def _from_text(text: bytes) -> Secret | None:
    for decode in (binascii.unhexlify, partial(base64.b64decode, validate=True)):
        try:
            key = decode(text.strip())
        except ValueError:
            continue
        if len(key) == _KEY_BYTES:
            return Secret(key)
    return None


def _refuse(name: str, raw: str) -> NoReturn:
    raise StoreUnusable(
        f"{name} is no key: {_KEY_BYTES} bytes are needed, {raw}as {2 * _KEY_BYTES} hexadecimal "
        "digits or in base64 (`openssl rand -hex 32` makes one)"
    )


def _create(path: Path) -> None:
    """Write a new key, whole or not at all: half a key would lose every blob."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreUnusable(f"cannot make the state key {path}: {error.strerror}") from error


class Sealer:
    """Seals and opens blobs, each bound to its slot and to one incarnation of the store."""

    def __init__(self, key: Secret, incarnation: str) -> None:
        self._key = key
        self._incarnation = incarnation

    def seal(self, slot: int, blob: Secret) -> bytes:
        """`blob` encrypted and authenticated."""
        # Imported at the first blob: the first answer does not need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = AESGCM(self._key.reveal())
        return _FORMAT + nonce + cipher.encrypt(nonce, blob.reveal(), self._bound_to(slot))

    def unseal(self, slot: int, sealed: bytes) -> Secret | None:
        """The blob; None when it was sealed with another key, for another slot, or is damaged."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, content = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        if sealed[:1] != _FORMAT or len(nonce) < _NONCE_BYTES:
            return None
        try:
            return Secret(AESGCM(self._key.reveal()).decrypt(nonce, content, self._bound_to(slot)))
        except InvalidTag:
            return None

    def key_check(self) -> str:
        """A sealed constant: opens under this key only."""
        return self.seal(_CHECK_SLOT, Secret(_CHECK_TEXT)).hex()

    def opens(self, key_check: str) -> bool:
        """Whether `key_check` was made with this key."""
        try:
            sealed = bytes.fromhex(key_check)
        except ValueError:
            return False
        return self.unseal(_CHECK_SLOT, sealed) is not None

    def _bound_to(self, slot: int) -> bytes:
        return f"{self._incarnation}:{slot}".encode()
