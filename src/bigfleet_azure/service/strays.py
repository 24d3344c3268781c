"""Hosts and parts in the substrate that no machine has: given a machine, owed, or left and shown.

After the store was lost they are what is left of the fleet: a host under the id of a slot that was
never used becomes that slot's machine again, and one that is bound comes back bound. What belongs
to nobody is removed after a grace. What is bound, or another daemon's, is never removed.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from bigfleet_azure.backends.base import Condition, Observation
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.metadata import pack
from bigfleet_azure.domain.operation import incarnation_of
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.janitor import Janitor
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

GRACE_SECONDS = 300.0
"""Least age of what is removed for belonging to nobody: more than a failed Create or a late list
needs to explain itself (Azure may hold a NIC for 180 s, field case A1)."""

SHOWN = 5
"""Machines that a condition names; the rest is counted."""

YIELD_EVERY = 500
"""Observations compared, or hosts adopted, before other work gets a turn."""

UNPLACED_CONDITION = "unplaced-machines"
SHARED_CONDITION = "owner-shared"
PLAN_CONDITION = "leftovers"

_Key = tuple[str, str, str]


class Strays:
    """What becomes of observations that no record accounts for."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        journal: Journal,
        janitor: Janitor,
        conditions: Conditions,
        clock: Clock,
        metrics: Metrics,
        created: float,
        remove: bool,
    ) -> None:
        """Take the service's parts.

        Args:
            created: Unix seconds at which our store's life began.
            remove: whether what belongs to nobody is removed, or only shown.
        """
        self._inventory = inventory
        self._journal = journal
        self._janitor = janitor
        self._conditions = conditions
        self._clock = clock
        self._metrics = metrics
        self._created = created
        self._remove = remove
        self._neighbours: set[str] = set()
        self._bound: set[tuple[str, str]] = set()
        self._first_seen: dict[_Key, float] = {}

    async def unheld(self, found: Sequence[Observation]) -> list[Observation]:
        """Those of `found` that no record holds, without those of a living neighbour.

        A neighbour is another daemon with our owner tag: a store of another life made something
        after ours began. What it made is not ours to touch. One that bound a host of ours is shown.
        """
        unheld, bound = [], []
        for position, one in enumerate(found):
            if position % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            if not self._held(one):
                unheld.append(one)
            elif self._bound_elsewhere(one):
                bound.append(one)
        foreign = [one for one in unheld if self._other_life(one)]
        self._neighbours.update(
            incarnation_of(one.operation_id) for one in foreign if one.since > self._created
        )
        theirs = [one for one in foreign if incarnation_of(one.operation_id) in self._neighbours]
        # A list may be older than the Drain that ended a binding of an earlier store of ours.
        known, self._bound = self._bound, {(one.machine_id, one.bound_by) for one in bound}
        theirs += [one for one in bound if (one.machine_id, one.bound_by) in known]
        self._show_neighbours(theirs)
        return [one for one in unheld if incarnation_of(one.operation_id) not in self._neighbours]

    def _other_life(self, one: Observation) -> bool:
        return incarnation_of(one.operation_id) not in ("", self._inventory.incarnation)

    def _bound_elsewhere(self, one: Observation) -> bool:
        """Whether a machine that nobody bound here is bound by an operation of another life."""
        record = self._inventory.record(one.machine_id)
        idle = record is not None and record.state is State.IDLE
        return idle and incarnation_of(one.bound_by) not in ("", self._inventory.incarnation)

    def _held(self, one: Observation) -> bool:
        record = self._inventory.record(one.machine_id)
        if record is None or not record.host:
            return False
        if one.leftover:
            return one.parts.lower() in record.parts.lower().split()
        return one.host == record.host or one.host.lower() == record.host.lower()

    def _show_neighbours(self, theirs: Sequence[Observation]) -> None:
        if not theirs:
            self._conditions.clear(SHARED_CONDITION)
            return
        lives = sorted({incarnation_of(one.bound_by or one.operation_id) for one in theirs})
        self._conditions.set(
            SHARED_CONDITION,
            f"another daemon uses this owner id: {_named(theirs)} of store {', '.join(lives)}, "
            f"made or bound after our store {self._inventory.incarnation} began; they are left "
            "alone. Give each daemon an owner id of its own",
        )

    async def adopt(self, unheld: Sequence[Observation]) -> None:
        """Give hosts their machines back, where the slot of that id was never used.

        Bound ones first, then the newest id of a slot.
        """
        homeless = [
            (not one.cluster, -vacant.generation, position, one)
            for position, one in enumerate(unheld)
            if not one.leftover and (vacant := self._inventory.vacant(one.machine_id))
        ]
        ordered = [one for *_, one in sorted(homeless, key=lambda item: item[:3])]
        for first in range(0, len(ordered), YIELD_EVERY):
            batch = ordered[first : first + YIELD_EVERY]
            await asyncio.gather(*(self._adopt(one) for one in batch))

    async def _adopt(self, one: Observation) -> None:
        vacant = self._inventory.vacant(one.machine_id)
        if vacant is None:
            return
        adopted: list[Record] = []

        def build() -> ChangeSet:
            adopted.clear()
            vacant = self._inventory.vacant(one.machine_id)
            state = _state_of(one)
            if vacant is None or state is None:
                return ChangeSet()
            if state is State.IDLE and not self._inventory.offered(vacant):
                return ChangeSet()
            if self._owes(one):
                return ChangeSet()
            adopted.append(
                replace(
                    vacant,
                    state=state,
                    change=self._inventory.reserve(),
                    since=self._clock.now(),
                    host=one.host,
                    parts=one.parts,
                    cluster=one.cluster,
                    metadata=pack(one.metadata or {}) if one.cluster else b"",
                )
            )
            return ChangeSet(records=tuple(adopted))

        # Callers know a slot that was never used by its first id, so that one orders us and them.
        first_id = self._inventory.offering(vacant.offering).machine_id(vacant.index)
        await self._journal.change(first_id, build)
        for record in adopted:
            self._metrics.strays.labels("adopted").inc()
            logger.warning(
                "a host without a record is a machine again",
                extra={"machine": record.id, "state": record.state.name, "host": record.host},
            )

    async def owe(self, unheld: Sequence[Observation]) -> None:
        """Owe what was seen in two passes, is past its grace and belongs to nobody."""
        now = self._clock.now()
        first_seen: dict[_Key, float] = {}
        unplaced = []
        ownerless = []
        for one in unheld:
            if not self._stray(one):
                continue
            if not one.leftover and (one.cluster or one.metadata):
                unplaced.append(one)
                continue
            key = (one.machine_id, one.host, one.operation_id)
            seen = self._first_seen.get(key)
            first_seen[key] = now if seen is None else seen
            if seen is None or now - (one.since or seen) < GRACE_SECONDS:
                continue
            if self._remove:
                await self._owe(one)
            else:
                ownerless.append(one)
        self._first_seen = first_seen
        self._show_unplaced(unplaced)
        self._show_plan(ownerless)

    def _stray(self, one: Observation) -> bool:
        """Whether nobody holds it, works on it, or owes it already."""
        record = self._inventory.record(one.machine_id)
        if record is not None and record.operation is not None:
            return False
        return not self._held(one) and not self._owes(one)

    def _owes(self, one: Observation) -> bool:
        part = one.parts if one.leftover else ""
        return self._janitor.owes(one.machine_id, one.host, one.operation_id, part)

    async def _owe(self, one: Observation) -> None:
        owed: list[Debt] = []

        def build() -> ChangeSet:
            owed.clear()
            if not self._stray(one):
                return ChangeSet()
            record = self._inventory.record(one.machine_id)
            owed.append(
                Debt(
                    number=self._inventory.reserve(),
                    slot=record.slot if record else 0,
                    machine_id=one.machine_id,
                    operation=0,
                    host=one.host,
                    parts=one.parts,
                    reason="no machine has this part" if one.leftover else "no machine has it",
                    since=self._clock.now(),
                )
            )
            return ChangeSet(debts=tuple(owed), head=owed[0].number)

        await self._journal.change(one.machine_id, build)
        for debt in owed:
            self._metrics.strays.labels("owed").inc()
            logger.warning(
                "what no machine has is removed",
                extra={"machine": debt.machine_id, "host": debt.host},
            )

    def _show_plan(self, ownerless: Sequence[Observation]) -> None:
        """What would be removed, for people who want to see it first."""
        if not ownerless:
            self._conditions.clear(PLAN_CONDITION)
            return
        hosts = [one.host for one in ownerless]
        rest = [f"{len(hosts) - SHOWN} more"] if len(hosts) > SHOWN else []
        self._conditions.set(
            PLAN_CONDITION,
            f"{', '.join(hosts[:SHOWN] + rest)} belong to no machine and cost money; "
            "--leftovers=remove removes them",
        )

    def _show_unplaced(self, unplaced: Sequence[Observation]) -> None:
        if not unplaced:
            self._conditions.clear(UNPLACED_CONDITION)
            return
        self._conditions.set(
            UNPLACED_CONDITION,
            f"{_named(unplaced)} work for a cluster and have no machine here; they are left "
            "alone and cost money. Offer their slots again, or remove them by hand",
        )


def _state_of(one: Observation) -> State | None:
    """The settled state that a host stands for; None when it stands for none.

    A bound one that does not run any more is bound all the same, and then lost. One of which it is
    not sure that it is free is never IDLE.
    """
    if one.cluster:
        return State.CONFIGURED
    if one.condition is Condition.RUNNING and not one.metadata:
        return State.IDLE
    return None


def _named(some: Sequence[Observation]) -> str:
    names = [f"{one.machine_id} ({one.cluster})" if one.cluster else one.machine_id for one in some]
    rest = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join(names[:SHOWN] + rest)
