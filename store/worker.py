"""Interface of the store's own threads.  A test passes `Workers` that run a turn when the test says so."""

import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

_STOP: Final = -1
_WAKE: Final = 0


class Worker(Protocol):
    """Runner of turns beside the owner thread, one at a time, from `start` to `stop`."""

    def start(self) -> None:
        """Begin to run turns.  A second call does nothing."""

    def wake(self) -> None:
        """Request a turn that begins after this call.  Cheap if a turn is requested already."""

    def pace(self, interval_s: float | None) -> None:
        """Change the interval between turns, from the next turn on."""

    def stop(self) -> None:
        """Wait for a running turn, and run no more."""


class Workers(Protocol):
    """Factory of workers.

    `turn` returns whether turns go on.  It runs when the worker is woken, and every `interval_s` seconds unless that is
    None.
    """

    def __call__(self, name: str, turn: Callable[[], bool], interval_s: float | None = None) -> Worker: ...


class ThreadWorker:
    """A worker with a thread of its own."""

    def __init__(self, name: str, turn: Callable[[], bool], interval_s: float | None = None) -> None:
        self._name = name
        self._turn = turn
        self._interval_s = interval_s
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._is_awake = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._signals.put(_WAKE)

    def pace(self, interval_s: float | None) -> None:
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self.wake()

    def stop(self) -> None:
        if self._thread is not None:
            self._signals.put(_STOP)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while self._wait():
            # Cleared before the turn: a request during the turn gets another turn.
            self._is_awake = False
            if not self._turn():
                return

    def _wait(self) -> bool:
        try:
            return self._signals.get(timeout=self._interval_s) != _STOP
        except queue.Empty:
            return True
