"""Change sets: what one decision writes, all of it or nothing."""

from dataclasses import dataclass

from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import SideMark
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.domain.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """One atomic write. Stores apply it whole; memory is updated only after that.

    Attributes:
        records: rows to write, each under its slot.
        marks: fence marks kept beside the records.
        dropped_marks: such marks to forget, as (machine id, shard id).
        blob: slot and bootstrap blob to keep, sealed, until it was handed over.
        handed_over: slots whose stored blob is forgotten.
        debts: debts to record or to update, each under its number.
        cleared_debts: numbers of debts that were paid.
        offerings: offerings to write, each under its number.
        head: the newest change number, when no row of this change carries it.
        market: what the backend wants to know again after a restart of prices and eviction rates;
            None when this change says nothing of it.
        inventoried: the substrate was asked what exists; from now on the store knows its hosts.
    """

    records: tuple[Record, ...] = ()
    marks: tuple[SideMark, ...] = ()
    dropped_marks: tuple[tuple[str, str], ...] = ()
    blob: tuple[int, Secret] | None = None
    handed_over: tuple[int, ...] = ()
    debts: tuple[Debt, ...] = ()
    cleared_debts: tuple[int, ...] = ()
    offerings: tuple[Offering, ...] = ()
    head: int | None = None
    market: str | None = None
    inventoried: bool = False

    @property
    def empty(self) -> bool:
        """True when there is nothing to write."""
        return self == _NOTHING


_NOTHING = ChangeSet()
