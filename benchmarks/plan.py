"""How much is measured: the whole table, or a small smoke of it."""

from dataclasses import dataclass

SIZES = ("small", "middle", "large")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Amounts of one run.

    Attributes:
        slots: of the fleet of each size.
        creates: sent with 64 in flight, if the fleet has as many slots.
        random_creates, paced_creates: the same for random ids, and for 200 a second.
        lists, deltas, gets: calls of each such loop.
        killed: operations of each kind in flight at the SIGKILL.
    """

    slots: dict[str, int]
    creates: int
    random_creates: int
    paced_creates: int
    lists: int
    deltas: int
    gets: int
    killed: int


WHOLE = Plan(
    slots={"small": 1_000, "middle": 20_000, "large": 100_000},
    creates=4_000,
    random_creates=2_000,
    paced_creates=3_400,
    lists=20,
    deltas=200,
    gets=4_000,
    killed=50,
)
QUICK = Plan(
    slots={"small": 100, "middle": 400, "large": 1_200},
    creates=200,
    random_creates=200,
    paced_creates=200,
    lists=5,
    deltas=20,
    gets=100,
    killed=5,
)
