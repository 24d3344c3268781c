"""What ARM says when it does not do what was asked: one exception for every call.

The calls themselves are `clients`'; what a refusal means is `errors`'.
"""

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One nested error of a refusal."""

    code: str
    message: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A refusal as it came, whatever the shape of its body.

    Attributes:
        call: what was asked, as the name of the call, e.g. `vm.put`.
        status: HTTP status; 200 for an operation that was accepted and failed later, 0 when no
            answer came (`code` then names the trouble: ConnectionError, Timeout, Credential).
        code, message, target: of the outermost error.
        details: every nested error, outermost first, also from `innererror` and from JSON inside
            a message.
        retry_after: when to ask again, by the headers; None when they do not say.
        request_id, correlation_id: what Azure's support asks for.
    """

    call: str
    status: int
    code: str
    message: str = ""
    target: str = ""
    details: tuple[Detail, ...] = field(default_factory=tuple)
    retry_after: timedelta | None = None
    request_id: str = ""
    correlation_id: str = ""


class ArmError(Exception):
    """A call to ARM was refused, or its operation failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}" if failure.message else failure.code)
        self.failure = failure
