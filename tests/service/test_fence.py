"""Fencing through the whole service (contract section 4)."""

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet_azure.domain.errors import Refusal
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.service.marks import MAX_UNKNOWN_AGE_SECONDS, MAX_UNKNOWN_MARKS
from bigfleet_azure.service.provider import Ack
from tests.support.rig import NO_TOKEN, Rig, acked, never, offer, refused
from tests.support.virtual import in_virtual_time

looptime = pytest.mark.looptime

MOST, LEAST = 2**63 - 1, -(2**63)
STALE = "stale_token"


async def passes(rig: Rig, machine: str, token: Token) -> bool:
    """Whether the fence lets `token` through, tried with a call that is refused anyway."""
    answer = await rig.drain(machine, token=token)
    return refused(answer).reason != STALE


def everything(rig: Rig) -> object:
    """All that a refused call must leave as it was."""
    store = rig.store
    return (
        rig.list().SerializeToString(deterministic=True),
        dict(store.records),
        dict(store.marks),
        dict(store.debts),
        dict(store.blobs),
        len(store.commits),
        len(rig.backend.calls),
    )


@looptime
@pytest.mark.behaviour(23)
@pytest.mark.parametrize("pair", [(0, 0), (1, 1), (-5, -5), (LEAST, LEAST), (MOST, MOST)])
async def test_first_contact_passes_and_the_same_token_again_does_not(
    pair: tuple[int, int],
) -> None:
    async with Rig() as rig:
        machine, token = rig.ids()[0], Token("s", *pair)
        acked(await rig.create(machine, token))
        await rig.reaches(machine, "IDLE")
        assert refused(await rig.create(machine, token)).reason == STALE
        assert refused(await rig.configure(machine, token=token)).reason == STALE


@looptime
@pytest.mark.behaviour(24)
async def test_tokens_are_ordered_by_epoch_and_then_by_sequence() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        assert await passes(rig, machine, Token("s", 5, 10))
        for epoch, sequence in ((4, MOST), (5, 10), (5, 9), (5, LEAST), (LEAST, MOST), (-1, 11)):
            assert not await passes(rig, machine, Token("s", epoch, sequence))
        assert await passes(rig, machine, Token("s", 5, 11))
        assert await passes(rig, machine, Token("s", 6, -7))
        assert not await passes(rig, machine, Token("s", 5, 12))
        assert await passes(rig, machine, Token("s", 6, -6))


@looptime
@pytest.mark.behaviour(26)
async def test_the_largest_token_passes_once_and_nothing_passes_after_it() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        assert await passes(rig, machine, Token("s", MOST, MOST))
        for epoch, sequence in ((MOST, MOST), (MOST, LEAST), (LEAST, LEAST), (0, 0)):
            assert not await passes(rig, machine, Token("s", epoch, sequence))
        assert await passes(rig, machine, NO_TOKEN)


@looptime
@pytest.mark.behaviour(27)
async def test_marks_are_kept_per_shard_and_per_machine() -> None:
    async with Rig() as rig:
        first, second = rig.ids()[:2]
        acked(await rig.create(first, Token("s", 5, 5)))
        acked(await rig.create(second, Token("s", 5, 2)))
        assert await passes(rig, first, Token("t", 1, 1))
        assert await passes(rig, first, Token("", 1, 1))
        assert not await passes(rig, first, Token("", 1, 1))
        assert not await passes(rig, first, Token("s", 5, 5))
        assert await passes(rig, second, Token("s", 5, 3))
        assert not await passes(rig, first, Token("t", 1, 1))
        assert await passes(rig, first, Token("t", 1, 2))


@looptime
@pytest.mark.behaviour(27)
async def test_out_of_order_tokens_of_one_shard_on_different_machines_all_pass() -> None:
    async with Rig(offers=[offer(16)]) as rig:
        answers = await asyncio.gather(
            *(
                rig.create(machine, Token("s", 1, 100 - number))
                for number, machine in enumerate(rig.ids())
            )
        )
        assert len({acked(answer).operation_id for answer in answers}) == 16


@looptime
@pytest.mark.behaviour(28)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_stale_token_is_refused_before_anything_else_is_looked_at(kind: Kind) -> None:
    async with Rig() as rig:
        ask = rig.call(kind)
        assert refused(await ask("nobody", token=Token("s", 2, 2))).reason == "unknown_machine"
        assert refused(await ask("nobody", token=Token("s", 2, 2))).reason == STALE
        assert refused(await ask("nobody", token=Token("s", 2, 1))).reason == STALE
        assert refused(await ask("nobody", token=Token("s", 2, 3))).reason == "unknown_machine"


@looptime
@pytest.mark.behaviour(28)
async def test_a_stale_token_hides_that_the_arguments_are_wrong() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        acked(await rig.create(rig.ids()[1], Token("s", 2, 2)))
        assert refused(await rig.drain(machine, -1, Token("s", 1, 1))).reason == "invalid"
        assert refused(await rig.drain(machine, -1, Token("s", 1, 1))).reason == STALE


@looptime
@pytest.mark.behaviour(29)
@pytest.mark.parametrize("kind", list(Kind))
async def test_the_fence_stands_before_the_repetition(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        for earlier in list(Kind)[: list(Kind).index(kind)]:
            acked(await rig.call(earlier)(machine))
            await asyncio.sleep(1)
        rig.backend.steps[kind] = never
        first = acked(await rig.call(kind)(machine, token=Token("s", 1, 1)))
        before = everything(rig)
        assert refused(await rig.call(kind)(machine, token=Token("s", 1, 1))).reason == STALE
        assert refused(await rig.call(kind)(machine, token=Token("s", 0, 9))).reason == STALE
        assert everything(rig) == before
        again = acked(await rig.call(kind)(machine, token=Token("s", 1, 2)))
        assert again.operation_id == first.operation_id
        assert refused(await rig.call(kind)(machine, token=Token("s", 1, 2))).reason == STALE


@looptime
@pytest.mark.behaviour(30)
@pytest.mark.parametrize("kind", [Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE])
async def test_a_passing_token_moves_the_mark_although_the_call_is_refused(kind: Kind) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        answer = await rig.call(kind)(machine, token=Token("s", 4, 4))
        assert refused(answer).reason == "illegal_state"
        assert refused(await rig.create(machine, Token("s", 4, 4))).reason == STALE
        acked(await rig.create(machine, Token("s", 4, 5)))


@looptime
@pytest.mark.behaviour(31)
async def test_the_absent_token_passes_always_and_leaves_no_mark() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        acked(await rig.create(machine, Token("s", MOST, MOST)))
        first = acked(await rig.create(machine, NO_TOKEN))
        assert acked(await rig.create(machine, NO_TOKEN)).operation_id == first.operation_id
        refused(await rig.drain("nobody", token=NO_TOKEN))
        assert len(rig.parts.inventory.marks) == 0
        assert len(rig.store.marks) == 0


@looptime
@pytest.mark.behaviour(31)
async def test_an_empty_shard_id_with_numbers_is_a_token_like_any_other() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        assert await passes(rig, machine, Token("", 0, 1))
        assert not await passes(rig, machine, Token("", 0, 1))
        assert not await passes(rig, machine, Token("", 0, -1))
        assert await passes(rig, machine, NO_TOKEN) is True


@looptime
@pytest.mark.behaviour(32)
async def test_the_new_epoch_wins_every_race_against_the_old_one() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine)
        refused(await rig.create("nobody", Token("s", 1, 1)))
        calls: list[Awaitable[Ack | Refusal]] = []
        for sequence in range(1, 9):
            calls.append(rig.create(machine, Token("s", 1, sequence)))
            calls.append(rig.configure(machine, token=Token("s", 2, sequence)))
        answers = await asyncio.gather(*calls)
        assert all(isinstance(answer, Ack) for answer in answers[1::2])
        assert [refused(a).reason for a in answers[2::2]] == [STALE] * 7


@looptime
@pytest.mark.behaviour(33)
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("state", ["unused", "bound", "in flight"])
async def test_a_call_refused_by_the_fence_changes_nothing_at_all(kind: Kind, state: str) -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        if state == "unused":
            assert await passes(rig, machine, Token("s", 9, 9))
        else:
            acked(await rig.create(machine, Token("s", 9, 8)))
            await rig.reaches(machine, "IDLE")
            rig.backend.ready = never if state == "in flight" else rig.backend.ready
            acked(await rig.configure(machine, metadata={"k": "v"}, token=Token("s", 9, 9)))
        await asyncio.sleep(1)
        before = everything(rig)
        for token in (Token("s", 9, 9), Token("s", 8, MOST), Token("s", LEAST, LEAST)):
            assert refused(await rig.call(kind)(machine, token=token)).reason == STALE
        await asyncio.sleep(5)
        assert everything(rig) == before


@looptime
@pytest.mark.behaviour(33)
async def test_a_call_refused_for_another_reason_moves_its_mark_and_nothing_else() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        await rig.configured(machine, metadata={"k": "v"})
        answer, calls = rig.list(), len(rig.backend.calls)
        records = {slot: (r.state, r.change) for slot, r in rig.store.records.items()}
        for sequence, kind in enumerate((Kind.DELETE, Kind.CREATE)):
            await rig.call(kind)(machine, token=Token("s", 1, sequence))
        refused(await rig.drain(machine, -1, Token("s", 1, 5)))
        refused(await rig.configure(machine, "green", token=Token("s", 1, 6)))
        assert rig.list() == answer
        assert {slot: (r.state, r.change) for slot, r in rig.store.records.items()} == records
        assert len(rig.backend.calls) == calls
        assert not await passes(rig, machine, Token("s", 1, 6))


@looptime
@pytest.mark.behaviour(34)
async def test_reads_work_between_refused_calls() -> None:
    async with Rig() as rig:
        machine = rig.ids()[0]
        acked(await rig.create(machine, Token("s", 2, 2)))
        await rig.reaches(machine, "IDLE")
        for _ in range(10):
            assert refused(await rig.delete(machine, Token("s", 1, 1))).reason == STALE
            assert rig.state(machine) == "IDLE"
            assert len(rig.list().machines) == 4


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([MOST, MOST - 1, LEAST, LEAST + 1]),
    st.integers(LEAST, MOST),
)
TOKENS = st.builds(Token, st.sampled_from(["", "s", "t"]), NUMBERS, NUMBERS)


@pytest.mark.behaviour(25, 22)
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), TOKENS, st.sampled_from([*Kind, "restart"])), max_size=240
    )
)
def test_random_tokens_agree_with_an_oracle(steps: list[tuple[int, Token, Kind | str]]) -> None:
    in_virtual_time(_against_the_oracle(steps))


async def _against_the_oracle(steps: list[tuple[int, Token, Kind | str]]) -> None:
    rig = Rig()
    await rig.__aenter__()
    ids = [*rig.ids(), "nobody"]
    highest: dict[tuple[str, str], tuple[int, int]] = {}
    for which, token, kind in steps:
        if kind == "restart":
            rig = await rig.restarted()
            await rig.__aenter__()
            continue
        pair, machine = (token.epoch, token.sequence), ids[which]
        absent = token == NO_TOKEN
        known = highest.get((token.shard_id, machine))
        # The absent token is the only one that is no token.
        fresh = absent or known is None or pair > known
        answer = await rig.call(Kind(kind))(machine, token=token)
        stale = isinstance(answer, Refusal) and answer.reason == STALE
        assert stale == (not fresh)
        if fresh and not absent:
            highest[token.shard_id, machine] = pair
    await rig.stop()


@looptime
@pytest.mark.behaviour(79, 27)
async def test_marks_survive_a_restart_each_on_its_own_pair() -> None:
    rig = Rig()
    await rig.__aenter__()
    first, second = rig.ids()[:2]
    acked(await rig.create(first, Token("s", 5, 5)))
    assert await passes(rig, first, Token("t", 7, 7))
    assert await passes(rig, second, Token("s", 3, 3))
    assert await passes(rig, "nobody", Token("s", 9, 9))
    async with await rig.restarted() as again:
        assert not await passes(again, first, Token("s", 5, 5))
        assert not await passes(again, first, Token("t", 7, 7))
        assert not await passes(again, second, Token("s", 3, 3))
        assert not await passes(again, "nobody", Token("s", 9, 9))
        assert await passes(again, first, Token("s", 5, 6))
        assert await passes(again, second, Token("s", 3, 4))
        assert await passes(again, second, Token("u", LEAST, LEAST))


@looptime
@pytest.mark.behaviour(28, 68)
@pytest.mark.parametrize("restart", [False, True])
async def test_a_retired_id_still_knows_its_stale_callers(restart: bool) -> None:
    rig = Rig()
    await rig.__aenter__()
    machine = rig.ids()[0]
    acked(await rig.create(machine, Token("s", 5, 5)))
    await rig.reaches(machine, "IDLE")
    del rig.backend.hosts[machine]
    rig.backend.ready = never
    acked(await rig.configure(machine, token=Token("s", 5, 6)))
    await rig.reaches(machine, "FAILED", within=500)
    await asyncio.sleep(1)
    rig.list()
    await asyncio.sleep(700)
    assert rig.get(machine) is None
    if restart:
        rig = await rig.restarted()
        await rig.__aenter__()
    assert refused(await rig.delete(machine, Token("s", 5, 6))).reason == STALE
    assert refused(await rig.delete(machine, Token("s", 5, 7))).reason == "unknown_machine"
    acked(await rig.create(f"{machine}-r1", Token("s", 5, 1)))
    await rig.stop()


@looptime
@pytest.mark.behaviour(28, 74)
async def test_a_slot_taken_away_still_knows_its_stale_callers_and_so_does_its_return() -> None:
    async with Rig() as rig:
        machine = rig.ids()[3]
        acked(await rig.create(machine, Token("s", 5, 5)))
        await rig.reaches(machine, "IDLE")
        acked(await rig.delete(machine, Token("s", 5, 6)))
        await rig.reaches(machine, "SPECULATIVE")
        await asyncio.sleep(40 * 24 * 3600)
        await rig.parts.catalogue.apply([offer(2)])
        await rig.parts.janitor.forget_marks()
        assert refused(await rig.create(machine, Token("s", 5, 6))).reason == STALE
        await rig.parts.catalogue.apply([offer(4)])
        assert refused(await rig.create(machine, Token("s", 5, 6))).reason == STALE
        acked(await rig.create(machine, Token("s", 5, 7)))


@looptime
async def test_marks_of_unknown_ids_are_bounded_by_age() -> None:
    async with Rig() as rig:
        live = rig.ids()[0]
        assert await passes(rig, live, Token("t", 3, 3))
        assert await passes(rig, "nobody", Token("s", 3, 3))
        await asyncio.sleep(MAX_UNKNOWN_AGE_SECONDS - 10)
        assert await passes(rig, "somebody", Token("s", 3, 3))
        await rig.parts.janitor.forget_marks()
        assert not await passes(rig, "nobody", Token("s", 3, 3))
        await asyncio.sleep(20)
        await rig.parts.janitor.forget_marks()
        assert await passes(rig, "nobody", Token("s", 3, 3))
        assert not await passes(rig, "somebody", Token("s", 3, 3))
        assert not await passes(rig, live, Token("t", 3, 3))


@looptime
async def test_marks_of_unknown_ids_are_bounded_in_number_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_UNKNOWN_MARKS >= 10_000
    monkeypatch.setattr("bigfleet_azure.service.marks.MAX_UNKNOWN_MARKS", 10)
    async with Rig() as rig:
        live = rig.ids()[0]
        assert await passes(rig, live, Token("t", 3, 3))
        for number in range(15):
            assert await passes(rig, f"nobody-{number}", Token("s", 3, 3))
        await rig.parts.janitor.forget_marks()
        assert len(rig.parts.inventory.marks) == len(rig.store.marks) == 11
        assert await passes(rig, "nobody-4", Token("s", 3, 3))
        assert not await passes(rig, "nobody-5", Token("s", 3, 3))
        assert not await passes(rig, live, Token("t", 3, 3))
