"""One token bucket as we keep it ourselves, and the queue of those who wait for its tokens.

It holds what is certain to be in Azure's bucket too, and never more: calls that are under way may
reach Azure late, and others may take from the same bucket. Which call needs which buckets is
`charges`'; what Azure's headers say is read by `throttle`.
"""

import asyncio
from collections import deque
from enum import IntEnum

from bigfleet_azure.backends.azure.charges import Size
from bigfleet_azure.kit.clock import Clock

MARGIN_SHARE = 1 / 40
"""Share of a bucket that is left alone. The nearer Azure's own count comes to it, the slower we
take, so that a bucket which others drain is not emptied by us between two answers. Ours."""

LOWEST_COUNT = 0.5
"""What an empty bucket of Azure's is taken to hold when our pace is set by it. Ours."""

SHORTEST_SLEEP_SECONDS = 0.001
"""Rounding must not make a wait of no length. Ours."""


class Lane(IntEnum):
    """Who is served first."""

    URGENT = 0
    ORDINARY = 1
    POLL = 2


class Bucket:
    """Tokens that come back evenly, taken first come, first served within a lane.

    Args:
        size: how much it holds and regains.
        reserve: share that the lane of polls leaves.
        larger: what it is once Azure tells of more than `size` holds.
    """

    def __init__(
        self, clock: Clock, size: Size, *, reserve: float = 0.0, larger: Size | None = None
    ) -> None:
        self._clock = clock
        self._larger = larger
        self._reserve_share = reserve
        self._resize(size)
        self._level = self._most
        self._at = clock.now()
        self._closed_until = 0.0
        self._in_flight = 0
        self._pace = 1.0
        self._queues: tuple[deque[asyncio.Future[None]], ...] = tuple(deque() for _ in Lane)
        self._server: asyncio.Task[None] | None = None
        self.waiting = 0
        """How many wait for a token."""

    def _resize(self, size: Size) -> None:
        self._size = size
        self._margin = int(size.tokens * MARGIN_SHARE)
        self._most = size.tokens - self._margin
        self._reserve = self._reserve_share * self._most

    @property
    def headroom(self) -> float:
        """Share of it that is there to be taken, 0 to 1."""
        return max(0.0, min(1.0, self._left() / self._most))

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost if it were made anew."""
        return not (self.waiting or self._in_flight) and self._left() >= self._most

    async def take(self, lane: Lane) -> None:
        """Wait for a token and take it; to be followed by `over` or `give_back`.

        A wait that is cancelled takes none.
        """
        next_in_line = self._first(lane) is None
        if next_in_line and self._take_now(lane):
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues[lane].append(turn)
        self.waiting += 1
        if next_in_line:
            self._serve_anew()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()
            raise
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._stop_serving()

    def over(self) -> None:
        """The call that took a token has its answer, or will never get one."""
        self._regain()
        self._in_flight -= 1

    def give_back(self) -> None:
        """The call that took a token was never sent."""
        self._regain()
        self._level += 1
        self._in_flight -= 1
        if self.waiting:
            self._serve_anew()

    def learn(self, remaining: int) -> None:
        """Azure said how many whole tokens were left in its bucket."""
        if self._larger is not None and remaining >= self._size.tokens:
            self._resize(self._larger)
            self._larger = None
            self._level, self._at = self._most, self._clock.now()
            remaining -= self._in_flight
        self._regain()
        self._pace = 1.0
        if remaining < self._margin:
            self._pace = max(remaining, LOWEST_COUNT) / self._margin
        # What Azure says is rounded down, and what is left of one token may be on its way to us.
        certain = max(remaining + min(1, self._margin) - self._margin, min(remaining, 1))
        self._level = min(self._level, certain)

    def close(self, seconds: float) -> None:
        """Azure refused a call: nothing is taken for so long, then there is one token."""
        self._level = 1.0
        self._closed_until = max(self._closed_until, self._clock.now() + seconds)
        self._at = self._closed_until

    def _left(self) -> float:
        """Tokens that may be taken now."""
        self._regain()
        return 0.0 if self._clock.now() < self._closed_until else self._level

    def _regain(self) -> None:
        """Count what came back since the last look.

        Nothing comes back in place of tokens whose calls may not have reached Azure yet: until
        they do its bucket may be full, and lose what we would count.
        """
        now = self._clock.now()
        if now < self._closed_until:
            return
        room = self._most - self._in_flight - self._level
        if room > 0:
            self._level += min(room, max(0.0, now - self._at) * self._regained_a_second)
        self._at = now

    @property
    def _regained_a_second(self) -> float:
        return self._size.a_second * self._pace

    def _needs(self, lane: Lane) -> float:
        return 1.0 + (self._reserve if lane is Lane.POLL else 0.0)

    def _take_now(self, lane: Lane) -> bool:
        if self._left() < self._needs(lane):
            return False
        self._level -= 1
        self._in_flight += 1
        return True

    def _first(self, up_to: Lane = Lane.POLL) -> Lane | None:
        """The best lane, no worse than `up_to`, in which somebody waits."""
        for lane in Lane:
            queue = self._queues[lane]
            while queue and queue[0].done():
                queue.popleft()
            if queue and lane <= up_to:
                return lane
        return None

    def _serve_anew(self) -> None:
        """Serve the queues; somebody new is next, or may be served sooner than it was thought."""
        self._stop_serving()
        self._server = asyncio.create_task(self._serve(), name="arm-bucket")

    def _stop_serving(self) -> None:
        if self._server is not None:
            self._server.cancel()
            self._server = None

    async def _serve(self) -> None:
        while (lane := self._first()) is not None:
            if self._take_now(lane):
                self._queues[lane].popleft().set_result(None)
                continue
            missing = self._needs(lane) - self._left()
            closed = self._closed_until - self._clock.now()
            wait = max(closed, missing / self._regained_a_second, SHORTEST_SLEEP_SECONDS)
            await self._clock.sleep(wait)
        self._server = None
