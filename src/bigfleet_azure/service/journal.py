"""The one way to change anything: commit first, publish after.

Memory never runs ahead of the disk: a change set that could not be written is not published, and a
condition stands until a write succeeds again. Reads go on meanwhile.
"""

from collections.abc import Callable, Iterable

from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.locks import KeyedLocks
from bigfleet_azure.kit.uncancelled import to_the_end
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.store.base import Store, StoreError

CONDITION = "store"
RETRY_SECONDS = 1.0
"""Pause before a change that must not be lost is offered to a failing store again."""


class Journal:
    """Commits change sets and publishes them, and holds the locks that order them by machine.

    Whoever changes a machine holds `locks.hold(machine_id)` from reading its record until `commit`
    has returned. Change numbers are reserved right before the commit that carries them, with no
    await between, so that they are published in order.
    """

    def __init__(
        self, store: Store, inventory: Inventory, conditions: Conditions, clock: Clock
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._conditions = conditions
        self._clock = clock
        self._followers: list[Callable[[ChangeSet], None]] = []
        self.locks = KeyedLocks()

    def follow(self, follower: Callable[[ChangeSet], None]) -> None:
        """Call `follower` with every change set that is published from now on."""
        self._followers.append(follower)

    async def commit(self, changes: ChangeSet) -> None:
        """Make `changes` durable, then visible.

        A caller that holds a machine's lock must not be cancelled in here; see `change`.

        Raises:
            StoreError: nothing of it was applied.
        """
        if changes.empty:
            return
        try:
            await self._store.commit(changes)
        except StoreError as error:
            self._conditions.set(CONDITION, str(error))
            raise
        self._conditions.clear(CONDITION)
        self._inventory.publish(changes)
        for follower in self._followers:
            follower(changes)

    async def change(self, key: str, build: Callable[[], ChangeSet]) -> None:
        """Commit what `build` returns under the lock of `key`, until the store takes it.

        `build` is called afresh for each try, and must read the machine and reserve its change
        numbers by itself; an empty change set means that there is nothing to do any more.
        """
        while not await to_the_end(self._attempt(key, build)):
            await self._clock.sleep(RETRY_SECONDS)

    async def change_all(self, keys: Iterable[str], build: Callable[[], ChangeSet]) -> None:
        """The same for one change of many machines, under the locks of all of them."""
        ordered = sorted(keys)
        while not await to_the_end(self._attempt_all(ordered, build)):
            await self._clock.sleep(RETRY_SECONDS)

    async def _attempt_all(self, keys: Iterable[str], build: Callable[[], ChangeSet]) -> bool:
        async with self.locks.hold_all(keys):
            try:
                await self.commit(build())
            except StoreError:
                return False
            return True

    async def _attempt(self, key: str, build: Callable[[], ChangeSet]) -> bool:
        async with self.locks.hold(key):
            try:
                await self.commit(build())
            except StoreError:
                return False  # shown as a condition; a result must not be lost for it
            return True
