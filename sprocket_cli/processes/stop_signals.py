"""Signals that ask a process to stop, for a main thread that alternates between work and waits.

A handler runs in the main thread, between any two of its steps.  Here it sets a flag and writes to a pipe.  It must not
set a `threading.Event`: the main thread may hold that event's lock, in `wait`, and would block for ever.
"""

import os
import select
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Receiver of the signals `numbers`: a context manager of the main thread that restores the handlers at its end."""

    def __init__(self, numbers: Sequence[int] = STOPPING) -> None:
        self._numbers = numbers
        self._has_arrived = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        wanted = [number for number in self._numbers if not stays_ignored(number)]
        self._before: list[tuple[int, Any]] = [(number, signal.signal(number, self._arrive)) for number in wanted]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if not self._has_arrived:
            self._has_arrived = True
            os.write(self._writer, b"!")

    def is_set(self) -> bool:
        """Return whether it is time to stop."""
        return self._has_arrived

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds` or until a signal arrives; return whether it is time to stop."""
        select.select([self._reader], [], [], seconds)
        return self._has_arrived


def stays_ignored(number: int) -> bool:
    """Return whether to keep ignoring a signal: SIGHUP for a program that nohup started, as in the JVM."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
