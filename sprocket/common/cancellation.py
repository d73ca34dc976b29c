"""Telling a cancellation of the task itself from one of something that it awaited."""

import asyncio


def is_cancelled() -> bool:
    """Whether somebody cancelled the task that asks.

    If not, a CancelledError that it catches is an outcome like any other: what it awaited was cancelled.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
