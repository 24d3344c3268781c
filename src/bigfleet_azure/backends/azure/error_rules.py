"""What a rule about Azure's refusals is, and the short way of writing one.

The rules themselves are `error_table`'s; `errors` walks them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

from bigfleet_azure.backends.azure.verdict import Scope, Verdict
from bigfleet_azure.domain.errors import FailureKind


class Step(StrEnum):
    """The steps of a decision; a later one counts only when no earlier one found a rule."""

    THROTTLE = "throttle"
    CODE = "code"
    VAGUE = "vague"
    STATUS = "status"

    @property
    def meaning(self) -> str:
        """What the step looks at."""
        return _MEANINGS[self]


_MEANINGS = {
    Step.THROTTLE: "Throttling, in the error or in any of its details, whatever else is said.",
    Step.CODE: "Codes that mean something by themselves or with a text. An error counts before "
    "its details, and a detail before the next.",
    Step.VAGUE: "Codes that Azure uses for many things and for wrapping others.",
    Step.STATUS: "What no code told is told by the HTTP status.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table. Empty conditions hold always.

    A rule without codes, or with a status, looks at the outermost error only: a status is that of
    the call, and a detail may be about something else.

    Attributes:
        codes: codes, compared without case; `*` stands for any beginning or end.
        says: one of these texts is in the message, compared without case.
        status: an HTTP status or a class such as `5xx`; `0` when no answer came.
        calls: calls that it holds for, with `*` as in `codes`.
        means: the verdict.
    """

    step: Step
    codes: tuple[str, ...]
    says: tuple[str, ...]
    status: str
    calls: tuple[str, ...]
    means: Verdict


class More(TypedDict, total=False):
    """What a verdict may hold beside kind and hint."""

    scope: Scope
    seconds: float
    spot_seconds: float
    busy_seconds: float
    exists: bool
    gone: bool
    deleting: bool
    names_taken: bool
    credential: bool


def on(
    codes: str,
    kind: FailureKind,
    hint: str = "",
    *,
    step: Step = Step.CODE,
    says: tuple[str, ...] = (),
    status: str = "",
    calls: str = "",
    **more: Unpack[More],
) -> Rule:
    """A rule; codes and calls are separated by spaces."""
    return Rule(
        step=step,
        codes=tuple(codes.split()),
        says=says,
        status=status,
        calls=tuple(calls.split()),
        means=Verdict(kind=kind, hint=hint, **more),
    )
