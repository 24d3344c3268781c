"""Reading the table of refusals: what a failure means, and what people are told of it.

One place decides, for every call alike. The rules are data in `error_table`, the vocabulary is
`verdict`'s, the shapes of Azure's answers are `answers`'. No SDK is needed here.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase

from bigfleet_azure.backends.azure.arm import Detail, Failure
from bigfleet_azure.backends.azure.error_rules import Rule, Step
from bigfleet_azure.backends.azure.error_table import NO_QUOTA_SECONDS, RULES
from bigfleet_azure.backends.azure.masking import masked
from bigfleet_azure.backends.azure.verdict import Quota, Verdict
from bigfleet_azure.domain.errors import BackendError, FailureKind

MAX_MESSAGE = 1_500
"""Longest text of an error, in characters: every List carries it while a machine is FAILED."""

_LEAST_WORDS = 80
"""Characters that Azure's own words get at least, however long all else is."""

_OF_STEP = {step: tuple(rule for rule in RULES if rule.step is step) for step in Step}

_CODES = {code.lower(): code for rule in RULES for code in rule.codes if "*" not in code}

_PATTERNS = [code for rule in RULES for code in rule.codes if "*" in code]


def classify(failure: Failure) -> Verdict:
    """What a failure means."""
    rule, entry = decide(failure)
    code = entry.code or failure.code
    means = replace(rule.means, code=_CODES.get(code.lower(), code))
    if means.kind is not FailureKind.QUOTA:
        return means
    quota = _figures(entry.message)
    if quota is not None and quota.limit == 0:
        means = replace(means, seconds=max(means.seconds, NO_QUOTA_SECONDS))
    return replace(means, quota=quota)


def decide(failure: Failure) -> tuple[Rule, Detail]:
    """The rule that decides, and the error that it was found in."""
    entries = _entries(failure)
    for rules in _OF_STEP.values():
        for entry in entries:
            for rule in rules:
                if _matches(rule, failure, entry, outermost=entry is entries[0]):
                    return rule, entry
    raise AssertionError("the last rule has no condition")


def metric_code(verdict: Verdict) -> str:
    """The deciding code as a label: as the table names it, at least in part, else `other`."""
    code = verdict.code.lower()
    alike = (part for part in _PATTERNS if fnmatchcase(code, part.lower()))
    return _CODES.get(code) or next(alike, "other").strip("*")


def backend_error(failure: Failure, machine_id: str) -> BackendError:
    """The failure as the rest of the program knows it; what is short is left to the caller.

    Args:
        machine_id: the machine, or what else the call was about.
    """
    verdict = classify(failure)
    wait = failure.retry_after
    if wait is None and verdict.busy_seconds is not None:
        wait = timedelta(seconds=verdict.busy_seconds)
    return BackendError(
        verdict.kind,
        _text(failure, verdict.hint, machine_id),
        code=verdict.code,
        retry_after=wait,
        ids={
            name: one
            for name, one in (
                ("request_id", failure.request_id),
                ("correlation_id", failure.correlation_id),
            )
            if one
        },
    )


def _entries(failure: Failure) -> tuple[Detail, ...]:
    outermost = Detail(code=failure.code, message=failure.message, target=failure.target)
    return outermost, *failure.details


def _matches(rule: Rule, failure: Failure, entry: Detail, *, outermost: bool) -> bool:
    if not outermost and (rule.status or not rule.codes):
        return False
    if rule.status and not _has_status(failure.status, rule.status):
        return False
    if rule.calls and not any(fnmatchcase(failure.call, call) for call in rule.calls):
        return False
    if rule.codes and not any(fnmatchcase(entry.code.lower(), c.lower()) for c in rule.codes):
        return False
    message = entry.message.lower()
    return not rule.says or any(text.lower() in message for text in rule.says)


def _has_status(status: int, wanted: str) -> bool:
    return wanted in (str(status), f"{status // 100}xx")


_FIGURES = {
    "limit": re.compile(r"(?:current limit|maximum allowed)\s*[:=]?\s*(\d{1,12})", re.IGNORECASE),
    "usage": re.compile(r"current (?:usage|in use)\s*[:=]?\s*(\d{1,12})", re.IGNORECASE),
    "required": re.compile(r"additional (?:required|requested)\s*[:=]?\s*(\d{1,12})", re.I),
}
"""Both wordings of Azure (field cases C1, C4); anything may stand between the figures."""

_NAME = re.compile(
    r"exceeding (?:approved (?P<new>.{1,80}?) quota|quota limits of (?P<old>\w{1,80}))",
    re.IGNORECASE,
)


def _figures(message: str) -> Quota | None:
    found = {name: figure.search(message) for name, figure in _FIGURES.items()}
    limit, usage, required = (int(one[1]) if one else None for one in found.values())
    named = _NAME.search(message)
    name = (named["new"] or named["old"]) if named else ""
    if not name and not any(found.values()):
        return None
    return Quota(name=name, limit=limit, usage=usage, required=required)


def _text(failure: Failure, hint: str, machine_id: str) -> str:
    """What happened, to which machine, what to do now; Azure's own words are what is cut."""
    _, entry = decide(failure)
    code = entry.code or failure.code
    within = f" (in {failure.code})" if code != failure.code else ""
    head = masked(f"{_happened(failure, machine_id)}: {code}{within}")
    words = masked(" ".join(_words(entry, failure)))
    tail = " ".join(part for part in (hint, _ids(failure, words)) if part)
    room = max(_LEAST_WORDS, MAX_MESSAGE - len(head) - len(tail) - len(": . "))
    if len(words) > room:
        words = words[: room - 1].rstrip() + "…"
    told = f"{head}: {words}" if words else head
    end = "" if told[-1] in ".!?…" else "."
    return f"{told}{end} {tail}".rstrip()[:MAX_MESSAGE]


def _happened(failure: Failure, machine_id: str) -> str:
    match failure.status:
        case 0:
            return f"Azure gave no answer to {failure.call} for {machine_id}"
        case 200:
            return f"Azure's operation for {machine_id} failed ({failure.call})"
        case status:
            return f"Azure refused {failure.call} for {machine_id} with status {status}"


def _words(entry: Detail, failure: Failure) -> Iterator[str]:
    """Azure's words: those that decided, then what the other errors add."""
    told = set()
    for each in (entry, *_entries(failure)):
        text = " ".join(each.message.split())
        if text and text not in told and not text.startswith(("{", "[")):
            told.add(text)
            yield text


def _ids(failure: Failure, words: str) -> str:
    ids = {"request id": failure.request_id, "correlation id": failure.correlation_id}
    if failure.correlation_id == failure.request_id:
        del ids["correlation id"]
    named = [f"{name} {one}" for name, one in ids.items() if one and one not in words]
    return f"({', '.join(named)})" if named else ""
