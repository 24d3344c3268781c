"""Reading the texts of settings: each reader takes a text and gives the value it means.

A reader raises ValueError with the rest of a sentence that begins with the value: what is wrong
with it, and what to write instead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit import duration

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LOCATION = r"[a-z][a-z0-9-]{0,48}[a-z0-9]"
_HOST = re.compile(r"[A-Za-z0-9._-]*")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""What Go's strconv.ParseBool takes."""


@dataclass(frozen=True, slots=True)
class Address:
    """A listen address; an empty host means every interface, port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(text: str) -> str:
    """Any text, as it is."""
    return text


def path(text: str) -> Path | None:
    """A path; empty for none."""
    if "\0" in text:
        raise ValueError("is not a path")
    return Path(text) if text else None


def secret(text: str) -> Secret | None:
    """Text that is never shown; empty for none."""
    return Secret(text.encode(errors="surrogateescape")) if text else None


def boolean(text: str) -> bool:
    """A boolean as Go reads it."""
    try:
        return BOOLEANS[text]
    except KeyError:
        raise ValueError("is not a boolean; write true or false") from None


def address(text: str) -> Address:
    """A listen address."""
    host, colon, port = text.rpartition(":")
    if not colon:
        example = f":{text}" if text.isdecimal() else f"{text}:9000"
        raise ValueError(f"has no port; write HOST:PORT such as {example}")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise ValueError(f"has the bad port {port!r}; a port is a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        return Address(_ipv6(host[1:-1]), int(port))
    if ":" in host:
        raise ValueError("has an IPv6 address without brackets; write [::1]:9000")
    if not _HOST.fullmatch(host):
        raise ValueError(f"has the bad host {host!r}; write HOST:PORT such as 127.0.0.1:9000")
    return Address(host, int(port))


def _ipv6(text: str) -> str:
    from ipaddress import IPv6Address

    try:
        IPv6Address(text)
    except ValueError:
        raise ValueError(f"has {text!r} in brackets, which is no IPv6 address") from None
    return text


def address_or_off(text: str) -> Address | None:
    """A listen address; empty for none."""
    return address(text) if text else None


def label_value(text: str) -> str:
    """A name that may stand in ids and labels."""
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            "is not a name of 1 to 63 letters, digits, '-', '_' and '.', "
            "starting and ending with a letter or digit"
        )
    return text


def zone(text: str) -> str:
    """A zone name; empty for none."""
    return label_value(text) if text else ""


def location(text: str) -> str:
    """The short name of an Azure region, also when it is written as people do; empty for none."""
    squeezed = text.replace(" ", "").lower()
    if text and not re.fullmatch(_LOCATION, squeezed):
        raise ValueError("is not the name of an Azure region such as eastus")
    return squeezed


def whole(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers within these bounds."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError("is not a whole number such as 32")
        value = int(text)
        if least is not None and value < least:
            raise ValueError(f"is too small; the least is {least}")
        if most is not None and value > most:
            raise ValueError(f"is too large; the most is {most}")
        return value

    return parse


def share(text: str) -> float:
    """A share from 0 to 1."""
    if not _NUMBER.fullmatch(text) or not 0.0 <= float(text) <= 1.0:
        raise ValueError("is not a share from 0 to 1 such as 0.05")
    return float(text)


def rate(text: str) -> float:
    """A number that is not negative."""
    if not _NUMBER.fullmatch(text) or not 0.0 <= float(text) < float("inf"):
        raise ValueError("is not a number of 0 or more such as 0.5")
    return float(text)


def interval(text: str) -> timedelta:
    """A duration that may be 0."""
    value = duration.parse(text)
    if value < timedelta():
        raise ValueError("is negative; write 0 or a duration such as 90s")
    return value


def timeout(text: str) -> timedelta:
    """A duration longer than 0."""
    value = duration.parse(text)
    if value <= timedelta():
        raise ValueError("must be longer than 0; write a duration such as 8m")
    return value


def timeout_or_none(text: str) -> timedelta | None:
    """A duration longer than 0; empty for none."""
    return timeout(text) if text else None


def choice(*values: str, **also: str) -> Callable[[str], str]:
    """A reader of one of `values`, or of a synonym in `also`, whatever the case."""
    known = {**{value.lower(): value for value in values}, **also}

    def parse(text: str) -> str:
        try:
            return known[text.lower()]
        except KeyError:
            raise ValueError(f"is unknown; write one of {', '.join(values)}") from None

    return parse
