"""Fence marks kept beside the machine records.

They belong to other shards than the one in the record, to slots without a record, and to ids that
do not exist. The last sort is bounded, since anybody can name such an id.
"""

from collections.abc import Callable, Iterable

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.fence import Mark, SideMark

MAX_UNKNOWN_MARKS = 50_000
"""Marks kept for ids that are no machine; about 10 MB. Retired ids are the honest ones of these,
and a fleet of 100,000 does not retire that many in a shard's life."""

MAX_UNKNOWN_AGE_SECONDS = 30 * 24 * 3600
"""Such a mark is of use only while a caller of that time may still be about."""

Key = tuple[str, str]


class SideMarks:
    """Marks by (machine id, shard id), oldest first."""

    def __init__(self, stored: Iterable[SideMark] = ()) -> None:
        self._marks: dict[Key, SideMark] = {}
        for side in stored:
            self._keep(side)

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, machine_id: str, shard_id: str) -> Mark | None:
        """The mark of that pair, None when there is none."""
        known = self._marks.get((machine_id, shard_id))
        return known.mark if known else None

    def apply(self, changes: ChangeSet) -> None:
        """Take in what was committed."""
        for key in changes.dropped_marks:
            self._marks.pop(key, None)
        for side in changes.marks:
            self._keep(side)

    def _keep(self, side: SideMark) -> None:
        key = (side.machine_id, side.mark.shard_id)
        self._marks.pop(key, None)
        self._marks[key] = side

    def expendable(self, live: Callable[[str], bool], now: float) -> tuple[Key, ...]:
        """Keys beyond the bounds whose machine does not exist, oldest first."""
        unknown = [key for key in self._marks if not live(key[0])]
        surplus = len(unknown) - MAX_UNKNOWN_MARKS
        oldest = now - MAX_UNKNOWN_AGE_SECONDS
        return tuple(
            key
            for position, key in enumerate(unknown)
            if position < surplus or self._marks[key].touched < oldest
        )
