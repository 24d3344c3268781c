"""What the daemon does again and again: what is repeated, and after which pause.

When the loops begin and end is `daemon.app`'s.
"""

import random
from collections.abc import Callable, Coroutine
from typing import Any

from bigfleet_azure.daemon.assembly import Parts
from bigfleet_azure.daemon.settings import Settings
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.survey import SURVEY_SECONDS

HOUSEKEEPING_SECONDS = 10.0
"""Pause between looks at conditions, blocks, marks and certificates."""

PASS_JITTER = 0.1
"""Share by which the pause between passes varies, so that many daemons do not list together."""


def keep_house(
    supervisor: Supervisor,
    clock: Clock,
    parts: Parts,
    conditions: Conditions,
    check_files: Callable[[], None],
) -> None:
    """Begin what needs no substrate."""

    async def look() -> None:
        conditions.repeat()
        parts.blocks.expire()
        await parts.janitor.forget_marks()
        check_files()

    supervisor.loop("housekeeping", look, _pause(clock, HOUSEKEEPING_SECONDS, 0))


def watch_substrate(supervisor: Supervisor, clock: Clock, parts: Parts, settings: Settings) -> None:
    """Begin the passes over the substrate, the first of each at once."""

    async def compare() -> None:
        await parts.reconciler.reconcile()

    def every(name: str, step: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        if seconds > 0:
            supervisor.loop(name, step, _pause(clock, seconds, PASS_JITTER))

    every("reconcile", compare, settings.reconcile_interval.total_seconds())
    parts.republisher.follow()
    every("prices", parts.pricing.take, settings.price_refresh.total_seconds())
    every("capacity survey", parts.survey.take, SURVEY_SECONDS)


def _pause(clock: Clock, seconds: float, jitter: float) -> Callable[[], Coroutine[Any, Any, None]]:
    async def pause() -> None:
        spread = jitter * random.uniform(-1, 1)  # noqa: S311 - guards nothing
        await clock.sleep(seconds * (1 + spread))

    return pause
