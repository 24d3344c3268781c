"""Long-running operations: how long each takes, how it is polled, how it ends.

Recorded facts: a VM PUT's first poll may carry a Retry-After that later ones lack, a failed
operation is an HTTP 200, URLs are several kB long, and a deletion has a Location as well.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.arm.clock import Event, Timeline, stamp
from tests.support.arm.resources import Resource, guid
from tests.support.arm.wire import Answer, Call, Json, refusal

URL_FILLER = 2700
"""Characters of signature; recorded URLs have about 3,000 in all."""
COMPUTE = "Microsoft.Compute"
NETWORK = "Microsoft.Network"
_USUAL = {
    "vm.create": 67.0,
    "vm.update": 6.0,
    "vm.delete": 26.0,
    "vm.start": 11.0,
    "vm.deallocate": 24.0,
    "vm.power-off": 9.0,
    "vm.restart": 14.0,
    "vm.reimage": 60.0,
    "vm.eviction": 30.0,
    "vm.allocation-failure": 40.0,
    "extension.put": 20.0,
    "extension.equal": 2.0,
    "extension.delete": 14.0,
    "extension.silent-agent": 1510.0,
    "disk.delete": 3.0,
    "nic.put": 1.0,
    "nic.delete": 5.0,
    "ip.put": 1.0,
    "ip.delete": 10.0,
    "tags.patch": 2.0,
}


@dataclass
class Durations:
    """Seconds by kind. The same seed and name give the same time, in whatever order they come."""

    seconds: dict[str, float] = field(default_factory=lambda: dict(_USUAL))
    spread: float = 0.0
    """0.3 = up to 30 % more or less."""
    seed: int = 0

    def of(self, kind: str, name: str) -> float:
        usual = self.seconds[kind]
        if not self.spread:
            return usual
        dice = random.Random(f"{self.seed}/{kind}/{name}")
        return usual * (1 + self.spread * dice.uniform(-1, 1))


@dataclass
class RetryAfter:
    """The Retry-After values on the wire, whole seconds; None leaves the header out."""

    create: int | None = 10
    create_poll: int | None = 35
    delete: int | None = 10
    delete_poll: int | None = 30
    later_polls: int | None = None

    def none(self) -> None:
        """As in most older recordings: no header anywhere."""
        self.create = self.create_poll = self.delete = self.delete_poll = self.later_polls = None


@dataclass(eq=False)
class Operation:
    """One accepted write."""

    id: str
    provider: str
    kind: str
    resource: Resource
    started: float
    finish: Callable[[], None]
    fail: Callable[[Json], None]
    error: Json | None = None
    """What it will fail with, or has failed with."""
    ended: float | None = None
    status: str = "InProgress"
    polls: int = 0
    event: Event | None = None

    @property
    def running(self) -> bool:
        return self.ended is None


class Operations:
    """All operations, and the answers that begin and follow them."""

    def __init__(self, timeline: Timeline, subscription: str) -> None:
        self.durations = Durations()
        self.retry_after = RetryAfter()
        self.endpoint = ""
        self.preempted: list[Operation] = []
        self._timeline = timeline
        self._subscription = subscription
        self._all: dict[str, Operation] = {}

    def start(
        self,
        provider: str,
        kind: str,
        resource: Resource,
        *,
        seconds: float | None,
        finish: Callable[[], None],
        fail: Callable[[Json], None],
        error: Json | None = None,
    ) -> Operation:
        """Accept a write; `seconds` None leaves the end to whoever calls `end`."""
        operation = Operation(
            guid(), provider, kind, resource, self._timeline.now(), finish, fail, error
        )
        resource.operation = operation
        self._all[operation.id] = operation
        if seconds is not None:
            operation.event = self._timeline.after(seconds, lambda: self.end(operation))
        return operation

    def end(self, operation: Operation) -> None:
        """Let it succeed, or fail with its error."""
        if not operation.running:
            return
        operation.ended = self._timeline.now()
        if operation.resource.operation is operation:
            operation.resource.operation = None
        if operation.error is None:
            operation.status = "Succeeded"
            operation.finish()
        else:
            operation.status = "Failed"
            operation.fail(operation.error)

    def preempt(self, operation: Operation) -> None:
        """Stop it in favour of a newer write, without its consequences."""
        if not operation.running:
            return
        if operation.event is not None:
            operation.event.cancelled = True
        operation.ended = self._timeline.now()
        operation.status = "Failed"
        operation.error = {
            "code": "OperationPreempted",
            "message": "Operation execution has been preempted by a more recent operation.",
        }
        if operation.resource.operation is operation:
            operation.resource.operation = None
        self.preempted.append(operation)

    def running(self) -> list[Operation]:
        return [each for each in self._all.values() if each.running]

    def headers(self, operation: Operation, call: Call, *, location: bool) -> dict[str, str]:
        """What the first answer carries; deletes and actions also have a Location."""
        url = self._url(operation, call, "operations")
        headers = {"Azure-AsyncOperation": url, "Azure-AsyncNotification": "Enabled"}
        if location and operation.provider == COMPUTE:
            headers["Location"] = url.replace("&api-version=", "&monitor=true&api-version=", 1)
        elif location:
            headers["Location"] = self._url(operation, call, "operationResults")
        wait = {
            "vm.create": self.retry_after.create,
            "vm.delete": self.retry_after.delete,
            "ip.put": self.retry_after.create and 1,
            "ip.delete": self.retry_after.delete,
        }.get(operation.kind)
        if wait:
            headers["Retry-After"] = str(wait)
        return headers

    def poll(self, call: Call) -> Answer:
        """GET of the Azure-AsyncOperation URL, or of the Location of a Compute operation."""
        operation = self._find(call)
        if call.query.get("monitor") == "true":
            return self._location(operation, call)
        operation.polls += 1
        headers: dict[str, str] = {}
        wait = self._poll_wait(operation)
        if operation.running and wait:
            headers["Retry-After"] = str(wait)
        if operation.provider == NETWORK:
            return Answer(200, self._network_body(operation), headers)
        body: Json = {"startTime": stamp(operation.started)}
        if operation.ended is not None:
            body["endTime"] = stamp(operation.ended)
        body["status"] = operation.status
        if operation.ended is not None and operation.error is not None:
            body["error"] = operation.error
        body["name"] = operation.id
        return Answer(200, body, headers)

    def result(self, call: Call) -> Answer:
        """GET of the Location of a Network operation."""
        return self._location(self._find(call), call)

    def _location(self, operation: Operation, call: Call) -> Answer:
        headers = self.headers(operation, call, location=True)
        headers.pop("Retry-After", None)
        if operation.running:
            return Answer(202, None, headers)
        if operation.error is not None:
            return Answer(409, {"error": operation.error})
        if operation.provider == NETWORK:
            return Answer(204, None, headers)
        return Answer(200)

    def _network_body(self, operation: Operation) -> Json:
        body: Json = {"status": operation.status}
        if operation.ended is not None and operation.error is not None:
            body["error"] = operation.error
        return body

    def _poll_wait(self, operation: Operation) -> int | None:
        if operation.polls > 1:
            return self.retry_after.later_polls
        return {
            "vm.create": self.retry_after.create_poll,
            "vm.delete": self.retry_after.delete_poll,
            "ip.delete": self.retry_after.delete,
        }.get(operation.kind)

    def _find(self, call: Call) -> Operation:
        operation = self._all.get(call.parameters["operationId"])
        if operation is None:
            raise refusal(404, "NotFound", "The entity was not found in this Azure location.")
        return operation

    def _url(self, operation: Operation, call: Call, collection: str) -> str:
        location = operation.resource.location
        start = int(operation.id[:8], 16) % URL_FILLER
        filler = _SIGNATURES[start : start + URL_FILLER]
        third = URL_FILLER // 3
        partition = f"p={guid()}&" if operation.provider == COMPUTE else ""
        return (
            f"{self.endpoint}/subscriptions/{self._subscription}/providers/{operation.provider}"
            f"/locations/{location}/{collection}/{operation.id}?{partition}"
            f"api-version={call.api_version}&t=638000000000000000&c={filler[:third]}"
            f"&s={filler[third : 2 * third]}&h={filler[2 * third :]}"
        )


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SIGNATURES = "".join(random.Random(0).choices(_ALPHABET, k=2 * URL_FILLER))
"""Each operation's URL shows another part of it."""
