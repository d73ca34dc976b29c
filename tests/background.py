"""Asyncio objects that stay open in a thread while a test of blocking calls runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


@contextmanager
def in_background(opened: AbstractAsyncContextManager[T], limit_s: float = 60) -> Iterator[T]:
    """Enter `opened` in an event loop of its own, and leave it at the end.  Raises TimeoutError, and as `opened`."""

    @asynccontextmanager
    async def limited() -> AsyncIterator[T]:
        async with asyncio.timeout(limit_s) as limit, opened as value:
            limit.reschedule(None)
            yield value

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(limited()) as value:
        yield value
