"""Headers of answers, compared with the recorded ones: names, and the form of telling values.

A header that every recording of a call has must be there. Values are held to their form: whole
seconds, operation URLs with their query keys, bucket names. Bodies belong to `shapes`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.support.arm.truth.recordings import lower_names, split_url
from tests.support.arm.truth.shapes import Difference

# Not ARM's to promise: set by the server software, or by the network edge of that day.
NOT_HELD = frozenset({"content-length", "date", "server", "x-cache", "transfer-encoding"})

# ARM's own counts come and go between recordings with the model of throttling; a test of the
# buckets holds them, not a recording.
_COUNTS = "x-ms-ratelimit-remaining-subscription-"

# Retry-After depends on the kind of resource too: below so many recordings it may be chance.
_ENOUGH = 3

# Say something to a client: none of these may come where none was recorded.
TELLING = frozenset(
    {"azure-asyncoperation", "location", "retry-after", "etag", "x-ms-failure-cause"}
)

BUCKETS = "x-ms-ratelimit-remaining-resource"
_URLS = ("azure-asyncoperation", "location")
_VERBATIM = (
    "azure-asyncnotification",
    "cache-control",
    "content-type",
    "expires",
    "pragma",
    "strict-transport-security",
    "x-content-type-options",
    "x-ms-failure-cause",
)


def compare(
    ours: Mapping[str, str],
    recorded: Sequence[Mapping[str, str]],
    *,
    unseen: frozenset[str] = frozenset(),
) -> list[Difference]:
    """Compare our headers with those of all recordings of the same call and outcome.

    What is `unseen` on our side is not missed.
    """
    return list(_compare(lower_names(ours), [lower_names(each) for each in recorded], unseen))


def _compare(
    ours: Mapping[str, str], recorded: list[dict[str, str]], unseen: frozenset[str]
) -> Iterator[Difference]:
    if not recorded:
        return
    always = set(recorded[0]).intersection(*recorded)
    for name in sorted(always - ours.keys() - NOT_HELD - unseen):
        if name.startswith(_COUNTS) or (name == "retry-after" and len(recorded) < _ENOUGH):
            continue
        yield Difference("missing", f"header {name}", "every recording has it")
    for name, text in ours.items():
        seen = [each[name] for each in recorded if name in each]
        if not seen:
            if name in TELLING:
                yield Difference("extra", f"header {name}", "no recording of this outcome has it")
            continue
        yield from _value(name, text, seen)


def _value(name: str, text: str, seen: list[str]) -> Iterator[Difference]:
    where = f"header {name}"
    if name == "retry-after" and not text.isdecimal():
        # The SDK reads the one of a first answer with int().
        yield Difference("kind", where, f"{text!r} is not a whole number of seconds")
    elif name in _VERBATIM and _plain(text) not in set(map(_plain, seen)):
        yield Difference("value", where, f"{text!r} where {seen[0]!r} was recorded")
    elif name in _URLS:
        yield from _url(where, text, seen)
    elif name == BUCKETS:
        known = set().union(*map(buckets, seen))
        unknown = buckets(text).keys() - known
        # Until 2023 buckets were named after their minutes; where no later recording is at hand,
        # the current names cannot be compared.
        if unknown and not all(each.endswith("Min") for each in known):
            yield Difference("value", where, f"bucket {', '.join(sorted(unknown))} not recorded")
    elif name.startswith(_COUNTS) and not text.isdecimal():
        yield Difference("kind", where, f"{text!r} is not a number")


def _url(where: str, text: str, seen: list[str]) -> Iterator[Difference]:
    if not text.startswith("https://"):
        yield Difference("kind", where, f"{text[:60]!r} is not an https URL")
        return
    if any(brace in text for brace in "{}"):
        yield Difference("value", where, "braces; the SDK passes the URL through str.format")
    path, query = split_url(text)
    known = [split_url(each) for each in seen]
    if url_form(path) not in {url_form(each) for each, _query in known}:
        yield Difference("value", where, f"{url_form(path)} where {url_form(known[0][0])} was seen")
    needed = set(known[0][1]).intersection(*(query for _path, query in known))
    for key in sorted(needed - query.keys()):
        yield Difference("missing", f"{where} ?{key}", "every recording has it")


def url_form(path: str) -> str:
    """An operation URL's path with its names taken out."""
    path = re.sub(r"^/subscriptions/[^/]+", "/subscriptions/*", path, flags=re.IGNORECASE)
    path = re.sub(r"/locations/[^/]+", "/locations/*", path)
    return re.sub(r"/(operations|operationresults)/.+$", r"/\1/*", path, flags=re.IGNORECASE)


def buckets(text: str) -> dict[str, int]:
    """Read `Microsoft.Compute/PutVMResource;11,…`: how much is left in each bucket."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, left = part.strip().partition(";")
        found[name] = int(left) if left.isdecimal() else -1
    return found


def _plain(text: str) -> str:
    return text.replace(" ", "").lower()
