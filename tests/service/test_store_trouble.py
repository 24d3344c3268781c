"""A store that fails, hangs or is slow: nothing is promised that is not written, reads go on."""

import asyncio
import logging

import pytest

from bigfleet_azure.domain.errors import RefusalReason
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.store.base import StoreError
from tests.support.rig import Rig, acked, after, offer, refused

pytestmark = pytest.mark.looptime

FULL = StoreError("/var/lib/bigfleet/state: disk full; free some space")


@pytest.mark.behaviour(82, 33)
async def test_a_mutation_that_cannot_be_written_is_refused_and_nothing_of_it_is_seen() -> None:
    async with Rig() as rig:
        machine, answer = rig.ids()[0], rig.list()
        rig.store.failure = FULL
        refusal = refused(await rig.create(machine, Token("s", 5, 5)))
        assert refusal.reason is RefusalReason.STORE
        assert "disk full" in refusal.message
        assert rig.list() == answer
        assert rig.state(machine) == "SPECULATIVE"
        await asyncio.sleep(60)
        assert rig.backend.calls == []
        rig.store.failure = None
        acked(await rig.create(machine, Token("s", 5, 5)))
        await rig.reaches(machine, "IDLE")


@pytest.mark.behaviour(82)
@pytest.mark.parametrize("unknown", [False, True])
async def test_a_mark_that_cannot_be_written_does_not_move(unknown: bool) -> None:
    async with Rig() as rig:
        machine = "nobody" if unknown else rig.ids()[0]
        acked(await rig.create(rig.ids()[0]))
        rig.store.failure = FULL
        assert refused(await rig.drain(machine, token=Token("s", 7, 1))).reason == "store"
        rig.store.failure = None
        assert refused(await rig.drain(machine, token=Token("s", 7, 1))).reason in (
            "illegal_state",
            "unknown_machine",
        )
        assert refused(await rig.drain(machine, token=Token("s", 7, 1))).reason == "stale_token"


@pytest.mark.behaviour(82)
async def test_the_trouble_is_a_condition_until_a_write_succeeds() -> None:
    async with Rig() as rig:
        first, second = rig.ids()[:2]
        rig.store.failure = FULL
        refused(await rig.create(first))
        (condition,) = rig.conditions.standing()
        assert condition.name == "store"
        assert "disk full" in condition.message
        await asyncio.sleep(100)
        rig.store.failure = None
        assert [c.name for c in rig.conditions.standing()] == ["store"]
        acked(await rig.create(second))
        assert rig.conditions.standing() == []


@pytest.mark.behaviour(82)
async def test_a_result_that_cannot_be_written_is_kept_until_it_can() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.backend.steps[Kind.CREATE] = after(5)
        acked(await rig.create(machine))
        rig.store.failure = FULL
        await asyncio.sleep(3600)
        assert rig.state(machine) == "CREATING"
        assert rig.backend.count("create") == 1
        rig.store.failure = None
        await rig.reaches(machine, "IDLE", within=2)
        assert rig.conditions.standing() == []


@pytest.mark.behaviour(82, 61)
async def test_reads_go_on_while_the_store_fails() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        rig.store.failure = FULL
        refused(await rig.drain(machine))
        assert rig.state(machine) == "CONFIGURED"
        assert len(rig.list().machines) == 4


@pytest.mark.behaviour(61)
async def test_reads_answer_at_once_while_a_write_hangs() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        answer = rig.list()
        rig.store.gate.clear()
        call = asyncio.create_task(rig.drain(machine))
        await asyncio.sleep(30)
        assert rig.list() == answer
        assert rig.state(machine) == "CONFIGURED"
        assert not call.done()
        rig.store.gate.set()
        acked(await call)
        assert rig.list() != answer


@pytest.mark.behaviour(61, 88)
async def test_no_read_touches_the_store() -> None:
    async with Rig(offers=[offer(600)]) as rig:
        await rig.configured(rig.ids()[0])
        cursor = rig.list().revision
        await rig.idle(rig.ids()[1])

        def refuse(*_: object) -> None:
            raise AssertionError("a read touched the store")

        for name in ("commit", "blob", "open"):
            setattr(rig.store, name, refuse)
        rig.list()
        rig.list(3, 5)
        rig.list(max_results=7)
        rig.list(since_revision=cursor)
        assert rig.state(rig.ids()[0]) == "CONFIGURED"
        assert rig.get("nobody") is None


@pytest.mark.behaviour(82)
async def test_a_caller_that_goes_away_amid_a_commit_leaves_a_whole_machine_behind() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.store.gate.clear()
        call = asyncio.create_task(rig.create(machine))
        waiting = asyncio.create_task(rig.configure(machine))
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.sleep(1)
        rig.store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert refused(await waiting).reason is RefusalReason.ILLEGAL_STATE
        await rig.reaches(machine, "IDLE", within=5)
        assert rig.backend.count("create") == 1
        acked(await rig.configure(machine))
        await rig.reaches(machine, "CONFIGURED", within=5)


@pytest.mark.behaviour(82)
async def test_a_caller_that_goes_away_while_it_waits_for_its_turn_frees_the_machine() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        rig.store.gate.clear()
        first = asyncio.create_task(rig.create(machine))
        second = asyncio.create_task(rig.create(machine))
        third = asyncio.create_task(rig.create(machine))
        await asyncio.sleep(1)
        second.cancel()
        await asyncio.sleep(1)
        rig.store.gate.set()
        assert acked(await first).operation_id == acked(await third).operation_id
        with pytest.raises(asyncio.CancelledError):
            await second
        await rig.reaches(machine, "IDLE", within=5)


@pytest.mark.behaviour(82)
async def test_a_deadline_that_passes_while_the_hand_over_cannot_be_written_still_fails() -> None:
    async with Rig("--configure-timeout", "30s") as rig:
        machine = rig.ids()[0]
        await rig.idle(machine)
        rig.backend.steps[Kind.CONFIGURE] = after(1)
        acked(await rig.configure(machine))
        rig.store.failure = FULL
        await asyncio.sleep(60)
        assert rig.state(machine) == "CONFIGURING"
        rig.store.failure = None
        found = await rig.reaches(machine, "FAILED", within=5)
        assert "deadline" in found.last_error
        assert rig.store.blobs == {}


@pytest.mark.behaviour(82)
async def test_offers_are_applied_when_the_store_takes_them_again() -> None:
    async with Rig() as rig:
        rig.store.failure = FULL
        applying = asyncio.create_task(rig.parts.catalogue.apply([offer(6)]))
        await asyncio.sleep(60)
        assert len(rig.ids()) == 4
        rig.store.failure = None
        await applying
        assert len(rig.ids()) == 6


async def test_a_condition_is_logged_when_it_appears_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig() as rig:
        rig.store.failure = FULL
        for _ in range(180):
            refused(await rig.create(rig.ids()[0]))
            rig.conditions.repeat()
            await asyncio.sleep(1)
        lines = [r for r in caplog.records if "disk full" in r.getMessage()]
        assert [r.levelno for r in lines] == [logging.WARNING] * 3
        (condition,) = rig.conditions.standing()
        assert rig.clock.now() - condition.since == 180


async def test_a_condition_that_stands_without_recurring_is_logged_once_a_minute_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig() as rig:
        rig.conditions.set("tls", "the certificate ends tomorrow")
        for _ in range(30):
            await asyncio.sleep(10)
            rig.conditions.repeat()
        lines = [r for r in caplog.records if "ends tomorrow" in r.getMessage()]
        assert len(lines) == 6
        rig.conditions.clear("tls")
        rig.conditions.clear("tls")
        rig.conditions.set("tls", "the certificate ends tomorrow")
        lines = [r for r in caplog.records if "ends tomorrow" in r.getMessage()]
        assert len(lines) == 7
