"""A moment that many may wait for, and that comes again and again."""

import asyncio


class Signal:
    """Wakes whoever waits now; who comes later waits for the next time."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next time."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def fire(self) -> None:
        """It is that moment."""
        fired, self._next = self._next, None
        if fired is not None:
            fired.set_result(None)
