"""The table: what is measured, the goal, and what the Go original reached."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        key: under which scenarios give its figure.
        what: its name.
        unit: of the figure, the goal and the original.
        goal: at least this, or at most, or less.
        how: which of these, as a sign.
        original: what the Go original reached, as text.
        best: the better end of that, for the ratio.
        digits: decimals shown.
        note: more about it, with figures by key.
    """

    key: str
    what: str
    unit: str
    goal: float
    how: str
    original: str = "-"
    best: float | None = None
    digits: int = 0
    note: str = ""

    def met(self, figure: float) -> bool:
        """Whether the goal is reached."""
        match self.how:
            case "≥":
                return figure >= self.goal
            case "≤":
                return figure <= self.goal
            case _:
                return figure < self.goal

    def ratio(self, figure: float) -> float | None:
        """How many times better than the original; None when it has no figure."""
        if not self.best or not figure:
            return None
        return figure / self.best if self.how == "≥" else self.best / figure

    def shown(self, figure: float) -> str:
        """A figure in the row's unit."""
        return f"{figure:,.{self.digits}f} {self.unit}".rstrip()

    def noted(self, figures: Mapping[str, float]) -> str:
        """The note with its figures; nothing when one of them is missing."""
        try:
            return self.note.format_map({key.replace(".", "_"): v for key, v in figures.items()})
        except KeyError:
            return ""


_CREATES = {"small": ("36-68", 68), "middle": ("2.7-4.1", 4.1), "large": ("1.0", 1.0)}
_LISTS = {
    "middle": ("113-129", 113, 25, 8, 0.1),
    "large": ("557-581", 557, 170, 35, 0.25),
}
_STARTS = {"middle": ("0.62", 0.62, 0.7), "large": ("2.7", 2.7, 1.4)}
_BYTES = {
    "order": ("64 in flight in id order", 2),
    "random": ("64 in flight, random ids", 4),
    "paced": ("paced 200/s, random ids", 10),
}
_ORIGINAL_BYTES = "0.7-59 MB"
_ORIGINAL_BEST_KIB = 0.7e6 / 1024


def rows(plan: Plan) -> list[Row]:
    """All rows, in the order in which they are printed."""
    slots = {size: f"at {count:,}" for size, count in plan.slots.items()}
    table = [
        Row(
            key="record.large",
            what="published record, mean, unused slot",
            unit="B",
            goal=350,
            how="≥",
            original="148",
            note="{record_all:.0f} B when bound",
        )
    ]
    for size, (original, best) in _CREATES.items():
        table.append(
            Row(
                key=f"create.{size}",
                what=f"durable Create acks {slots[size]}",
                unit="/s",
                goal=1000,
                how="≥",
                original=original,
                best=best,
                note=f"{{volatile_{size}:,.0f}} /s without --state",
            )
        )
    table += [
        Row(
            key=f"durability.{size}",
            what=f"the same ÷ without --state {slots[size]}",
            unit="",
            goal=0.8,
            how="≥",
            digits=2,
        )
        for size in _CREATES
    ]
    table += [
        Row(
            key=f"bytes.{how}.{size}",
            what=f"written per transition, {text} {slots[size]}",
            unit="KiB",
            goal=goal,
            how="≤",
            original=_ORIGINAL_BYTES,
            best=_ORIGINAL_BEST_KIB,
            digits=2,
            note=f"at {{pace_{size}:.0f}} /s" if how == "paced" else "",
        )
        for how, (text, goal) in _BYTES.items()
        for size in slots
    ]
    table += [
        Row(
            key=f"flushes.{size}",
            what=f"flushes per transition under load {slots[size]}",
            unit="",
            goal=1,
            how="<",
            digits=2,
        )
        for size in slots
    ]
    for size, (original, best, wire, inside, loaded) in _LISTS.items():
        table += [
            Row(
                key=f"list.{size}",
                what=f"full List p50, idle {slots[size]}",
                unit="ms",
                goal=wire,
                how="≤",
                original=original,
                best=best,
                digits=1,
                note=f"{{list_parsed_{size}:.0f}} ms with protobuf's parsing",
            ),
            Row(
                key=f"list.inside.{size}",
                what=f"the same, server side, mean {slots[size]}",
                unit="ms",
                goal=inside,
                how="≤",
                digits=1,
            ),
            Row(
                key=f"list.loaded.{size}",
                what=f"the same, p99, beside 200 transitions/s {slots[size]}",
                unit="ms",
                goal=loaded * 1000,
                how="≤",
                original="421" if size == "middle" else "-",
                best=421 if size == "middle" else None,
                note=f"{{lists_{size}:.0f}} Lists, {{pace_{size}:.0f}} transitions/s",
            ),
        ]
    table += [
        Row(
            key="delta.large",
            what=f"delta of 20 changes p50 {slots['large']}",
            unit="ms",
            goal=1.5,
            how="≤",
            original="27-39",
            best=27,
            digits=2,
        ),
        Row(
            key="get.large",
            what=f"Get, 16 in flight {slots['large']}",
            unit="/s",
            goal=2000,
            how="≥",
            original="5,000-7,000",
            best=7000,
        ),
        Row(
            key="get.p99.large",
            what="the same, p99",
            unit="ms",
            goal=15,
            how="≤",
            original="6-10",
            best=6,
            digits=1,
        ),
    ]
    table += [
        Row(
            key=f"start.{size}",
            what=f"process start to first List {slots[size]}",
            unit="s",
            goal=goal,
            how="≤",
            original=original,
            best=best,
            digits=2,
        )
        for size, (original, best, goal) in _STARTS.items()
    ]
    table += [
        Row(
            key="restart",
            what=f"the same, restart {slots['large']}, all in use",
            unit="s",
            goal=2.2,
            how="≤",
            digits=2,
        ),
        Row(
            key="memory.large",
            what=f"resident memory {slots['large']}, {plan.creates:,} in use",
            unit="MB",
            goal=230,
            how="≤",
            original="610",
            best=610,
        ),
        Row(
            key="memory.all",
            what=f"resident memory {slots['large']}, all in use",
            unit="MB",
            goal=350,
            how="≤",
            original="610",
            best=610,
        ),
        Row(
            key="killed.reached",
            what="in flight at SIGKILL and at their goal after restart",
            unit="%",
            goal=100,
            how="≥",
            original="0",
            note="{killed_in_flight:.0f} in flight",
        ),
        Row(
            key="killed.doubled",
            what="VMs made twice by that (ledger audit)",
            unit="",
            goal=0,
            how="≤",
        ),
    ]
    return table
