"""How an RPC is turned down: status codes of refusals, and what Go calls each code.

FAILED_PRECONDITION stands for a stale fencing token and nothing else: operators are paged by it
(contract section 4).
"""

import grpc

from bigfleet_azure.domain.errors import Refusal, RefusalReason

CODES: dict[RefusalReason, grpc.StatusCode] = {
    RefusalReason.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.STALE_TOKEN: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.UNKNOWN_MACHINE: grpc.StatusCode.NOT_FOUND,
    RefusalReason.ILLEGAL_STATE: grpc.StatusCode.ABORTED,
    RefusalReason.OTHER_CLUSTER: grpc.StatusCode.ABORTED,
    RefusalReason.STORE: grpc.StatusCode.UNAVAILABLE,
}

GO_NAMES: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.OK: "OK",
    grpc.StatusCode.CANCELLED: "Canceled",
    grpc.StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    grpc.StatusCode.NOT_FOUND: "NotFound",
    grpc.StatusCode.PERMISSION_DENIED: "PermissionDenied",
    grpc.StatusCode.FAILED_PRECONDITION: "FailedPrecondition",
    grpc.StatusCode.ABORTED: "Aborted",
    grpc.StatusCode.INTERNAL: "Internal",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
}
"""Every code we answer with; the names are values of a metric label (contract section 16)."""


class Rejection(Exception):
    """Raised by a method to answer with a status instead of a message.

    Attributes:
        code: the gRPC status code.
        message: text for the caller.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @classmethod
    def of(cls, refusal: Refusal) -> "Rejection":
        """The rejection that tells a caller of a refusal."""
        return cls(CODES[refusal.reason], refusal.message)
