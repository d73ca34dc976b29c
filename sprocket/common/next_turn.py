"""Sharing of the event loop by handlers: long work in slices, and work that outlives its client."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# The loop itself keeps no reference to a task.
_unfinished: Final[set[asyncio.Task[Any]]] = set()


async def next_turn() -> None:
    """Return in the next turn of the event loop, after everything that was ready was served."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`.

    It continues if the waiting task is cancelled: a client may disconnect at any time.
    """
    task = asyncio.get_running_loop().create_task(work)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    return await asyncio.shield(task)
