"""Requests that are held for a time, each with the function that answers it."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from broker.longpolling.held_table import HeldTable
from broker.turns import CallLater
from sprocket.common.clock import Clock
from sprocket.common.next_turn import at_once
from sprocket.remoting.command import Request, Response

Answer: TypeAlias = Callable[[Request[Any]], None]
# Max held requests of all connections, if the owner names no other number.
_MAX_HELD: Final = 100_000


class _HeldRequest(msgspec.Struct, eq=False, gc=False):
    request: Request[Any] | None
    channel_id: int
    deadline: float
    answer: Answer


class HeldRequests:
    """Table of held requests, with one timer for those that are due within `tick_s`.  Lives in the loop's thread."""

    def __init__(self, clock: Clock, call_later: CallLater, tick_s: float, max_held: int = _MAX_HELD) -> None:
        self._clock = clock
        self._max_held = max_held
        self._table = HeldTable[_HeldRequest](clock, call_later, self._answer, tick_s)
        self.drop_channel: Final = self._table.drop_channel
        # Holds no more requests, and answers those that are held with what there is, each in one step.
        self.answer_all: Final = self._table.expire_all

    def __len__(self) -> int:
        return len(self._table)

    def hold(self, request: Request[Any], seconds: float, answer: Answer) -> bool:
        """Call `answer` with the request after some seconds; return False if too many are held, or no more may be."""
        if self._table.is_closed or self._table.is_full(self._max_held):
            return False
        self._table.add(_HeldRequest(request, request.channel.id, self._clock.monotonic() + seconds, answer))
        return True

    def answer_soon(self) -> None:
        """Answer all requests, in the next turns of the loop."""
        self._table.expire_soon(self._table.all())

    def close(self) -> None:
        """Answer all requests now, and stop the timer."""
        at_once(self.answer_all())
        self._table.close()

    def _answer(self, held: _HeldRequest) -> None:
        request = self._table.take(held)
        if request is not None:
            held.answer(request)


def answer_again(request: Request[Any], serve: Callable[[], object]) -> None:
    """Answer a held request with what `serve` returns now.  Never raises, because others are answered after it."""
    try:
        response = serve()
    except Exception as error:
        request.channel.refuse(request, error)
    else:
        if isinstance(response, Response):
            request.channel.reply(request, response)
