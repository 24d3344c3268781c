"""Quantities, cursors, packed metadata and the lifecycle table."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain import cursor
from bigfleet_azure.domain.lifecycle import TRANSITIONS, Kind, State
from bigfleet_azure.domain.metadata import pack, unpack
from bigfleet_azure.domain.operation import incarnation_of, operation_id
from bigfleet_azure.domain.quantity import GIB, allocatable, parse


@pytest.mark.parametrize("incarnation", ["0123abcd", "a-b", "9"])
def test_the_store_s_life_is_read_back_from_an_operation_id(incarnation: str) -> None:
    assert incarnation_of(operation_id(incarnation, 17)) == incarnation


@pytest.mark.parametrize("text", ["", "op-", "op-1", "op-a-", "op-a-b", "xop-a-1", "op-a-1x"])
def test_a_tag_that_is_no_operation_id_tells_of_no_life(text: str) -> None:
    assert incarnation_of(text) == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("2k", 2000),
        ("2M", 2 * 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("1Ki", 1024),
        ("2Mi", 2 * 2**20),
        ("2Gi", 2 * 2**30),
        ("1Ti", 2**40),
        ("1Ei", 2**60),
        ("100u", Fraction(1, 10_000)),
        ("1n", Fraction(1, 10**9)),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    ["", ".", "-1", "1 Gi", "1gi", "1K", "1KI", "Gi", "1e", "1Gi2", "0x10", "NaN", "٣", "1,5"],
)
def test_anything_else_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse(text)


@pytest.mark.behaviour(50)
@given(
    vcpus=st.integers(1, 512),
    memory_gib=st.integers(1, 16_384),
    disk_gib=st.integers(8, 4096),
    gpus=st.integers(0, 16),
)
def test_allocatable_is_more_than_nothing_and_less_than_the_hardware(
    vcpus: int, memory_gib: int, disk_gib: int, gpus: int
) -> None:
    usable = allocatable(
        vcpus=vcpus,
        memory_bytes=memory_gib * GIB,
        disk_bytes=disk_gib * GIB,
        max_pods=110,
        gpus=gpus,
    )
    assert 0 < parse(usable["cpu"]) < vcpus
    assert 0 < parse(usable["memory"]) < memory_gib * GIB
    assert 0 < parse(usable["ephemeral-storage"]) < disk_gib * GIB
    assert usable["pods"] == "110"
    assert usable.get("nvidia.com/gpu") == (str(gpus) if gpus else None)


CHANGES = st.integers(0, 2**63 - 1)
INCARNATIONS = st.text("0123456789abcdef", min_size=8, max_size=8)


@pytest.mark.behaviour(57)
@given(INCARNATIONS, CHANGES)
def test_a_cursor_comes_back_as_its_number(incarnation: str, change: int) -> None:
    assert cursor.decode(incarnation, cursor.encode(incarnation, change)) == change


@pytest.mark.behaviour(59)
@given(INCARNATIONS, INCARNATIONS, CHANGES)
def test_a_cursor_of_another_incarnation_is_none(ours: str, theirs: str, change: int) -> None:
    found = cursor.decode(ours, cursor.encode(theirs, change))
    assert found == (change if ours == theirs else None)


@pytest.mark.behaviour(57)
@given(INCARNATIONS, CHANGES, st.data())
def test_a_cursor_with_any_bit_flipped_is_none(
    incarnation: str, change: int, data: st.DataObject
) -> None:
    raw = bytearray(cursor.encode(incarnation, change))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    assert cursor.decode(incarnation, bytes(raw)) is None


@pytest.mark.behaviour(57)
@given(INCARNATIONS, st.binary(max_size=40))
def test_no_other_bytes_are_a_cursor(incarnation: str, junk: bytes) -> None:
    assert cursor.decode(incarnation, junk) is None


MAPS = st.dictionaries(st.text(max_size=30), st.text(max_size=300), max_size=20)


@pytest.mark.behaviour(44)
@given(MAPS)
def test_packed_metadata_is_what_protobuf_itself_would_write(metadata: dict[str, str]) -> None:
    packed = pack(metadata)
    entries = [pb.Machine(shard_metadata={k: v}) for k, v in sorted(metadata.items())]
    assert packed == b"".join(entry.SerializeToString() for entry in entries)
    assert dict(pb.Machine.FromString(packed).shard_metadata) == metadata


@pytest.mark.behaviour(44)
@given(MAPS)
def test_packed_metadata_unpacks_to_the_same_map(metadata: dict[str, str]) -> None:
    assert unpack(pack(metadata)) == metadata


@pytest.mark.behaviour(7, 14)
def test_the_transition_table_is_the_contract_s() -> None:
    table = {
        kind: (step.source.name, step.via.name, step.target.name)
        for kind, step in TRANSITIONS.items()
    }
    assert table == {
        Kind.CREATE: ("SPECULATIVE", "CREATING", "IDLE"),
        Kind.CONFIGURE: ("IDLE", "CONFIGURING", "CONFIGURED"),
        Kind.DRAIN: ("CONFIGURED", "DRAINING", "IDLE"),
        Kind.DELETE: ("IDLE", "DELETING", "SPECULATIVE"),
    }


@pytest.mark.behaviour(1)
def test_states_have_the_wire_s_numbers() -> None:
    wire = {name.removeprefix("MACHINE_STATE_"): n for name, n in pb.MachineState.items() if n}
    assert {state.name: state.value for state in State} == wire
