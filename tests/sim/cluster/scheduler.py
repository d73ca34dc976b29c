"""Virtual time: events in the order of their times, one source of randomness, one trace."""

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

_TAIL: Final = 200


class Host(Protocol):
    """Who an event belongs to: it runs while its host does."""

    is_alive: bool
    is_paused: bool

    def run(self, event: "Event") -> None: ...

    def hold(self, event: "Event") -> None:
        """Keep an event that came due during a pause."""


class Event:
    """A call at a time.  It is also what `call_later` gives: it can be cancelled."""

    __slots__ = ("args", "callback", "context", "host", "time")

    def __init__(
        self, time: float, host: Host | None, callback: Callable[..., object] | None, args: tuple[Any, ...]
    ) -> None:
        self.time = time
        self.host = host
        self.callback = callback
        self.args = args
        self.context: Any = None

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.time


class Trace:
    """What happened, as a hash of all and the words of the last events."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self.count = 0

    def add(self, now: float, words: str) -> None:
        line = f"{now:.6f} {words}"
        self.count += 1
        self._hash.update(line.encode())
        self._tail.append(line)

    def mix(self, content: str) -> None:
        """Into the hash alone."""
        self._hash.update(content.encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def tail(self) -> list[str]:
        return list(self._tail)


class Scheduler:
    """The clock and everything that is going to happen.  The same seed and calls give the same run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.trace = Trace()
        # What nobody caught: a bug of the code that runs here, or of the simulation.
        self.errors: list[str] = []
        self.events = 0
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0

    def at(self, time: float, host: Host | None, callback: Callable[..., object], *args: Any) -> Event:
        """Call at `time`, or now if that is over.  Calls for one time come in the order of asking."""
        event = Event(max(time, self.now), host, callback, args)
        self.push(event)
        return event

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Event:
        """Call in so many seconds, whatever lives or dies."""
        return self.at(self.now + delay_s, None, callback, *args)

    def push(self, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._heap, (event.time, self._count, event))

    def say(self, words: str) -> None:
        """Into the trace."""
        self.trace.add(self.now, words)

    def run_until(self, time: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= time and not self.errors:
            self.now, _, event = heapq.heappop(heap)
            if event.callback is None:
                continue
            host = event.host
            self.events += 1
            if host is None:
                event.callback(*event.args)
            elif host.is_alive:
                if host.is_paused:
                    host.hold(event)
                else:
                    host.run(event)
        self.now = max(self.now, time)
