"""Named, guarded tasks: each has an owner, none dies unseen."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class Supervisor:
    """Owns background tasks and cancels them all when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task called `name`; an escaping exception is logged with its trace."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def loop(
        self,
        name: str,
        step: Callable[[], Coroutine[Any, Any, None]],
        pause: Callable[[], Coroutine[Any, Any, None]],
    ) -> asyncio.Task[None]:
        """Run `step` for ever with `pause` between; a step that raises is logged, not fatal."""

        async def run() -> None:
            while True:
                try:
                    await step()
                except Exception:  # the guard of a loop: it must outlive any one pass
                    logger.exception("a pass of %s failed; the next one follows", name)
                await pause()

        return self.start(name, run())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task %s ended with an error", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel every task and wait for all of them to end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
