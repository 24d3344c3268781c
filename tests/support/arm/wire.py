"""What goes over the wire: a call, its answer, the refusals, and the record of both."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One request and its answer, as seen on the wire."""

    at: float
    principal: str
    method: str
    route: str
    """The route's name in `routes.py`, like `vm.put`."""
    template: str
    """The path with its parameters in braces, as in the API descriptions."""
    path: str
    query: Mapping[str, str]
    request_headers: Mapping[str, str]
    request: Any
    """The JSON of the request, None when it had no body."""
    status: int
    """0 when the connection was dropped before an answer."""
    headers: Mapping[str, str]
    response: Any
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last parameter of the path: the name of the resource, where there is one."""
        return list(self.parameters.values())[-1] if self.parameters else ""


@dataclass
class Call:
    """A request that reached ARM, understood."""

    method: str
    route: str
    path: str
    parameters: dict[str, str]
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    principal: str = ""
    operation_error: Json | None = None
    """Scripted: the operation that this call begins ends with this error."""
    operation_seconds: float | None = None
    """Scripted: how long it takes."""
    leave: frozenset[str] = frozenset()
    """Scripted: parts that a deletion leaves."""

    @property
    def subscription(self) -> str:
        return self.parameters.get("subscriptionId", "")

    @property
    def group(self) -> str:
        return self.parameters.get("resourceGroupName", "")

    @property
    def api_version(self) -> str:
        return self.query.get("api-version", "")

    @property
    def name(self) -> str:
        """The last parameter of the path: the name of the resource, where there is one."""
        return list(self.parameters.values())[-1] if self.parameters else ""

    @property
    def vm_name(self) -> str:
        return self.parameters.get("vmName", "")

    def seconds(self, usual: float) -> float:
        """How long the operation of this call takes."""
        return usual if self.operation_seconds is None else self.operation_seconds

    def json(self) -> Json:
        """The body, which must be an object."""
        if not isinstance(self.body, dict):
            raise refusal(400, "InvalidRequestContent", "The request content was invalid.")
        return self.body


@dataclass
class Answer:
    """What ARM says."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return "" if self.body is None else json.dumps(self.body)


class Refusal(Exception):
    """An answer raised instead of returned."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body}")
        self.answer = answer


def fault_body(
    code: str,
    message: str,
    *,
    target: str | None = None,
    details: list[Json] | None = None,
    wrapped: bool = True,
) -> Json:
    """An error as ARM writes it; Compute's own throttle lacks the wrapper."""
    error: Json = {"code": code, "message": message}
    if target is not None:
        error["target"] = target
    if details is not None:
        error["details"] = details
    return {"error": error} if wrapped else error


def invalid(code: str, message: str, target: str | None = None) -> Refusal:
    """The 400 of a body that cannot be."""
    return refusal(400, code, message, target=target)


def refusal(
    status: int,
    code: str,
    message: str,
    *,
    target: str | None = None,
    details: list[Json] | None = None,
    wrapped: bool = True,
    gateway: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Refusal:
    """An error to raise; `gateway` marks those that ARM itself gives, before any provider."""
    extra = dict(headers or {})
    if gateway:
        extra["x-ms-failure-cause"] = "gateway"
    body = fault_body(code, message, target=target, details=details, wrapped=wrapped)
    return Refusal(Answer(status, body, extra))
