"""Our bytes against protobuf's reading of them, and protobuf's bytes against our reading."""

from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain import metadata
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import CapacityType, Kind, State
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.offering import FORBIDDEN_LABELS, Facts, Offer, Offering
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.rpc import codec
from bigfleet_azure.rpc.codec import WireEncoder

text = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)
maps = st.dictionaries(text, text, max_size=8)
int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
ENCODER = WireEncoder()


@st.composite
def offerings(draw: st.DrawFn) -> Offering:
    forbidden = draw(st.sets(st.sampled_from(sorted(FORBIDDEN_LABELS))))
    labels = draw(maps) | dict.fromkeys(forbidden, "x")
    return Offering(
        number=draw(st.integers(min_value=1, max_value=1000)),
        prefix="azure-eastus-spot-f8s-v2-1",
        offer=Offer(
            vm_size=draw(text),
            zone=draw(text),
            capacity_type=draw(st.sampled_from(CapacityType)),
            count=5,
            resources=draw(maps),
            labels=labels,
        ),
        facts=Facts(
            price_usd_per_hour=draw(st.floats(min_value=0, allow_infinity=False)),
            interruption_probability=draw(st.floats(min_value=0, max_value=1)),
            allocatable=draw(maps),
            labels=draw(maps),
        ),
    )


@st.composite
def records(draw: st.DrawFn) -> tuple[Record, dict[str, str]]:
    shard_metadata = draw(maps)
    record = Record(
        slot=draw(st.integers(min_value=0, max_value=2**40)),
        id=draw(text),
        state=draw(st.sampled_from(State)),
        host=draw(text),
        cluster=draw(text),
        metadata=metadata.pack(shard_metadata),
        last_error=draw(text),
    )
    return record, shard_metadata


def as_protobuf(
    record: Record, shard_metadata: dict[str, str], offering: Offering, provider: str
) -> pb.Machine:
    """The same machine, built field by field with the generated classes."""
    offer, facts = offering.offer, offering.facts
    labels = {**offer.labels, **facts.labels}
    machine = pb.Machine(
        id=record.id,
        state=pb.MachineState.ValueType(record.state),
        instance_type=offer.vm_size,
        zone=offer.zone,
        capacity_type=pb.CapacityType.ValueType(offer.capacity_type),
        price_per_hour=facts.price_usd_per_hour,
        interruption_probability=facts.interruption_probability,
        labels={key: value for key, value in labels.items() if key not in FORBIDDEN_LABELS},
        last_error=record.last_error,
        cluster=record.cluster,
        shard_metadata=shard_metadata,
    )
    if record.host:
        machine.host.provider, machine.host.ref = provider, record.host
    if offer.resources:
        machine.resources.resources.update(offer.resources)
    if facts.allocatable:
        machine.allocatable.resources.update(facts.allocatable)
    return machine


@given(records(), offerings(), text)
def test_protobuf_reads_every_field_of_a_machine_as_it_was_meant(
    drawn: tuple[Record, dict[str, str]], offering: Offering, provider: str
) -> None:
    record, shard_metadata = drawn
    body = ENCODER.machine(record, ENCODER.shared(offering), provider)
    assert pb.Machine.FromString(body) == as_protobuf(record, shard_metadata, offering, provider)


@pytest.mark.parametrize("state", State)
def test_each_state_has_the_number_that_the_wire_gives_it(state: State) -> None:
    body = ENCODER.machine(Record(slot=0, id="m", state=state), b"", "azure")
    assert pb.MachineState.Name(pb.Machine.FromString(body).state) == f"MACHINE_STATE_{state.name}"


@pytest.mark.parametrize("capacity_type", CapacityType)
def test_each_capacity_type_has_the_number_that_the_wire_gives_it(
    capacity_type: CapacityType,
) -> None:
    number = pb.CapacityType.ValueType(capacity_type)
    assert pb.CapacityType.Name(number) == f"CAPACITY_TYPE_{capacity_type.name}"


def test_host_and_resources_are_absent_rather_than_empty() -> None:
    bare = Offering(
        number=1,
        prefix="m",
        offer=Offer(vm_size="s", zone="z", capacity_type=CapacityType.SPOT, count=1),
        facts=Facts(
            price_usd_per_hour=0.1, interruption_probability=0.1, allocatable={}, labels={}
        ),
    )
    body = ENCODER.machine(Record(slot=0, id="m-000"), ENCODER.shared(bare), "azure")
    machine = pb.Machine.FromString(body)
    assert not machine.HasField("host")
    assert not machine.HasField("resources")
    assert not machine.HasField("allocatable")


@given(offerings())
def test_forbidden_label_keys_are_never_published(offering: Offering) -> None:
    machine = pb.Machine.FromString(ENCODER.shared(offering))
    assert not FORBIDDEN_LABELS & machine.labels.keys()


def test_a_substrate_text_with_broken_characters_does_not_break_the_answer() -> None:
    record = Record(slot=0, id="m", state=State.FAILED, last_error="bad \udc80 byte")
    machine = pb.Machine.FromString(ENCODER.machine(record, b"", "azure"))
    assert machine.last_error == "bad ? byte"


@given(st.lists(text, max_size=30), offerings())
def test_unused_slots_are_encoded_as_their_records_would_be(
    ids: list[str], offering: Offering
) -> None:
    shared = ENCODER.shared(offering)
    entries = ENCODER.unused_entries(iter(ids), shared)
    one_by_one = b"".join(
        ENCODER.entry(ENCODER.machine(Record(slot=0, id=machine_id), shared, "azure"))
        for machine_id in ids
    )
    listed = pb.MachineList.FromString(entries)
    assert listed == pb.MachineList.FromString(one_by_one)
    assert [machine.id for machine in listed.machines] == ids


@given(text, records())
def test_protobuf_reads_an_ack(operation_id: str, drawn: tuple[Record, dict[str, str]]) -> None:
    body = ENCODER.machine(drawn[0], b"", "azure")
    read = pb.TransitionAck.FromString(codec.ack(operation_id, body))
    assert read.operation_id == operation_id
    assert read.machine == pb.Machine.FromString(body)


@given(text, text, int64, int64)
def test_a_create_request_is_read(
    machine_id: str, shard_id: str, epoch: int, sequence: int
) -> None:
    request = pb.CreateRequest(
        machine_id=machine_id, shard_id=shard_id, shard_epoch=epoch, sequence_number=sequence
    )
    assert codec.create_command(request.SerializeToString()) == Command(
        kind=Kind.CREATE, machine_id=machine_id, token=Token(shard_id, epoch, sequence)
    )


configure_requests = st.builds(
    pb.ConfigureRequest,
    machine_id=text,
    cluster_id=text,
    bootstrap_blob=st.binary(),
    shard_id=text,
    shard_epoch=int64,
    sequence_number=int64,
    shard_metadata=maps,
)


@given(configure_requests)
def test_a_configure_request_is_read_with_its_metadata_packed_and_its_blob_masked(
    sent: pb.ConfigureRequest,
) -> None:
    command = codec.configure_command(sent.SerializeToString())
    assert metadata.unpack(command.metadata) == dict(sent.shard_metadata)
    assert replace(command, metadata=b"") == Command(
        kind=Kind.CONFIGURE,
        machine_id=sent.machine_id,
        token=Token(sent.shard_id, sent.shard_epoch, sent.sequence_number),
        cluster=sent.cluster_id,
        blob=Secret(sent.bootstrap_blob),
    )
    assert "***" in repr(command)


@given(text, text, int64, int64, int64)
def test_a_drain_request_is_read_with_any_grace(
    machine_id: str, shard_id: str, epoch: int, sequence: int, grace: int
) -> None:
    request = pb.DrainRequest(
        machine_id=machine_id,
        grace_period_seconds=grace,
        shard_id=shard_id,
        shard_epoch=epoch,
        sequence_number=sequence,
    )
    assert codec.drain_command(request.SerializeToString()) == Command(
        kind=Kind.DRAIN,
        machine_id=machine_id,
        token=Token(shard_id, epoch, sequence),
        grace_seconds=grace,
    )


@given(text, text, int64, int64)
def test_a_delete_request_is_read(
    machine_id: str, shard_id: str, epoch: int, sequence: int
) -> None:
    request = pb.DeleteRequest(
        machine_id=machine_id, shard_id=shard_id, shard_epoch=epoch, sequence_number=sequence
    )
    assert codec.delete_command(request.SerializeToString()) == Command(
        kind=Kind.DELETE, machine_id=machine_id, token=Token(shard_id, epoch, sequence)
    )


@given(text)
def test_a_machine_ref_is_read_as_a_delete_request_without_a_token(machine_id: str) -> None:
    raw = pb.MachineRef(id=machine_id).SerializeToString()
    assert codec.delete_command(raw) == Command(
        kind=Kind.DELETE, machine_id=machine_id, token=Token("", 0, 0)
    )


def test_the_packed_copy_does_not_follow_the_request_object() -> None:
    request = pb.ConfigureRequest(machine_id="m", shard_metadata={"a": "1"})
    command = codec.configure_command(request.SerializeToString())
    request.shard_metadata["a"] = "2"
    assert metadata.unpack(command.metadata) == {"a": "1"}


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_junk_is_a_decode_error(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.create_command(raw)


@pytest.mark.behaviour(20)
def test_metadata_far_beyond_the_cap_is_not_even_packed() -> None:
    huge = {f"key-{n}": "x" * 8192 for n in range(100)}
    request = pb.ConfigureRequest(
        machine_id="m", cluster_id="c", shard_metadata=huge, bootstrap_blob=b"b" * 100_000
    )
    command = codec.configure_command(request.SerializeToString())
    assert command.metadata == b""
    assert command.unpacked_bytes > 800_000
    assert len(command.blob) == 100_000


def test_a_large_blob_is_not_taken_for_metadata() -> None:
    request = pb.ConfigureRequest(
        machine_id="m", cluster_id="c", shard_metadata={"a": "b"}, bootstrap_blob=b"b" * 1_000_000
    )
    command = codec.configure_command(request.SerializeToString())
    assert (command.unpacked_bytes, command.metadata) == (0, metadata.pack({"a": "b"}))
