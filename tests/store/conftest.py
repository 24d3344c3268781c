"""Stores that are closed again, whatever the test did with them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bigfleet_azure.store.sqlite import SqliteStore
from tests.store.builders import sqlite_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def make(path: Path) -> AsyncIterator[Callable[..., SqliteStore]]:
    """Makes stores on `path`, not yet opened."""
    made: list[SqliteStore] = []

    def new(**arguments: object) -> SqliteStore:
        store = sqlite_store(path, **arguments)
        made.append(store)
        return store

    yield new
    for store in made:
        await store.close()
