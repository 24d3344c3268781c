"""The network SDK costs the longest of all imports, so it is loaded only to delete a leftover.

In a process of its own: the tests' process may have loaded it for the double's own tests.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from tests.support.arm.faults import Fault
from tests.support.azure import Site

SDK = "azure.mgmt.network"


class Watch:
    """Notes by which thread the network SDK is looked for."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: object = None
    ) -> ModuleSpec | None:
        if name.startswith(SDK):
            self.threads.add(threading.current_thread())
        return None


def test_the_network_sdk_is_loaded_off_the_loop_and_only_to_delete_a_leftover() -> None:
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def _lives(folder: Path) -> None:
    watch = Watch()
    sys.meta_path.insert(0, watch)
    async with Site(folder) as site:
        [machine] = await site.ids(1)
        await site.configured(machine)
        await site.drain(machine)
        await site.reaches(machine, "IDLE")
        assert SDK not in sys.modules
        site.arm.faults.add(Fault("vm.delete", name=machine, leave=("nic",)))
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        assert SDK in sys.modules
        assert watch.threads
        assert threading.main_thread() not in watch.threads


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_lives(Path(folder)))
