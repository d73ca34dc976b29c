"""Reads one queue for a channel: pops, keeps what is held invisible, acknowledges in batches.

Everything here runs in the loop of the connection, which is not the thread of the application.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.pop.pop_requests import MAX_POP_NUMS
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.pop.renewal import Renewal
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.contrib.kombu.bindings import QueueBindings
from sprocket.contrib.kombu.payload import ForeignMessage, Payload, decoded, is_expired

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
# A message that goes back is visible to others after this time.
GIVE_BACK_S: Final = 1.0
# Ids of acknowledged messages that are kept: they may come again, after a broker that lost an acknowledgement.
_MAX_SETTLED: Final = 4096
# They are kept for this many invisible times, so that a later reset of offsets delivers them again.
_SETTLED_TIMES: Final = 3


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for the application: the payload, and what settles it."""

    reader: "QueueReader"
    payload: Payload
    popped: PoppedMessage


@dataclass(frozen=True, slots=True)
class Limits:
    """`room` tells how many more messages the channel takes now, `least_room` for how many a pop is worth while.

    `ttl_ms` is the queue's `x-message-ttl`.
    """

    room: Callable[[], int]
    least_room: Callable[[], int]
    invisible_s: float
    ttl_ms: int | None


class QueueReader:
    """The consumer of one queue on one channel."""

    def __init__(
        self,
        bindings: QueueBindings,
        consumer: SimpleConsumer,
        limits: Limits,
        deliver: Callable[[Sequence[Delivery]], Sequence[Delivery]],
        clock: Clock,
    ) -> None:
        """`deliver` hands messages to the channel and returns those that it has no more room for."""
        self.bindings = bindings
        self._consumer = consumer
        self._limits = limits
        self._deliver = deliver
        self._clock = clock
        self._has_room = Wakeup()
        # By message id.  One that comes again, after its time ended while brokers were away, replaces the earlier one.
        self._held: dict[str, PoppedMessage] = {}
        # Monotonic s until which a message is known to be settled; without end while no broker has the acknowledgement.
        self._settled: dict[str, float] = {}
        self._done: list[PoppedMessage] = []
        self._acking: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        # What the application holds stays invisible as long as this process lives.
        self._renewal = Renewal(self._renew, clock.monotonic, invisible_s=limits.invisible_s, limit_s=math.inf)
        self._renewing: asyncio.Task[None] | None = None

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
            room = self._limits.room()
            if room < self._limits.least_room():
                await self._has_room.wait()
                continue
            try:
                if surplus := self._deliver(await self.take(room)):
                    # Also after a `stop`: what is held and was not delivered would be renewed without end.
                    await asyncio.shield(asyncio.gather(*(self.give_back(one.popped) for one in surplus)))
            except SprocketError as error:
                logger.warning("event=queue_not_read queue=%s reason=%r", self.bindings.queue, str(error))
                await self._has_room.wait(_RETRY_S)

    async def take(self, count: int, wait_s: float | None = None) -> list[Delivery]:
        """Return up to `count` messages, waiting for them `wait_s`, or as long as brokers hold a pop by default.

        What is not for this queue, has expired or is no message of kombu is settled here.  Raises as
        `SimpleConsumer.receive`.
        """
        popped = await self._consumer.receive(
            min(count, MAX_POP_NUMS), invisible=self._limits.invisible_s, wait_s=wait_s
        )
        readable: list[tuple[PoppedMessage, Payload]] = []
        foreign = []
        for one in popped:
            try:
                readable.append((one, decoded(one.body)))
            except (ForeignMessage, SprocketError) as error:
                foreign.append(self._dead_letter(one, str(error)))
        if foreign:
            await asyncio.gather(*foreign)
        # Nothing is held before the last wait: an interrupt there would leave messages that nobody gets or gives back.
        found = [delivery for one in readable if (delivery := self._delivery(*one)) is not None]
        if self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renewal.run())
        return found

    async def _dead_letter(self, popped: PoppedMessage, reason: str) -> None:
        try:
            await self._consumer.dead_letter(popped, reason)
        except SprocketError as error:
            # It comes again after its invisible time.
            logger.info("event=not_dead_lettered queue=%s reason=%r", self.bindings.queue, str(error))

    def _delivery(self, popped: PoppedMessage, payload: Payload) -> Delivery | None:
        message_id = popped.message.message_id
        earlier = self._held.get(message_id)
        if self._settled.get(message_id, -math.inf) > self._clock.monotonic():
            self._settle(popped)
            return None
        if earlier is not None:
            self._hold(popped)
            self._settle(earlier)
            return None
        info: dict[str, Any] = payload["properties"]["delivery_info"]
        wanted = self.bindings.wants(info["exchange"] or "", info.get("routing_key") or "")
        if not wanted or is_expired(
            payload, popped.message.born_timestamp_ms, self._clock.wall_ms(), self._limits.ttl_ms
        ):
            self._settle(popped)
            return None
        if popped.reconsume_times > 0:
            info["redelivered"] = True
        self._hold(popped)
        return Delivery(self, payload, popped)

    def _hold(self, popped: PoppedMessage) -> None:
        self._held[popped.message.message_id] = popped
        self._settled.pop(popped.message.message_id, None)
        self._renewal.hold([popped])

    # Settling

    def ack(self, popped: PoppedMessage) -> None:
        """Count `popped` as consumed, with all others of this turn of the loop."""
        message_id = popped.message.message_id
        held = self._held.pop(message_id, None)
        if held is not None:
            if len(self._settled) == _MAX_SETTLED:
                del self._settled[next(iter(self._settled))]
            self._settled[message_id] = math.inf
            self._settle(held)
        self._has_room.set()

    def _settle(self, popped: PoppedMessage) -> None:
        self._done.append(popped)
        if self._acking is None:
            self._acking = asyncio.ensure_future(self._ack_all())

    async def _ack_all(self) -> None:
        while self._done:
            done, self._done = self._done, []
            for popped in done:
                await self._renewal.release(popped)
            try:
                await self._consumer.ack_all(done)
            except SprocketError as error:
                # They come again after their invisible time, and are acknowledged then.
                logger.info("event=not_acknowledged queue=%s reason=%r", self.bindings.queue, str(error))
            else:
                until = self._clock.monotonic() + _SETTLED_TIMES * self._limits.invisible_s
                for popped in done:
                    if popped.message.message_id in self._settled:
                        self._settled[popped.message.message_id] = until
        self._acking = None

    async def give_back(self, popped: PoppedMessage) -> None:
        """Make `popped` visible to others again, as a message that was delivered before."""
        held = self._held.pop(popped.message.message_id, None)
        if held is not None:
            await self._renewal.release(held)
            try:
                await self._consumer.nack(held, GIVE_BACK_S)
            except SprocketError as error:
                logger.info("event=not_given_back queue=%s reason=%r", self.bindings.queue, str(error))
        self._has_room.set()

    async def _renew(self, popped: PoppedMessage) -> None:
        await self._consumer.extend(popped, self._limits.invisible_s)

    async def close(self) -> None:
        """Give back all that is held, send outstanding acknowledgements, and close the consumer."""
        await self.stop()
        if self._renewing is not None:
            self._renewing.cancel()
        if self._acking is not None:
            await self._acking
        await asyncio.gather(*(self.give_back(popped) for popped in list(self._held.values())))
        await self._consumer.close()
