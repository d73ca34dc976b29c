"""Filter in front of a handler, which handles a message once although it is delivered twice.

A message gets an id when it is first sent (UNIQ_KEY).  The id stays through retries of the producer, redelivery, the
dead-letter topic and a redrive.  The protocol lets no broker refuse a duplicate, so duplicates are detected where they
do harm, at the handler: an id in the window is not handled again.
"""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol, TypeVar, runtime_checkable

from sprocket.client import arguments
from sprocket.client.deduplication.claims import DEFAULT_LEASE_S, Claim, ClaimStore
from sprocket.client.deduplication.key_window import KeyWindow
from sprocket.client.errors import IllegalArgument
from sprocket.common.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 0.02
_MAX_WAIT_S: Final = 1.0
_RENEWALS_PER_LEASE: Final = 3


class Identified(Protocol):
    """Message of any consumer."""

    @property
    def topic(self) -> str: ...

    @property
    def message_id(self) -> str: ...


M = TypeVar("M", bound=Identified)
T = TypeVar("T")


@runtime_checkable
class HandledKeys(Protocol):
    """Record of the handled ids without claims: two members that get copies at the same time both handle them."""

    async def contains(self, key: str, /) -> bool:
        """Return whether `key` was handled.  If it raises, the message is redelivered."""

    async def add(self, key: str, /) -> None:
        """Record that `key` was handled.  If this fails, the message is redelivered and handled again."""


class _WithoutClaims:
    """`ClaimStore` over `HandledKeys`."""

    lease_s = DEFAULT_LEASE_S

    def __init__(self, handled: HandledKeys) -> None:
        self._handled = handled

    async def claim(self, key: str, owner: str) -> Claim:
        return Claim.HANDLED if await self._handled.contains(key) else Claim.MINE

    async def commit(self, key: str, owner: str) -> bool:
        await self._handled.add(key)
        return True

    async def release(self, key: str, owner: str) -> None:
        pass


def unique_key(message: Identified) -> str:
    """Return topic and message id, which a repeated send, a redelivery and a redrive share."""
    return f"{message.topic}/{message.message_id}"


class Deduplicator:
    """Filter that keeps a handler from handling a message twice::

        await consumer.run(Deduplicator().once(handler))

    A message is claimed, handled, then committed.  A copy that arrives meanwhile, at any member that shares the store,
    waits for the outcome.  If the handler raises, the claim is released.  If its process dies, the claim ends with its
    lease, and the message is handled again: after a commit it is not.  While the handler runs, the claim is renewed;
    a function that blocks the event loop for longer than the lease loses it.

    `key` returns the id of a message.  `handled` is a `ClaimStore` (`KeyWindow`, `SqliteClaims`, `RedisClaims`,
    `PostgresClaims`, your own) or an object with `contains` and `add`.
    """

    def __init__(
        self,
        handled: ClaimStore | HandledKeys | None = None,
        *,
        key: Callable[[Identified], str] = unique_key,
        clock: Clock | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        self._claims = _claims_of(handled if handled is not None else KeyWindow())
        self._key = arguments.function("key", key)
        self._clock = clock or SystemClock()
        self._running: dict[str, asyncio.Future[None]] = {}
        self._is_down = False  # whether the last request to the store failed
        self.duplicates = 0  # number of messages left out
        self.lost_claims = 0  # number of handled messages that another member claimed meanwhile

    def once(self, handler: Callable[[M], Awaitable[object] | object]) -> Callable[[M], Awaitable[None]]:
        """Return a handler that calls `handler` only for new messages; duplicates count as consumed.

        It raises the store's error if the store cannot be reached for a lease.  The message is then redelivered.
        """
        arguments.handler("handler", handler, "a message")

        async def handle_once(message: M) -> None:
            key = self._key(message)
            while (running := self._running.get(key)) is not None:
                await asyncio.wait([running])
            mine = self._running[key] = asyncio.get_running_loop().create_future()
            try:
                # No two deliveries share an owner: a claim of an earlier attempt is not this one's.
                owner = secrets.token_hex(16)
                if not await self._is_claimed(key, owner):
                    self.duplicates += 1
                    return
                await self._handle(key, owner, handler, message)
                await self._commit(key, owner)
            finally:
                del self._running[key]
                mine.set_result(None)

        return handle_once

    async def _is_claimed(self, key: str, owner: str) -> bool:
        """Claim `key`; return False if it is handled.  Wait while another member holds it."""
        for wait_s in _waits_s():
            outcome = await self._insist(lambda: self._claims.claim(key, owner))
            if outcome is not Claim.HELD:
                return outcome is Claim.MINE
            await asyncio.sleep(wait_s)
        raise AssertionError("the waits never end")

    async def _handle(
        self, key: str, owner: str, handler: Callable[[M], Awaitable[object] | object], message: M
    ) -> None:
        renewal = asyncio.create_task(self._renew(key, owner))
        try:
            outcome = handler(message)
            if inspect.isawaitable(outcome):
                await outcome
        except BaseException:
            await _ended(renewal)
            await self._release(key, owner)
            raise
        await _ended(renewal)

    async def _renew(self, key: str, owner: str) -> None:
        while True:
            await asyncio.sleep(self._claims.lease_s / _RENEWALS_PER_LEASE)
            try:
                outcome = await self._claims.claim(key, owner)
            except Exception as error:
                logger.warning("event=claim_not_renewed key=%r reason=%r", key, str(error))
                continue
            if outcome is not Claim.MINE:
                logger.warning("event=claim_lost key=%r lease_s=%g", key, self._claims.lease_s)
                return

    async def _release(self, key: str, owner: str) -> None:
        try:
            await self._claims.release(key, owner)
        except Exception as error:
            # The lease ends anyway, and the handler's own error matters more.
            logger.warning("event=claim_not_released key=%r reason=%r", key, str(error))

    async def _commit(self, key: str, owner: str) -> None:
        if not await self._insist(lambda: self._claims.commit(key, owner)):
            self.lost_claims += 1
            logger.warning("event=claim_lost key=%r lease_s=%g", key, self._claims.lease_s)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store; while it cannot be reached, ask again for one lease, then raise its error.

        Without this, a claim whose answer was lost would delay the message by a lease, and a commit whose answer was
        lost would let it be handled again.
        """
        until = self._clock.monotonic() + self._claims.lease_s
        for wait_s in _waits_s():
            try:
                answer = await ask()
            except Exception as error:
                if self._clock.monotonic() + wait_s >= until:
                    raise
                if not self._is_down:
                    self._is_down = True
                    logger.warning("event=claim_store_failed reason=%r", str(error))
                await asyncio.sleep(wait_s)
            else:
                if self._is_down:
                    self._is_down = False
                    logger.info("event=claim_store_back")
                return answer
        raise AssertionError("the waits never end")


def _waits_s() -> Iterator[float]:
    """Yield growing waits, s, without an end."""
    wait_s = _FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, _MAX_WAIT_S)


def _claims_of(handled: ClaimStore | HandledKeys) -> ClaimStore:
    if isinstance(handled, ClaimStore):
        return handled
    if isinstance(handled, HandledKeys):
        return _WithoutClaims(handled)
    raise IllegalArgument(f"handled is {handled!r}; pass a ClaimStore, or an object with contains and add")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
