"""Server reflection, so that `grpcurl` and its like need no proto file.

Served under the names of both versions of the protocol: their messages are the same on the wire,
and the library knows the older name only.
"""

from collections.abc import Iterable, Iterator

import grpc
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection

from bigfleet_azure._pb import provider_pb2
from bigfleet_azure.rpc.servicer import SERVICE

_OLD, _NEW = "grpc.reflection.v1alpha", "grpc.reflection.v1"
_NAMES = (f"{_NEW}.ServerReflection", f"{_OLD}.ServerReflection")


def reflection_handlers() -> tuple[grpc.GenericRpcHandler, ...]:
    """What a server is given to describe CapacityProvider and health."""
    health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    servicer = reflection.ReflectionServicer((SERVICE, health, *_NAMES), _descriptors())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})
        for name in _NAMES
    )


def _descriptors() -> DescriptorPool:
    """What is described, as a Go server describes it.

    Python's descriptors leave out JSON names, and grpcurl then prints `operation_id` where scripts
    written for the Go provider read `operationId`.
    """
    pool = DescriptorPool()
    for described in (provider_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        file = FileDescriptorProto()
        described.CopyToProto(file)
        for message in _every(file.message_type):
            for field in message.field:
                first, *others = field.name.split("_")
                field.json_name = first + "".join(map(str.capitalize, others))
        pool.Add(file)
    pool.Add(_renamed(file))
    return pool


def _every(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from _every(message.nested_type)


def _renamed(file: FileDescriptorProto) -> FileDescriptorProto:
    """The description of the reflection service under its newer name."""
    file.name = "grpc/reflection/v1/reflection.proto"
    file.package = _NEW
    for message in _every(file.message_type):
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(_OLD, _NEW)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(_OLD, _NEW)
            method.output_type = method.output_type.replace(_OLD, _NEW)
    return file
