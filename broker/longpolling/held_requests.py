"""Requests that are held for a time, each with the function that answers it."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from broker.longpolling.confirm_waits import CallLater
from broker.longpolling.deadlines import Deadlines
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request

Answer: TypeAlias = Callable[[Request[Any]], None]
# Max held requests of all connections, if the owner names no other number.
_MAX_HELD: Final = 100_000


class _HeldRequest:
    """Held request; `request` is None once it is answered or dropped."""

    __slots__ = ("answer", "channel_id", "deadline", "request")

    def __init__(self, request: Request[Any], deadline: float, answer: Answer) -> None:
        self.answer = answer
        self.request: Request[Any] | None = request
        self.channel_id: int = request.channel.id
        self.deadline = deadline


class HeldRequests:
    """Table of held requests, with one timer that waits at least `tick_s`.  Lives in the event loop's thread."""

    def __init__(self, clock: Clock, call_later: CallLater, tick_s: float, max_held: int = _MAX_HELD) -> None:
        self._clock = clock
        self._max_held = max_held
        self._by_channel: dict[int, set[_HeldRequest]] = {}
        self._count = 0
        self._deadlines = Deadlines[_HeldRequest](clock, call_later, self._answer, tick_s)

    def __len__(self) -> int:
        return self._count

    def hold(self, request: Request[Any], seconds: float, answer: Answer) -> bool:
        """Call `answer` with the request after some seconds; return False if too many are held."""
        if self._count >= self._max_held:
            return False
        held = _HeldRequest(request, self._clock.monotonic() + seconds, answer)
        self._by_channel.setdefault(held.channel_id, set()).add(held)
        self._count += 1
        self._deadlines.expect(held, self._count)
        return True

    def drop_channel(self, channel_id: int) -> None:
        """Drop the requests of a closed connection."""
        for held in self._by_channel.pop(channel_id, ()):
            held.request = None
            self._count -= 1

    def answer_all(self) -> None:
        """Answer all requests now."""
        for of_channel in list(self._by_channel.values()):
            for held in list(of_channel):
                self._answer(held)

    def close(self) -> None:
        """Answer all requests, and stop the timer."""
        self.answer_all()
        self._deadlines.close()

    def _answer(self, held: _HeldRequest) -> None:
        request, held.request = held.request, None
        if request is None:
            return
        of_channel = self._by_channel[held.channel_id]
        of_channel.discard(held)
        if not of_channel:
            del self._by_channel[held.channel_id]
        self._count -= 1
        held.answer(request)
