"""Ctrl-C: a command ends with status 130 and no text, a second one ends it at once.  Servers handle signals themselves.

A `KeyboardInterrupt` would be a traceback wherever nothing expects it: in imports, in a destructor, at the exit.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sprocket_cli.exit_codes import INTERRUPTED


def end_quietly() -> None:
    """Let SIGINT end this program, unless it is ignored or has a handler already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: object) -> None:
    # What is left is an orderly end.  It may hang, or be interrupted where an exception has nowhere to go.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(INTERRUPTED)


@contextmanager
def cancels_main_task() -> Iterator[None]:
    """Let SIGINT cancel the main task of an `asyncio.Runner` inside; an interrupt ends the program.

    An exception that a handler of signals raises in an event loop would be one of any task.
    """
    is_ours = signal.getsignal(signal.SIGINT) is _end
    try:
        if is_ours:
            # The runner replaces this handler alone.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, _end)
