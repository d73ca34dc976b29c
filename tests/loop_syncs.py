"""Syncs of files in the thread of an event loop: every other client waits for the disk meanwhile."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

_ROOT: Final = Path(__file__).parent.parent
_TESTS: Final = str(_ROOT / "tests")
_SYNCS: Final = ("fsync", "fdatasync", "sync")
# These replicas serve nobody: one that lost its disk takes the tables of another, and one that cuts its log restarts.
_NOT_SERVING: Final = ("broker/replication/replicated_tables.py install", "store/replica/replica_log.py cut")


def _callers() -> list[str] | None:
    """Return the product's frames of the loop's callback that syncs; None if that is allowed: a test called them."""
    found = []
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
        file = frame.f_code.co_filename
        if file.startswith(_TESTS):
            return None
        if file.startswith(str(_ROOT)):
            name = f"{file.removeprefix(f'{_ROOT}/')} {frame.f_code.co_name}"
            if name in _NOT_SERVING:
                return None
            found.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return found


@contextmanager
def loop_syncs() -> Iterator[list[str]]:
    """Collect the callers of syncs that block an event loop, except those that a test calls."""
    found: list[str] = []

    def watched(real: Callable[..., None]) -> Callable[..., None]:
        def sync(*args: int) -> None:
            if asyncio._get_running_loop() is not None:
                callers = _callers()
                if callers is not None:
                    found.append(" < ".join(callers))
            real(*args)

        return sync

    with ExitStack() as stack:
        for name in _SYNCS:
            stack.enter_context(patch.object(os, name, watched(getattr(os, name))))
        yield found
