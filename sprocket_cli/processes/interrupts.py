"""Ctrl-C: a command ends with status 130 and no text, a second one ends it at once.  Servers handle signals themselves.

A `KeyboardInterrupt` would be a traceback wherever nothing expects it: in imports, in a destructor, at the exit.
"""

import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from sprocket_cli.exit_codes import INTERRUPTED

T = TypeVar("T")


def end_quietly() -> None:
    """Let SIGINT end this program, unless it is ignored or has a handler already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: object) -> None:
    # What is left is an orderly end.  It may hang, or be interrupted where an exception has nowhere to go.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(INTERRUPTED)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in a new event loop; SIGINT cancels it and ends the program.

    An exception that a handler of signals raises in an event loop would be one of any task.
    """
    import asyncio

    from sprocket.common.event_loops import new_event_loop

    is_ours = signal.getsignal(signal.SIGINT) is _end
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            if is_ours:
                # The runner replaces this handler alone.
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return runner.run(main)
        except KeyboardInterrupt:
            if is_ours:
                # The runner's end waits for threads, and so does the program's.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.exit(INTERRUPTED)
        finally:
            if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, _end)
