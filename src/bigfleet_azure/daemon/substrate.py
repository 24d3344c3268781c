"""Waits for the substrate at start: until its sessions are there, and until it said what exists.

What is served meanwhile, and in which order, is `daemon.app`'s.
"""

import logging

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.reconciler import Reconciler

logger = logging.getLogger(__name__)

CONDITION = "substrate"

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
"""As for operations: doubled from 1 s to the usual wait after a refusal that names no time."""

DEFINITE_RETRY_SECONDS = 300.0
"""Pause after a definite refusal, which only an operator can change: a right, a name. New role
assignments take up to 10 minutes to work (Microsoft Learn, "Troubleshoot Azure RBAC")."""


async def started(backend: Backend, conditions: Conditions, clock: Clock, *, patient: bool) -> None:
    """Start the backend, as often as it takes.

    Args:
        patient: wait out a definite refusal too, because what is stored is served meanwhile.

    Raises:
        BackendError: a definite refusal, unless `patient`.
    """
    attempt = 0
    while True:
        try:
            await backend.start()
        except BackendError as error:
            definite = error.kind not in RETRYABLE
            if definite and not patient:
                raise
            conditions.set(CONDITION, f"the substrate cannot be used ({error.kind}): {error}")
            await clock.sleep(DEFINITE_RETRY_SECONDS if definite else _wait(attempt, error))
            attempt += 1
        else:
            conditions.clear(CONDITION)
            return


async def inventoried(reconciler: Reconciler, clock: Clock) -> None:
    """Ask what exists until there is an answer; a condition says why there is none."""
    logger.info("asking what exists before anything is served: the state knows of no inventory")
    attempt = 0
    while not await reconciler.reconcile():
        await clock.sleep(_wait(attempt))
        attempt += 1


def _wait(attempt: int, error: BackendError | None = None) -> float:
    wait = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempt, 10))
    if error is not None and error.retry_after is not None:
        return max(wait, error.retry_after.total_seconds())
    return wait
