"""Held requests: the end of the term that holds them."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from broker.longpolling.held_requests import HeldRequests
from sprocket.remoting.command import Request
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock


class Processor:
    """What holds requests for 3 s, and holds each again when it is to be answered."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.requests = HeldRequests(self.clock, self.timers.call_later, 0.1)
        self.was_held_again: list[bool] = []

    def hold(self) -> bool:
        request: Request[Any] = Request(code=11)
        request.channel = SimpleNamespace(id=1)
        return self.requests.hold(request, 3.0, self.answer)

    def answer(self, request: Request[Any]) -> None:
        self.was_held_again.append(self.hold())


def test_from_the_first_answer_of_the_end_on_no_request_is_held() -> None:
    processor = Processor()
    for _ in range(3):
        processor.hold()
    steps = processor.requests.answer_all()
    next(steps)
    assert not processor.hold()
    processor.requests.close()
    assert not processor.hold()
    assert processor.was_held_again == [False] * 3 and len(processor.requests) == 0
    assert processor.timers.pending == []


def test_a_request_whose_connection_closes_at_the_end_keeps_nothing_alive() -> None:
    processor = Processor()
    term = weakref.ref(processor)
    processor.hold()
    processor.requests.drop_channel(1)
    processor.requests.close()
    del processor
    gc.collect()
    assert term() is None
