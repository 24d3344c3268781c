"""The six calls, free of wire types: decide, commit, publish, start the work, answer."""

from dataclasses import dataclass
from typing import Protocol

from bigfleet_azure.domain.decide import Accepted, Command, Limits, Refused, decide
from bigfleet_azure.domain.errors import Refusal, RefusalReason
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import operation_id
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.uncancelled import to_the_end
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.store.base import StoreError


class Worker(Protocol):
    """Who carries out what was accepted."""

    def start(self, record: Record, blob: Secret) -> None:
        """Begin the operation that `record` was just accepted for."""

    def full(self, kind: Kind) -> bool:
        """Whether an operation of `kind` would have to wait for a place."""


@dataclass(frozen=True, slots=True)
class Ack:
    """An accepted or repeated mutation: its operation id and the machine as a wire message."""

    operation_id: str
    machine: bytes


class Provider:
    """Answers mutations from decisions and reads from the inventory; never waits for Azure."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        journal: Journal,
        clock: Clock,
        limits: Limits,
        worker: Worker,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._worker = worker
        self.get = inventory.answer_get
        self.list = inventory.answer_list

    async def submit(self, command: Command) -> Ack | Refusal:
        """Handle one mutation (contract section 3).

        It is decided, committed and begun as a whole, also when the caller goes away meanwhile.
        """
        return await to_the_end(self._submit(command))

    async def _submit(self, command: Command) -> Ack | Refusal:
        async with self._journal.locks.hold(command.machine_id):
            decision = decide(
                command,
                self._inventory.view(command.machine_id, command.token.shard_id),
                now=self._clock.now(),
                change=self._inventory.next_change(),
                queued=self._worker.full(command.kind),
                limits=self._limits,
            )
            if isinstance(decision, Accepted):
                self._inventory.reserve()
            try:
                await self._journal.commit(decision.changes)
            except StoreError as error:
                return Refusal(
                    reason=RefusalReason.STORE,
                    message=f"{command.kind} of {command.machine_id!r} was not accepted: {error}",
                )
            if isinstance(decision, Refused):
                return decision.refusal
            if isinstance(decision, Accepted):
                self._worker.start(decision.record, command.blob)
            return Ack(
                operation_id(self._inventory.incarnation, decision.number),
                self._inventory.encoded(decision.record),
            )
