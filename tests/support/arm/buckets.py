"""The token buckets of ARM and of its providers, their headers and their refusals.

Sizes and refills are those of azure-facts section 4: ARM's per principal and subscription, with a
cap of fifteen times for all principals; Compute's per subscription and per resource; Network's
per subscription.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.arm.clock import stamp
from tests.support.arm.wire import Answer, Refusal, fault_body, refusal

GLOBAL_FACTOR = 15
_ARM = {"reads": (250, 25.0), "writes": (200, 10.0), "deletes": (200, 10.0)}
# Name -> (size, refill a minute) of the subscription, and of one resource where there is one.
_COMPUTE = {
    "PutVM": ((1500, 500), (12, 4)),
    "UpdateVM": ((1500, 500), (12, 4)),
    "DeleteVM": ((1500, 500), (12, 4)),
    "LowCostGet": ((24000, 8000), (36, 12)),
    "HighCostGet": ((900, 300), None),
    "GetOperation": ((15000, 5000), (45, 15)),
    "GetSubscriptionInfo": ((360, 120), None),
}
# Operation answers name the resource before the subscription; all others the other way round.
_RESOURCE_FIRST = {"GetOperation"}
_NETWORK = {"NetworkReads": (10000, 10000 / 300), "NetworkWrites": (1000, 1000 / 300)}
NETWORK_WINDOW = 300


@dataclass
class Bucket:
    """Tokens that come back evenly; `drain` are those a second that others take."""

    size: float
    refill: float
    now: Callable[[], float]
    drain: float = 0.0
    _tokens: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = self.size
        self._at = self.now()

    @property
    def left(self) -> float:
        now = self.now()
        grown = self._tokens + (now - self._at) * (self.refill - self.drain)
        self._tokens = max(0.0, min(self.size, grown))
        self._at = now
        return self._tokens

    def take(self, count: float = 1.0) -> bool:
        """Whether there was enough; nothing is taken otherwise."""
        if self.left < count:
            return False
        self._tokens -= count
        return True

    def empty(self) -> None:
        self._tokens, self._at = 0.0, self.now()

    def wait(self) -> int:
        """Whole seconds until a token is there, at least one."""
        rate = max(self.refill - self.drain, 1e-3)
        return max(1, math.ceil((1.0 - self.left) / rate))


@dataclass
class ThrottleShape:
    """How Compute words its 429: both shapes are on record, and Retry-After may be absent."""

    wrapped: bool = False
    retry_after: bool = True


class Buckets:
    """All buckets of one cloud."""

    def __init__(self, now: Callable[[], float], *, small_reads: bool = False) -> None:
        self._now = now
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._drains: dict[str, float] = {}
        self.sizes = dict(_COMPUTE)
        if small_reads:
            # The other documentation page has a tenth.
            self.sizes["HighCostGet"] = ((90, 30), None)
        self.enforced = True
        self.own_reads_header = False
        """Recorded reads since 2024 carry the global count only."""
        self.shape = ThrottleShape()

    def drain(self, bucket: str, per_second: float) -> None:
        """Let other tenants take this much of a shared bucket, like `global-writes` or `PutVM`."""
        self._drains[bucket] = per_second
        for key, each in self._buckets.items():
            if key[0] == bucket and len(key) == 2:
                each.left  # noqa: B018 - accounts for the time before the change
                each.drain = per_second

    def empty(self, bucket: str, subscription: str, *rest: str) -> None:
        """Take all tokens of one bucket now; `rest` names a resource or a principal."""
        self._find(bucket, subscription, *rest).empty()

    def charge_arm(self, kind: str, subscription: str, principal: str) -> dict[str, str]:
        """Charge a read, write or delete; the headers that the answer carries."""
        own = self._find(kind, subscription, principal)
        shared = self._find(f"global-{kind}", subscription)
        for bucket in (own, shared):
            if bucket.left < 1 and self.enforced:
                raise self._arm_refusal(kind, subscription, principal, bucket)
        own.take()
        shared.take()
        prefix = "x-ms-ratelimit-remaining-subscription"
        headers = {f"{prefix}-global-{kind}": str(int(shared.left))}
        if kind != "reads" or self.own_reads_header:
            headers[f"{prefix}-{kind}"] = str(int(own.left))
        return headers

    def charge_compute(self, policy: str, subscription: str, resource: str) -> dict[str, str]:
        """Charge a call to Compute; the header that the answer carries."""
        pairs = list(self._compute_pairs(policy, subscription, resource))
        empty = next((name for name, bucket in pairs if bucket.left < 1), None)
        if empty is not None and self.enforced:
            raise self._compute_refusal(empty, dict(pairs))
        for _, bucket in pairs:
            bucket.take()
        return {"x-ms-ratelimit-remaining-resource": _header(dict(pairs)), **_CHARGE}

    def charge_network(self, write: bool, subscription: str) -> None:
        """Charge a call to Network, which sends no header."""
        bucket = self._find("NetworkWrites" if write else "NetworkReads", subscription)
        if not bucket.take() and self.enforced:
            wait = bucket.wait()
            raise refusal(
                429,
                "TooManyRequests",
                f"The request is being throttled. Retry after {wait} seconds.",
                details=[],
                headers={"Retry-After": str(wait)},
            )

    def _compute_pairs(
        self, policy: str, subscription: str, resource: str
    ) -> Iterator[tuple[str, Bucket]]:
        shared = (f"{policy}SubscriptionMaximum", self._find(policy, subscription))
        if self.sizes[policy][1] is None:
            yield shared
            return
        own = (f"{policy}Resource", self._find(policy, subscription, resource))
        yield from (own, shared) if policy in _RESOURCE_FIRST else (shared, own)

    def _find(self, name: str, *rest: str) -> Bucket:
        key = (name, *(each.lower() for each in rest))
        bucket = self._buckets.get(key)
        if bucket is None:
            size, refill = self._size(name, len(rest) > 1)
            bucket = Bucket(size, refill, self._now)
            if len(rest) == 1:
                bucket.drain = self._drains.get(name, 0.0)
            self._buckets[key] = bucket
        return bucket

    def _size(self, name: str, of_one: bool) -> tuple[float, float]:
        if name in _NETWORK:
            return _NETWORK[name]
        if name in _ARM:
            return _ARM[name]
        if name.startswith("global-"):
            size, refill = _ARM[name.removeprefix("global-")]
            return size * GLOBAL_FACTOR, refill * GLOBAL_FACTOR
        shared, own = self.sizes[name]
        chosen = own if of_one and own is not None else shared
        return chosen[0], chosen[1] / 60

    def _arm_refusal(self, kind: str, subscription: str, principal: str, bucket: Bucket) -> Refusal:
        wait = bucket.wait()
        return refusal(
            429,
            "SubscriptionRequestsThrottled",
            f"Number of '{kind.removesuffix('s')}' requests for subscription '{subscription}' "
            f"actor '{principal}' exceeded. Please try again after '{wait}' seconds after "
            "additional tokens are available. "
            "Refer to https://aka.ms/arm-throttling for additional information.",
            gateway=True,
            headers={
                "Retry-After": str(wait),
                f"x-ms-ratelimit-remaining-subscription-{kind}": "0",
            },
        )

    def _compute_refusal(self, name: str, buckets: dict[str, Bucket]) -> Refusal:
        bucket, now = buckets[name], self._now()
        wait = bucket.wait()
        message = {
            "operationGroup": name,
            "startTime": stamp(now),
            "endTime": stamp(now + wait),
            "allowedRequestCount": int(bucket.size),
            "measuredRequestCount": int(bucket.size) + 1,
        }
        body = fault_body(
            "OperationNotAllowed",
            "The server rejected the request because too many requests have been received for "
            "this subscription.",
            details=[{"code": "TooManyRequests", "target": name, "message": json.dumps(message)}],
            wrapped=self.shape.wrapped,
        )
        headers = {"x-ms-ratelimit-remaining-resource": _header(buckets)}
        if self.shape.retry_after:
            headers["Retry-After"] = str(wait)
        return Refusal(Answer(429, body, headers))


_CHARGE = {"x-ms-request-charge": "1"}


def _header(buckets: dict[str, Bucket]) -> str:
    return ",".join(f"Microsoft.Compute/{name};{int(each.left)}" for name, each in buckets.items())
