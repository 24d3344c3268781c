"""The store behind an empty `--state`: nothing outlives the process.

Records live in the service's memory anyway; only blobs, which it does not keep, are held here.
"""

import asyncio
import secrets

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.store.base import Snapshot, StoreError


class MemoryStore:
    """A store that is durable for as long as the process is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._blobs: dict[int, Secret] = {}
        self._open = False

    def open(self) -> Snapshot:
        """An empty snapshot of a new incarnation."""
        self._open = True
        return Snapshot(incarnation=secrets.token_hex(4), created=self._clock.now())

    def commit(self, changes: ChangeSet) -> asyncio.Future[None]:
        """Done at once."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._open:
            done.set_exception(StoreError("the store is not open"))
            return done
        if changes.blob is not None:
            slot, blob = changes.blob
            self._blobs[slot] = blob
        for slot in changes.handed_over:
            self._blobs.pop(slot, None)
        done.set_result(None)
        return done

    async def blob(self, slot: int) -> Secret | None:
        """The blob kept for `slot`, None when there is none."""
        return self._blobs.get(slot)

    async def close(self) -> None:
        """Forget everything."""
        self._open = False
        self._blobs.clear()
