"""Runs the scenarios, each on a folder of its own, and takes the medians of their figures."""

import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import scenarios
from benchmarks.plan import SIZES, Plan
from benchmarks.scenarios import Figures

_Scenario = Callable[[Plan, Path, str], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class _Step:
    """A scenario at one size; a kept folder is handed to its next run too."""

    scenario: _Scenario
    size: str
    keeps_folder: bool = False

    def __str__(self) -> str:
        return f"{self.scenario.__name__} {self.size}"


_STEPS = (
    *(
        _Step(scenario, size)
        for size in SIZES
        for scenario in (
            scenarios.used_fleet,
            scenarios.memory_only,
            scenarios.random_ids,
            scenarios.paced,
        )
    ),
    _Step(scenarios.all_in_use, "large", keeps_folder=True),
    _Step(scenarios.killed, "small"),
)


async def measure(plan: Plan, runs: int, only: str) -> dict[str, list[float]]:
    """The figures of all runs by key. A scenario that fails is reported and leaves them out.

    Args:
        only: part of the names of the scenarios to run; empty for all.
    """
    figures: dict[str, list[float]] = defaultdict(list)
    steps = [step for step in _STEPS if only in str(step)]
    with tempfile.TemporaryDirectory(prefix="bigfleet-bench-") as root:
        for run in range(1, runs + 1):
            for step in steps:
                for key, figure in (await _one(plan, step, Path(root), run)).items():
                    figures[key].append(figure)
    return figures


async def _one(plan: Plan, step: _Step, root: Path, run: int) -> Figures:
    folder = root / str(step)
    folder.mkdir(exist_ok=step.keeps_folder)
    started = time.perf_counter()
    try:
        found = await step.scenario(plan, folder, step.size)
    except Exception:  # the other rows can still be measured
        traceback.print_exc()
        return {}
    finally:
        if not step.keeps_folder:
            shutil.rmtree(folder)
    seconds = time.perf_counter() - started
    print(f"run {run}: {step}, {seconds:.1f} s", file=sys.stderr)
    return found


def medians(figures: dict[str, list[float]]) -> Figures:
    """One figure for each key, with what follows from two of them."""
    middle = {key: statistics.median(values) for key, values in figures.items()}
    for size in SIZES:
        with_state, without = middle.get(f"create.{size}"), middle.get(f"volatile.{size}")
        if with_state and without:
            middle[f"durability.{size}"] = with_state / without
    return middle
