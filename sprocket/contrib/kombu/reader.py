"""Reads one queue for a channel: pops, and acknowledges in batches.

Everything here runs in the loop of the connection, which is not the thread of the application.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.pop.pop_requests import MAX_POP_NUMS
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.contrib.kombu.bindings import QueueBindings
from sprocket.contrib.kombu.payload import ForeignMessage, Payload, decoded, is_expired

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
# What was read ahead goes back when nothing was settled for this time: other workers may be free.  A fast worker that
# only stands still for a moment keeps it: what goes back comes again some 3 s later.
_AHEAD_S: Final = 1.0
# A message that goes back is visible to others after this time.
GIVE_BACK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for the application: the payload, and what settles it."""

    reader: "QueueReader"
    payload: Payload
    popped: PoppedMessage


class Receiver(Protocol):
    """Who gets what a reader takes."""

    def room(self) -> int:
        """Return how many more messages it takes now; less than 0 if too many wait."""

    def ahead(self) -> int:
        """Return how many more may wait, since there will be room for them in a moment."""

    def min_room(self, ahead: int) -> int:
        """Return for how many messages a pop is worth while when `ahead` may wait beyond the room."""

    def deliver(self, found: Sequence[Delivery]) -> None:
        """Take messages, also those beyond the room."""

    def surplus(self, reader: "QueueReader") -> Sequence[Delivery]:
        """Return the messages of `reader` that still wait and have no room; they are not delivered any more."""


class QueueReader:
    """The consumer of one queue on one channel."""

    def __init__(
        self,
        bindings: QueueBindings,
        consumer: SimpleConsumer,
        receiver: Receiver,
        clock: Clock,
        ttl_ms: int | None = None,
    ) -> None:
        """`ttl_ms` is the queue's `x-message-ttl`."""
        self.bindings = bindings
        self._consumer = consumer
        self._receiver = receiver
        self._clock = clock
        self._ttl_ms = ttl_ms
        # Whether the last pop was answered with all that it asked for.
        self._has_more = False
        self._has_room = Wakeup()
        self._held: set[PoppedMessage] = set()
        self._done: list[PoppedMessage] = []
        self._acking: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._dead_lettering: set[asyncio.Task[None]] = set()

    # Taking

    def start(self) -> None:
        """Begin to read; a second call does nothing."""
        if self._loop is None:
            self._loop = asyncio.ensure_future(self._read())

    async def stop(self) -> None:
        """Read no more; what was delivered may still be settled."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)

    def room_changed(self) -> None:
        """Tell that the channel may take more messages."""
        self._has_room.set()

    async def _read(self) -> None:
        while True:
            room = self._receiver.room()
            # A pop that waits for messages would bring what was read ahead when nobody needs it any more.
            ahead = self._receiver.ahead() if self._has_more else 0
            if room + ahead < self._receiver.min_room(ahead):
                if not await self._has_room.wait(_AHEAD_S if room < 0 else None):
                    self._has_more = False
                    await self._return_all(self._receiver.surplus(self))
                continue
            count = min(room + ahead, MAX_POP_NUMS)
            try:
                found = await self.take(count, wait_s=0.0 if ahead else None)
                # All of them, although the room may be less by now: what has none in a while goes back above.
                self._receiver.deliver(found)
                self._has_more = len(found) == count
            except SprocketError as error:
                logger.warning("event=queue_not_read queue=%s reason=%r", self.bindings.queue, str(error))
                await self._has_room.wait(_RETRY_S)

    async def _return_all(self, surplus: Sequence[Delivery]) -> None:
        if surplus:
            # Also after a `stop`: what is held and was not delivered would be renewed without end.
            await asyncio.shield(asyncio.gather(*(self.give_back(one.popped) for one in surplus)))

    async def take(self, count: int, wait_s: float | None = None) -> list[Delivery]:
        """Return up to `count` messages, waiting for them `wait_s`, or as long as brokers hold a pop by default.

        What is not for this queue, has expired or is no message of kombu is settled here.  Raises as
        `SimpleConsumer.receive`.
        """
        # What the application holds stays invisible as long as this process lives.
        popped = await self._consumer.receive(count, wait_s=wait_s, renew=True)
        # No wait from here on: an interrupt there would leave messages that nobody gets or gives back.
        return [delivery for one in popped if (delivery := self._delivery(one)) is not None]

    async def _dead_letter(self, popped: PoppedMessage, reason: str) -> None:
        try:
            await self._consumer.dead_letter(popped, reason)
        except SprocketError as error:
            logger.info("event=not_dead_lettered queue=%s reason=%r", self.bindings.queue, str(error))
            await self._reject(popped)

    def _delivery(self, popped: PoppedMessage) -> Delivery | None:
        try:
            payload = decoded(popped.body)
        except (ForeignMessage, SprocketError) as error:
            task = asyncio.ensure_future(self._dead_letter(popped, str(error)))
            self._dead_lettering.add(task)
            task.add_done_callback(self._dead_lettering.discard)
            return None
        info: dict[str, Any] = payload["properties"]["delivery_info"]
        wanted = self.bindings.wants(info["exchange"] or "", info.get("routing_key") or "")
        if not wanted or is_expired(payload, popped.message.born_timestamp_ms, self._clock.wall_ms(), self._ttl_ms):
            self._settle(popped)
            return None
        if popped.reconsume_times > 0:
            info["redelivered"] = True
        self._held.add(popped)
        return Delivery(self, payload, popped)

    # Settling

    def ack(self, popped: PoppedMessage) -> None:
        """Count `popped` as consumed, with all others of this turn of the loop."""
        if popped in self._held:
            self._held.discard(popped)
            self._settle(popped)
        self._has_room.set()

    def _settle(self, popped: PoppedMessage) -> None:
        self._done.append(popped)
        if self._acking is None:
            self._acking = asyncio.ensure_future(self._ack_all())

    async def _ack_all(self) -> None:
        while self._done:
            done, self._done = self._done, []
            try:
                await self._consumer.ack_all(done)
            except SprocketError as error:
                # They come again after their invisible time, and are acknowledged then.
                logger.info("event=not_acknowledged queue=%s reason=%r", self.bindings.queue, str(error))
        self._acking = None

    async def give_back(self, popped: PoppedMessage) -> None:
        """Make `popped` visible to others again, as a message that was delivered before."""
        if popped in self._held:
            self._held.discard(popped)
            await self._reject(popped)
        self._has_room.set()

    async def _reject(self, popped: PoppedMessage) -> None:
        try:
            await self._consumer.nack(popped, GIVE_BACK_S)
        except SprocketError as error:
            logger.info("event=not_given_back queue=%s reason=%r", self.bindings.queue, str(error))

    async def close(self) -> None:
        """Give back all that is held, send outstanding acknowledgements, and close the consumer."""
        await self.stop()
        if self._acking is not None:
            await self._acking
        await asyncio.gather(*self._dead_lettering, *(self.give_back(popped) for popped in list(self._held)))
        await self._consumer.close()
