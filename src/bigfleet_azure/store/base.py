"""The Store protocol and the errors every store raises.

No SQL, no file names and no machine rules belong here.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.domain.secret import Secret


class StoreError(Exception):
    """The store refused a write (full disk, read-only, locked, damaged); nothing was applied.

    The text says what happened to which file and what to do.
    """


class StoreUnusable(StoreError):
    """The store cannot be opened; the daemon must not start. Never "start empty instead"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a store holds when it is opened.

    Attributes:
        incarnation: random id of this store's life; part of cursors and operation ids.
        head: the newest change number ever committed.
        records: rows, by slot.
        marks: fence marks kept beside the records, oldest first.
        offerings: known offerings, by number.
        debts: unpaid debts.
        restored: how many times it was restored from a backup; part of cursors, since those
            given out after the backup was made tell of changes that no longer happened.
        wrong_key: why stored blobs cannot be read; empty when they can (or none is stored).
        created: Unix seconds at which this store's life began.
        market: what the backend last wanted to know again of prices and eviction rates.
        inventoried: whether the substrate was ever asked what exists, for this store.
    """

    incarnation: str
    head: int = 0
    records: tuple[Record, ...] = ()
    marks: tuple[SideMark, ...] = ()
    offerings: tuple[Offering, ...] = ()
    debts: tuple[Debt, ...] = field(default=())
    restored: int = 0
    wrong_key: str = ""
    created: float = 0.0
    market: str = ""
    inventoried: bool = False


class Store(Protocol):
    """A place for change sets. One contract test suite runs on every implementation."""

    def open(self) -> Snapshot:
        """Open, check and read everything. Blocking; called once, before serving.

        Raises:
            StoreUnusable: with what to do about it.
        """

    def commit(self, changes: ChangeSet) -> Awaitable[None]:
        """Write `changes` whole, in the order of the calls; done means durable.

        Raises (when awaited):
            StoreError: nothing of it was applied.
        """

    async def blob(self, slot: int) -> Secret | None:
        """The bootstrap blob kept for `slot`; None when there is none or its key is lost."""

    async def close(self) -> None:
        """Finish what was submitted, then release every file and lock."""
