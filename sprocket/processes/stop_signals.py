"""Signals that ask a process to stop, for a main thread that works and waits in turns.

A handler runs in the main thread, between any two of its steps.  `threading.Event` has a lock that the thread itself
may hold just then, in `wait`: a handler that sets one can wait for it for ever.  Here it sets a flag and writes to a
pipe.
"""

import os
import select
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Whether one of `numbers` has come; a context manager, of the main thread, that gives their handlers back."""

    def __init__(self, numbers: Sequence[int] = STOPPING) -> None:
        self._numbers = numbers
        self._has_come = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        wanted = [number for number in self._numbers if not is_left_alone(number)]
        self._before: list[tuple[int, Any]] = [(number, signal.signal(number, self._come)) for number in wanted]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _come(self, number: int, frame: FrameType | None) -> None:
        if not self._has_come:
            self._has_come = True
            os.write(self._writer, b"!")

    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return self._has_come

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until a signal comes; whether it is time to stop."""
        select.select([self._reader], [], [], seconds)
        return self._has_come


def is_left_alone(number: int) -> bool:
    """Whether a signal stays ignored: that of a closed terminal, for a program that nohup started, as in the JVM."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
