"""Sharing of the event loop by handlers: long work in slices, and work that outlives its client."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, cast

from sprocket.common.clock import SystemClock

T = TypeVar("T")

# Time in a turn for one read, for one long work, and for all work together that earlier turns left over.  A request
# that comes meanwhile waits for each of them.  Shorter slices would cost more: a turn of the loop takes some 20 us.
SLICE_S: Final = 0.0005

# The loop itself keeps no reference to a task.
_unfinished: Final[set[asyncio.Task[Any]]] = set()


async def next_turn() -> None:
    """Return in the next turn of the event loop, after everything that was ready was served."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


def at_once(steps: Generator[None, None, T]) -> T:
    """Run all `steps`, and return the generator's value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


async def in_turns(steps: Generator[None, None, T], now: Callable[[], float] = SystemClock.monotonic) -> T:
    """Run `steps`, for about `SLICE_S` in each turn of the event loop, and return the generator's value."""
    ends_at = now() + SLICE_S
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        if now() >= ends_at:
            await next_turn()
            ends_at = now() + SLICE_S


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`.

    It continues if the waiting task is cancelled: a client may disconnect at any time.
    """
    task = asyncio.get_running_loop().create_task(work)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    return await asyncio.shield(task)
