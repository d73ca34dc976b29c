"""Renewal: popped messages stay invisible while an application works on them."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.pop.popped_message import Identity, PoppedMessage, delivery_of, exchange_handles, identity
from sprocket.common.errors import SprocketError

logger = logging.getLogger(__name__)

# A message is renewed when a third of its invisible time is left.
_RENEW_AT = 3
_RETRY_S = 0.5


class _Held:
    __slots__ = ("due_at", "ends_at", "popped", "renewing")

    def __init__(self, popped: PoppedMessage, due_at: float, ends_at: float) -> None:
        self.popped = popped
        self.due_at = due_at
        self.ends_at = ends_at
        self.renewing: asyncio.Task[None] | None = None


class Renewal:
    """Messages in work; each is renewed until it is released or `limit_s` is over.

    Times are monotonic s.  `renew(message)` asks the broker; it raises SprocketError when that fails.
    """

    def __init__(
        self,
        renew: Callable[[PoppedMessage], Awaitable[None]],
        monotonic: Callable[[], float],
        *,
        invisible_s: float,
        limit_s: float,
    ) -> None:
        self._renew = renew
        self._monotonic = monotonic
        self._margin_s = invisible_s / _RENEW_AT
        self._limit_s = limit_s
        self._held: dict[PoppedMessage, _Held] = {}
        self._by_identity: dict[Identity, PoppedMessage] = {}
        self._due = Wakeup()
        self._next_due = math.inf  # that `run` waits for

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, messages: Iterable[PoppedMessage]) -> None:
        """Renew `messages` from now on."""
        now = self._monotonic()
        for popped in messages:
            held = self._held[popped] = _Held(popped, popped.invisible_until - self._margin_s, now + self._limit_s)
            self._by_identity[identity(popped)] = popped
            if held.due_at < self._next_due:
                self._due.set()

    def has_earlier(self, later: PoppedMessage) -> bool:
        """Return whether an earlier delivery of the message of `later` is in work."""
        earlier = self._by_identity.get(identity(later))
        return earlier is not None and delivery_of(later).repeats(delivery_of(earlier))

    async def take_over(self, later: PoppedMessage) -> bool:
        """Let the earlier delivery in work have the handle of `later`, which gets the earlier handle.

        Return False if the message is not in work any more.
        """
        earlier = self._by_identity.get(identity(later))
        held = None if earlier is None else self._held[earlier]
        while held is not None and held.renewing is not None:
            await asyncio.wait([held.renewing])
        if held is None or self._held.get(held.popped) is not held:
            return False
        exchange_handles(held.popped, later)
        held.due_at = held.popped.invisible_until - self._margin_s
        self._due.set()
        return True

    async def change(self, popped: PoppedMessage, change: Callable[[], Awaitable[None]]) -> None:
        """Call `change`, which gives `popped` a new handle.  Raises what `change` raises.

        Nothing else uses the handle meanwhile: renewals, `take_over` and `release` wait, since a broker knows only the
        last handle.
        """
        while (held := self._held.get(popped)) is not None and held.renewing is not None:
            await asyncio.wait([held.renewing])
        if held is None:
            await change()
            return
        task = held.renewing = asyncio.ensure_future(change())
        try:
            await task
            held.due_at = popped.invisible_until - self._margin_s
        finally:
            held.renewing = None
            self._due.set()

    async def release(self, popped: PoppedMessage) -> None:
        """Stop renewing `popped`; wait for a running renewal, so that its handle is the newest."""
        held = self._held.get(popped)
        if held is None:
            return
        self.forget(popped)
        if held.renewing is not None:
            await asyncio.wait([held.renewing])

    def forget(self, popped: PoppedMessage) -> None:
        """Stop renewing `popped`; its next delivery is a new message.  For a message that nobody settles."""
        if self._held.pop(popped, None) is None:
            return
        key = identity(popped)
        if self._by_identity.get(key) is popped:
            del self._by_identity[key]

    def held(self) -> list[PoppedMessage]:
        """Return the messages in work."""
        return list(self._held)

    def forget_all(self) -> None:
        """Stop all renewals."""
        self._held.clear()
        self._by_identity.clear()

    async def run(self) -> None:
        """Renew due messages forever."""
        while True:
            self._next_due = next_due = min(
                (held.due_at for held in self._held.values() if held.renewing is None), default=math.inf
            )
            await self._due.wait(None if next_due == math.inf else max(next_due - self._monotonic(), 0.01))
            now = self._monotonic()
            for held in list(self._held.values()):
                if held.due_at > now or held.renewing is not None:
                    continue
                if now >= held.ends_at:
                    logger.warning("event=renewal_ended message=%r held_s=%.0f", held.popped, self._limit_s)
                    self.forget(held.popped)
                else:
                    # All due messages at once: they share the connections.
                    held.due_at = now + max(_RETRY_S, self._margin_s)
                    held.renewing = asyncio.get_running_loop().create_task(self._renew_one(held))

    async def _renew_one(self, held: _Held) -> None:
        try:
            await self._renew(held.popped)
        except SprocketError as error:
            now = self._monotonic()
            is_lost = now >= held.popped.invisible_until
            logger.warning("event=renewal_failed message=%r is_lost=%s reason=%r", held.popped, is_lost, str(error))
            # A lost message is redelivered, perhaps elsewhere: more requests cannot change that.  It stays in work, so
            # that its next delivery to this consumer is recognised.
            held.due_at = held.ends_at if is_lost else now + _RETRY_S
        else:
            held.due_at = held.popped.invisible_until - self._margin_s
        finally:
            held.renewing = None
            self._due.set()
