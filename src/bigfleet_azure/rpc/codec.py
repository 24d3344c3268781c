"""Wire form of answers, written by hand, and commands read from requests.

Answers are built as bytes because they are served as bytes: what all slots of an offering share is
encoded once, and a List joins ready entries. Field numbers are those of contract section 1; tests
hold every answer against protobuf's own reading of it. Requests are parsed by protobuf.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.domain.limits import MAX_METADATA_BYTES
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.metadata import pack, pack_map, varint
from bigfleet_azure.domain.offering import FORBIDDEN_LABELS, Offering
from bigfleet_azure.domain.secret import Secret

_VARINT, _FIXED64, _BYTES = 0, 1, 2
"""Wire types (protobuf encoding specification)."""


_OTHER_FIELDS_BYTES = 4096
"""More than the ids and numbers of a Configure take. A request that is larger by more than this has
too much metadata, whose packing would hold the loop for seconds before it is refused."""


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


_MACHINE_ID = _tag(1, _BYTES)
_MACHINE_STATE = _tag(2, _VARINT)
_MACHINE_HOST = _tag(3, _BYTES)
_MACHINE_INSTANCE_TYPE = _tag(4, _BYTES)
_MACHINE_ZONE = _tag(5, _BYTES)
_MACHINE_CAPACITY_TYPE = _tag(6, _VARINT)
_MACHINE_PRICE = _tag(7, _FIXED64)
_MACHINE_INTERRUPTION = _tag(8, _FIXED64)
_MACHINE_RESOURCES = _tag(9, _BYTES)
_MACHINE_LABELS = _tag(10, _BYTES)
_MACHINE_LAST_ERROR = _tag(12, _BYTES)
_MACHINE_ALLOCATABLE = _tag(13, _BYTES)
_MACHINE_CLUSTER = _tag(14, _BYTES)
_HOST_PROVIDER = _tag(1, _BYTES)
_HOST_REF = _tag(2, _BYTES)
_RESOURCES_ENTRIES = _tag(1, _BYTES)
_LIST_MACHINES = _tag(1, _BYTES)
_ACK_OPERATION_ID = _tag(1, _BYTES)
_ACK_MACHINE = _tag(2, _BYTES)

_STATES = {state: _MACHINE_STATE + varint(state) for state in State}


class WireEncoder:
    """Encodes machines; keeps nothing between calls."""

    def shared(self, offering: Offering) -> bytes:
        """The fields that every slot of an offering has in common."""
        offer, facts = offering.offer, offering.facts
        labels = {
            key: value
            for key, value in {**offer.labels, **facts.labels}.items()
            if key not in FORBIDDEN_LABELS
        }
        return b"".join(
            (
                _text(_MACHINE_INSTANCE_TYPE, offer.vm_size),
                _text(_MACHINE_ZONE, offer.zone),
                _MACHINE_CAPACITY_TYPE,
                varint(offer.capacity_type),
                _double(_MACHINE_PRICE, facts.price_usd_per_hour),
                _double(_MACHINE_INTERRUPTION, facts.interruption_probability),
                _resources(_MACHINE_RESOURCES, offer.resources),
                pack_map(_MACHINE_LABELS, labels),
                _resources(_MACHINE_ALLOCATABLE, facts.allocatable),
            )
        )

    def machine(self, record: Record, shared: bytes, provider: str) -> bytes:
        """A whole Machine message; `host` is absent, not empty, while the record has none."""
        identity = record.id.encode()
        parts = [
            _MACHINE_ID,
            varint(len(identity)),
            identity,
            _STATES[record.state],
            shared,
            record.metadata,
        ]
        if record.warned:
            # Of a field that stands twice the last one counts (protobuf encoding specification).
            parts.append(_double(_MACHINE_INTERRUPTION, record.warned))
        if record.host:
            before = _host_before_ref(provider)
            ref = record.host.encode()
            size = varint(len(ref))
            whole = len(before) + len(size) + len(ref)
            parts += (_MACHINE_HOST, varint(whole), before, size, ref)
        if record.cluster:
            cluster = record.cluster.encode()
            parts += (_MACHINE_CLUSTER, varint(len(cluster)), cluster)
        if record.last_error:
            # Vendors' texts end up here: one broken character must not break every List.
            text = record.last_error.encode(errors="replace")
            parts += (_MACHINE_LAST_ERROR, varint(len(text)), text)
        return b"".join(parts)

    def entry(self, body: bytes) -> bytes:
        """One entry of `MachineList.machines`."""
        return _sized(_LIST_MACHINES, body)

    def unused_entries(self, ids: Iterable[str], shared: bytes) -> bytes:
        """The entries of untouched SPECULATIVE slots, in the given order.

        Ids of one length have equal bytes on both sides of them, so a run of such entries is the
        ids joined by what stands between two of them.
        """
        after = _STATES[State.SPECULATIVE] + shared
        runs: list[bytes] = []
        for size, run in groupby(map(str.encode, ids), len):
            before_id = _MACHINE_ID + varint(size)
            before = _LIST_MACHINES + varint(len(before_id) + size + len(after)) + before_id
            runs += (before, (after + before).join(run), after)
        return b"".join(runs)


@lru_cache(maxsize=16)
def _host_before_ref(provider: str) -> bytes:
    """What stands before the reference in a HostRef: a daemon has one provider name."""
    return _text(_HOST_PROVIDER, provider) + _HOST_REF


def ack(operation_id: str, machine: bytes) -> bytes:
    """A TransitionAck around an encoded machine."""
    return _text(_ACK_OPERATION_ID, operation_id) + _sized(_ACK_MACHINE, machine)


def _sized(tag: bytes, content: bytes) -> bytes:
    return b"".join((tag, varint(len(content)), content))


def _text(tag: bytes, value: str) -> bytes:
    return _sized(tag, value.encode())


def _double(tag: bytes, value: float) -> bytes:
    return tag + struct.pack("<d", value)


def _resources(tag: bytes, quantities: Mapping[str, str]) -> bytes:
    if not quantities:
        return b""
    return _sized(tag, pack_map(_RESOURCES_ENTRIES, quantities))


def create_command(raw: bytes) -> Command:
    """The command in a CreateRequest.

    Raises:
        google.protobuf.message.DecodeError: `raw` is no such message; so for all readers below.
    """
    request = pb.CreateRequest.FromString(raw)
    return Command(kind=Kind.CREATE, machine_id=request.machine_id, token=_token(request))


def configure_command(raw: bytes) -> Command:
    """The command in a ConfigureRequest, metadata packed and the blob under wraps."""
    request = pb.ConfigureRequest.FromString(raw)
    besides_blob = len(raw) - len(request.bootstrap_blob)
    too_large = besides_blob > MAX_METADATA_BYTES + _OTHER_FIELDS_BYTES
    return Command(
        kind=Kind.CONFIGURE,
        machine_id=request.machine_id,
        token=_token(request),
        cluster=request.cluster_id,
        metadata=b"" if too_large else pack(request.shard_metadata),
        unpacked_bytes=besides_blob if too_large else 0,
        blob=Secret(request.bootstrap_blob),
    )


def drain_command(raw: bytes) -> Command:
    """The command in a DrainRequest, the grace as it was sent."""
    request = pb.DrainRequest.FromString(raw)
    return Command(
        kind=Kind.DRAIN,
        machine_id=request.machine_id,
        token=_token(request),
        grace_seconds=request.grace_period_seconds,
    )


def delete_command(raw: bytes) -> Command:
    """The command in a DeleteRequest, or in the MachineRef that older callers send."""
    request = pb.DeleteRequest.FromString(raw)
    return Command(kind=Kind.DELETE, machine_id=request.machine_id, token=_token(request))


def _token(
    request: pb.CreateRequest | pb.ConfigureRequest | pb.DrainRequest | pb.DeleteRequest,
) -> Token:
    return Token(request.shard_id, request.shard_epoch, request.sequence_number)
