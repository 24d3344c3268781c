"""Walks lost machines to where a shard can follow: each state served by a List before the next.

Who finds a machine lost is `reconciler`'s and `notices`' business (contract section 12).
"""

import logging
from collections.abc import Callable

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.settle import finish_loss, lose
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class Losses:
    """See the module.

    Attributes:
        drain: begins the drain of a machine whose host is still there for a while; whoever drains
            it calls `finish` afterwards.
    """

    def __init__(
        self,
        *,
        inventory: Inventory,
        journal: Journal,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self.drain: Callable[[Record], None] = self.walk

    async def begin(
        self,
        machine_id: str,
        reason: str,
        condition: Condition,
        *,
        still: Callable[[Record], bool],
        until: float = 0.0,
    ) -> bool:
        """Let the shard see that a settled machine is lost.

        Args:
            reason: becomes `last_error`.
            condition: what was found, for the metrics.
            still: whether the machine as it is now is the one that was found lost.
            until: as in `domain.settle.lose`.

        Returns:
            Whether the walk began.
        """
        lost: list[Record] = []

        def build() -> ChangeSet:
            lost.clear()
            current = self._inventory.record(machine_id)
            if current is None or not still(current):
                return ChangeSet()
            settled = lose(
                current,
                reason,
                now=self._clock.now(),
                change=self._inventory.reserve(),
                until=until,
            )
            assert settled.record is not None
            lost.append(settled.record)
            return settled.changes

        await self._journal.change(machine_id, build)
        for record in lost:
            self._metrics.losses.labels(condition).inc()
            if condition is Condition.EVICTED:
                self._metrics.spot_evictions.inc()
            logger.warning("machine lost: %s", reason, extra={"machine": record.id})
            self.resume(record)
        return bool(lost)

    def resume(self, record: Record) -> None:
        """Continue a walk, perhaps of an earlier process."""
        operation = record.operation
        if operation is not None and operation.lost_slowly:
            self.drain(record)
        else:
            self.walk(record)

    def walk(self, record: Record) -> None:
        """Go on to the end of the walk."""
        self._supervisor.start(f"loss of {record.id}", self.finish(record))

    async def finish(self, record: Record) -> None:
        """The second step, once a List has served the first."""
        await self._inventory.served(record.id)
        number = record.operation.number if record.operation else 0

        def build() -> ChangeSet:
            current = self._inventory.record(record.id)
            now_on = current.operation if current else None
            if current is None or now_on is None or now_on.number != number:
                return ChangeSet()
            return finish_loss(
                current, now=self._clock.now(), change=self._inventory.reserve()
            ).changes

        await self._journal.change(record.id, build)
