"""List: filters, caps, cursors, deltas and pages (contract section 10)."""

import asyncio
from itertools import pairwise

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.domain import cursor as cursors
from bigfleet_azure.domain.lifecycle import CapacityType, Kind
from tests.support.rig import Rig, acked, never, offer, state_name

pytestmark = pytest.mark.looptime

STATES = {state: number for state, number in pb.MachineState.items() if number}


def ids_of(answer: pb.MachineList) -> list[str]:
    return sorted(machine.id for machine in answer.machines)


async def in_every_state(rig: Rig) -> dict[str, str]:
    """Bring one machine of a fleet into each state; the state's name by id."""
    ids = rig.ids()
    await rig.idle(ids[2])
    await rig.configured(ids[4])
    for machine in ids[3], ids[6]:
        await rig.idle(machine)
    await rig.configured(ids[5])
    await rig.configured(ids[7])
    rig.backend.steps = dict.fromkeys(Kind, never)
    rig.backend.ready = never
    acked(await rig.create(ids[1]))
    acked(await rig.configure(ids[3]))
    acked(await rig.drain(ids[5]))
    acked(await rig.delete(ids[6]))
    acked(await rig.drain(ids[7]))
    await asyncio.sleep(901)
    for machine in (ids[1], ids[3], ids[5], ids[6]):
        assert rig.state(machine) == "FAILED"
    return {machine: rig.state(machine) for machine in ids}


@pytest.mark.behaviour(53, 14)
async def test_filters_are_exact_unions() -> None:
    async with Rig(offers=[offer(9), offer(3, vm_size="Standard_F8s_v2")]) as rig:
        await in_every_state(rig)
        live = [i for i in rig.ids() if rig.state(i) == "SPECULATIVE"][:2]
        acked(await rig.create(live[0]))
        everything = {m.id: state_name(m) for m in rig.list().machines}
        assert len(everything) == 12
        wanted = [[n] for n in STATES.values()] + [[1, 8], [2, 3], [3, 5, 8], list(range(1, 9))]
        for states in wanted:
            names = {
                name.removeprefix("MACHINE_STATE_") for name, n in STATES.items() if n in states
            }
            expected = sorted(i for i, name in everything.items() if name in names)
            assert ids_of(rig.list(*states)) == expected
            assert ids_of(rig.list(*states, max_results=1000)) == expected
            one = ids_of(rig.list(*states, max_results=1))
            assert len(one) == min(1, len(expected))
            assert set(one) <= set(expected)
        assert rig.list(0).machines == []
        assert rig.list(99).machines == []


@pytest.mark.behaviour(54)
@pytest.mark.parametrize("cap", [1, 2, 3, 0, 4, 5, 2**31 - 1, -1])
async def test_a_cap_is_an_upper_bound_and_none_when_it_is_zero(cap: int) -> None:
    async with Rig() as rig:
        await rig.idle(rig.ids()[1])
        answer = rig.list(max_results=cap)
        assert len(answer.machines) == (min(cap, 4) if cap > 0 else 4)
        assert len({machine.id for machine in answer.machines}) == len(answer.machines)


def pages(rig: Rig, cap: int, cursor: bytes = b"", *states: int) -> list[list[str]]:
    """Follow the cursors to their end."""
    found: list[list[str]] = []
    while True:
        page = rig.list(*states, max_results=cap, since_revision=cursor)
        assert len(page.machines) <= cap
        if not page.machines:
            return found
        found.append([machine.id for machine in page.machines])
        cursor = page.revision
        assert len(found) < 1000


@pytest.mark.behaviour(58, 54)
@pytest.mark.parametrize("cap", [1, 2, 3, 7, 100])
async def test_pages_cover_every_machine_once(cap: int) -> None:
    offers = [offer(5), offer(4, vm_size="Standard_F8s_v2"), offer(1, zone="eastus-2")]
    async with Rig(offers=offers) as rig:
        for machine in rig.ids()[::3]:
            await rig.idle(machine)
        await rig.parts.catalogue.apply([offer(7), *offers[1:]])
        found = [machine for page in pages(rig, cap) for machine in page]
        assert sorted(found) == rig.ids()
        unused = [machine for page in pages(rig, cap, b"", 1) for machine in page]
        assert sorted(unused) == ids_of(rig.list(1))


@pytest.mark.behaviour(58)
@pytest.mark.parametrize("cap", [1, 2, 3])
async def test_pages_cover_also_what_changes_meanwhile(cap: int) -> None:
    async with Rig(offers=[offer(9)]) as rig:
        ids = rig.ids()
        seen: dict[str, pb.Machine] = {}
        cursor, rounds = b"", 0
        while True:
            page = rig.list(max_results=cap, since_revision=cursor)
            if not page.machines:
                break
            seen |= {machine.id: machine for machine in page.machines}
            cursor = page.revision
            if rounds < len(ids):
                await rig.idle(ids[-1 - rounds])
            rounds += 1
        assert seen == {machine: rig.machine(machine) for machine in ids}


@pytest.mark.behaviour(56)
async def test_a_delta_holds_everything_changed_after_its_cursor_and_nothing_else() -> None:
    async with Rig(offers=[offer(40)]) as rig:
        ids = rig.ids()
        moments: list[tuple[bytes, set[str]]] = []
        for number, machine in enumerate(ids[:20]):
            for _, changed in moments:
                changed.add(machine)
            await (rig.configured(machine) if number % 2 else rig.idle(machine))
            for cursor, changed in moments:
                assert ids_of(rig.list(since_revision=cursor)) == sorted(changed)
            moments.append((rig.list().revision, set()))
        assert ids_of(rig.list(since_revision=moments[-1][0])) == []


@pytest.mark.behaviour(56)
async def test_after_twenty_configures_the_delta_is_those_twenty() -> None:
    async with Rig(offers=[offer(600)]) as rig:
        chosen = rig.ids()[::30]
        for machine in chosen:
            await rig.idle(machine)
        cursor = rig.list().revision
        for machine in chosen:
            acked(await rig.configure(machine))
        await asyncio.sleep(1)
        answer = rig.list(since_revision=cursor)
        assert ids_of(answer) == chosen
        assert {state_name(machine) for machine in answer.machines} == {"CONFIGURED"}
        assert ids_of(rig.list(5, since_revision=cursor)) == chosen
        assert ids_of(rig.list(3, since_revision=cursor)) == []
        assert answer.revision == rig.list().revision


@pytest.mark.behaviour(55)
async def test_the_revision_differs_after_each_visible_change() -> None:
    async with Rig() as rig:
        machine, seen = rig.ids()[0], []
        publish = rig.parts.inventory.publish

        def published(changes: object) -> None:
            publish(changes)  # type: ignore[arg-type]
            answer = rig.list()
            content = sorted(m.SerializeToString(deterministic=True) for m in answer.machines)
            seen.append((content, answer.revision))

        rig.parts.inventory.publish = published  # type: ignore[method-assign]
        await rig.configured(machine)
        acked(await rig.drain(machine))
        await rig.reaches(machine, "IDLE")
        acked(await rig.delete(machine))
        await rig.reaches(machine, "SPECULATIVE")
        for (content, revision), (later, following) in pairwise(seen):
            assert (content == later) == (revision == following)
        assert len({revision for _, revision in seen}) == 8


async def _used(rig: Rig) -> bytes:
    await rig.idle(rig.ids()[0])
    return rig.list().revision


JUNK = [
    b"",
    b"not-a-cursor",
    b"\x00\xff\xfe binary",
    b"\xa5" * 4096,
    b"0",
    bytes(15),
    b"\x01" + bytes(14),
]


@pytest.mark.behaviour(57)
@pytest.mark.parametrize("junk", JUNK)
async def test_junk_is_no_cursor(junk: bytes) -> None:
    async with Rig() as rig:
        await _used(rig)
        assert rig.list(since_revision=junk) == rig.list()


@pytest.mark.behaviour(57)
async def test_a_cursor_that_was_tampered_with_is_no_cursor() -> None:
    async with Rig() as rig:
        real = await _used(rig)
        full = rig.list()
        assert rig.list(since_revision=real).machines == []
        for tampered in (real + b"!", b"~" + real, real + b"\x00\x01", real[:-1], real[1:]):
            assert rig.list(since_revision=tampered) == full
        for position in range(len(real) * 8):
            flipped = bytearray(real)
            flipped[position // 8] ^= 1 << position % 8
            assert rig.list(since_revision=bytes(flipped)) == full


@pytest.mark.behaviour(59)
async def test_a_cursor_of_another_store_or_of_the_future_is_no_cursor() -> None:
    async with Rig() as rig:
        await _used(rig)
        for foreign in (cursors.encode("89abcdef", 3), cursors.encode("0123abcd", 10_000)):
            assert rig.list(since_revision=foreign) == rig.list()


@pytest.mark.behaviour(79, 56)
async def test_a_cursor_from_before_a_restart_still_gives_the_exact_delta() -> None:
    rig = Rig()
    await rig.__aenter__()
    first, second = rig.ids()[:2]
    old = rig.list().revision
    await rig.idle(first)
    newer = rig.list().revision
    async with await rig.restarted() as again:
        assert ids_of(again.list(since_revision=old)) == [first]
        assert ids_of(again.list(since_revision=newer)) == []
        await again.idle(second)
        assert ids_of(again.list(since_revision=old)) == [first, second]
        assert ids_of(again.list(since_revision=newer)) == [second]


@pytest.mark.behaviour(79, 49)
async def test_the_whole_fleet_is_the_same_after_a_restart() -> None:
    rig = Rig(offers=[offer(8), offer(3, capacity_type=CapacityType.SPOT)])
    await rig.__aenter__()
    ids = rig.ids()
    await rig.configured(ids[0], metadata={"k": "v", "": "", "\x00": "\x00"})
    await rig.idle(ids[1])
    acked(await rig.delete(ids[1]))
    await rig.reaches(ids[1], "SPECULATIVE")
    await rig.idle(ids[9])
    before = {machine.id: machine for machine in rig.list().machines}
    async with await rig.restarted() as again:
        assert {machine.id: machine for machine in again.list().machines} == before


@pytest.mark.behaviour(53, 58)
async def test_full_lists_caps_filters_and_deltas_agree_on_what_a_machine_is() -> None:
    async with Rig(offers=[offer(300), offer(9, vm_size="Standard_F8s_v2")]) as rig:
        for machine in rig.ids()[250:262]:
            await rig.idle(machine)
        full = {machine.id: machine for machine in rig.list().machines}
        assert {m.id: m for m in rig.list(max_results=10_000).machines} == full
        assert {m.id: m for m in rig.list(*STATES.values()).machines} == full
        first = cursors.encode("0123abcd", 1)
        delta = {m.id: m for m in rig.list(since_revision=first).machines}
        assert len(delta) in (len(full), len(full) - 1)
        assert delta.items() <= full.items()
        assert {machine: rig.machine(machine) for machine in full} == full
