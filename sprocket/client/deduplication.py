"""Handling a message once although it comes twice.

The protocol gives a message an id when it is first sent (UNIQ_KEY), and keeps it through retries of the producer,
redelivery, and the dead-letter topic and back.  It has no place where a broker would refuse a second one: stock
brokers and clients know nothing of it.  So repetition is found where it does harm, at the handler: an id that was
handled is not handled again while it is in the window.
"""

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sprocket.client import arguments
from sprocket.common.clock import Clock, SystemClock


class Identified(Protocol):
    """A message, however it was received."""

    @property
    def topic(self) -> str: ...

    @property
    def message_id(self) -> str: ...


M = TypeVar("M", bound=Identified)


class HandledKeys(Protocol):
    """Which ids were handled.  One that members of a group share, such as a table, holds across them and restarts."""

    async def contains(self, key: str, /) -> bool:
        """Whether `key` was handled.  What it raises, the handler's message is given back for."""
        ...

    async def add(self, key: str, /) -> None:
        """`key` was handled.  If this fails, the message comes, and is handled, again."""
        ...


class KeyWindow:
    """The ids of the last `window_s`, `max_keys` at most, in this process alone."""

    def __init__(self, window_s: float = 3600.0, max_keys: int = 100_000, *, clock: Clock | None = None) -> None:
        """Raises IllegalArgument."""
        self._window_s = arguments.timeout("window_s", window_s)
        self._max_keys = arguments.whole("max_keys", max_keys, 1)
        self._clock = clock or SystemClock()
        self._handled_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handled_at)

    async def contains(self, key: str) -> bool:
        """Whether `key` was added within the window."""
        self._forget()
        return key in self._handled_at

    async def add(self, key: str) -> None:
        """Keep `key`; the oldest goes when there are too many."""
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
    """Topic and message id: what a repeated send, a redelivery and a redrive have in common."""
    return f"{message.topic}/{message.message_id}"


class Deduplicator:
    """Keeps a handler from handling a message twice::

        await consumer.run(Deduplicator().once(handler))

    The id counts as handled when `handler` has returned, so a handler that dies in the middle sees its message
    again: it is at least once with repetitions left out, not exactly once.  Of two that come at the same time, the
    second waits for what becomes of the first.  `key` says what is one message; `handled` where that is kept.
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
        self.duplicates = 0  # how many were left out

    def once(self, handler: Callable[[M], Awaitable[object] | object]) -> Callable[[M], Awaitable[None]]:
        """`handler` for messages that were not handled before; others count as consumed."""
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
