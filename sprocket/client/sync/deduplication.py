"""The blocking form of `sprocket.Deduplicator`."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar, cast

from sprocket.client import arguments
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.deduplication import deduplicator as aio
from sprocket.client.deduplication.claims import ClaimStore
from sprocket.client.errors import ClientClosed
from sprocket.common.clock import Clock

M = TypeVar("M")


class BlockingHandledKeys(Protocol):
    """`HandledKeys` with blocking methods, which are called in threads."""

    def contains(self, key: str, /) -> bool:
        """Return whether `key` was handled.  If it raises, the message is redelivered."""

    def add(self, key: str, /) -> None:
        """Record that `key` was handled.  If this fails, the message is redelivered and handled again."""


class Deduplicator:
    """Filter that keeps a handler from handling a message twice, as `sprocket.Deduplicator`::

        with sync.Deduplicator(SqliteClaims("handled.db", group="billing")) as deduplicator:
            consumer.run(deduplicator.once(handler))

    The store is one of those of `sprocket.Deduplicator`, or an object with blocking `contains` and `add`.  The end of
    `with` closes it.  Without a store, inside the `with` of a client, the deduplicator needs no `with` of its own.
    """

    def __init__(
        self,
        handled: ClaimStore | aio.HandledKeys | BlockingHandledKeys | None = None,
        *,
        key: Callable[[aio.Identified], str] = aio.unique_key,
        clock: Clock | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        self._handled = handled
        self._aio = aio.Deduplicator(_awaitable(handled), key=key, clock=clock)
        self._is_open = False

    @property
    def duplicates(self) -> int:
        """Number of messages left out."""
        return self._aio.duplicates

    @property
    def lost_claims(self) -> int:
        """Number of handled messages that another member claimed meanwhile."""
        return self._aio.lost_claims

    def __enter__(self) -> Self:
        shared_loop.acquire()
        self._is_open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            close = getattr(self._handled, "close", None)
            if inspect.iscoroutinefunction(close):
                shared_loop.call(close())
            elif close is not None:
                close()
        finally:
            shared_loop.release()

    def once(self, handler: Callable[[M], object]) -> Callable[[M], None]:
        """Return a function that calls `handler`, in the thread of its caller, only for new messages.

        Duplicates count as consumed.  It raises what `handler` raises, and the store's error if the store cannot be
        reached for a lease; then the message is redelivered.  While `handler` runs, its claim is renewed.
        """
        arguments.handler("handler", handler, "a message")

        def handle_once(message: M) -> None:
            _Handling(handler, message).run(self._aio)

        return handle_once


class _HandlerFailedError(Exception):
    """Tells the loop that the handler raised something; the thread raises it itself."""


class _Handling:
    """Work with one message: the event loop has the claim, the calling thread runs the handler."""

    def __init__(self, handler: Callable[[Any], object], message: object) -> None:
        self._handler = handler
        self._message = message
        self._is_new: Future[bool] = Future()  # for the thread: whether to run the handler
        self._is_handled: Future[bool] = Future()  # for the loop: whether the handler returned
        self._is_handled.set_running_or_notify_cancel()  # a loop that ends must not cancel it under the thread

    def run(self, deduplicator: aio.Deduplicator) -> None:
        settled = shared_loop.submit(self._in_loop(deduplicator))
        settled.add_done_callback(self._ended)
        try:
            if self._is_new.result():
                self._call(settled)
            _wait(settled)
        except BaseException:
            # An interrupt of this thread; without effect if the loop is done.
            settled.cancel()
            raise

    async def _in_loop(self, deduplicator: aio.Deduplicator) -> None:
        await deduplicator.once(self._hand_over)(cast("aio.Identified", self._message))

    async def _hand_over(self, _: object) -> None:
        self._is_new.set_result(True)
        if not await asyncio.wrap_future(self._is_handled):
            raise _HandlerFailedError

    def _ended(self, _: "Future[None]") -> None:
        """Wake the thread if the handler is not to run: a duplicate, an error of the store, a closed client."""
        if not self._is_new.done():
            self._is_new.set_result(False)

    def _call(self, settled: "Future[None]") -> None:
        try:
            self._handler(self._message)
        except BaseException:
            # What it raised does not go through the loop, which an interrupt would end.
            self._is_handled.set_result(False)
            with suppress(_HandlerFailedError, ClientClosed):
                _wait(settled)
            raise
        self._is_handled.set_result(True)


def _wait(settled: "Future[None]") -> None:
    try:
        settled.result()
    except CancelledError:
        raise ClientClosed("the client was closed during the call") from None


class _InThreads:
    """`HandledKeys` over blocking methods."""

    def __init__(self, handled: BlockingHandledKeys) -> None:
        self._handled = handled

    async def contains(self, key: str) -> bool:
        return await asyncio.to_thread(self._handled.contains, key)

    async def add(self, key: str) -> None:
        await asyncio.to_thread(self._handled.add, key)


def _awaitable(handled: object) -> Any:
    """Return `handled` with methods that may be awaited."""
    contains: Callable[..., Awaitable[bool] | bool] | None = getattr(handled, "contains", None)
    if contains is None or isinstance(handled, ClaimStore) or inspect.iscoroutinefunction(contains):
        return handled
    return _InThreads(cast("BlockingHandledKeys", handled))
