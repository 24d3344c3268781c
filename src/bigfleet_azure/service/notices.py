"""Notices of scheduled events that machines pass on: an eviction becomes visible to the shard.

A notice from a machine itself begins the walk of a lost machine at once and drains it in the time
that is left. One whose sender only holds the token that all nodes share raises a probability, and
no more: any pod of any node may have read that token. No notice asks the substrate anything.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.lifecycle import LOSS_WALKS, WITH_HOST, CapacityType, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.service.losses import Losses
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

WARNED_PROBABILITY = 0.99
"""Published for a machine whose eviction was announced (contract section 16)."""

NOTICE_SECONDS = 30.0
"""Time that is taken to be left when a notice does not say: Azure gives 30 s at best (azure-facts
section 2.6)."""

LONGEST_SECONDS = 900.0
"""No drain that a notice begins takes longer, whatever the notice says: Azure announces scheduled
events 15 minutes ahead at most for a redeploy, evictions by 30 s."""

EVENT_TYPES = ("Preempt", "Reboot", "Redeploy", "Freeze", "Terminate")
"""The types that Azure has; all others are counted as one."""

REMEMBERED = 10_000
"""Events known by id, so that a repeated one costs nothing: more than a region evicts at once."""

A_MACHINE = 10
A_MACHINE_SECONDS = 10.0
"""Notices of one machine that are looked at within so many seconds: an agent posts an event twice,
and tries again every second at most."""


class Answer(Enum):
    """What became of a notice."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    TOO_EARLY = "too_early"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A scheduled event as a machine tells of it.

    Attributes:
        machine_id: the machine it concerns.
        event_type: Azure's word, in any case.
        event_id: Azure's id of the event; "" when the sender does not say.
        not_before: Unix seconds before which nothing happens; 0 when that is not said.
        own: the sender is that machine itself, by its own token.
    """

    machine_id: str
    event_type: str
    event_id: str = ""
    not_before: float = 0.0
    own: bool = False


class Notices:
    """See the module."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        journal: Journal,
        losses: Losses,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self._losses = losses
        self._clock = clock
        self._metrics = metrics
        self._known: OrderedDict[tuple[str, str, bool], None] = OrderedDict()
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def take(self, notice: Notice) -> Answer:
        """Do what a notice asks for. The sender's right to send it was checked before."""
        answer = await self._taken(notice)
        self._metrics.notices.labels(answer.value).inc()
        return answer

    async def _taken(self, notice: Notice) -> Answer:
        record = self._inventory.record(notice.machine_id)
        if record is None:
            return Answer.IGNORED
        if self._crowded(notice.machine_id):
            return Answer.TOO_MANY
        key = (notice.machine_id, notice.event_id, notice.own)
        if notice.event_id and key in self._known:
            return Answer.DUPLICATE
        self._count_event(notice)
        if notice.event_type.lower() != "preempt":
            self._remember(key)
            return Answer.IGNORED
        answer = await self._preempt(notice, record)
        if answer is not Answer.TOO_EARLY:
            self._remember(key)
        return answer

    def _crowded(self, machine_id: str) -> bool:
        now = self._clock.now()
        since, count = self._counts.pop(machine_id, (now, 0))
        if now - since >= A_MACHINE_SECONDS:
            since, count = now, 0
        self._counts[machine_id] = (since, count + 1)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return count >= A_MACHINE

    def _remember(self, key: tuple[str, str, bool]) -> None:
        if key[1]:
            self._known[key] = None
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _count_event(self, notice: Notice) -> None:
        names = {name.lower(): name for name in EVENT_TYPES}
        name = names.get(notice.event_type.lower(), "other")
        self._metrics.scheduled_events.labels(name).inc()
        logger.info(
            "scheduled event",
            extra={
                "machine": notice.machine_id,
                "event": name,
                "event_id": notice.event_id,
                "own_token": notice.own,
            },
        )

    async def _preempt(self, notice: Notice, record: Record) -> Answer:
        if record.operation is not None and record.operation.loss:
            return Answer.DUPLICATE
        if record.state not in WITH_HOST and record.state is not State.CREATING:
            return Answer.IGNORED
        spot = self._inventory.offering(record.offering).offer.capacity_type is CapacityType.SPOT
        if not notice.own:
            if not spot:
                return Answer.IGNORED
            await self._warn(record)
            return Answer.TAKEN
        if record.state in LOSS_WALKS:
            return await self._lose(notice, record)
        await self._warn(record)
        if record.state in (State.CREATING, State.CONFIGURING):
            return Answer.TOO_EARLY
        return Answer.TAKEN

    async def _warn(self, record: Record) -> None:
        """Publish that the machine will hardly stay."""

        def build() -> ChangeSet:
            current = self._inventory.record(record.id)
            if current is None or current.host != record.host or current.warned:
                return ChangeSet()
            after = replace(current, warned=WARNED_PROBABILITY, change=self._inventory.reserve())
            return ChangeSet(records=(after,))

        await self._journal.change(record.id, build)

    async def _lose(self, notice: Notice, record: Record) -> Answer:
        now = self._clock.now()
        until = min(notice.not_before or now + NOTICE_SECONDS, now + LONGEST_SECONDS)
        event = f" {notice.event_id}" if notice.event_id else ""
        begun = await self._losses.begin(
            record.id,
            f"host lost: {Condition.EVICTED} (announced by Azure: Preempt{event})",
            Condition.EVICTED,
            still=lambda current: current.state in LOSS_WALKS and current.host == record.host,
            until=until,
        )
        # It began to change meanwhile: the sender tries again.
        return Answer.TAKEN if begun else Answer.TOO_EARLY
