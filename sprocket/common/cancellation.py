"""Cancellation: telling that of the current task from that of an awaited task."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


def is_cancelled() -> bool:
    """Return whether the current task was cancelled.

    If not, a CancelledError that it catches means that an awaited task was cancelled: an outcome like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def outcome_of(shared: "asyncio.Task[T]", ended: Exception) -> T:
    """Return the result of `shared`, which others may await too: cancelling one of them does not cancel it.

    Raises the error of `shared`, and `ended` if `shared` was cancelled.
    """
    try:
        return await asyncio.shield(shared)
    except asyncio.CancelledError:
        if is_cancelled():
            shared.add_done_callback(_retrieve)
            raise
        raise ended from None


def _retrieve(task: "asyncio.Task[T]") -> None:
    """Take the error of a task that perhaps nobody awaits any more: asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
