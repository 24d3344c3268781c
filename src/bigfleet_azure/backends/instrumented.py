"""Substrate calls, counted and timed: a Backend around any other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bigfleet_azure.backends.base import Assignment, Backend, Host, Observation, Refreshed
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.telemetry.metrics import Metrics

_Result = TypeVar("_Result")


class _Meter:
    """The metric children of one operation, looked up once."""

    def __init__(self, metrics: Metrics, op: str) -> None:
        self._successes = metrics.api_calls.labels(op, "success")
        self._errors = metrics.api_calls.labels(op, "error")
        self._duration = metrics.api_duration.labels(op)

    async def measure(self, call: Awaitable[_Result]) -> _Result:
        """Await `call`; a call that was cut off at its deadline is an error too."""
        with self._duration.time():
            try:
                result = await call
            except BaseException:
                self._errors.inc()
                raise
        self._successes.inc()
        return result


class InstrumentedBackend:
    """Feeds `api_calls_total` and `api_duration_seconds` (op names: contract section 16).

    Waiting for a node to be Ready is no call to the substrate and is not counted: it would say
    more about the cluster than about Azure.
    """

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self.name = backend.name
        self.max_blob_bytes = backend.max_blob_bytes
        self.rebuilds = backend.rebuilds
        self._backend = backend
        self._create = _Meter(metrics, "CreateVM")
        self._configure = _Meter(metrics, "Configure")
        self._drain = _Meter(metrics, "Drain")
        self._delete = _Meter(metrics, "DeleteVM")
        self._get = _Meter(metrics, "GetVM")
        self._list = _Meter(metrics, "ListVMs")

    async def start(self) -> None:
        await self._backend.start()

    async def close(self) -> None:
        await self._backend.close()

    def facts(self, offer: Offer) -> Facts:
        return self._backend.facts(offer)

    def offered(self, offers: Sequence[Offer]) -> None:
        self._backend.offered(offers)

    def recall(self, kept: str) -> None:
        self._backend.recall(kept)

    async def refresh(self) -> Refreshed:
        return await self._backend.refresh()

    def unpriced(self) -> Sequence[str]:
        return self._backend.unpriced()

    def watch_facts(self, changed: Callable[[], None]) -> None:
        self._backend.watch_facts(changed)

    async def create(self, work: Assignment) -> Host:
        return await self._create.measure(self._backend.create(work))

    async def configure(self, work: Assignment, blob: Secret) -> None:
        await self._configure.measure(self._backend.configure(work, blob))

    async def wait_ready(self, work: Assignment) -> None:
        await self._backend.wait_ready(work)

    async def drain(self, work: Assignment) -> None:
        await self._drain.measure(self._backend.drain(work))

    async def delete(self, work: Assignment) -> None:
        await self._delete.measure(self._backend.delete(work))

    async def inspect(self, machine_id: str, host: str) -> Observation:
        return await self._get.measure(self._backend.inspect(machine_id, host))

    async def inventory(self) -> Sequence[Observation]:
        return await self._list.measure(self._backend.inventory())

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        await self._delete.measure(self._backend.reclaim(debt, operation_id))

    async def shortages(self) -> Sequence[Shortage]:
        return await self._backend.shortages()
