"""The wire definition: what the .proto file says, and that the generated code says the same.

The tables below repeat section 1 of the provider contract as literals. They are not derived from
the code, so that no edit of the .proto file can change the wire format unseen.
"""

import filecmp
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from bigfleet_azure._pb import provider_pb2 as pb

ROOT = Path(__file__).resolve().parent.parent
PB = ROOT / "src" / "bigfleet_azure" / "_pb"
FILE = pb.DESCRIPTOR
STRINGS_BY_STRING = "map<string, string>"

METHODS = {
    "Create": ("CreateRequest", "TransitionAck"),
    "Configure": ("ConfigureRequest", "TransitionAck"),
    "Drain": ("DrainRequest", "TransitionAck"),
    "Delete": ("DeleteRequest", "TransitionAck"),
    "Get": ("MachineRef", "Machine"),
    "List": ("ListFilter", "MachineList"),
}

ENUMS = {
    "MachineState": {
        "MACHINE_STATE_UNSPECIFIED": 0,
        "MACHINE_STATE_SPECULATIVE": 1,
        "MACHINE_STATE_CREATING": 2,
        "MACHINE_STATE_IDLE": 3,
        "MACHINE_STATE_CONFIGURING": 4,
        "MACHINE_STATE_CONFIGURED": 5,
        "MACHINE_STATE_DRAINING": 6,
        "MACHINE_STATE_DELETING": 7,
        "MACHINE_STATE_FAILED": 8,
    },
    "CapacityType": {
        "CAPACITY_TYPE_UNSPECIFIED": 0,
        "CAPACITY_TYPE_BARE_METAL": 1,
        "CAPACITY_TYPE_RESERVED": 2,
        "CAPACITY_TYPE_ON_DEMAND": 3,
        "CAPACITY_TYPE_SPOT": 4,
    },
}

FIELDS = {
    "HostRef": {1: ("provider", "string"), 2: ("ref", "string")},
    "Resources": {1: ("resources", STRINGS_BY_STRING)},
    "Machine": {
        1: ("id", "string"),
        2: ("state", "MachineState"),
        3: ("host", "HostRef"),
        4: ("instance_type", "string"),
        5: ("zone", "string"),
        6: ("capacity_type", "CapacityType"),
        7: ("price_per_hour", "double"),
        8: ("interruption_probability", "double"),
        9: ("resources", "Resources"),
        10: ("labels", STRINGS_BY_STRING),
        12: ("last_error", "string"),
        13: ("allocatable", "Resources"),
        14: ("cluster", "string"),
        15: ("shard_metadata", STRINGS_BY_STRING),
    },
    "MachineRef": {1: ("id", "string")},
    "MachineList": {1: ("machines", "repeated Machine"), 2: ("revision", "bytes")},
    "ListFilter": {
        1: ("states", "repeated MachineState"),
        4: ("max_results", "int32"),
        5: ("since_revision", "bytes"),
    },
    "CreateRequest": {
        1: ("machine_id", "string"),
        3: ("shard_id", "string"),
        4: ("shard_epoch", "int64"),
        5: ("sequence_number", "int64"),
    },
    "ConfigureRequest": {
        1: ("machine_id", "string"),
        2: ("cluster_id", "string"),
        3: ("bootstrap_blob", "bytes"),
        4: ("shard_id", "string"),
        5: ("shard_epoch", "int64"),
        6: ("sequence_number", "int64"),
        7: ("shard_metadata", STRINGS_BY_STRING),
    },
    "DrainRequest": {
        1: ("machine_id", "string"),
        2: ("grace_period_seconds", "int64"),
        3: ("shard_id", "string"),
        4: ("shard_epoch", "int64"),
        5: ("sequence_number", "int64"),
    },
    "DeleteRequest": {
        1: ("machine_id", "string"),
        2: ("shard_id", "string"),
        3: ("shard_epoch", "int64"),
        4: ("sequence_number", "int64"),
    },
    "TransitionAck": {1: ("operation_id", "string"), 2: ("machine", "Machine")},
}

RESERVED = {"Machine": {11}, "ListFilter": {2, 3}, "CreateRequest": {2}}

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def spelled(field: FieldDescriptor) -> str:
    """Return the type of a field as a .proto file writes it."""
    message: Descriptor | None = field.message_type
    if message is not None and message.GetOptions().map_entry:
        entry = message.fields_by_name
        return f"map<{spelled(entry['key'])}, {spelled(entry['value'])}>"
    named = message or field.enum_type
    name = named.name if named is not None else SCALARS[field.type]
    return f"repeated {name}" if field.is_repeated else name


def reserved_numbers(message: Descriptor) -> set[int]:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return {number for each in proto.reserved_range for number in range(each.start, each.end)}


@pytest.mark.behaviour(1)
def test_the_file_is_proto3_and_carries_the_public_package_and_name():
    proto = FileDescriptorProto()
    FILE.CopyToProto(proto)
    assert proto.syntax == "proto3"
    assert (FILE.package, FILE.name) == ("bigfleet.v1alpha1", "bigfleet/v1alpha1/provider.proto")
    assert not proto.dependency


@pytest.mark.behaviour(1)
def test_the_one_service_has_the_six_unary_methods():
    assert list(FILE.services_by_name) == ["CapacityProvider"]
    service = FILE.services_by_name["CapacityProvider"]
    assert service.full_name == "bigfleet.v1alpha1.CapacityProvider"
    assert {
        method.name: (method.input_type.name, method.output_type.name) for method in service.methods
    } == METHODS
    assert not any(m.client_streaming or m.server_streaming for m in service.methods)


@pytest.mark.behaviour(1)
def test_the_enums_have_every_value_and_no_other():
    assert {
        enum.name: {value.name: value.number for value in enum.values}
        for enum in FILE.enum_types_by_name.values()
    } == ENUMS


@pytest.mark.behaviour(1)
def test_the_messages_are_those_of_the_contract_and_no_others():
    assert set(FILE.message_types_by_name) == set(FIELDS)


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("name", FIELDS)
def test_a_message_has_every_field_with_its_number_and_type(name):
    message = FILE.message_types_by_name[name]
    assert {f.number: (f.name, spelled(f)) for f in message.fields} == FIELDS[name]
    assert not message.oneofs, "a field became optional or part of a oneof"


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("name", FIELDS)
def test_a_message_reserves_the_numbers_that_were_once_used(name):
    assert reserved_numbers(FILE.message_types_by_name[name]) == RESERVED.get(name, set())


@pytest.mark.behaviour(1)
def test_an_absent_host_differs_from_an_empty_one_on_the_wire():
    assert not pb.Machine.FromString(pb.Machine().SerializeToString()).HasField("host")
    empty = pb.Machine(host=pb.HostRef())
    assert pb.Machine.FromString(empty.SerializeToString()).HasField("host")


@pytest.mark.behaviour(2)
def test_the_bytes_of_a_machine_ref_are_a_delete_request_without_a_token():
    sent = pb.MachineRef(id="azure-eastus-spot-f8s-v2-1-000").SerializeToString()
    read = pb.DeleteRequest.FromString(sent)
    assert read == pb.DeleteRequest(machine_id="azure-eastus-spot-f8s-v2-1-000")
    assert read.SerializeToString() == sent


def test_messages_can_be_pickled_because_their_classes_know_where_they_live():
    machine = pb.Machine(id="m", state=pb.MACHINE_STATE_IDLE)
    assert pickle.loads(pickle.dumps(machine)) == machine


def test_generated_code_is_what_the_generator_makes_of_the_proto_file(tmp_path):
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_proto.py", "--out", tmp_path], check=True
    )
    made = sorted(path.name for path in tmp_path.iterdir())
    kept = sorted(path.name for path in PB.glob("provider_pb2*"))
    assert made == kept
    _, differing, unreadable = filecmp.cmpfiles(tmp_path, PB, made, shallow=False)
    assert not differing + unreadable, "run `make proto`"


def test_the_declared_floors_are_the_versions_the_generated_code_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floors = dict(text.split(">=") for text in project["dependencies"])
    messages = (PB / "provider_pb2.py").read_text()
    stubs = (PB / "provider_pb2_grpc.py").read_text()
    assert re.findall(r"# Protobuf Python Version: (\S+)", messages) == [floors["protobuf"]]
    assert re.findall(r"GRPC_GENERATED_VERSION = '(\S+)'", stubs) == [floors["grpcio"]]
