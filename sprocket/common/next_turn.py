"""How a handler shares the event loop: long work in slices, and work that ends whatever becomes of its client."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

# The loop itself keeps no reference to a task.
_unfinished: Final[set[asyncio.Task[Any]]] = set()


async def next_turn() -> None:
    """Return in the next turn of the event loop, after what was ready has been served."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for `work`, which goes on if the waiting task is cancelled: a client may leave at any time."""
    task = asyncio.get_running_loop().create_task(work)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    await asyncio.shield(task)
