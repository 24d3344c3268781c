"""Asks the substrate what is short before anybody is refused for it.

An answer is believed for the time that each shortage names; while asking fails, what was found ends
by itself, so that a stale figure never withholds capacity for ever.
"""

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.service.blocks import Blocks
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.telemetry.metrics import Metrics

SURVEY_SECONDS = 600.0
"""Pause between two surveys: quota changes by hand or by use, and usage figures lag behind
(azure-practice section 3)."""

CONDITION = "capacity-survey"


class Survey:
    """Keeps the blocks in step with what the substrate says is short."""

    def __init__(
        self, *, backend: Backend, blocks: Blocks, conditions: Conditions, metrics: Metrics
    ) -> None:
        self._backend = backend
        self._blocks = blocks
        self._conditions = conditions
        self._metrics = metrics

    async def take(self) -> None:
        """Ask once."""
        try:
            shortages = await self._backend.shortages()
        except BackendError as error:
            self._metrics.surveys.labels("error").inc()
            self._conditions.set(
                CONDITION, f"what is short cannot be asked, so all is offered: {error}"
            )
            return
        self._conditions.clear(CONDITION)
        self._metrics.surveys.labels("success").inc()
        self._blocks.survey(shortages)
