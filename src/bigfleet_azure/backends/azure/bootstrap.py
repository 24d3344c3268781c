"""The extension that brings the bootstrap blob, or the order to drain, into a guest: its body.

The script itself is `guest_script`'s, sending it is `binding`'s. Everything travels in the
protected setting `script`: Azure encrypts it for the guest and never shows it again.
`commandToExecute` would be an argument that every process of the guest can read, and its size
ends at 128 KiB.

The re-run key is `forceUpdateTag` with the operation id: Azure runs a script again only when the
settings or this tag change, so that a repeated PUT is no second run. A `timestamp` beside it would
say the same a second time. The bytes are equal for equal arguments, hence no time in the archive.
"""

import base64
import zlib
from typing import Any

from bigfleet_azure.backends.azure.guest_script import configure_script, drain_script
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.secret import Secret

Json = dict[str, Any]

MAX_SCRIPT_CHARACTERS = 262_144
"""What CustomScript takes as `script`, encoded (azure-facts section 4.3)."""

MAX_BLOB_BYTES = 184 * 1024
"""The largest bootstrap blob that fits whatever its bytes are.

The script's 262,144 characters carry 196,608 bytes of gzip. The blob is in it as base64, 4
characters for 3 bytes, out of 64 different ones: an optimal code spends 6 bits on each, and less
than 6.05 with its tables and end marks. 184 KiB are 251,224 characters, thus less than 189,990
bytes; the other 6,600 are for the script around it, which has fewer even when it does not shrink.
"""

_GZIP = 16
_HUFFMAN_LEVEL = 9


def configure_extension(
    *,
    hook: str,
    blob: Secret,
    operation_id: str,
    machine_id: str,
    deadline: float,
    location: str,
) -> Json:
    """The extension that hands `blob` to the hook. Its protected settings are the secret.

    Args:
        deadline: Unix seconds after which the guest does not start the hook.

    Raises:
        BackendError: INVALID when the script is too large; it never is with a blob of at most
            `MAX_BLOB_BYTES` and a hook with a path of sane length.
        ValueError: the operation id does not end in a number.
    """
    script = configure_script(
        hook=hook,
        blob=base64.b64encode(blob.reveal()).decode(),
        machine_id=machine_id,
        operation_id=operation_id,
        deadline=deadline,
    )
    return _extension(script, machine_id, operation_id, location)


def drain_extension(
    *,
    hook: str,
    grace_seconds: int,
    operation_id: str,
    machine_id: str,
    deadline: float,
    location: str,
) -> Json:
    """The extension that has the hook drain the node.

    Raises:
        ValueError: the operation id does not end in a number.
    """
    script = drain_script(
        hook=hook,
        grace_seconds=grace_seconds,
        machine_id=machine_id,
        operation_id=operation_id,
        deadline=deadline,
    )
    return _extension(script, machine_id, operation_id, location)


def _extension(script: str, machine_id: str, operation_id: str, location: str) -> Json:
    encoded = _encoded(script)
    if len(encoded) > MAX_SCRIPT_CHARACTERS:
        raise BackendError(
            FailureKind.INVALID,
            f"the bootstrap script of {machine_id} has {len(encoded)} characters, CustomScript "
            f"takes {MAX_SCRIPT_CHARACTERS}; make the bootstrap blob smaller",
            code="ScriptTooLarge",
        )
    return {
        "location": location,
        "properties": {
            "publisher": "Microsoft.Azure.Extensions",
            "type": "CustomScript",
            "typeHandlerVersion": "2.1",
            "autoUpgradeMinorVersion": True,
            "forceUpdateTag": operation_id,
            "settings": {},
            "protectedSettings": {"script": encoded},
        },
    }


def _encoded(script: str) -> str:
    """The script as CustomScript takes it.

    Huffman coding alone: it is what the bound of `MAX_BLOB_BYTES` rests on, since a search for
    repetitions can make data that has none larger.
    """
    packer = zlib.compressobj(
        _HUFFMAN_LEVEL, zlib.DEFLATED, _GZIP + zlib.MAX_WBITS, strategy=zlib.Z_HUFFMAN_ONLY
    )
    packed = packer.compress(script.encode()) + packer.flush()
    return base64.b64encode(packed).decode()
