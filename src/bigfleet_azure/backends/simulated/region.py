"""The simulated region: a small honest Azure that knows nothing of BigFleet.

VMs have a name, a place and the tags of whoever made them; they take time, can fail, be evicted,
stopped and removed behind the owner's back. Everything that is going to happen has a time, and
things whose time has come happen at the next call: the region needs no task of its own, nobody
waits here, and every call costs the same however many VMs there are.
"""

import asyncio
import hashlib
import heapq
import math
import struct
from datetime import timedelta
from pathlib import Path

from bigfleet_azure.backends.simulated import history
from bigfleet_azure.backends.simulated.ledger import Event, Ledger
from bigfleet_azure.backends.simulated.options import SimulationOptions
from bigfleet_azure.backends.simulated.vm import NEVER, Binding, Health, Place, VirtualMachine
from bigfleet_azure.kit.clock import Clock

THROTTLE_RETRY_AFTER = timedelta(seconds=1)
"""What a 429 says in its Retry-After."""

SPOT = "spot"
"""The priority whose VMs can be evicted."""

_SPREAD = 0.25
"""Steps take the configured latency, give or take this share."""

_SPARE_LINES = 1000
_LINES_PER_VM = 4
"""The ledger is compacted at start when it has more lines than this for each live VM."""


class RegionError(Exception):
    """The region's answer to a call it does not carry out, in Azure's form.

    Attributes:
        code: Azure's error code.
        retry_after: what a Retry-After header would say.
    """

    def __init__(self, code: str, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class Region:
    """The VMs of one region.

    Args:
        options: how it behaves.
        clock: gives the time of day; nothing here waits.
        path: the ledger's file; None for a region that ends with the process.
    """

    def __init__(self, options: SimulationOptions, clock: Clock, path: Path | None) -> None:
        self._options = options
        self._clock = clock
        self._ledger = Ledger(path) if path else None
        self._latency = options.latency.total_seconds()
        self._machines: dict[str, VirtualMachine] = {}
        self._lives: dict[str, int] = {}
        self._places: dict[Place, int] = {}
        self._used: dict[Place, int] = {}
        self._capacity: dict[Place, int] = {}
        self._agenda: list[tuple[float, int, VirtualMachine]] = []
        self._agenda_count = 0
        self._refused: dict[str, int] = {}
        self._reads = 0

    async def open(self) -> None:
        """Read the ledger, if there is one. Call it once, before anything else.

        Raises:
            LedgerError: the ledger is damaged.
            OSError: it cannot be read or written.
        """
        if self._ledger is None:
            return
        try:
            await asyncio.to_thread(self._load, self._ledger)
        except BaseException:
            self._ledger.close()
            raise

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    # What a caller of Azure can do

    def admit(self, call: str) -> None:
        """Let a call pass or throttle it.

        Args:
            call: names the call with all that tells it from others; a repeat is another try.

        Raises:
            RegionError: TooManyRequests.
        """
        if not self._options.throttle:
            return
        tries = self._refused.get(call, 0)
        if self._throttled(f"{call} {tries}"):
            self._refused[call] = tries + 1
            raise _too_many_requests()
        self._refused.pop(call, None)

    def admit_read(self) -> None:
        """The same for calls that only look, which are all alike.

        Raises:
            RegionError: TooManyRequests.
        """
        if not self._options.throttle:
            return
        self._reads += 1
        if self._throttled(f"read {self._reads}"):
            raise _too_many_requests()

    def find(self, name: str) -> VirtualMachine | None:
        """The VM of that name, if it exists; one that is being deleted still does."""
        self._advance()
        return self._machines.get(name)

    def machines(self) -> list[VirtualMachine]:
        """All VMs."""
        self._advance()
        return list(self._machines.values())

    def create(self, name: str, operation: str, place: Place) -> VirtualMachine:
        """Begin a VM; it counts against quota and capacity from now on.

        Raises:
            RegionError: Conflict, QuotaExceeded or ZonalAllocationFailed.
        """
        now = self._advance()
        if name in self._machines:
            raise RegionError("Conflict", f"The resource '{name}' already exists.")
        self._check_limits(place)
        life = self._lives.get(name, 0)
        step, fate, _ = self._draw("create", name, life)
        vm = VirtualMachine(
            name,
            operation,
            place,
            provisioned_at=now + self._step(step),
            doomed=fate < self._options.fail_rate,
            life=life,
        )
        self._record_created(vm)
        self._add(vm)
        self._plan_eviction(vm)
        return vm

    def deliver(
        self,
        vm: VirtualMachine,
        operation: str,
        cluster: str,
        *,
        delay: timedelta | None = None,
        joins: bool = True,
    ) -> Binding:
        """Begin to hand a bootstrap blob to a VM.

        Args:
            delay: time until the blob is on the VM, instead of the usual.
            joins: whether its node ever becomes Ready.
        """
        now = self._advance()
        vm.bindings += 1
        hand_over, ready, _ = self._draw("deliver", vm.name, vm.life, vm.bindings)
        binding = Binding(
            operation,
            cluster,
            handed_at=now + (self._step(hand_over) if delay is None else delay.total_seconds()),
            ready_after=self._step(ready) if joins else None,
        )
        self._record(history.bound(vm.name, binding))
        vm.given = binding
        return binding

    def release(self, vm: VirtualMachine, binding: Binding, grace_seconds: float) -> None:
        """Begin to take a VM out of its cluster; its workloads end soon, at most after the grace.

        Simulated workloads take one step to end, or the grace if that is shorter.
        """
        now = self._advance()
        if binding.leaves_at < NEVER:
            return
        step, _, _ = self._draw("release", vm.name, vm.life, vm.bindings)
        leaves_at = now + min(self._step(step), grace_seconds)
        self._record(history.unbound(vm.name, leaves_at))
        binding.leaves_at = leaves_at

    def delete(self, vm: VirtualMachine) -> None:
        """Begin to delete a VM; nothing stops it from then on."""
        if vm.gone_at == NEVER:
            step, _, _ = self._draw("delete", vm.name, vm.life)
            self._delete_at(vm, self._advance() + self._step(step))

    # What happens behind a caller's back

    def evict(self, name: str) -> None:
        """Take the capacity of a spot VM away: it stays, deallocated, until it is deleted.

        This and the next three raise KeyError when there is no such VM.

        Raises:
            ValueError: it is no spot VM.
        """
        if self._machines[name].place.priority != SPOT:
            raise ValueError(f"{name} is no spot VM, those are never evicted")
        self._afflict(name, Health.EVICTED)

    def stop(self, name: str) -> None:
        """Stop a VM, as somebody in the portal would."""
        self._afflict(name, Health.STOPPED)

    def fail(self, name: str) -> None:
        """Break a VM: its provisioning state becomes Failed."""
        self._afflict(name, Health.FAILED)

    def remove(self, name: str) -> None:
        """Delete a VM at once, as a stranger with the right to do so would."""
        self._delete_at(self._machines[name], self._clock.now())
        self._advance()

    def limit_capacity(self, place: Place, most: int | None) -> None:
        """Let a place hold at most that many VMs from now on; None lifts the limit."""
        if most is None:
            self._capacity.pop(place, None)
        else:
            self._capacity[place] = most

    def _afflict(self, name: str, trouble: Health) -> None:
        self._advance()
        self._trouble(self._machines[name], trouble)

    def _trouble(self, vm: VirtualMachine, trouble: Health) -> None:
        self._record(history.troubled(vm.name, trouble))
        vm.trouble = trouble

    # Limits and chance

    def _check_limits(self, place: Place) -> None:
        used = self._used.get(place, 0)
        quota = self._options.quota
        if quota is not None and used >= quota:
            raise RegionError(
                "QuotaExceeded",
                "Operation could not be completed as it results in exceeding approved quota for "
                f"{place}: limit {quota}, in use {used}, required 1.",
            )
        if used >= self._capacity.get(place, NEVER):
            raise RegionError(
                "ZonalAllocationFailed",
                f"Allocation failed. We do not have sufficient capacity for {place}.",
            )

    def _draw(self, *what: str | int) -> tuple[float, float, float]:
        """Three numbers in [0, 1) that belong to a step of a VM's life under the seed.

        Operation ids have no part in it: they are drawn anew for each state, and equal calls are
        to have equal luck.
        """
        return _chances(f"{self._options.seed} {what}")

    def _throttled(self, call: str) -> bool:
        return _chances(f"{self._options.seed} {call}")[0] < self._options.throttle

    def _step(self, chance: float) -> float:
        """Seconds that a step takes."""
        return self._latency * (1 + _SPREAD * (2 * chance - 1))

    def _plan_eviction(self, vm: VirtualMachine) -> None:
        rate = self._options.evict_rate
        if rate and vm.place.priority == SPOT and vm.trouble is None:
            _, _, chance = self._draw("create", vm.name, vm.life)
            hours = -math.log(1 - chance) / rate
            self._plan(vm.provisioned_at + hours * 3600, vm)

    # Time

    def _plan(self, at: float, vm: VirtualMachine) -> None:
        """Look at this VM again at `at`: to be gone if it is being deleted, else evicted."""
        self._agenda_count += 1
        heapq.heappush(self._agenda, (at, self._agenda_count, vm))

    def _advance(self) -> float:
        """Let everything happen whose time has come; return the time."""
        now = self._clock.now()
        while self._agenda and self._agenda[0][0] <= now:
            vm = self._agenda[0][2]
            if self._machines.get(vm.name) is vm:
                self._let_happen(vm, now)
            heapq.heappop(self._agenda)
        return now

    def _add(self, vm: VirtualMachine) -> None:
        self._machines[vm.name] = vm
        self._used[vm.place] = self._used.get(vm.place, 0) + 1

    def _let_happen(self, vm: VirtualMachine, now: float) -> None:
        if vm.gone_at <= now:
            self._drop(vm)
        elif vm.gone_at == NEVER and vm.trouble is None:
            self._trouble(vm, Health.EVICTED)

    def _drop(self, vm: VirtualMachine) -> None:
        del self._machines[vm.name]
        self._lives[vm.name] = vm.life + 1
        self._used[vm.place] -= 1

    def _delete_at(self, vm: VirtualMachine, at: float) -> None:
        self._record(history.deleted(vm.name, at))
        vm.gone_at = at
        self._plan(at, vm)

    # The ledger. Every change is written before it is made.

    def _record(self, event: Event) -> None:
        if self._ledger is not None:
            self._ledger.append(event)

    def _record_created(self, vm: VirtualMachine) -> None:
        number = self._places.get(vm.place)
        if number is None:
            number = len(self._places)
            self._record(history.place(number, vm.place))
            self._places[vm.place] = number
        self._record(history.created(vm, number))

    def _load(self, ledger: Ledger) -> None:
        self._machines, self._places = history.replay(ledger.path, ledger.open())
        for vm in self._machines.values():
            self._used[vm.place] = self._used.get(vm.place, 0) + 1
            if vm.gone_at < NEVER:
                self._plan(vm.gone_at, vm)
            else:
                self._plan_eviction(vm)
        self._advance()
        if ledger.lines > _SPARE_LINES + _LINES_PER_VM * len(self._machines):
            ledger.rewrite(history.snapshot(self._machines.values(), self._places))


def _chances(text: str) -> tuple[float, float, float]:
    """Three numbers in [0, 1) that follow from `text`."""
    digest = hashlib.blake2b(text.encode(), digest_size=24).digest()
    first, second, third = struct.unpack(">3Q", digest)
    # 53 bits fit a float exactly; more could round up to 1.
    return (first >> 11) / 2**53, (second >> 11) / 2**53, (third >> 11) / 2**53


def _too_many_requests() -> RegionError:
    return RegionError(
        "TooManyRequests",
        "The request is being throttled as the limit has been reached for operation type.",
        retry_after=THROTTLE_RETRY_AFTER,
    )
