"""Shard metadata and bootstrap blobs: carried whole, and gone when they must be."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain.lifecycle import Kind
from tests.support.rig import Rig, acked, never
from tests.support.virtual import in_virtual_time

looptime = pytest.mark.looptime

MIXED = (
    {f"plain-{n}": f"value-{n}" for n in range(20)}
    | {f"nul-{n}\x00key": f"nul\x00value\x00{n}" for n in range(10)}
    | {f"control-{n}": "".join(map(chr, range(32))) for n in range(5)}
    | {f"ключ-{n}-鍵-🔑": f"значение-{n}-値-🚀" for n in range(10)}
    | {f"empty-{n}": "" for n in range(8)}
    | {"": "the empty key", "bigfleet.lucy.sh/assigned-group": "a\x00b"}
)


@looptime
@pytest.mark.behaviour(41, 42)
async def test_a_map_of_many_sorts_is_the_same_wherever_it_is_read() -> None:
    assert len(MIXED) == 55
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await rig.idle(machine)
    ready = asyncio.Event()

    async def wait(_: object) -> None:
        await ready.wait()

    rig.backend.ready = wait
    ack = acked(await rig.configure(machine, metadata=MIXED))
    assert dict(pb.Machine.FromString(ack.machine).shard_metadata) == MIXED
    await asyncio.sleep(1)
    assert rig.state(machine) == "CONFIGURING"
    for _ in range(3):
        assert dict(rig.machine(machine).shard_metadata) == MIXED
        listed = next(m for m in rig.list().machines if m.id == machine)
        assert dict(listed.shard_metadata) == MIXED
    ready.set()
    await rig.reaches(machine, "CONFIGURED")
    assert dict(rig.backend.work[-1].metadata) == MIXED
    async with await rig.restarted() as again:
        assert dict(again.machine(machine).shard_metadata) == MIXED
        acked(await again.drain(machine))
        await again.reaches(machine, "IDLE")
        assert dict(again.machine(machine).shard_metadata) == {}


@looptime
@pytest.mark.behaviour(43)
async def test_the_next_binding_shows_only_its_own_keys() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, "blue", {"a": "1", "b": "2"})
        rig.backend.steps[Kind.DRAIN] = never
        acked(await rig.drain(machine))
        await asyncio.sleep(1)
        assert dict(rig.machine(machine).shard_metadata) == {"a": "1", "b": "2"}
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, "blue", {"a": "1", "b": "2"})
        acked(await rig.drain(machine))
        idle = await rig.reaches(machine, "IDLE")
        assert (idle.cluster, dict(idle.shard_metadata)) == ("", {})
        acked(await rig.configure(machine, "green", {"b": "3"}))
        bound = await rig.reaches(machine, "CONFIGURED")
        assert (bound.cluster, dict(bound.shard_metadata)) == ("green", {"b": "3"})


@looptime
@pytest.mark.behaviour(45)
async def test_the_stored_copy_is_independent_of_the_caller_s() -> None:
    async with Rig() as rig:
        machine, mine = rig.ids()[0], {"a": "1"}
        await rig.idle(machine)
        acked(await rig.configure(machine, metadata=mine))
        mine["a"] = "2"
        assert dict(rig.machine(machine).shard_metadata) == {"a": "1"}


@looptime
@pytest.mark.behaviour(41)
async def test_a_repeated_configure_does_not_change_the_map() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, "blue", {"a": "1"})
        ack = acked(await rig.configure(machine, "blue", {"a": "2", "c": "3"}))
        assert dict(pb.Machine.FromString(ack.machine).shard_metadata) == {"a": "1"}
        assert dict(rig.machine(machine).shard_metadata) == {"a": "1"}


@pytest.mark.behaviour(44)
@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=20))
def test_any_map_comes_back_as_it_was_sent(metadata: dict[str, str]) -> None:
    async def bound() -> dict[str, str]:
        async with Rig() as rig:
            return dict((await rig.configured(rig.ids()[0], metadata=metadata)).shard_metadata)

    assert in_virtual_time(bound()) == metadata


@looptime
@pytest.mark.behaviour(80, 78)
async def test_a_configure_interrupted_before_the_hand_over_resumes_with_its_blob() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await rig.idle(machine)
    rig.backend.steps[Kind.CONFIGURE] = never
    operation = acked(await rig.configure(machine, blob=b"secret join")).operation_id
    await asyncio.sleep(5)
    assert [blob.reveal() for blob in rig.store.blobs.values()] == [b"secret join"]
    await rig.stop()

    async def at_once(_: object) -> None:
        pass

    rig.backend.steps[Kind.CONFIGURE] = at_once
    async with await rig.restarted() as again:
        await again.reaches(machine, "CONFIGURED", within=5)
        assert again.backend.blobs == [b"secret join"]
        assert again.store.blobs == {}
        assert acked(await again.configure(machine)).operation_id == operation


@looptime
@pytest.mark.behaviour(80)
async def test_a_blob_is_forgotten_once_it_was_handed_over_and_not_handed_over_twice() -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    await rig.idle(machine)
    rig.backend.ready = never
    acked(await rig.configure(machine))
    await asyncio.sleep(5)
    assert rig.store.blobs == {}
    await rig.stop()

    async def at_once(_: object) -> None:
        pass

    rig.backend.ready = at_once
    async with await rig.restarted() as again:
        await again.reaches(machine, "CONFIGURED", within=5)
        assert again.backend.blobs == [b"join me"]


@looptime
@pytest.mark.behaviour(80)
async def test_a_lost_key_fails_only_the_configures_whose_blob_is_still_needed() -> None:
    rig = Rig()
    await rig.__aenter__()
    needs, waits, creates = rig.ids()[:3]
    for machine in (needs, waits):
        await rig.idle(machine)
    rig.backend.ready = never
    acked(await rig.configure(waits, blob=b"first"))
    await asyncio.sleep(1)
    rig.backend.steps = dict.fromkeys(Kind, never)
    acked(await rig.configure(needs, blob=b"secret join"))
    acked(await rig.create(creates))
    await asyncio.sleep(1)
    await rig.stop()

    async def at_once(_: object) -> None:
        pass

    rig.backend.steps, rig.backend.ready = dict.fromkeys(Kind, at_once), at_once
    rig.store.wrong_key = "the key is another one"
    async with await rig.restarted() as again:
        found = await again.reaches(needs, "FAILED", within=5)
        assert "state key" in found.last_error
        assert "secret" not in found.last_error
        await again.reaches(waits, "CONFIGURED", within=5)
        await again.reaches(creates, "IDLE", within=5)
        assert again.store.blobs == {}


@looptime
@pytest.mark.behaviour(69)
async def test_the_blob_is_in_no_log_no_error_and_no_machine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "s3cr3t-join-token"
    caplog.set_level(0)
    async with Rig("--configure-timeout", "5s") as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)

        async def leaky(_: object) -> None:
            raise ValueError("cannot join")

        rig.backend.steps[Kind.CONFIGURE] = leaky
        acked(await rig.configure(machine, blob=secret.encode()))
        await rig.reaches(machine, "FAILED", within=10)
        everything = "\n".join(
            [str(rig.list()), caplog.text, repr(rig.store.commits), repr(rig.store.records)]
        )
        assert secret not in everything
