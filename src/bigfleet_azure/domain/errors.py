"""Failure kinds of the substrate and refusals of a request, as values.

The kinds are what the executor decides by; the texts are what people read. Translating a vendor's
answer into a kind belongs to the backend that got it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigfleet_azure.domain.shortage import Shortage


class FailureKind(StrEnum):
    """Why the substrate did not do what was asked (design section 7)."""

    OUT_OF_CAPACITY = "out_of_capacity"
    QUOTA = "quota"
    THROTTLED = "throttled"
    DENIED = "denied"
    INVALID = "invalid"
    GONE = "gone"
    CONFLICT = "conflict"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"
    DEADLINE = "deadline"


RETRYABLE = frozenset(
    {
        FailureKind.OUT_OF_CAPACITY,
        FailureKind.QUOTA,
        FailureKind.THROTTLED,
        FailureKind.TRANSIENT,
        FailureKind.UNKNOWN,
    }
)
"""Held and tried again inside the deadline. The rest is definite and ends the operation at once."""


class BackendError(Exception):
    """The substrate refused or failed.

    Attributes:
        kind: what sort of failure it is; decides between waiting and FAILED.
        code: the substrate's own short code, for metrics and people; empty when it has none.
        retry_after: the earliest time the substrate wants to be asked again; None when it
            did not say.
        shortage: what cannot be had by other offers either, whether the refusal is definite or may
            pass; None when nothing is known beyond the operation. After OUT_OF_CAPACITY and QUOTA
            the offer itself then counts as short.
        ids: what the substrate's support finds the refusal by, as fields of log lines.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        code: str = "",
        retry_after: timedelta | None = None,
        shortage: "Shortage | None" = None,
        ids: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.retry_after = retry_after
        self.shortage = shortage
        self.ids = ids or {}


class RefusalReason(StrEnum):
    """Why a mutation was not accepted; `rpc.status` maps each to one status code."""

    INVALID = "invalid"
    STALE_TOKEN = "stale_token"
    UNKNOWN_MACHINE = "unknown_machine"
    ILLEGAL_STATE = "illegal_state"
    OTHER_CLUSTER = "other_cluster"
    STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A mutation that was not accepted: the reason, and a text that names the machine."""

    reason: RefusalReason
    message: str
