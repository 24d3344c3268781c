"""Stock tools that know nothing of us but the address."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.support.process import Client, DaemonProcess, client, running
from tests.support.tools import require_tool

pytestmark = [pytest.mark.process, pytest.mark.behaviour(4)]

SERVICE = "bigfleet.v1alpha1.CapacityProvider"
METHODS = {"Create", "Configure", "Drain", "Delete", "Get", "List"}


@pytest.fixture
def grpcurl(daemon: DaemonProcess) -> Callable[..., subprocess.CompletedProcess[str]]:
    tool = require_tool("grpcurl")

    def run(*words: str, data: object = None) -> subprocess.CompletedProcess[str]:
        flags = ["-plaintext", "-max-time", "20"]
        if data is not None:
            flags += ["-d", json.dumps(data)]
        before, *after = words
        command = [str(tool), *flags, daemon.address, before, *after]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_grpcurl_lists_and_describes_the_service(
    grpcurl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    listed = grpcurl("list")
    assert listed.returncode == 0, listed.stderr
    assert {SERVICE, "grpc.health.v1.Health"} <= set(listed.stdout.split())
    methods = grpcurl("list", SERVICE).stdout.split()
    assert set(methods) == {f"{SERVICE}.{name}" for name in METHODS}
    described = grpcurl("describe", "bigfleet.v1alpha1.Machine").stdout
    assert "map<string, string> shard_metadata = 15;" in described
    assert "reserved 11;" in described
    everything = grpcurl("describe")
    assert everything.returncode == 0, everything.stderr
    health = grpcurl("grpc.health.v1.Health/Check", data={"service": SERVICE})
    assert json.loads(health.stdout) == {"status": "SERVING"}


def test_grpcurl_drives_a_machine_through_its_life(
    grpcurl: Callable[..., subprocess.CompletedProcess[str]],
    speaking: Client,
    fresh: Callable[[], str],
) -> None:
    machine_id = fresh()

    def call(method: str, **data: object) -> dict[str, object]:
        done = grpcurl(f"{SERVICE}/{method}", data=data)
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    listed = call("List", states=["MACHINE_STATE_SPECULATIVE"], max_results=3)
    assert len(listed["machines"]) == 3  # type: ignore[arg-type]
    assert base64.b64decode(str(listed["revision"]))
    created = call("Create", machine_id=machine_id)
    assert created["operationId"]
    assert created["machine"]["state"] == "MACHINE_STATE_CREATING"  # type: ignore[index]
    speaking.reaches(machine_id, "IDLE")
    assert call("Get", id=machine_id)["state"] == "MACHINE_STATE_IDLE"
    blob = base64.b64encode(b"join").decode()
    call(
        "Configure",
        machine_id=machine_id,
        cluster_id="blue",
        bootstrap_blob=blob,
        shard_metadata={"k": "v"},
    )
    speaking.reaches(machine_id, "CONFIGURED")
    assert call("Get", id=machine_id)["shardMetadata"] == {"k": "v"}
    call("Drain", machine_id=machine_id, grace_period_seconds=0)
    speaking.reaches(machine_id, "IDLE")
    call("Delete", machine_id=machine_id)
    speaking.reaches(machine_id, "SPECULATIVE")
    missing = grpcurl(f"{SERVICE}/Get", data={"id": "no such\nmachine"})
    assert missing.returncode == 64 + 5
    assert "NotFound" in missing.stderr


def test_the_reflection_client_of_python_drives_the_service_without_our_code(
    daemon: DaemonProcess, fresh: Callable[[], str]
) -> None:
    with daemon.channel() as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        pool = DescriptorPool(database)
        service = pool.FindServiceByName(SERVICE)
        assert {method.name for method in service.methods} == METHODS

        def call(name: str, **fields: object) -> dict[str, object]:
            method = service.FindMethodByName(name)
            request = GetMessageClass(method.input_type)(**fields)
            send: Any = channel.unary_unary(
                f"/{SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            return MessageToDict(send(request, timeout=20))

        machine_id = fresh()
        assert call("Create", machine_id=machine_id)["operationId"]
        assert call("Get", id=machine_id)["id"] == machine_id
        assert len(call("List", max_results=2)["machines"]) == 2  # type: ignore[arg-type]


def test_without_reflection_the_service_still_answers_and_tells_nothing(log: Path) -> None:
    with running(log, "--reflection=false") as plain, client(plain) as speaking:
        assert len(speaking.list().machines) == 32
        with plain.channel() as channel, pytest.raises(grpc.RpcError) as missing:
            ProtoReflectionDescriptorDatabase(channel).get_services()
        assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED
        tool = require_tool("grpcurl")
        done = subprocess.run(
            [tool, "-plaintext", plain.address, "list"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        assert "does not support the reflection API" in done.stderr
