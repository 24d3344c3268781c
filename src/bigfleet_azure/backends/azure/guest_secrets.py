"""Takes secrets out of what guests print, before it becomes part of an error or a log line.

Two nets: what is part of the secret that the guest was given, and what looks like a secret by
itself in the output of join scripts. Azure's own texts are `masking`'s. A word too many is masked
rather than one too few, and no pattern goes over a text more than once: guests can print anything.
"""

import base64
import re
from collections.abc import Iterator

from bigfleet_azure.backends.azure.masking import MASK
from bigfleet_azure.domain.secret import Secret

SHORTEST_PIECE = 16
"""Characters of a known secret in a row that are masked; fewer may be there by chance."""

_NAME = (
    r"(?<![\w.-])(?=[\w.-]*(?:token|passw(?:or)?d|passphrase|secret|credential|"
    r"(?:api|access|account|private|shared|client)[-_.]?key))"
)
"""In front of a word that says that its value is a secret; tried at the start of words only."""

_VALUE = r"(?:\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s\"'&,;]++)"

_LOOKS_SECRET = (
    # PEM blocks, also those that a cut has left without their end or their beginning.
    (r"-----BEGIN [A-Z0-9 ]++-----[\s\S]*?-----END [A-Z0-9 ]++-----", MASK),
    (r"-----BEGIN [A-Z0-9 ]++-----(?:\s*+^[A-Za-z0-9+/=]++[ \t\r]*+$)*+", MASK),
    (r"(?:^[A-Za-z0-9+/=]++[ \t\r]*+\n)?-----END [A-Z0-9 ]++-----", MASK),
    # Lines of nothing but base64.
    (r"^[ \t]*+[A-Za-z0-9+/]{40,}+={0,2}[ \t\r]*+$", MASK),
    # JSON web tokens.
    (r"\beyJ[A-Za-z0-9_-]++\.[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+)?", MASK),
    # Bootstrap tokens of kubeadm and of k3s.
    (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", MASK),
    (r"\bK10[0-9a-f]{32,}+\S*+", MASK),
    (r"(?i)\b(authorization[\"']?\s*+[:=]\s*+)[^\n]*+", rf"\1{MASK}"),
    (r"(?i)\b(bearer|basic)\s++[A-Za-z0-9._~+/=-]{16,}+", rf"\1 {MASK}"),
    # User and password in an address.
    (r"(?<=://)[^/\s@]++@", rf"{MASK}@"),
    # Signatures of SAS addresses.
    (r"(?i)\b(sig=)[^&\s\"']++", rf"\1{MASK}"),
    # name=value, name: value, --name value.
    (rf"(?i)({_NAME}[\w.-]++[\"']?[ \t]*+[=:][ \t]*+){_VALUE}", rf"\1{MASK}"),
    (rf"(?i)({_NAME}-[\w.-]++[ \t]++){_VALUE}", rf"\1{MASK}"),
)
_PATTERNS = tuple((re.compile(one, re.MULTILINE), mask) for one, mask in _LOOKS_SECRET)


def without_secrets(text: str, secret: Secret | None = None) -> str:
    """`text` with `***` for every piece of `secret`, its base64, and all that looks like a secret.

    Args:
        secret: known to be about where the text was written; None when nothing is.
    """
    if secret is not None:
        text = _without(text, secret)
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text


def _without(text: str, secret: Secret) -> str:
    covered = bytearray(len(text))
    for form in _forms(secret.reveal()):
        size = min(len(form), SHORTEST_PIECE)
        for start in _found(text, form, size):
            covered[start : start + size] = b"\1" * size
    parts: list[str] = []
    for position, character in enumerate(text):
        if not covered[position]:
            parts.append(character)
        elif position == 0 or not covered[position - 1]:
            parts.append(MASK)
    return "".join(parts)


def _forms(content: bytes) -> Iterator[str]:
    """What the secret may be printed as; base64 of a part of it begins at one of three places."""
    yield content.decode(errors="replace")
    for skipped in range(min(3, len(content))):
        yield base64.b64encode(content[skipped:]).decode().rstrip("=")


def _found(text: str, form: str, size: int) -> Iterator[int]:
    """Where `text` holds any `size` characters in a row of `form`."""
    windows: dict[str, list[int]] = {}
    for start in range(len(text) - size + 1):
        windows.setdefault(text[start : start + size], []).append(start)
    for start in range(len(form) - size + 1):
        yield from windows.pop(form[start : start + size], ())
