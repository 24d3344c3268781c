"""The simulated region's ledger: what survives, what is tolerated and what is refused."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bigfleet_azure.backends.base import Condition
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.history import audit
from bigfleet_azure.backends.simulated.ledger import LedgerError
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import SystemClock
from tests.backends.harness import offer, work
from tests.support.clock import VirtualClock

HEADER = '["bigfleet-azure simulated region",1]\n'
PLACE = '["p",0,"Standard_D4s_v5","eastus-1","on_demand"]\n'
CREATED = '["c","vm-1","op-a-1",0,1700000000.02]\n'


class Site:
    """A ledger file and the regions that are started on it, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()

    async def start(self, options: SimulationOptions | None = None) -> SimulatedBackend:
        backend = SimulatedBackend(options or SimulationOptions(), self.clock, self.path)
        await backend.start()
        return backend

    async def create(self, backend: SimulatedBackend, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self.clock.run(
                backend.create(
                    work(f"vm-{number}", f"op-a-{number}", offer=offer(CapacityType.SPOT))
                )
            )

    async def delete(self, backend: SimulatedBackend, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self.clock.run(
                backend.delete(work(f"vm-{number}", "op-a-99", created_by=f"op-a-{number}"))
            )

    def write(self, *lines: str) -> None:
        self.path.write_text("".join(lines))

    async def refused(self) -> str:
        with pytest.raises(BackendError) as caught:
            await self.start()
        assert caught.value.kind is FailureKind.INVALID
        return str(caught.value)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state.region")


async def test_every_line_is_short(site: Site) -> None:
    backend = await site.start()
    vm = "azure-eastus-spot-f8s-v2-1-000"
    await site.clock.run(backend.create(work(vm, "op-1a2b3c4d-123456")))
    bound = work(vm, "op-1a2b3c4d-123457", created_by="op-1a2b3c4d-123456", cluster="prod-1")
    await site.clock.run(backend.configure(bound, Secret(b"x" * 1000)))
    await site.clock.run(backend.drain(bound))
    await site.clock.run(backend.delete(bound))
    await backend.close()
    assert max(map(len, site.path.read_bytes().splitlines())) <= 90


async def test_every_event_is_in_the_file_before_the_call_returns(site: Site) -> None:
    backend = await site.start()
    task = asyncio.ensure_future(backend.create(work("vm-1", "op-a-1")))
    await asyncio.sleep(0)
    assert audit(site.path).live == {"vm-1"}
    task.cancel()
    await backend.close()


async def test_the_audit_counts_lives_and_finds_doubled_names(site: Site) -> None:
    backend = await site.start()
    await site.create(backend, [1, 2, 3])
    await site.delete(backend, [2])
    await site.create(backend, [2])
    await site.delete(backend, [3])
    await backend.close()
    found = audit(site.path)
    assert (found.created, found.deleted) == (4, 2)
    assert found.live == {"vm-1", "vm-2"}
    assert found.doubled == frozenset()
    site.path.write_bytes(site.path.read_bytes() + CREATED.encode())
    assert audit(site.path).doubled == {"vm-1"}


@pytest.mark.parametrize("tail", ['["c","vm-2","op-a', '["', "\0\0\0\0", '["d","vm-1",1.0]'])
async def test_a_last_line_cut_short_by_a_kill_is_dropped(site: Site, tail: str) -> None:
    site.write(HEADER, PLACE, CREATED, tail)
    backend = await site.start()
    assert [vm.name for vm in backend.region.machines()] == ["vm-1"]
    await site.create(backend, [2])
    await backend.close()
    again = await site.start()
    assert {vm.name for vm in again.region.machines()} == {"vm-1", "vm-2"}
    await again.close()


@pytest.mark.parametrize("begun", ["", HEADER[:5], HEADER[:-1]])
async def test_a_ledger_whose_first_line_was_cut_short_is_begun_anew(
    site: Site, begun: str
) -> None:
    site.write(begun)
    backend = await site.start()
    await backend.close()
    assert site.path.read_text() == HEADER


@pytest.mark.parametrize(
    "damage",
    [
        '["c","vm-2","op-\n',
        "\n",
        "7\n",
        '["z","vm-1"]\n',
        '["c","vm-2","op-a-2",5,1.0]\n',
        '["c","vm-2","op-a-2",0,"later"]\n',
        '["b","vm-2","op-a-2","blue",1.0,0.1]\n',
        '["u","vm-1",1.0]\n',
        '["d","vm-1"]\n',
        CREATED,
    ],
)
async def test_a_damaged_line_in_the_middle_is_refused_with_its_number_and_a_way_out(
    site: Site, damage: str
) -> None:
    site.write(HEADER, PLACE, CREATED, damage, '["d","vm-1",1700000001.0]\n')
    before = site.path.read_bytes()
    text = await site.refused()
    assert f"{site.path}, line 4" in text
    assert "move it away to begin with an empty region" in text
    assert site.path.read_bytes() == before


@pytest.mark.parametrize(
    "content", ["not a ledger", "not a ledger\n", '{"records": []}\n', "[1,2]\n", "\0" * 512]
)
async def test_a_foreign_file_is_refused_and_left_as_it_is(site: Site, content: str) -> None:
    site.write(content)
    assert "this is no ledger" in await site.refused()
    assert site.path.read_text() == content


async def test_a_ledger_of_a_newer_daemon_is_refused(site: Site) -> None:
    site.write('["bigfleet-azure simulated region",2]\n')
    assert "written by a newer daemon" in await site.refused()


async def test_a_ledger_that_cannot_be_opened_is_refused(site: Site) -> None:
    site.path.mkdir()
    assert str(site.path) in await site.refused()


async def test_a_ledger_with_much_history_is_compacted_at_start_and_tells_the_same(
    site: Site,
) -> None:
    backend = await site.start()
    for _ in range(550):
        await site.create(backend, [0])
        await site.delete(backend, [0])
    await site.create(backend, range(1, 7))
    bound = work("vm-1", "op-a-50", created_by="op-a-1", cluster="blue", grace_seconds=30)
    await site.clock.run(backend.configure(bound, Secret(b"x")))
    backend.region.evict("vm-2")
    backend.region.stop("vm-3")
    backend.region.fail("vm-4")
    leaving = work("vm-5", "op-a-51", created_by="op-a-5", cluster="blue", grace_seconds=30)
    await site.clock.run(backend.configure(leaving, Secret(b"x")))
    await site.clock.run(backend.drain(leaving))
    deleting = asyncio.ensure_future(backend.delete(work("vm-6", "op-a-52", created_by="op-a-6")))
    await asyncio.sleep(0)
    deleting.cancel()
    before = await backend.inventory()
    await backend.close()
    long = site.path.stat().st_size
    for _ in range(2):
        again = await site.start()
        assert await again.inventory() == before
        await site.clock.run(again.wait_ready(bound))
        await again.close()
    assert site.path.stat().st_size < long / 20
    assert [file.name for file in site.path.parent.iterdir()] == [site.path.name]
    after = await site.start()
    await site.create(after, [8])
    await after.close()
    assert "vm-8" in audit(site.path).live


async def test_a_ledger_that_is_mostly_live_machines_is_left_alone(site: Site) -> None:
    backend = await site.start()
    await site.create(backend, range(20))
    await backend.close()
    inode = site.path.stat().st_ino
    again = await site.start()
    await again.close()
    assert site.path.stat().st_ino == inode


async def test_quota_is_counted_on_over_a_restart(site: Site) -> None:
    options = SimulationOptions(quota=2)
    backend = await site.start(options)
    await site.create(backend, [1, 2])
    await site.delete(backend, [1])
    await backend.close()
    again = await site.start(options)
    await site.create(again, [3])
    with pytest.raises(BackendError) as caught:
        await site.create(again, [4])
    assert caught.value.kind is FailureKind.QUOTA
    await again.close()


async def test_evictions_that_fell_due_while_nobody_ran_are_seen_at_start(site: Site) -> None:
    options = SimulationOptions(evict_rate=10)
    backend = await site.start(options)
    await site.create(backend, range(5))
    await backend.close()
    await site.clock.advance(24 * 3600)
    for _ in range(2):
        again = await site.start(options)
        assert {vm.condition for vm in await again.inventory()} == {Condition.EVICTED}
        await again.close()


async def test_a_machine_whose_provisioning_will_fail_still_fails_after_a_restart(
    site: Site,
) -> None:
    backend = await site.start(SimulationOptions(fail_rate=1))
    task = asyncio.ensure_future(backend.create(work("vm-1", "op-a-1")))
    await asyncio.sleep(0)
    task.cancel()
    await backend.close()
    again = await site.start()
    with pytest.raises(BackendError) as caught:
        await site.clock.run(again.create(work("vm-1", "op-a-1")))
    assert caught.value.kind is FailureKind.INVALID
    await again.close()


class FullDisk:
    """A file that takes half of each line, as a full disk may."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, line: bytes) -> int:
        self._file.write(line[: len(line) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size: int) -> None:
        self._file.truncate(size)


@pytest.mark.behaviour(82)
async def test_a_full_disk_fails_the_call_and_leaves_neither_machine_nor_half_a_line(
    site: Site,
) -> None:
    backend = await site.start()
    await site.create(backend, [1])
    ledger = backend.region._ledger
    assert ledger is not None
    file = ledger._file
    ledger._file = FullDisk(file)  # type: ignore[assignment]
    with pytest.raises(BackendError, match="No space left") as caught:
        await site.create(backend, [2])
    assert caught.value.kind is FailureKind.TRANSIENT
    assert [vm.name for vm in backend.region.machines()] == ["vm-1"]
    ledger._file = file
    await site.create(backend, [2])
    await backend.close()
    assert audit(site.path).live == {"vm-1", "vm-2"}


def test_an_audit_of_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("something\n")
    with pytest.raises(LedgerError, match="line 1"):
        audit(path)


VICTIM = """
import asyncio, sys
from pathlib import Path
from bigfleet_azure.backends.simulated.backend import SimulatedBackend
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.kit.clock import SystemClock
from tests.backends.harness import work

async def main():
    backend = SimulatedBackend(SimulationOptions(), SystemClock(), Path(sys.argv[1]))
    await backend.start()
    number = 0
    while True:
        batch = range(number, number + 16)
        await asyncio.gather(*(backend.create(work(f"vm-{n}", f"op-a-{n}")) for n in batch))
        for n in batch:
            print(n, flush=True)
        number += 16

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.behaviour(78)
async def test_after_sigkill_every_machine_that_was_reported_is_there_once(site: Site) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VICTIM, str(site.path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    reported = [int(await process.stdout.readline()) for _ in range(100)]
    process.kill()
    await process.communicate()
    found = audit(site.path)
    assert found.doubled == frozenset()
    assert {f"vm-{number}" for number in reported} <= found.live
    backend = SimulatedBackend(SimulationOptions(), SystemClock(), site.path)
    await backend.start()
    for number in reported:
        await backend.create(work(f"vm-{number}", f"op-a-{number}", resumed=True))
    assert audit(site.path).doubled == frozenset()
    await backend.close()
