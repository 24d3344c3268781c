"""Pays debts and gives FAILED capacity back.

A debt is something that may still exist in the substrate and nobody needs: each has its own clock
and is cleared only when the substrate says it is gone. A FAILED machine stays readable until a List
has carried it and its dwell is over; then its substrate is cleared, its id is retired and the slot
returns under a new one (contract sections 8 and 12).
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import operation_id
from bigfleet_azure.domain.settle import debt_of, retire
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.store.base import StoreError
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 600.0
RECLAIM_SECONDS = 600.0
"""Longest try: one that hangs must not keep its place from the others for ever. The longest VM
deletion on record took 324 s (azure-facts section 2.1)."""

STUBBORN_ATTEMPTS = 5
"""Tries after which an unpaid debt is shown as a condition: about 2.5 minutes, which is close to
the 180 s that Azure may reserve a NIC for a failed VM (field case A1)."""

CONDITION = "debts"


class Janitor:
    """One task per debt and one per FAILED machine, resumed from the store after a restart."""

    def __init__(
        self,
        *,
        backend: Backend,
        inventory: Inventory,
        journal: Journal,
        conditions: Conditions,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        dwell_seconds: float,
        parallel: int,
        opened: asyncio.Event,
    ) -> None:
        self._backend = backend
        self._inventory = inventory
        self._journal = journal
        self._conditions = conditions
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._dwell_seconds = dwell_seconds
        self._places = asyncio.Semaphore(parallel)
        self._opened = opened
        self._debts: dict[int, Debt] = {}
        self._paid: dict[int, asyncio.Event] = {}
        self._retiring: set[str] = set()

    def follow(self, changes: ChangeSet) -> None:
        """Take up what a published change set leaves to be done."""
        for number in changes.cleared_debts:
            debt = self._debts.pop(number, None)
            if debt is not None:
                self._paid.pop(number).set()
        for debt in changes.debts:
            self.owe(debt)
        for record in changes.records:
            if record.state is State.FAILED:
                self.failed(record)

    def owe(self, debt: Debt) -> None:
        """Work on a debt until it is paid."""
        known = debt.number in self._debts
        self._debts[debt.number] = debt
        if not known:
            self._paid[debt.number] = asyncio.Event()
            self._supervisor.start(f"debt {debt.machine_id}", self._pay(debt.number))

    def failed(self, record: Record) -> None:
        """Give the capacity of a FAILED machine back when its time has come; 0 means never."""
        if self._dwell_seconds > 0 and record.id not in self._retiring:
            self._retiring.add(record.id)
            self._supervisor.start(f"retire {record.id}", self._retire(record))

    async def cleared(self, machine_id: str) -> None:
        """Wait until nothing is owed any more under that id."""
        while owed := self._owed(machine_id):
            await self._paid[owed[0]].wait()

    def _owed(self, machine_id: str) -> list[int]:
        return [debt.number for debt in self._debts.values() if debt.machine_id == machine_id]

    def owes(self, machine_id: str, host: str, operation: str, part: str = "") -> bool:
        """Whether what is owed under that id includes this host, or what this operation made.

        Args:
            part: how the host is noted among the parts of a machine, if it is one.
        """
        return any(
            debt.machine_id == machine_id
            and (
                debt.host.lower() == host.lower()
                or (part != "" and part.lower() in debt.parts.lower().split())
                or (operation != "" and self._operation_id(debt) == operation)
            )
            for debt in self._debts.values()
        )

    def _operation_id(self, debt: Debt) -> str:
        """The operation whose makings are owed; empty when only host and parts are known."""
        return operation_id(self._inventory.incarnation, debt.operation) if debt.operation else ""

    def refresh_metrics(self) -> None:
        """Set the gauges that are read only when somebody looks."""
        now = self._clock.now()
        oldest = min((debt.since for debt in self._debts.values()), default=now)
        self._metrics.debts.set(len(self._debts))
        self._metrics.oldest_debt.set(max(0.0, now - oldest))

    async def forget_marks(self) -> None:
        """Drop fence marks of ids that do not exist, beyond their bounds.

        An id whose lock is held is left alone: its mark may just be on the way to the disk.
        """
        record, held = self._inventory.record, self._journal.locks.held
        keys = self._inventory.marks.expendable(
            lambda i: record(i) is not None or held(i), self._clock.now()
        )
        await self._journal.commit(ChangeSet(dropped_marks=keys))

    async def _pay(self, number: int) -> None:
        await self._opened.wait()
        while True:
            debt = self._debts[number]
            await self._clock.sleep(debt.not_before - self._clock.now())
            try:
                async with self._places, asyncio.timeout(RECLAIM_SECONDS / self._clock.pace):
                    await self._backend.reclaim(debt, self._operation_id(debt))
                await self._journal.commit(ChangeSet(cleared_debts=(number,)))
            except (BackendError, StoreError) as error:
                await self._postpone(debt, error)
            except TimeoutError:
                await self._postpone(debt, TimeoutError(f"no answer in {RECLAIM_SECONDS:g}s"))
            except Exception as error:  # a bug in a backend must not lose the debt
                logger.exception("bug in the backend", extra={"machine": debt.machine_id})
                await self._postpone(debt, error)
            else:
                break
        logger.info("leftovers removed", extra={"machine": debt.machine_id, "reason": debt.reason})
        self._show_stubborn()

    async def _postpone(self, debt: Debt, error: Exception) -> None:
        wait = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(debt.attempts, 10))
        if isinstance(error, BackendError) and error.retry_after is not None:
            wait = max(wait, error.retry_after.total_seconds())
        later = replace(
            debt,
            attempts=debt.attempts + 1,
            not_before=self._clock.now() + wait,
            last_error=str(error) or type(error).__name__,
        )
        self._debts[debt.number] = later
        self._show_stubborn()
        with suppress(StoreError):  # then the try counts in memory only
            await self._journal.commit(ChangeSet(debts=(later,)))

    def _show_stubborn(self) -> None:
        stubborn = [d for d in self._debts.values() if d.attempts >= STUBBORN_ATTEMPTS]
        if not stubborn:
            self._conditions.clear(CONDITION)
            return
        first = min(stubborn, key=lambda d: d.since)
        self._conditions.set(
            CONDITION,
            f"{len(stubborn)} leftovers cannot be removed; the oldest is of {first.machine_id} "
            f"({first.reason}), tried {first.attempts} times: {first.last_error}",
        )

    async def _retire(self, record: Record) -> None:
        await self._inventory.served(record.id)
        left = record.since + self._dwell_seconds - self._clock.now()
        # Never more than all of it, also when the wall clock was set back.
        await self._clock.sleep(min(self._dwell_seconds, left))
        await self._clear_substrate(record)

        def build() -> ChangeSet:
            current = self._inventory.record(record.id)
            if current is None or current.state is not State.FAILED:
                return ChangeSet()
            offering = self._inventory.offering(current.offering)
            return retire(
                self._inventory.with_newest_mark(current),
                offering.machine_id(current.index, current.generation + 1),
                now=self._clock.now(),
                change=self._inventory.reserve(),
            ).changes

        await self._journal.change(record.id, build)
        self._retiring.discard(record.id)
        logger.info("failed machine retired", extra={"machine": record.id})

    async def _clear_substrate(self, record: Record) -> None:
        """Wait until nothing of the machine is left, owing it first if nobody does yet."""
        made_by = operation_id(self._inventory.incarnation, record.created)
        if record.host and not self.owes(record.id, record.host, made_by):

            def build() -> ChangeSet:
                number = self._inventory.reserve()
                debt = debt_of(
                    record,
                    "its machine FAILED",
                    record.created,
                    now=self._clock.now(),
                    number=number,
                )
                return ChangeSet(debts=(debt,), head=number)

            await self._journal.change(record.id, build)
        await self.cleared(record.id)
