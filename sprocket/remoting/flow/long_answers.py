"""Long answers of one connection: they are made in steps, so that other connections are served meanwhile."""

from collections.abc import Callable
from typing import Any, Final

from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Steps

# Unfinished answers with which no further request of the connection is served.
MAX_LONG_ANSWERS: Final = 16
ENDED: Final = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the server ended the work on it, try again")


class LongAnswers:
    """Answers of one connection that take more than one step, made one after the other in slices of `turn`.

    `finish` gets each request with its response, None if there is none, or what its steps raised.
    `may_go_on` tells whether the peer takes more, `is_slow` whether they are made in the part of slow peers.
    """

    __slots__ = ("_finish", "_is_slow", "_may_go_on", "_turn", "_works", "is_full")

    def __init__(
        self,
        turn: Turn,
        finish: Callable[[Request[Any], Response | Exception | None], None],
        may_go_on: Callable[[], bool],
        is_slow: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_slow = is_slow
        self._turn = turn
        self._finish = finish
        self._may_go_on = may_go_on
        self._works: list[tuple[Request[Any], Steps]] = []
        self.is_full = False

    def __bool__(self) -> bool:
        return bool(self._works)

    def begin(self, request: Request[Any], steps: Steps) -> Response | None:
        """Run the first step; return the response if that is all.  Else the other steps follow in later turns."""
        try:
            next(steps)
        except StopIteration as end:
            response: Response | None = end.value
            return response
        self._works.append((request, steps))
        self.is_full = len(self._works) >= MAX_LONG_ANSWERS
        self._turn.share(self._go_on, is_slow=self._is_slow())
        return None

    def resume(self) -> None:
        """Continue: the peer takes more again."""
        if self._works:
            self._turn.share(self._go_on, is_slow=self._is_slow())

    def _go_on(self, ends_at: float) -> bool:
        while self._works and self._may_go_on():
            request, steps = self._works[0]
            try:
                next(steps)
            except StopIteration as end:
                self._done(request, end.value)
            except Exception as error:
                self._done(request, error)
            if self._turn.now() >= ends_at:
                break
        return bool(self._works) and self._may_go_on()

    def _done(self, request: Request[Any], answer: Response | Exception | None) -> None:
        del self._works[0]
        self.is_full = False
        self._finish(request, answer)

    def end(self) -> None:
        """Refuse the requests whose answers are not finished."""
        while self._works:
            self._works[0][1].close()
            self._done(self._works[0][0], ENDED)

    def drop(self) -> None:
        """Forget the requests: the peer is gone."""
        self._works.clear()
        self.is_full = False
