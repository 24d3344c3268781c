"""The pace of all calls to ARM: no call is sent that would make Azure answer 429.

What is here and nowhere else: taking the tokens of a call before it is sent, and learning from the
headers of its answer. Sizes and charges are `charges`'; one bucket's arithmetic is `bucket`'s.
"""

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from bigfleet_azure.backends.azure.answers import retry_after
from bigfleet_azure.backends.azure.bucket import Bucket, Lane
from bigfleet_azure.backends.azure.charges import (
    CHARGES,
    LARGER,
    NETWORK,
    OF_ONE,
    POLLS,
    RESERVED_SHARE,
    SHARED,
    SIZES,
)
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

DEFAULT_RETRY_AFTER = timedelta(minutes=1)
"""How long a 429 without Retry-After is believed (field case D1, azure-practice section 5)."""

_ENTRY = re.compile(r"([^,;]+);\s*(\d+)")
_SUBSCRIPTION = re.compile(
    r"x-ms-ratelimit-remaining-subscription-((?:global-)?(?:reads|writes|deletes))"
)
_VM = re.compile(r"/virtualmachines/([^/?]+)")


class Throttle:
    """All buckets of one principal in one subscription and region.

    Args:
        metrics: shown the headroom of every bucket, who waits, and what Azure refused.
    """

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        self._shared = {
            name: Bucket(
                clock, size, reserve=RESERVED_SHARE.get(name, 0.0), larger=LARGER.get(name)
            )
            for name, size in SIZES.items()
        }
        self._own: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        if metrics is not None:
            for name, bucket in self._shared.items():
                _show(metrics, name, bucket)

    @asynccontextmanager
    async def turn(
        self, call: str, resource: str = "", *, urgent: bool = False
    ) -> AsyncIterator[None]:
        """Wait until every bucket of `call` has a token, take them, and let the call be made.

        The call is to be made within the context: while it is under way its tokens may not have
        been taken from Azure's buckets yet. First come, first served in every bucket; polls come
        after all else. A wait that is cancelled takes nothing.

        Args:
            resource: the VM, or the address of the operation, that has buckets of its own.
            urgent: whether it goes before all that wait.
        """
        lane = Lane.URGENT if urgent else Lane.POLL if call in POLLS else Lane.ORDINARY
        taken: list[Bucket] = []
        try:
            for bucket in self._charged(call, resource):
                await bucket.take(lane)
                taken.append(bucket)
        except BaseException:
            for bucket in taken:
                bucket.give_back()
            raise
        try:
            yield
        finally:
            for bucket in taken:
                bucket.over()

    def learn(self, call: str, status: int, headers: Mapping[str, str], resource: str = "") -> None:
        """Believe what an answer says of Azure's buckets; close what a 429 is about.

        A 429 closes the buckets that its headers show to be empty. When they show none it closes
        the call's own: not those of Network, which sends no such headers and answers 429 for other
        reasons too; there the caller, who reads the body, decides to `close`.
        """
        emptied = []
        for name, remaining in self._told(call, headers):
            bucket = self._find(name, resource)
            if bucket is not None:
                bucket.learn(remaining)
                if remaining == 0:
                    emptied.append((name, bucket))
        if status != 429:
            return
        pause = retry_after(headers, self._clock.now()) or DEFAULT_RETRY_AFTER
        seconds = pause.total_seconds()
        for name, bucket in emptied:
            self._close(name, bucket, seconds)
        if not emptied and _decisive(call) not in NETWORK:
            self.close(call, seconds)

    def close(self, call: str, seconds: float) -> None:
        """Let no such call be made for so long: Azure said that there are too many."""
        name = _decisive(call)
        self._close(name, self._shared[name], seconds)

    def headroom(self, call: str) -> float:
        """Share, 0 to 1, that is left of the tightest bucket that `call` shares with others."""
        return min(self._shared[name].headroom for name in CHARGES[call] if name in self._shared)

    def _close(self, name: str, bucket: Bucket, seconds: float) -> None:
        bucket.close(seconds)
        if self._metrics is not None:
            self._metrics.arm_throttled.labels(name).inc()

    def _charged(self, call: str, resource: str) -> Iterator[Bucket]:
        for name in CHARGES[call]:
            if name in self._shared:
                yield self._shared[name]
            elif resource:
                yield self._of_one(name, resource)

    def _of_one(self, name: str, resource: str) -> Bucket:
        """The bucket of one VM or operation; those that are full again are forgotten."""
        key = (name, _key(resource))
        bucket = self._own.get(key)
        if bucket is None:
            bucket = self._own[key] = Bucket(self._clock, OF_ONE[name])
        self._own.move_to_end(key)
        while (oldest := next(iter(self._own))) != key and self._own[oldest].idle:
            del self._own[oldest]
        return bucket

    def _find(self, name: str, resource: str) -> Bucket | None:
        return self._shared.get(name) or self._own.get((name, _key(resource)))

    def _told(self, call: str, headers: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """What an answer's headers say: bucket and tokens left."""
        for header, value in headers.items():
            name = header.lower()
            if name == "x-ms-ratelimit-remaining-resource":
                yield from _compute_entries(call, value)
            elif (found := _SUBSCRIPTION.fullmatch(name)) and value.strip().isdecimal():
                yield found[1], int(value)


def _compute_entries(call: str, value: str) -> Iterator[tuple[str, int]]:
    """Entries such as `Microsoft.Compute/PutVMResource;11`.

    Names have changed over the years (PutVM3Min, PutVMSubscriptionMaximum), so what is not of one
    resource is taken to be about the bucket that the call shares.
    """
    for name, remaining in _ENTRY.findall(value):
        of_one = name.strip().endswith("Resource")
        for bucket in CHARGES[call]:
            if bucket in (OF_ONE if of_one else SHARED):
                yield bucket, int(remaining)


def _decisive(call: str) -> str:
    """The first bucket of a call that is not of one resource."""
    return next(name for name in CHARGES[call] if name in SIZES)


def _key(resource: str) -> str:
    """The name of the VM in an ARM path; anything else as it is."""
    key = resource.lower()
    found = _VM.search(key)
    return found[1] if found else key


def _show(metrics: Metrics, name: str, bucket: Bucket) -> None:
    metrics.arm_headroom.labels(name).set_function(lambda: bucket.headroom)
    metrics.arm_waiting.labels(name).set_function(lambda: bucket.waiting)
