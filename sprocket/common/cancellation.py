"""Telling a cancellation of the task itself from one of something that it awaited."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


def is_cancelled() -> bool:
    """Whether somebody cancelled the task that asks.

    If not, a CancelledError that it catches is an outcome like any other: what it awaited was cancelled.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def outcome_of(shared: "asyncio.Task[T]", ended: Exception) -> T:
    """What `shared` gives, which others may await too: a cancellation of one of them does not end it.

    Raises what it raises, and `ended` if it was cancelled itself.
    """
    try:
        return await asyncio.shield(shared)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise ended from None
