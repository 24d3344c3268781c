"""What can be carried over from the Go provider's state, and what cannot.

Fence marks can: each stays under its old id, so that a caller that still uses it is told that it is
stale, and stands under the id that the same slot has here as well. Bindings cannot: their VMs have
other names and no owner tag. Nothing is read or written here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.cli.go_state import GoState, OldSlot, old_slot
from bigfleet_azure.domain.fence import Mark, SideMark, newest
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.limits import MAX_NAME_BYTES
from bigfleet_azure.domain.offering import MAX_SLOTS_PER_OFFERING, Assignment, Offer, assign

Place = tuple[str, str, CapacityType]

_TOO_LONG = f"it has more than {MAX_NAME_BYTES} bytes, so every call with it is refused anyway"

_SHARED = "several entries of the offerings file share its size and zone"


class Slots:
    """How slots are named here.

    Args:
        provider: as the daemon's flag; empty takes each old id's own.
        location: as the daemon's flag; empty takes it from each zone.
        offers: what will be offered; None takes every slot of the file for offered.
        shared: sizes and zones whose entries are not told apart, see `shared_places`.
    """

    def __init__(
        self,
        *,
        provider: str = "",
        location: str = "",
        offers: Sequence[Offer] | None = None,
        shared: Collection[tuple[str, str]] = (),
    ) -> None:
        self._provider = provider
        self._location = location
        self._offers = offers
        self._shared = shared
        self._known: dict[tuple[str, Place], list[Assignment]] = {}

    def name(self, old: OldSlot) -> tuple[str, str]:
        """The id that the slot has here; else an empty text, and why there is none."""
        if old.index >= MAX_SLOTS_PER_OFFERING:
            return "", f"no offering has more than {MAX_SLOTS_PER_OFFERING} slots"
        found = self._assigned(old)
        if not found:
            return "", "its size, zone and capacity type are not offered"
        if len(found) > 1 or (old.vm_size, old.zone) in self._shared:
            return "", _SHARED
        if self._offers is not None and old.index >= found[0].offer.count:
            return "", f"only {found[0].offer.count} such slots are offered"
        return found[0].machine_id(old.index), ""

    def _assigned(self, old: OldSlot) -> list[Assignment]:
        place = (old.vm_size, old.zone, old.capacity_type)
        provider = self._provider or old.provider
        if (provider, place) not in self._known:
            offers = self._offers
            if offers is None:
                size, zone, capacity = place
                offers = [Offer(vm_size=size, zone=zone, capacity_type=capacity, count=1)]
            assigned = assign(offers, (), provider=provider, region=self._location)
            self._known[provider, place] = [x for x in assigned if x.offer.place == place]
        return self._known[provider, place]


def shared_places(
    entries: Iterable[Mapping[str, Any]], offers: Iterable[Offer]
) -> set[tuple[str, str]]:
    """Sizes and zones of an offerings file of which entries were added up.

    Whether the daemon adds them up as well depends on how their machines are made, which nobody
    looks at here.
    """
    written = Counter((entry["vm_size"], entry["zone"]) for entry in entries)
    kept = Counter((offer.vm_size, offer.zone) for offer in offers)
    return {place for place, count in written.items() if count > kept[place]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an import writes, and what it tells.

    Attributes:
        marks: fence marks of the new state file.
        facts: the report; lists in it are tables.
    """

    marks: tuple[SideMark, ...]
    facts: dict[str, Any]


def plan(state: GoState, slots: Slots, now: float) -> Plan:
    """What can be carried over.

    Args:
        state: what the file holds.
        slots: how slots are named here.
        now: Unix seconds, at which the marks count as written.
    """
    names: dict[str, tuple[str, str]] = {}

    def named(machine_id: str) -> tuple[str, str]:
        if machine_id not in names:
            names[machine_id] = _named(machine_id, slots)
        return names[machine_id]

    kept: dict[tuple[str, str], Mark] = {}
    left: dict[str, str] = {}
    for machine_id, mark in state.marks:
        new_id, why_not = named(machine_id)
        if why_not:
            left[machine_id] = why_not
        for target in (machine_id, new_id):
            if target and why_not is not _TOO_LONG:
                key = (target, mark.shard_id)
                kept[key] = newest(kept.get(key), mark) or mark
    under_new = sum(target in {new for new, _ in names.values() if new} for target, _ in kept)
    return Plan(
        marks=tuple(SideMark(target, mark, now) for (target, _), mark in kept.items()),
        facts={
            "fence_marks_read": len({(machine, mark.shard_id) for machine, mark in state.marks}),
            "fence_marks_under_old_ids": len(kept) - under_new,
            "fence_marks_under_new_ids": under_new,
            "idempotency_keys_ignored": state.idempotency_keys,
            "other_keys_ignored": ", ".join(state.ignored),
            "bound_machines": [
                {
                    "machine": each.machine_id,
                    "slot_here": named(each.machine_id)[0],
                    "cluster": each.cluster,
                    "host": each.host,
                    "shard_metadata": dict(each.metadata),
                }
                for each in state.bindings
            ],
            "marks_under_old_id_only": [
                {"machine": machine_id, "why": why} for machine_id, why in sorted(left.items())
            ],
        },
    )


def _named(machine_id: str, slots: Slots) -> tuple[str, str]:
    if len(machine_id.encode()) > MAX_NAME_BYTES:
        return "", _TOO_LONG
    old = old_slot(machine_id)
    return slots.name(old) if old else ("", "it is no machine id of the Go provider")
