"""Makes a state in which every slot is in use, faster than by asking a daemon for it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load import SHARD
from bigfleet_azure.backends.simulated import history
from bigfleet_azure.backends.simulated.backend import HOST_PREFIX
from bigfleet_azure.backends.simulated.ledger import Ledger
from bigfleet_azure.backends.simulated.vm import Binding, Place, VirtualMachine
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.fence import Mark
from bigfleet_azure.domain.lifecycle import State
from bigfleet_azure.domain.machine import Record, slot_number
from bigfleet_azure.domain.metadata import pack
from bigfleet_azure.domain.offering import Offering
from bigfleet_azure.domain.operation import operation_id
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.store.sqlite import SqliteStore
from bigfleet_azure.telemetry.metrics import Metrics

CLUSTER = "prod-eastus-07"

_AT_ONCE = 10_000
_NUMBERS_PER_MACHINE = 4
"""Change numbers that a Create and a Configure take: two accepts, two ends."""


def metadata(number: int) -> dict[str, str]:
    """What a shard attaches today (contract section 7)."""
    prefix = "bigfleet.lucy.sh/assigned"
    return {
        f"{prefix}-priority": str(number % 1000),
        f"{prefix}-interruption-penalty-dollars": f"{number % 97}.25",
        f"{prefix}-reclamation-penalty-dollars": f"{number % 89}.50",
        f"{prefix}-need-fingerprint": f"{number * 2654435761 % 2**64:016x}",
        f"{prefix}-group": f"team-{number % 40}\0training-{number % 7}",
    }


async def all_in_use(state: Path, ledger: Path) -> None:
    """Put every slot of a state file, made by a daemon that has ended, into CONFIGURED."""
    store = SqliteStore(state, clock=SystemClock(), metrics=Metrics())
    snapshot = store.open()
    now = SystemClock().now()
    numbers = itertools.count(snapshot.head + 1, _NUMBERS_PER_MACHINE)
    machines: list[VirtualMachine] = []
    places: dict[Place, int] = {}
    try:
        for offering in snapshot.offerings:
            offer = offering.offer
            place = Place(offer.vm_size, offer.zone, offer.capacity_type.tag)
            places[place] = len(places)
            records = in_use(offering, numbers, now)
            while batch := tuple(itertools.islice(records, _AT_ONCE)):
                await store.commit(ChangeSet(records=batch))
                machines += (_machine(r, snapshot.incarnation, place, now) for r in batch)
    finally:
        await store.close()
    region = Ledger(ledger)
    region.open()
    region.rewrite(history.snapshot(machines, places))
    region.close()


def in_use(offering: Offering, numbers: Iterator[int], now: float) -> Iterator[Record]:
    """Every slot of an offering as a CONFIGURED machine."""
    for index in range(offering.offer.count):
        number = next(numbers)
        machine_id = offering.machine_id(index)
        yield Record(
            slot=slot_number(offering.number, index),
            id=machine_id,
            state=State.CONFIGURED,
            change=number + _NUMBERS_PER_MACHINE - 1,
            since=now,
            host=HOST_PREFIX + machine_id,
            cluster=CLUSTER,
            metadata=pack(metadata(number)),
            created=number,
            configured=number + 2,
            mark=Mark(SHARD, 1, 2),
        )


def _machine(record: Record, incarnation: str, place: Place, now: float) -> VirtualMachine:
    return VirtualMachine(
        record.id,
        operation_id(incarnation, record.created),
        place,
        provisioned_at=now,
        given=Binding(operation_id(incarnation, record.configured), CLUSTER, now, 0.0),
    )
