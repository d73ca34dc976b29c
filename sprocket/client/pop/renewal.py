"""Renewal: popped messages stay invisible while an application works on them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.pop.popped_message import PoppedMessage
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
        self._due = Wakeup()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, messages: Iterable[PoppedMessage]) -> None:
        """Renew `messages` from now on."""
        now = self._monotonic()
        for popped in messages:
            self._held[popped] = _Held(popped, popped.invisible_until - self._margin_s, now + self._limit_s)
        self._due.set()

    async def release(self, popped: PoppedMessage) -> None:
        """Stop renewing `popped`; wait for a running renewal, so that its handle is the newest."""
        held = self._held.pop(popped, None)
        if held is not None and held.renewing is not None:
            await asyncio.wait([held.renewing])

    def held(self) -> list[PoppedMessage]:
        """Return the messages that are renewed."""
        return list(self._held)

    def forget_all(self) -> list[PoppedMessage]:
        """Stop all renewals.  Return the messages that were held."""
        held, self._held = list(self._held), {}
        return held

    async def run(self) -> None:
        """Renew due messages forever."""
        while True:
            next_due = min((held.due_at for held in self._held.values()), default=None)
            await self._due.wait(None if next_due is None else max(next_due - self._monotonic(), 0.01))
            now = self._monotonic()
            for held in list(self._held.values()):
                if held.due_at > now or held.renewing is not None:
                    continue
                if now >= held.ends_at:
                    logger.warning("event=renewal_ended message=%r held_s=%.0f", held.popped, self._limit_s)
                    del self._held[held.popped]
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
            if is_lost:
                # The message is redelivered, perhaps elsewhere: more requests cannot change that.
                self._held.pop(held.popped, None)
            held.due_at = now + _RETRY_S
        else:
            held.due_at = held.popped.invisible_until - self._margin_s
        finally:
            held.renewing = None
            self._due.set()
