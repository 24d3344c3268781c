"""Commits without end and prints what was acknowledged; made to be killed.

Run with the path of a state file. Each line is the number of an acknowledged record.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from bigfleet_azure.domain.changes import ChangeSet
from tests.store.builders import OFFERED, record, side_mark, sqlite_store


async def main() -> None:
    store = sqlite_store(Path(sys.argv[1]))
    store.open()
    await store.commit(OFFERED)
    numbers = itertools.count()

    async def client() -> None:
        for number in numbers:
            await store.commit(
                ChangeSet(
                    records=(record(number, change=number, host=f"vm-{number}"),),
                    marks=(side_mark(f"m-{number}"),),
                )
            )
            print(number, flush=True)  # noqa: T201 - what the test reads

    await asyncio.gather(*(client() for _ in range(16)))


asyncio.run(main())
