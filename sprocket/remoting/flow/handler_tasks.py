"""Tasks of the handlers of one connection, which end with it."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator
from itertools import islice
from types import CoroutineType
from typing import Any, Final

from sprocket.remoting.flow.turn import Turn

# Tasks of a closed connection that are cancelled in one turn: some 10 us each.
_MAX_CANCELLED: Final = 64


class HandlerTasks:
    """The tasks of one connection that wait for the answers of handlers."""

    __slots__ = ("_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], Awaitable[Any]] = {}  # in their order

    def add(self, work: Coroutine[Any, Any, None], answer: Awaitable[Any]) -> None:
        """Run `work`, which awaits `answer`."""
        task = self._loop.create_task(work)
        self._tasks[task] = answer
        task.add_done_callback(self._finished)

    def cancel(self) -> None:
        """Cancel all tasks at once."""
        for task in self._tasks:
            task.cancel()

    def cancel_in_turns(self, turn: Turn) -> None:
        """Cancel all tasks, some of them now and the others in the next turns."""
        tasks = iter(list(self._tasks))
        if _cancel_some(tasks):
            turn.share(lambda ends_at: _cancel_some(tasks))

    def _finished(self, task: asyncio.Task[None]) -> None:
        answer = self._tasks.pop(task)
        if isinstance(answer, CoroutineType):  # a task that is cancelled before its begin never awaits it
            answer.close()


def _cancel_some(tasks: Iterator[asyncio.Task[None]]) -> bool:
    """Cancel some of `tasks`; return whether others may be left."""
    some = list(islice(tasks, _MAX_CANCELLED))
    for task in some:
        task.cancel()
    return len(some) == _MAX_CANCELLED
