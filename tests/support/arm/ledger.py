"""The ledger: every call, every resource ever made, every script run, and what was billed.

Tests end by asking it whether something leaked or was made twice.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MACHINE_TAG = "bigfleet-machine-id"
OWNER_TAG = "bigfleet-owner"
VM = "Microsoft.Compute/virtualMachines"
DISK = "Microsoft.Compute/disks"
NIC = "Microsoft.Network/networkInterfaces"
PUBLIC_IP = "Microsoft.Network/publicIPAddresses"
PARTS = (NIC, DISK, PUBLIC_IP)


@dataclass
class Entry:
    """One resource, from birth to end."""

    id: str
    type: str
    name: str
    tags: dict[str, str]
    created: float
    seeded: bool = False
    """Was there before the test: never a leak."""
    deleted: float | None = None
    parent: str | None = None
    """For parts: the VM that holds them; None = nobody."""
    failed: bool = False
    """For VMs: the create failed and left a shell."""

    @property
    def alive(self) -> bool:
        return self.deleted is None

    @property
    def machine(self) -> tuple[str, str] | None:
        """Owner and machine id from the tags, or None."""
        lower = {key.lower(): value for key, value in self.tags.items()}
        machine = lower.get(MACHINE_TAG)
        return None if machine is None else (lower.get(OWNER_TAG, ""), machine)

    def overlaps(self, other: "Entry") -> bool:
        """Whether both were there at one moment."""
        first, second = sorted((self, other), key=lambda entry: entry.created)
        return first.deleted is None or first.deleted > second.created


@dataclass(frozen=True)
class LedgerCall:
    """One call and what it was charged to."""

    at: float
    principal: str
    route: str
    method: str
    status: int
    buckets: tuple[str, ...]


@dataclass(frozen=True)
class ScriptRun:
    """One script that ran in a guest."""

    at: float
    vm: str
    script: str
    why: str
    """`extension`, `reimage` or `run-command`."""


@dataclass
class _Billing:
    total: float = 0.0
    since: float | None = None


@dataclass
class Ledger:
    """See the module."""

    calls: list[LedgerCall] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    scripts: list[ScriptRun] = field(default_factory=list)
    most_at_once: Counter[str] = field(default_factory=Counter)
    """By route: the most calls that were under way together. A scripted delay brings it out."""
    _under_way: Counter[str] = field(default_factory=Counter)
    _alive: dict[str, Entry] = field(default_factory=dict)
    _billing: dict[str, _Billing] = field(default_factory=dict)

    @contextmanager
    def under_way(self, route: str) -> Iterator[None]:
        """Count a call of this route as under way."""
        self._under_way[route] += 1
        self.most_at_once[route] = max(self.most_at_once[route], self._under_way[route])
        try:
            yield
        finally:
            self._under_way[route] -= 1

    def born(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._alive[entry.id.lower()] = entry

    def died(self, identity: str, at: float) -> None:
        entry = self._alive.pop(identity.lower(), None)
        if entry is not None:
            entry.deleted = at
        self.stop_billing(identity, at)

    def entry(self, identity: str) -> Entry | None:
        """The living resource of this id."""
        return self._alive.get(identity.lower())

    def alive(self, kind: str) -> list[Entry]:
        """What is there now and was not seeded."""
        return [each for each in self._alive.values() if each.type == kind and not each.seeded]

    def ever(self, kind: str) -> list[Entry]:
        return [each for each in self.entries if each.type == kind and not each.seeded]

    def start_billing(self, vm: str, at: float) -> None:
        bill = self._billing.setdefault(vm.lower(), _Billing())
        if bill.since is None:
            bill.since = at

    def stop_billing(self, vm: str, at: float) -> None:
        bill = self._billing.get(vm.lower())
        if bill is not None and bill.since is not None:
            bill.total += at - bill.since
            bill.since = None

    def vm_seconds(self, now: float, vm: str | None = None) -> float:
        """Billed so far, of one VM id or of all."""
        chosen = self._billing.values() if vm is None else [self._billing.get(vm.lower())]
        return sum(
            bill.total + (0.0 if bill.since is None else now - bill.since)
            for bill in chosen
            if bill is not None
        )

    def count(self, route: str | None = None, *, method: str | None = None) -> int:
        """How many calls: of one route, of one method, of both, or of all."""
        return sum(
            (route is None or call.route == route) and (method is None or call.method == method)
            for call in self.calls
        )

    def by_bucket(self) -> Counter[str]:
        """Calls by the bucket that they were charged to."""
        return Counter(bucket for call in self.calls for bucket in call.buckets)

    def throttled(self) -> list[LedgerCall]:
        return [call for call in self.calls if call.status == 429]

    def leaks(self, keep: Collection[str] | None = None) -> list[str]:
        """Parts that no VM holds, shells of failed creates, and VMs outside `keep` (names)."""
        return list(self._leaks(keep))

    def _leaks(self, keep: Collection[str] | None) -> Iterator[str]:
        for kind in PARTS:
            for part in self.alive(kind):
                if part.parent is None or self.entry(part.parent) is None:
                    yield f"{part.id} belongs to no VM"
        for vm in self.alive(VM):
            if vm.failed:
                yield f"{vm.id} is the shell of a failed create"
            elif keep is not None and vm.name not in keep:
                yield f"{vm.id} should be gone"

    def doubled(self) -> list[str]:
        """Machines that had two VMs at one moment."""
        found = []
        machines: dict[tuple[str, str], list[Entry]] = {}
        for vm in self.ever(VM):
            if vm.machine is not None:
                others = machines.setdefault(vm.machine, [])
                found += [f"{vm.id} and {each.id}" for each in others if each.overlaps(vm)]
                others.append(vm)
        return found

    def assert_nothing_leaked(self, keep: Collection[str] | None = None) -> None:
        leaks = self.leaks(keep)
        assert not leaks, "leaked:\n  " + "\n  ".join(leaks)

    def assert_nothing_doubled(self) -> None:
        doubled = self.doubled()
        assert not doubled, "two VMs for one machine:\n  " + "\n  ".join(doubled)
