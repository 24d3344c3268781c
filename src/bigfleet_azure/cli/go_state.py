"""What a JSON state file of the Go provider says, or every fault of it at once.

The exact shape of that file is published nowhere. It is known to keep fence marks, the idempotency
map and bindings; how they are spelled was inferred, so several spellings are understood, and what
is not understood is refused. What becomes of them here is `imports`' business.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigfleet_azure.domain.fence import Mark
from bigfleet_azure.domain.lifecycle import CapacityType

MARKS = ("fences", "fence", "fencing", "fence_marks", "marks")
BINDINGS = ("bindings", "bound", "machines")
IDEMPOTENCY = ("idempotency", "idempotency_map", "idempotency_keys", "operations", "ops")
"""Spellings of the three sections; case, `_` and `-` do not count."""

MACHINE = ("machine_id", "machine", "id")
SHARD = ("shard_id", "shard")
EPOCH = ("epoch", "shard_epoch")
SEQUENCE = ("sequence", "sequence_number", "seq")
CLUSTER = ("cluster", "cluster_id")
METADATA = ("shard_metadata", "metadata")
HOST = ("host", "host_ref", "vm_id", "vm", "ref")

EXPECTED = (
    "expected is a JSON object with fence marks and bindings: "
    '{"fences": {MACHINE: {SHARD: {"epoch": 1, "sequence": 2}}}, '
    '"bindings": {MACHINE: {"cluster": "…", "shard_metadata": {}}}}'
)

_OLD_ID = re.compile(
    r"(.+)/(OnDemand|Spot|Reserved)/([^/]+)/([^/]+)/([0-9]{3,7})", re.ASCII | re.DOTALL
)
_CAPACITIES = {
    "OnDemand": CapacityType.ON_DEMAND,
    "Spot": CapacityType.SPOT,
    "Reserved": CapacityType.RESERVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSlot:
    """What a machine id of the Go provider names (contract section 16)."""

    provider: str
    capacity_type: CapacityType
    vm_size: str
    zone: str
    index: int


def old_slot(machine_id: str) -> OldSlot | None:
    """The slot behind `<provider>/<capacity>/<size>/<zone>/<index>`; None for any other id."""
    match = _OLD_ID.fullmatch(machine_id)
    if match is None or f"{int(match[5]):03d}" != match[5]:
        return None
    return OldSlot(
        provider=match[1],
        capacity_type=_CAPACITIES[match[2]],
        vm_size=match[3],
        zone=match[4],
        index=int(match[5]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A machine that the Go provider gave to a cluster.

    Attributes:
        host: its VM, if the file names it.
    """

    machine_id: str
    cluster: str
    metadata: Mapping[str, str]
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoState:
    """What the file holds.

    Attributes:
        marks: (machine id, mark); a pair may stand there more than once.
        idempotency_keys: how many there are.
        ignored: other keys of the file, none of which is understood.
    """

    marks: tuple[tuple[str, Mark], ...]
    bindings: tuple[Binding, ...]
    idempotency_keys: int
    ignored: tuple[str, ...]


class GoStateError(Exception):
    """The file cannot be used; `faults` has every reason, each with its place."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(self.faults))


def read(path: Path) -> GoState:
    """What the state file at `path` says.

    Raises:
        GoStateError: with every fault, and with what was expected.
    """
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_unrepeated)
    except OSError as error:
        raise GoStateError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise GoStateError([f"{path}: is not JSON: {error}"]) from None
    reader = _Reader()
    found = reader.state(data)
    if reader.faults:
        raise GoStateError([f"{path}: {fault}" for fault in reader.faults] + [EXPECTED])
    return found


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {json.dumps(twice)} stands twice in one object")
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


class _Reader:
    """Reads on past a fault, so that all are found."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def state(self, data: Any) -> GoState:
        if not isinstance(data, dict):
            self.faults.append("is no JSON object")
            data = {}
        names = [self._spelled("", data, section) for section in (MARKS, BINDINGS, IDEMPOTENCY)]
        marks, bindings, keys = names
        if not any(names) and not self.faults:
            self.faults.append("holds neither fence marks nor bindings nor idempotency keys")
        return GoState(
            marks=tuple(self._marks(marks, data[marks])) if marks else (),
            bindings=tuple(self._bindings(bindings, data[bindings])) if bindings else (),
            idempotency_keys=self._count(keys, data[keys]) if keys else 0,
            ignored=tuple(sorted(data.keys() - set(names))),
        )

    def _marks(self, where: str, section: Any) -> Iterator[tuple[str, Mark]]:
        """Marks as a list, or as a map of maps with machines or shards outside."""
        if isinstance(section, list):
            for number, entry in enumerate(section):
                at = f"{where}[{number}]"
                yield self._mark(
                    at, entry, self._name(at, entry, MACHINE), self._text(at, entry, SHARD)
                )
            return
        outer = {name: self._object(f"{where}{_key(name)}", inner) for name, inner in
                 self._object(where, section).items()}  # fmt: skip
        inside = {name for inner in outer.values() for name in inner}
        machines_outside = any(old_slot(name) for name in outer)
        if outer and machines_outside == any(old_slot(name) for name in inside):
            self.faults.append(
                f"{where}: machine ids of the Go provider, such as "
                "azure-eastus/Spot/Standard_F8s_v2/eastus-1/000, must stand "
                "either on its first level or on its second"
            )
            return
        for first, inner in outer.items():
            for second, entry in inner.items():
                machine, shard = (first, second) if machines_outside else (second, first)
                yield self._mark(f"{where}{_key(first)}{_key(second)}", entry, machine, shard)

    def _mark(self, at: str, entry: Any, machine: str, shard: str) -> tuple[str, Mark]:
        for name in (machine, shard):
            self._whole_text(at, name)
        numbers = [self._number(at, entry, names) for names in (EPOCH, SEQUENCE)]
        return machine, Mark(shard, *numbers)

    def _bindings(self, where: str, section: Any) -> Iterator[Binding]:
        """Bindings as a list, or as a map by machine id; those without a cluster are none."""
        entries: list[tuple[str, Any, str | None]]
        if isinstance(section, list):
            entries = [(f"{where}[{n}]", entry, None) for n, entry in enumerate(section)]
        else:
            known = self._object(where, section)
            entries = [(f"{where}{_key(name)}", entry, name) for name, entry in known.items()]
        for at, entry, name in entries:
            fields = {"cluster": entry} if isinstance(entry, str) else self._object(at, entry)
            machine = name if name is not None else self._name(at, fields, MACHINE)
            cluster = self._text(at, fields, CLUSTER)
            if not cluster:
                continue
            metadata = self._map(at, fields)
            host = self._text(at, fields, HOST)
            yield Binding(machine_id=machine, cluster=cluster, metadata=metadata, host=host)

    def _map(self, at: str, fields: Mapping[str, Any]) -> Mapping[str, str]:
        name = self._spelled(at, fields, METADATA)
        found = self._object(f"{at}.{name}", fields[name]) if name else {}
        if any(not isinstance(value, str) for value in found.values()):
            self.faults.append(f"{at}.{name}: must be an object of strings")
            return {}
        return found

    def _count(self, where: str, section: Any) -> int:
        if isinstance(section, dict | list):
            return len(section)
        self.faults.append(f"{where}: must be an object or a list")
        return 0

    def _object(self, at: str, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        if value is not None:  # Go writes an empty map that was never made as null.
            self.faults.append(f"{at}: must be an object")
        return {}

    def _name(self, at: str, entry: Any, names: Iterable[str]) -> str:
        text = self._text(at, entry, names)
        if not text and isinstance(entry, dict):
            self.faults.append(f"{at}: names no machine")
        return text

    def _text(self, at: str, entry: Any, names: Iterable[str]) -> str:
        if not isinstance(entry, dict):
            return ""  # told where its numbers are looked for, or by `_object`
        name = self._spelled(at, entry, names)
        value = entry[name] if name else None
        if isinstance(value, str | None):
            return self._whole_text(at, value or "")
        if isinstance(value, dict) and isinstance(value.get("ref"), str):
            return self._whole_text(at, value["ref"])  # a HostRef
        self.faults.append(f"{at}.{name}: must be a string")
        return ""

    def _whole_text(self, at: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.faults.append(f"{at}: {text!r} is no valid Unicode")
        return text

    def _number(self, at: str, entry: Any, names: tuple[str, ...]) -> int:
        """A signed 64-bit number, also as text, which is how protobuf's JSON writes it."""
        if not isinstance(entry, dict):
            if names is EPOCH:
                self.faults.append(f"{at}: must be an object with epoch and sequence")
            return 0
        name = self._spelled(at, entry, names)
        value = entry[name] if name else None
        if isinstance(value, str) and re.fullmatch("-?[0-9]{1,19}", value):
            value = int(value)
        if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return value
        said = f"{json.dumps(value)} is" if name else "is missing or"
        self.faults.append(f"{at}.{name or names[0]}: {said} no whole number of 64 bits")
        return 0

    def _spelled(self, at: str, fields: Mapping[str, Any], names: Iterable[str]) -> str:
        """The key that stands for one of `names`; empty when there is none."""
        plain = {_plain(name) for name in names}
        found = [key for key in fields if _plain(key) in plain]
        if len(found) > 1:
            self.faults.append(f"{at or 'it'} has {' and '.join(found)}, which mean the same")
        return found[0] if found else ""


def _key(name: str) -> str:
    return f"[{json.dumps(name)}]"
