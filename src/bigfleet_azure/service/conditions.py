"""Named conditions: trouble that is shown and counted but never takes the endpoint away.

The shard gives a machine up for good on any RPC error, so trouble with the substrate, credentials
or the disk is reported here and in `/readyz?verbose`, while reads and whatever still works go on.
"""

import logging
from dataclasses import dataclass

from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_LOG_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One standing trouble: its name, what to do about it, and since when (Unix seconds)."""

    name: str
    message: str
    since: float


class Conditions:
    """The standing conditions, each logged when it appears, then once a minute while it recurs."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._standing: dict[str, Condition] = {}
        self._logged: dict[str, float] = {}

    def set(self, name: str, message: str) -> None:
        """Say that `name` stands; repeating it is cheap and keeps its age."""
        now = self._clock.now()
        known = self._standing.get(name)
        self._standing[name] = Condition(
            name=name, message=message, since=known.since if known else now
        )
        self._metrics.conditions.labels(name).set(1)
        self._log(name, message, now)

    def clear(self, name: str) -> None:
        """Say that `name` no longer stands; nothing happens if it did not."""
        if self._standing.pop(name, None) is None:
            return
        self._logged.pop(name, None)
        self._metrics.conditions.labels(name).set(0)
        logger.info("condition cleared", extra={"condition": name})

    def standing(self) -> list[Condition]:
        """What stands now, by name."""
        return [self._standing[name] for name in sorted(self._standing)]

    def repeat(self) -> None:
        """Log each standing condition whose last line is a minute old; called by a loop."""
        now = self._clock.now()
        for condition in self.standing():
            self._log(condition.name, condition.message, now)

    def _log(self, name: str, message: str, now: float) -> None:
        last = self._logged.get(name)
        if last is None or now - last >= _LOG_EVERY_SECONDS:
            self._logged[name] = now
            logger.warning("condition stands: %s", message, extra={"condition": name})
