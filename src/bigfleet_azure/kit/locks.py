"""Locks by key, made on demand and forgotten when free."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class KeyedLocks:
    """One FIFO lock per key; an uncontended key costs a dictionary entry while it is held."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of `key`; waiters get it in the order they came."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release(key)

    @asynccontextmanager
    async def hold_all(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all `keys`, each named once, taken in their order."""
        taken: list[str] = []
        try:
            for key in keys:
                await self._acquire(key)
                taken.append(key)
            yield
        finally:
            for key in taken:
                self._release(key)

    def held(self, key: str) -> bool:
        """Whether somebody holds the lock of `key`."""
        return key in self._waiting

    async def _acquire(self, key: str) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = []
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(key)
            elif turn in waiting:  # else whoever released meanwhile has passed it over
                waiting.remove(turn)
            raise

    def _release(self, key: str) -> None:
        waiting = self._waiting[key]
        while waiting:
            turn = waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[key]
