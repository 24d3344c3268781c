"""Awaiting something that must not be left half way."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work` to its end even when the caller is cancelled; the cancellation follows then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # seen, though nobody is left to hear of it
    raise cancelled
