"""Taking what looks like a secret out of texts that Azure wrote, before anybody reads them.

It knows what secrets look like, not which ones there are. What a guest wrote is `guest_secrets`'.
"""

import re

MASK = "***"

_ADDRESS = re.compile(r"(https?://[^\s'\"<>?#]*)[?#][^\s'\"<>]*", re.IGNORECASE)
"""An address with a query: those of operations and of stored files are signed there."""

_NAMED = re.compile(
    r"""(?P<name>\b(?:sig|access_token|token|password|secret|client_secret|client_assertion|
        sharedaccesskey|accountkey|customdata|userdata|script|commandtoexecute|protectedsettings)
        \b["'\\]*\s*[=:]\s*)
        (?:\\?"(?:[^"\\]|\\.)*(?:\\?"|\Z) | '[^']*(?:'|\Z) | \{[^}]*(?:\}|\Z) | [^\s,;&"'}\])]+)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A value behind a name of secrets: `key=value`, or JSON, quoted once or twice, or cut off."""

_SHAPES = (
    re.compile(r"(?<=\bBearer )[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
)
"""Tokens of OAuth, keys and certificates, and join tokens of Kubernetes, wherever they stand."""

_ENCODED = re.compile(r"[A-Za-z0-9+/]{64,}={0,2}")

_WORD = re.compile(r"[^\s\"',;]+")

_OF_AN_ID = ("/subscriptions/", "/providers/")
"""An ARM id may hold as long a name as encoded data, and is what people need."""


def masked(text: str) -> str:
    """The text with `***` for whatever looks like a secret."""
    text = _ADDRESS.sub(rf"\1?{MASK}", text)
    text = _NAMED.sub(rf"\g<name>{MASK}", text)
    for shape in _SHAPES:
        text = shape.sub(MASK, text)
    return _WORD.sub(_without_data, text)


def _without_data(word: re.Match[str]) -> str:
    text = word[0]
    return text if any(part in text for part in _OF_AN_ID) else _ENCODED.sub(MASK, text)
