"""Held requests by connection and by deadline, with one timer for all of them."""

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar

from broker.turns import CallLater, NextTurn
from sprocket.common.clock import Clock
from sprocket.common.next_turn import SLICE_S
from sprocket.remoting.command import Request

# uvloop rounds the delay of a timer to milliseconds.
_ROUNDING_S: Final = 0.001


class Held(Protocol):
    """Held request.  `request` is None once it is answered or dropped.  The table alone changes `deadline`.

    The garbage collector follows none (`gc=False`), because a collection that looked at 60,000 would hold the loop.
    Each leaves the table in the end, at the latest when it is closed, so what refers to it in a circle is freed all
    the same.
    """

    request: Request[Any] | None
    channel_id: int
    deadline: float  # of the monotonic clock, seconds


H = TypeVar("H", bound=Held)


class HeldTable(Generic[H]):
    """Table of held requests; calls `expire` once for each that is still held at its deadline, to `take` it.

    Deadlines within `tick_s` share one call of the timer.  A request that leaves the table leaves nothing behind.  The
    length counts requests of open connections; `dropped` counts those of closed ones that are still to leave.
    """

    def __init__(self, clock: Clock, call_later: CallLater, expire: Callable[[H], None], tick_s: float) -> None:
        self._clock = clock
        self._expire = expire
        self._tick_s = tick_s
        # Ordered sets.  The requests of a closed connection are not in the first one: they are in `_soon`.
        self._by_channel: dict[int, dict[H, None]] = {}
        self._by_tick: dict[int, dict[H, None]] = {}
        self._ticks: list[int] = []  # heap of the keys of `_by_tick`
        # Requests that expire now, because of their deadlines or before them.  One of each expires in turn, so that
        # neither keeps the other waiting.
        self._late: deque[H] = deque()
        self._soon: deque[H] = deque()
        self._is_late_next = False
        self._count = 0
        self.dropped = 0
        self.is_closed = False  # whether no more requests may be held
        self._next_turn = NextTurn(self._on_timer, clock.monotonic, call_later)

    def __len__(self) -> int:
        return self._count

    def is_full(self, limit: int) -> bool:
        """Return whether `limit` requests are held; as many more may be those of closed connections."""
        return self._count >= limit or self._count + self.dropped >= 2 * limit

    def count(self, channel_id: int) -> int:
        """Return the number of held requests of a connection."""
        return len(self._by_channel.get(channel_id, ()))

    def all(self) -> list[H]:
        """Return all held requests whose connections are open."""
        return [held for of_channel in self._by_channel.values() for held in of_channel]

    def is_open(self, held: H) -> bool:
        """Return whether the connection of a held request is open."""
        return held in self._by_channel.get(held.channel_id, ())

    def add(self, held: H) -> None:
        """Hold a request until its deadline."""
        self._by_channel.setdefault(held.channel_id, {})[held] = None
        self._count += 1
        self._expect(held)

    def move(self, held: H, deadline: float) -> None:
        """Give a request another deadline."""
        self._leave_tick(held)
        held.deadline = deadline
        self._expect(held)

    def take(self, held: H) -> Request[Any] | None:
        """Remove a request and return it to be answered; None if that has happened, or its connection is closed."""
        request, held.request = held.request, None
        if request is None:
            return None
        self._leave_tick(held)
        of_channel = self._by_channel.get(held.channel_id)
        if of_channel is None or held not in of_channel:
            self.dropped -= 1
            return None
        self._count -= 1
        del of_channel[held]
        if not of_channel:
            del self._by_channel[held.channel_id]
        return request

    def expire_soon(self, requests: Iterable[H]) -> None:
        """Let requests expire now, in their order, for a slice of time in each turn of the loop."""
        self._soon.extend(requests)
        self._set_timer()

    def expire_all(self) -> Generator[None, None, None]:
        """Let the requests that are held now expire, each in one step; from the first one on, no more may be held."""
        self.is_closed = True
        for held in self.all():
            if held.request is not None:
                self._expire(held)
                yield

    def drop_channel(self, channel_id: int) -> None:
        """Let the requests of a closed connection expire soon; `take` returns none of them."""
        of_channel = self._by_channel.pop(channel_id, {})
        self._count -= len(of_channel)
        self.dropped += len(of_channel)
        self.expire_soon(of_channel)

    def close(self) -> None:
        """Stop the timer for good, and forget what is held, without an answer."""
        self.is_closed = True
        self._next_turn.cancel()
        # The same request may be in several of them, and one of a closed connection in `_soon` alone.
        for held in chain(*self._by_channel.values(), *self._by_tick.values(), self._late, self._soon):
            held.request = None
        for kept in (self._by_channel, self._by_tick, self._ticks, self._late, self._soon):
            kept.clear()
        self._count = self.dropped = 0

    # Inside

    def _tick(self, held: H) -> int:
        return int(held.deadline / self._tick_s) + 1

    def _expect(self, held: H) -> None:
        tick = self._tick(held)
        of_tick = self._by_tick.get(tick)
        if of_tick is None:
            of_tick = self._by_tick[tick] = {}
            heapq.heappush(self._ticks, tick)
            self._set_timer()
        of_tick[held] = None

    def _leave_tick(self, held: H) -> None:
        of_tick = self._by_tick.get(self._tick(held))
        if of_tick is not None:
            of_tick.pop(held, None)

    def _set_timer(self) -> None:
        """Let the timer run when the next request is due."""
        if self.is_closed:
            return
        if self._late or self._soon:
            self._next_turn.wake_in(0.0)
        elif self._ticks:
            self._next_turn.wake_in(self._ticks[0] * self._tick_s + _ROUNDING_S - self._clock.monotonic())

    def _on_timer(self) -> None:
        now = self._clock.monotonic()
        try:
            while self._expire_next(now) and self._clock.monotonic() < now + SLICE_S:
                pass
        finally:
            self._set_timer()

    def _expire_next(self, now: float) -> bool:
        """Let the next request that is due at `now` expire; return False if there is none."""
        if self._ticks and self._ticks[0] * self._tick_s <= now:
            self._late.extend(self._by_tick.pop(heapq.heappop(self._ticks)))
        elif not (self._late or self._soon):
            return False
        self._is_late_next = not self._is_late_next
        due = (self._late or self._soon) if self._is_late_next else (self._soon or self._late)
        if due and (held := due.popleft()).request is not None:
            self._expire(held)
        return True
