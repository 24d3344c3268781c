"""Azure's time passes faster than ours, evenly, and for everybody alike."""

import time

from bigfleet_azure.kit.clock import Clock
from tests.support.arm.clock import ArmClock, Timeline


async def test_time_passes_at_its_speed_and_never_jumps():
    clock: Clock = (arm := ArmClock(1000, start=0.0))
    began = time.monotonic()
    await clock.sleep(50)
    assert 50 <= clock.now() <= 50 + 1000 * (time.monotonic() - began)
    before = clock.now()
    arm.speed = 1
    assert 0 <= clock.now() - before < 50
    await clock.sleep(-1)


async def test_what_is_due_happens_in_order_and_at_its_own_moment():
    clock = ArmClock(1000, start=0.0)
    timeline, seen = Timeline(clock), []
    timeline.after(20, lambda: seen.append(("second", timeline.now())))
    timeline.after(10, lambda: seen.append(("first", timeline.now())))
    timeline.after(15, lambda: seen.append(("never", 0.0))).cancelled = True
    await clock.sleep(40)
    timeline.settle()
    assert [what for what, _ in seen] == ["first", "second"]
    assert [round(when) for _, when in seen] == [10, 20]


async def test_an_event_may_lead_to_another_that_is_due_already():
    clock = ArmClock(1000, start=0.0)
    timeline, seen = Timeline(clock), []

    def first():
        timeline.after(5, lambda: seen.append(round(timeline.now())))

    timeline.after(5, first)
    await clock.sleep(30)
    timeline.settle()
    assert seen == [10]
