"""Clusters on a fake API server, in time that runs a hundred times faster."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.azure.kubernetes import Clusters
from bigfleet_azure.domain.errors import BackendError, FailureKind
from tests.support.arm.clock import ArmClock
from tests.support.kube.fake import FakeCluster
from tests.support.kube.objects import HOST, MACHINE, VM_ID, write_kubeconfig

SPEED = 100.0


class Rig:
    """The backend's view of a cluster called `prod`.

    Attributes:
        path: of its kubeconfig.
    """

    def __init__(self, folder: Path, fake: FakeCluster) -> None:
        self.fake = fake
        self.clock = ArmClock(SPEED)
        self.clusters = Clusters(folder, self.clock)
        self.path = folder / "prod"
        self.write(fake)

    def write(self, fake: FakeCluster, **user: Any) -> None:
        """Make the kubeconfig lead to that server."""
        write_kubeconfig(self.path, fake.url, user or {"token": fake.token})

    async def wait_ready(self, since: float | None = 0.0, **how: Any) -> None:
        how = {"vm_id": VM_ID, "host": HOST, "since": since, **how}
        machine = how.pop("machine", MACHINE)
        await self.clusters.wait_ready(how.pop("cluster", "prod"), machine, **how)

    async def drain(self, grace_seconds: int = 60, *, keep_node: bool = False, **how: Any) -> None:
        how = {"vm_id": VM_ID, "host": HOST, **how}
        await self.clusters.drain(
            "prod", MACHINE, grace_seconds=grace_seconds, keep_node=keep_node, **how
        )

    async def uncordon(self) -> None:
        await self.clusters.uncordon("prod", MACHINE, vm_id=VM_ID, host=HOST)


@asynccontextmanager
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with FakeCluster().serve() as fake:
        made = Rig(folder, fake)
        try:
            yield made
        finally:
            await made.clusters.close()


async def held(call: Coroutine[Any, Any, None]) -> str:
    """The text of the trouble that the call is held by."""
    with pytest.raises(BackendError) as caught:
        await asyncio.wait_for(call, 15)
    assert caught.value.kind is FailureKind.TRANSIENT
    assert caught.value.retry_after is not None
    return str(caught.value)


async def until(true: Any) -> None:
    """Wait for something that happens at once, or never."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - anything may make it true
            await asyncio.sleep(0.005)
