"""When a slowed peer is read again, on a clock that the test moves."""

from collections.abc import Callable
from typing import Any

from sprocket.remoting.flow.slow_reads import SlowReads


class Loop:
    """Part of an event loop: its time and its timers."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((self.now_s + seconds, call))

    def until(self, now_s: float) -> None:
        self.now_s = now_s
        due = [one for one in self.timers if one[0] <= now_s]
        self.timers = [one for one in self.timers if one[0] > now_s]
        for _, call in due:
            call()


def test_a_peer_is_read_once_when_the_longest_wait_is_over() -> None:
    loop: Any = Loop()
    read: list[float] = []
    slow = SlowReads(loop, lambda: read.append(loop.now_s))
    assert not slow and not slow.was_on
    slow.wait(0.5)
    slow.wait(1.0)
    slow.wait(0.1)
    loop.until(100.5)
    assert slow and read == []
    loop.until(101.0)
    assert not slow and read == [101.0] and loop.timers == []


def test_what_is_read_shortly_after_a_wait_has_waited_for_it() -> None:
    loop: Any = Loop()
    slow = SlowReads(loop, lambda: None)
    slow.wait(1.0)
    loop.until(101.5)
    assert not slow and slow.was_on
    loop.until(103.5)
    assert not slow.was_on
