"""The six methods through a real server, in front of a provider that answers as it is told."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.decide import Command
from bigfleet_azure.domain.errors import Refusal, RefusalReason
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.rpc.servicer import SERVICE
from tests.rpc.support import MACHINE, FakeAck, Served, served

MUTATIONS = ("Create", "Configure", "Drain", "Delete")


@pytest.fixture
async def edge() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def mutate(edge: Served, method: str, machine_id: str = "m-000") -> Any:
    request = {
        "Create": pb.CreateRequest(machine_id=machine_id),
        "Configure": pb.ConfigureRequest(machine_id=machine_id, cluster_id="c"),
        "Drain": pb.DrainRequest(machine_id=machine_id),
        "Delete": pb.DeleteRequest(machine_id=machine_id),
    }[method]
    return getattr(edge.stub, method)(request)


@pytest.mark.parametrize("method", MUTATIONS)
async def test_an_accepted_mutation_is_answered_with_its_operation_and_machine(
    edge: Served, method: str
) -> None:
    ack = await mutate(edge, method)
    assert ack == pb.TransitionAck(operation_id="op-1", machine=MACHINE)
    assert [command.kind for command in edge.provider.commands] == [Kind(method.lower())]


async def test_a_configure_reaches_the_provider_whole(edge: Served) -> None:
    await edge.stub.Configure(
        pb.ConfigureRequest(
            machine_id="m-000",
            cluster_id="demo",
            bootstrap_blob=b"join me",
            shard_id="shard-a",
            shard_epoch=2,
            sequence_number=-7,
        )
    )
    assert edge.provider.commands == [
        Command(
            kind=Kind.CONFIGURE,
            machine_id="m-000",
            token=Token("shard-a", 2, -7),
            cluster="demo",
            blob=Secret(b"join me"),
        )
    ]


@pytest.mark.behaviour(2)
async def test_a_machine_ref_sent_to_delete_works_as_a_delete_request(edge: Served) -> None:
    delete = edge.channel.unary_unary(
        f"/{SERVICE}/Delete",
        request_serializer=pb.MachineRef.SerializeToString,
        response_deserializer=pb.TransitionAck.FromString,
    )
    assert (await delete(pb.MachineRef(id="m-000"))).operation_id == "op-1"
    assert edge.provider.commands == [
        Command(kind=Kind.DELETE, machine_id="m-000", token=Token("", 0, 0))
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (RefusalReason.INVALID, grpc.StatusCode.INVALID_ARGUMENT),
        (RefusalReason.STALE_TOKEN, grpc.StatusCode.FAILED_PRECONDITION),
        (RefusalReason.UNKNOWN_MACHINE, grpc.StatusCode.NOT_FOUND),
        (RefusalReason.ILLEGAL_STATE, grpc.StatusCode.ABORTED),
        (RefusalReason.OTHER_CLUSTER, grpc.StatusCode.ABORTED),
        (RefusalReason.STORE, grpc.StatusCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("method", MUTATIONS)
async def test_each_refusal_has_its_status_and_only_stale_tokens_failed_precondition(
    edge: Served, method: str, reason: RefusalReason, code: grpc.StatusCode
) -> None:
    edge.provider.answer = Refusal(reason=reason, message="m-000: no")
    assert await status_of(mutate(edge, method)) == (code, "m-000: no")
    rejections = edge.sample("fence_rejections_total", {"method": method})
    assert rejections == (1 if reason is RefusalReason.STALE_TOKEN else 0)


async def test_get_answers_with_the_machine(edge: Served) -> None:
    assert await edge.stub.Get(pb.MachineRef(id="m-000")) == MACHINE


async def test_get_of_an_empty_id_is_an_invalid_argument(edge: Served) -> None:
    code, _ = await status_of(edge.stub.Get(pb.MachineRef()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_get_of_an_unknown_id_is_not_found(edge: Served) -> None:
    code, text = await status_of(edge.stub.Get(pb.MachineRef(id="m-404")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "m-404" in text


async def test_list_passes_filter_bound_and_cursor_on(edge: Served) -> None:
    answer = await edge.stub.List(
        pb.ListFilter(
            states=[pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_FAILED, pb.MACHINE_STATE_IDLE],
            max_results=7,
            since_revision=b"\x00junk\xff",
        )
    )
    assert answer.machines == [MACHINE]
    assert edge.provider.queries == [(frozenset({3, 8}), 7, b"\x00junk\xff")]


async def test_list_passes_unspecified_on_as_a_state_that_matches_nothing(edge: Served) -> None:
    await edge.stub.List(pb.ListFilter(states=[pb.MACHINE_STATE_UNSPECIFIED]))
    assert edge.provider.queries == [(frozenset({0}), 0, b"")]


@pytest.mark.parametrize("number", [9, -1, 2**31 - 1])
async def test_list_refuses_a_number_that_is_no_state(edge: Served, number: int) -> None:
    states = [pb.MACHINE_STATE_IDLE, pb.MachineState.ValueType(number)]
    code, text = await status_of(edge.stub.List(pb.ListFilter(states=states)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert str(number) in text


async def test_list_refuses_a_negative_bound(edge: Served) -> None:
    code, text = await status_of(edge.stub.List(pb.ListFilter(max_results=-1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "max_results" in text


@pytest.mark.parametrize("method", [*MUTATIONS, "Get", "List"])
async def test_a_malformed_request_is_an_invalid_argument_and_counted(
    edge: Served, method: str
) -> None:
    call: Any = edge.channel.unary_unary(f"/{SERVICE}/{method}")
    code, text = await status_of(call(b"\xff\xff"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "malformed" in text
    labels = {"method": method, "code": "InvalidArgument"}
    assert edge.sample("grpc_requests_total", labels) == 1
    assert edge.sample("panics_total", {}) == 0


@pytest.mark.behaviour(3)
async def test_a_request_and_a_list_above_4_mib_pass(edge: Served) -> None:
    blob = b"x" * (5 * 1024 * 1024)
    await edge.stub.Configure(
        pb.ConfigureRequest(machine_id="m-000", cluster_id="c", bootstrap_blob=blob)
    )
    assert edge.provider.commands[0].blob == Secret(blob)
    edge.provider.listed = pb.MachineList(
        machines=[pb.Machine(id=f"m-{index:03d}", last_error="x" * 100_000) for index in range(50)]
    )
    assert edge.provider.listed.ByteSize() > 4 * 1024 * 1024
    assert await edge.stub.List(pb.ListFilter()) == edge.provider.listed


@pytest.mark.behaviour(5)
@pytest.mark.parametrize("method", [*MUTATIONS, "Get"])
async def test_a_bug_is_answered_internal_counted_and_logged_and_the_process_goes_on(
    edge: Served, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    edge.provider.answer = RuntimeError("the text of a bug may hold anything")

    def call() -> Any:
        return edge.stub.Get(pb.MachineRef(id="m-000")) if method == "Get" else mutate(edge, method)

    code, text = await status_of(call())
    assert code is grpc.StatusCode.INTERNAL
    assert "may hold anything" not in text
    assert edge.sample("panics_total", {}) == 1
    assert edge.sample("grpc_requests_total", {"method": method, "code": "Internal"}) == 1
    assert any(record.exc_info for record in caplog.records)
    edge.provider.answer = None
    assert await call()


async def test_answers_are_counted_and_timed_by_method(edge: Served) -> None:
    for _ in range(3):
        await edge.stub.List(pb.ListFilter())
    await status_of(edge.stub.Get(pb.MachineRef(id="m-404")))
    assert edge.sample("grpc_requests_total", {"method": "List", "code": "OK"}) == 3
    assert edge.sample("grpc_requests_total", {"method": "Get", "code": "NotFound"}) == 1
    assert edge.sample("grpc_request_duration_seconds_count", {"method": "List"}) == 3
    assert edge.sample("grpc_request_duration_seconds_count", {"method": "Get"}) == 1


async def test_a_call_whose_caller_went_away_is_counted_as_canceled(
    edge: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def hang(_: Command) -> FakeAck | Refusal:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError

    monkeypatch.setattr(edge.provider, "submit", hang)
    call = mutate(edge, "Create")
    running = asyncio.ensure_future(call)
    await entered.wait()
    call.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await left.wait()
    await asyncio.sleep(0)
    assert edge.sample("grpc_requests_total", {"method": "Create", "code": "Canceled"}) == 1


async def test_a_text_of_any_length_and_script_reaches_the_caller_shortened(edge: Served) -> None:
    edge.provider.answer = Refusal(reason=RefusalReason.OTHER_CLUSTER, message="🚀" * 100_000)
    code, text = await status_of(mutate(edge, "Configure"))
    assert code is grpc.StatusCode.ABORTED
    assert text.startswith("🚀🚀🚀")
    assert text.endswith("…")
    assert len(text) <= 500


@pytest.mark.parametrize(
    ("act", "level", "machine"),
    [
        (lambda edge: edge.stub.List(pb.ListFilter()), logging.DEBUG, None),
        (lambda edge: edge.stub.Get(pb.MachineRef(id="m-404")), logging.DEBUG, "m-404"),
        *((lambda edge, m=m: mutate(edge, m), logging.INFO, "m-000") for m in MUTATIONS),
    ],
)
async def test_reads_are_logged_at_debug_level_and_refused_mutations_at_info(
    edge: Served,
    caplog: pytest.LogCaptureFixture,
    act: Callable[[Served], Any],
    level: int,
    machine: str | None,
) -> None:
    caplog.set_level(logging.DEBUG, logger="bigfleet_azure")
    edge.provider.answer = Refusal(reason=RefusalReason.ILLEGAL_STATE, message="m-000 is busy")
    await asyncio.gather(act(edge), return_exceptions=True)
    [record] = [record for record in caplog.records if hasattr(record, "method")]
    assert record.levelno == level
    assert getattr(record, "machine", None) == machine


async def test_an_accepted_mutation_leaves_its_line_to_the_operation(
    edge: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bigfleet_azure")
    await mutate(edge, "Create")
    assert not [record for record in caplog.records if hasattr(record, "method")]
