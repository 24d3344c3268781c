"""Virtual time for what is no test function: hypothesis bodies and state machines."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import looptime

_Result = TypeVar("_Result")


class VirtualLoop:
    """An event loop in virtual time, driven from outside; close it in the end."""

    def __init__(self) -> None:
        self._loop = looptime.new_event_loop(start=0)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """End what still runs, then the loop."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()


def in_virtual_time(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, run in a loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run(work)
    finally:
        loop.close()
