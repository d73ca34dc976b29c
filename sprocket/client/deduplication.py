"""Deduplication: handle a message once although it is delivered twice.

A message gets an id when it is first sent (UNIQ_KEY).  The id stays through retries of the producer, redelivery, the
dead-letter topic and a redrive.  The protocol lets no broker refuse a duplicate, so duplicates are detected where they
do harm, at the handler: an id in the window is not handled again.
"""

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sprocket.client import arguments
from sprocket.common.clock import Clock, SystemClock


class Identified(Protocol):
    """Message of any consumer."""

    @property
    def topic(self) -> str: ...

    @property
    def message_id(self) -> str: ...


M = TypeVar("M", bound=Identified)


class HandledKeys(Protocol):
    """Record of the handled ids.  If the group's members share it, as a table, it spans members and restarts."""

    async def contains(self, key: str, /) -> bool:
        """Return whether `key` was handled.  If it raises, the message is redelivered."""
        ...

    async def add(self, key: str, /) -> None:
        """Record that `key` was handled.  If this fails, the message is redelivered and handled again."""
        ...


class KeyWindow:
    """Ids of the last `window_s`, at most `max_keys`, in this process only."""

    def __init__(self, window_s: float = 3600.0, max_keys: int = 100_000, *, clock: Clock | None = None) -> None:
        """Raises IllegalArgument."""
        self._window_s = arguments.timeout("window_s", window_s)
        self._max_keys = arguments.whole("max_keys", max_keys, 1)
        self._clock = clock or SystemClock()
        self._handled_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handled_at)

    async def contains(self, key: str) -> bool:
        """Return whether `key` was added within the window."""
        self._forget()
        return key in self._handled_at

    async def add(self, key: str) -> None:
        """Add `key`; if there are too many, the oldest is removed."""
        self._forget()
        self._handled_at[key] = self._clock.monotonic()
        self._handled_at.move_to_end(key)
        if len(self._handled_at) > self._max_keys:
            self._handled_at.popitem(last=False)

    def _forget(self) -> None:
        limit = self._clock.monotonic() - self._window_s
        while self._handled_at:
            key, handled_at = next(iter(self._handled_at.items()))
            if handled_at >= limit:
                return
            del self._handled_at[key]


def unique_key(message: Identified) -> str:
    """Return topic and message id, which a repeated send, a redelivery and a redrive share."""
    return f"{message.topic}/{message.message_id}"


class Deduplicator:
    """Filter that keeps a handler from handling a message twice::

        await consumer.run(Deduplicator().once(handler))

    An id counts as handled after `handler` has returned.  A handler that dies before gets its message again: delivery
    is at least once without duplicates in the window, not exactly once.  If two copies arrive at the same time, the
    second waits for the outcome of the first.  `key` returns the id of a message; `handled` stores the handled ids.
    """

    def __init__(
        self,
        handled: HandledKeys | None = None,
        *,
        key: Callable[[Identified], str] = unique_key,
    ) -> None:
        self._handled = handled if handled is not None else KeyWindow()
        self._key = arguments.function("key", key)
        self._running: dict[str, asyncio.Future[None]] = {}
        self.duplicates = 0  # number of messages left out

    def once(self, handler: Callable[[M], Awaitable[object] | object]) -> Callable[[M], Awaitable[None]]:
        """Return a handler that calls `handler` only for new messages; duplicates count as consumed."""
        arguments.function("handler", handler)

        async def handle_once(message: M) -> None:
            key = self._key(message)
            while (running := self._running.get(key)) is not None:
                await asyncio.wait([running])
            mine = self._running[key] = asyncio.get_running_loop().create_future()
            try:
                if await self._handled.contains(key):
                    self.duplicates += 1
                    return
                outcome = handler(message)
                if inspect.isawaitable(outcome):
                    await outcome
                await self._handled.add(key)
            finally:
                del self._running[key]
                mine.set_result(None)

        return handle_once
