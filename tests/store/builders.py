"""Facts with every field set, and stores that tests open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.fence import Mark, SideMark
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State
from bigfleet_azure.domain.machine import Record, slot_number
from bigfleet_azure.domain.offering import Facts, Offer, Offering, Segment
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.store.sqlite import SqliteStore
from bigfleet_azure.telemetry.metrics import Metrics

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

NOW = 1_780_000_000.25


class Standing:
    """A clock that stands at NOW."""

    def now(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the store sleeps on no clock")


def sqlite_store(path: Path, **arguments: Any) -> SqliteStore:
    return SqliteStore(path, **{"clock": SystemClock(), "metrics": Metrics(), **arguments})


OFFERING = Offering(
    number=3,
    prefix="azure-eastus-spot-f8s-v2-1",
    offer=Offer(
        vm_size="Standard_F8s_v2",
        zone="eastus-1",
        capacity_type=CapacityType.SPOT,
        count=50_000,
        resources={"cpu": "1", "memory": "2Gi"},
        labels={"team": "größer"},
    ),
    facts=Facts(
        price_usd_per_hour=0.1234567,
        interruption_probability=0.05,
        allocatable={"cpu": "7910m", "pods": "110"},
        labels={"kubernetes.io/arch": "amd64"},
    ),
    segments=(Segment(0, 100, 1), Segment(100, 49_900, 2_000)),
    withheld=True,
    published="a1b2c3",
    taken=(0.1, 0.175),
)


def record(index: int, **fields: Any) -> Record:
    generation = fields.get("generation", 0)
    return replace(
        Record(
            slot=slot_number(OFFERING.number, index),
            id=OFFERING.machine_id(index, generation),
        ),
        **fields,
    )


FULL_RECORD = record(
    7,
    generation=2,
    state=State.CONFIGURING,
    change=INT64_MAX,
    since=NOW,
    host="/subscriptions/0/vm/azure-7",
    parts='{"nic": "/nic/größer\x00"}',
    cluster="cluster-a",
    metadata=b"\x7a\x00\xff" * 40_000,
    last_error="gone\x00and ünknown \U0001f600",
    created=11,
    configured=12,
    drained=13,
    deleted=INT64_MAX,
    operation=Operation(
        number=INT64_MAX,
        kind=Kind.CONFIGURE,
        accepted_at=NOW,
        deadline=NOW + 480.5,
        grace_seconds=86_400,
        handed_over=True,
        loss="evicted\x00",
        attempt=3,
        url="https://management/operations/1?t=\x00&" + "x" * 5_000,
        begun=NOW + 7.5,
    ),
    mark=Mark("shard-\x00a", INT64_MIN, INT64_MAX),
    warned=0.99,
)

DEBT = Debt(
    number=5_000_000,
    slot=FULL_RECORD.slot,
    machine_id="azure-gone-001",
    operation=17,
    host="/vm/1",
    reason="its create failed",
    since=NOW,
    attempts=4,
    not_before=NOW + 60,
    last_error="409 Conflict\x00",
    parts="nic-1 disk-1\x00",
)


def side_mark(machine_id: str, shard: str = "shard-b", **fields: Any) -> SideMark:
    epoch, sequence = fields.get("epoch", 1), fields.get("sequence", 1)
    return SideMark(machine_id, Mark(shard, epoch, sequence), fields.get("touched", NOW))


OFFERED = ChangeSet(offerings=(OFFERING,))
