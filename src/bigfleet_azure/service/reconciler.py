"""Compares the substrate with the inventory, and walks lost machines where a shard can follow.

Hosts that no machine has are `service.strays`' business.

A list is a hint: absence is believed only after the substrate was asked about that very host, and a
pass that lost an unlikely share of the fleet changes nothing (field case A11).
"""

import asyncio
import logging

from bigfleet_azure.backends.base import Backend, Condition, Observation
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.lifecycle import LOSS_WALKS, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import operation_id
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.service.losses import Losses
from bigfleet_azure.service.strays import Strays
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

SUSPICIOUS_SHARE = 0.5
SUSPICIOUS_COUNT = 10
"""A list that lacks more than half of the hosts, and more than ten, is taken for a faulty list."""

SUSPICIOUS_PASSES = 3
"""A list that stays so for this many passes is believed after all, host by host."""

YIELD_EVERY = 500
"""Records compared before other work gets a turn."""

INVENTORY_CONDITION = "substrate-inventory"
SHRUNK_CONDITION = "substrate-list-shrunk"


class Reconciler:
    """Finds hosts that vanished, were evicted, stopped or broke, and shows it to the shard."""

    def __init__(
        self,
        *,
        backend: Backend,
        inventory: Inventory,
        journal: Journal,
        strays: Strays,
        conditions: Conditions,
        metrics: Metrics,
        losses: Losses,
        inventoried: bool,
    ) -> None:
        self._backend = backend
        self._inventory = inventory
        self._journal = journal
        self._strays = strays
        self._conditions = conditions
        self._metrics = metrics
        self._losses = losses
        self._births: dict[str, str] = {}
        self._suspicious_passes = 0
        self._inventoried = inventoried or not backend.rebuilds

    async def reconcile(self) -> bool:
        """One pass: list, compare, confirm each suspect by itself, begin the walks.

        Returns:
            Whether the substrate could be listed.
        """
        try:
            # Before our own records are read: what is accepted meanwhile cannot look forgotten.
            found = await self._backend.inventory()
        except BackendError as error:
            self._metrics.reconcile.labels("error").inc()
            self._conditions.set(INVENTORY_CONDITION, f"hosts cannot be listed: {error}")
            return False
        self._conditions.clear(INVENTORY_CONDITION)
        unheld = await self._strays.unheld(found)
        await self._strays.adopt(unheld)
        seen = {one.machine_id: one for one in found if not one.leftover}
        self._births = {name: one.operation_id for name, one in seen.items() if one.operation_id}
        settled = [r for r in self._inventory.records() if r.state in LOSS_WALKS]
        suspects = await self._suspects(settled, seen)
        missing = sum(1 for record in suspects if record.id not in seen)
        if self._believable(missing, len(settled)):
            for record in suspects:
                await self._confirm(record)
            await self._strays.owe(unheld)
        await self._note_inventoried()
        self._metrics.reconcile.labels("success").inc()
        return True

    async def _note_inventoried(self) -> None:
        if not self._inventoried:
            await self._journal.change("inventoried?", lambda: ChangeSet(inventoried=True))
            self._inventoried = True

    def made_by(self, record: Record) -> str:
        """Operation id of the Create that made the machine's host; empty when it is not known.

        Of a host from before the store's life only the substrate's tags tell.
        """
        if record.created:
            return operation_id(self._inventory.incarnation, record.created)
        return self._births.get(record.id, "")

    @staticmethod
    async def _suspects(records: list[Record], seen: dict[str, Observation]) -> list[Record]:
        suspects = []
        for position, record in enumerate(records):
            if position % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            found = seen.get(record.id)
            if found is None or _lost(record, found):
                suspects.append(record)
        return suspects

    def _believable(self, missing: int, total: int) -> bool:
        if missing <= SUSPICIOUS_COUNT or missing <= total * SUSPICIOUS_SHARE:
            self._suspicious_passes = 0
            self._conditions.clear(SHRUNK_CONDITION)
            return True
        self._suspicious_passes += 1
        self._conditions.set(
            SHRUNK_CONDITION,
            f"the substrate's list lacks {missing} of {total} hosts; nothing is taken for lost "
            f"until it stayed so for {SUSPICIOUS_PASSES} passes",
        )
        return self._suspicious_passes > SUSPICIOUS_PASSES

    async def _confirm(self, suspect: Record) -> None:
        try:
            found = await self._backend.inspect(suspect.id, suspect.host)
        except BackendError as error:
            logger.warning(
                "a suspect host cannot be inspected: %s", error, extra={"machine": suspect.id}
            )
            return
        if not _lost(suspect, found):
            return
        reason = f"host lost: {found.condition}"
        if found.detail:
            reason = f"{reason} ({found.detail})"
        await self._losses.begin(
            suspect.id,
            reason,
            found.condition,
            still=lambda current: (current.state, current.since) == (suspect.state, suspect.since),
        )


def _lost(record: Record, found: Observation) -> bool:
    """Whether a settled machine's host can no longer do its work.

    A bound machine whose last update failed still runs its workloads: it is left to the caller
    (field case A7). An unbound one is of no use to anybody and is given back.
    """
    if found.condition is Condition.FAILED:
        return record.state is State.IDLE
    return found.condition not in (Condition.CREATING, Condition.RUNNING)
