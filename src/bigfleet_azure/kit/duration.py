"""Durations as Go writes them: `1h30m`, `90s`, `500ms`, `0`."""

import re
from datetime import timedelta
from fractions import Fraction

_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
"""Go's units (time.ParseDuration); both signs that Unicode has for micro."""

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_PART = re.compile(f"({_NUMBER})({'|'.join(_MICROSECONDS)})(?![a-zµμ])")
_BARE = re.compile(f"[+-]?{_NUMBER}")

_LONGEST = timedelta(days=36500)
"""A hundred years: above it a number is a slip, and sums with dates would overflow."""


def parse(text: str) -> timedelta:
    """The duration written as `text`, to the microsecond.

    Raises:
        ValueError: `text` is not a duration; the message names the fix.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return timedelta()
    if _BARE.fullmatch(text):
        raise ValueError(f"has no unit; write {text}s, {text}m or {text}h")
    total = Fraction(0)
    position = 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            break
        total += Fraction(part[1]) * _MICROSECONDS[part[2]]
        position = part.end()
    if not body or position < len(body):
        raise ValueError("is not a duration such as 90s, 8m or 1h30m")
    if total > _LONGEST / timedelta(microseconds=1):
        raise ValueError("is longer than a hundred years")
    return timedelta(microseconds=round(-total if text[0] == "-" else total))


def spell(duration: timedelta) -> str:
    """The shortest text of whole units that `parse` turns back into `duration`.

    >>> spell(timedelta(minutes=90)), spell(timedelta(milliseconds=1500)), spell(timedelta())
    ('1h30m', '1s500ms', '0')
    """
    rest = abs(duration) // timedelta(microseconds=1)
    if not rest:
        return "0"
    parts = ["-"] if duration < timedelta() else []
    for unit in ("h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, int(_MICROSECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
