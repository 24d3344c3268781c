"""One watch on a cluster's Nodes for all machines that wait for theirs.

It runs while somebody waits. When a Node counts as ready is `kube_objects.not_ready`'s affair.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bigfleet_azure.backends.azure.kube_api import KubeApi
from bigfleet_azure.backends.azure.kube_objects import Node
from bigfleet_azure.backends.azure.kube_wire import HOLD_SECONDS
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Between the end of a watch and the next."""

LAST_WORD_SECONDS = 1.0
"""So long before its deadline a waiter is told what it lacks, so that its operation can say so."""

Fault = Callable[[Node | None], str]
"""Why a Node, or its absence, is not what is waited for; "" when it is."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiter:
    """Somebody who waits.

    Attributes:
        found: the Node, at last.
        looked: done once the Node was looked at, or the watch failed.
    """

    name: str
    fault: Fault
    found: asyncio.Future[Node]
    looked: asyncio.Future[None]


class NodeWatch:
    """Knows the Nodes of one cluster while somebody waits for one of them."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._version = ""
        self._listed = False
        self._waiters: dict[str, list[_Waiter]] = {}
        self._task: asyncio.Task[None] | None = None

    async def until(self, name: str, fault: Fault, deadline: float = math.inf) -> Node:
        """The Node called `name`, once `fault` finds none with it.

        Args:
            deadline: Unix seconds shortly before which the waiting ends.

        Raises:
            BackendError: TRANSIENT; the cluster cannot be asked, or the deadline is near and the
                text is what the Node lacks.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(
            name=name, fault=fault, found=loop.create_future(), looked=loop.create_future()
        )
        self._waiters.setdefault(name, []).append(waiter)
        try:
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name=f"nodes of {self._api.cluster}")
            elif self._listed:
                self._look(waiter)
            await waiter.looked
            return await self._found(waiter, deadline)
        finally:
            self._waiters[name].remove(waiter)
            if not self._waiters[name]:
                del self._waiters[name]

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _found(self, waiter: _Waiter, deadline: float) -> Node:
        left = (deadline - LAST_WORD_SECONDS - self._clock.now()) / self._clock.pace
        done, _ = await asyncio.wait(
            (waiter.found,), timeout=None if math.isinf(left) else max(0.0, left)
        )
        if done:
            return waiter.found.result()
        lacking = waiter.fault(self._nodes.get(waiter.name))
        raise self._trouble(f"{waiter.name} in cluster {self._api.cluster}: {lacking}", 0.0)

    async def _run(self) -> None:
        trouble = self._trouble("the watch has ended", HOLD_SECONDS)
        try:
            while self._waiters:
                await self._list()
                await self._follow()
                await self._clock.sleep(PAUSE_SECONDS)
        except BackendError as error:
            trouble = error
        except Exception as error:  # a bug here must not leave anybody waiting for ever
            logger.exception("bug in the watch", extra={"cluster": self._api.cluster})
            trouble = self._trouble(f"internal error {type(error).__name__}", HOLD_SECONDS)
        finally:
            self._task = None
            self._listed = False
            self._nodes.clear()
            self._fail(trouble)

    async def _list(self) -> None:
        nodes, self._version = await self._api.nodes()
        self._nodes = {node.name: node for node in nodes}
        self._listed = True
        for name in tuple(self._waiters):
            self._changed(name)

    async def _follow(self) -> None:
        """Return when all Nodes have to be listed again."""
        tasks = [
            asyncio.create_task(self._stream()),
            asyncio.create_task(self._api.changed()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _stream(self) -> None:
        while self._waiters:
            async with aclosing(self._api.watch_nodes(self._version)) as events:
                async for event in events:
                    if not self._take(event):
                        return
            await self._clock.sleep(PAUSE_SECONDS)

    def _take(self, event: dict[str, Any]) -> bool:
        """Note what happened; False when too much happened to be told."""
        document = event.get("object") or {}
        version = (document.get("metadata") or {}).get("resourceVersion")
        if version is None:
            return False
        self._version = version
        if event["type"] == "BOOKMARK":
            return True
        node = Node.parse(document)
        if event["type"] == "DELETED":
            self._nodes.pop(node.name, None)
        else:
            self._nodes[node.name] = node
        self._changed(node.name)
        return True

    def _changed(self, name: str) -> None:
        for waiter in self._waiters.get(name, ()):
            self._look(waiter)

    def _look(self, waiter: _Waiter) -> None:
        node = self._nodes.get(waiter.name)
        if node is not None and not waiter.found.done() and not waiter.fault(node):
            waiter.found.set_result(node)
        if not waiter.looked.done():
            waiter.looked.set_result(None)

    def _fail(self, error: BackendError) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.found.done():
                    waiter.found.set_exception(_copy(error))
                    waiter.found.exception()  # seen, though the waiter may be cancelled by now
                if not waiter.looked.done():
                    waiter.looked.set_result(None)

    def _trouble(self, text: str, again: float) -> BackendError:
        return BackendError(
            FailureKind.TRANSIENT, text, code="NodeNotReady", retry_after=timedelta(seconds=again)
        )


def _copy(error: BackendError) -> BackendError:
    """The same for another waiter: raising one exception many times would pile up its traces."""
    return BackendError(error.kind, str(error), code=error.code, retry_after=error.retry_after)
