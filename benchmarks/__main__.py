"""`python -m benchmarks`: measure and print the table."""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from benchmarks.plan import QUICK, WHOLE
from benchmarks.rows import Row, rows
from benchmarks.runner import measure, medians

_WIDTH = 150
"""Of the table where there is no terminal to ask."""


def main() -> int:
    """Measure, print; 1 when a row could not be measured, whatever the figures are."""
    options = _options()
    plan = QUICK if options.quick else WHOLE
    runs = 1 if options.quick else options.runs
    machine = {"runs": runs, "quick": options.quick, **_machine()}
    figures = asyncio.run(measure(plan, runs, options.only))
    middle = medians(figures)
    machine["load_after"] = _load()
    table = rows(plan)
    if options.output == "json":
        entries = [_entry(row, middle, figures) for row in table]
        print(json.dumps({"machine": machine, "rows": entries}, indent=2, ensure_ascii=False))
    else:
        _print(table, middle, machine)
    missing = [row for row in table if row.key not in middle]
    return 1 if missing and not options.only else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of which medians are taken (3)")
    parser.add_argument("--quick", action="store_true", help="one run of small fleets: a smoke")
    parser.add_argument("--only", default="", metavar="TEXT", help="only scenarios named so")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def _machine() -> dict[str, object]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_before": _load(),
    }


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def _print(table: Sequence[Row], figures: dict[str, float], machine: dict[str, object]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    console.print(
        "bigfleet-azure, {date}: {cores} cores, Python {python}, Linux {kernel}, load average "
        "{load_before} before and {load_after} after; medians of {runs} run(s); durable unless "
        "said otherwise; client on the same machine, answers as bytes.".format_map(machine)
    )
    if machine["quick"]:
        console.print("A quick run: it shows that everything works, its figures mean nothing.")
    shown = Table("what", "measured", "must reach", "Go original", "times better", "ok", "note")
    for row in table:
        shown.add_row(*_cells(row, figures))
    console.print(shown)
    missed = sum(1 for row in table if row.key in figures and not row.met(figures[row.key]))
    unknown = sum(1 for row in table if row.key not in figures)
    console.print(f"{len(table)} rows: {missed} miss their goal, {unknown} not measured.")


def _cells(row: Row, figures: dict[str, float]) -> tuple[str, ...]:
    figure = figures.get(row.key)
    goal = f"{row.how} {row.goal:,g} {row.unit}"
    if figure is None:
        return row.what, "-", goal, row.original, "-", "?", ""
    ratio = row.ratio(figure)
    return (
        row.what,
        row.shown(figure),
        goal,
        row.original,
        f"{ratio:,.3g}" if ratio else "-",
        "yes" if row.met(figure) else "MISS",
        row.noted(figures),
    )


def _entry(
    row: Row, middle: dict[str, float], figures: dict[str, list[float]]
) -> dict[str, object]:
    figure = middle.get(row.key)
    return {
        "key": row.key,
        "what": row.what,
        "unit": row.unit,
        "measured": figure,
        "runs": figures.get(row.key, []),
        "must_reach": f"{row.how} {row.goal:g}",
        "go_original": row.original,
        "times_better": None if figure is None else row.ratio(figure),
        "ok": None if figure is None else row.met(figure),
        "note": row.noted(middle),
    }


if __name__ == "__main__":
    sys.exit(main())
