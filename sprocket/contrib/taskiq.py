"""Broker for taskiq: tasks are messages of one topic, and workers are members of one group::

    from sprocket.contrib.taskiq import SprocketBroker

    broker = SprocketBroker("127.0.0.1:9876", topic="Tasks")

    @broker.task
    async def add(a: int, b: int) -> int: ...

A task is acknowledged when taskiq says so: after its result is saved, unless `--ack-type` or the label `ack_type` says
otherwise.  The tasks of a worker that dies before are delivered again, so a task may run twice.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consumer import Consumer
from sprocket.client.errors import BodyUnreadable, IllegalArgument
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.common.extras import missing_package

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.contrib.taskiq") or str(error), name=error.name) from error

__all__ = ["SprocketBroker"]

logger = logging.getLogger(__name__)

# The label of a task that is to run later, in seconds; also the name of taskiq's own brokers for it.
_DELAY = "delay"
_DEAD_LETTERS = -1


class SprocketBroker(AsyncBroker):
    """Broker of taskiq over a Sprocket or RocketMQ cluster.

    The label `delay` (seconds) runs a task later.  A worker that joins a new group begins with the oldest task.
    A task must end within `ConsumeSettings.consume_timeout_s` (15 minutes), or it is delivered again.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "",
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        client: ClientSettings | None = None,
        consume: ConsumeSettings | None = None,
    ) -> None:
        """Arguments are those of `Consumer`.  Results need `with_result_backend`.  Raises IllegalArgument."""
        super().__init__()
        self._topic = topic
        self._producer = Producer(f"{group}-producer", namesrv, client=client)
        # A new one for each start: a consumer that was closed stays closed.
        self._new_consumer = partial(
            Consumer, group, [topic], namesrv, consume_from=ConsumeFrom.FIRST, settings=consume, client=client
        )
        self._consumer: Consumer | None = None
        self._starting = asyncio.Lock()

    async def startup(self) -> None:
        """Connect to the cluster."""
        await self._producer.__aenter__()
        await super().startup()

    async def shutdown(self) -> None:
        """Close the connections.  Tasks that were received but not acknowledged are delivered to another worker."""
        try:
            await super().shutdown()
        finally:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                await consumer.close()
            await self._producer.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task.  Raises IllegalArgument if the label `delay` is no number, and as `Producer.send` does."""
        delay = _delay_of(message)
        sent = Message(self._topic, message.message, keys=[message.task_id], delay=delay or None)
        await self._producer.send(sent)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks until the broker is shut down.  Its consumer outlives this generator, for acknowledgements."""
        async with self._starting:
            if self._consumer is None:
                consumer = self._new_consumer()
                await consumer.__aenter__()
                self._consumer = consumer
        consumer = self._consumer
        async for message in consumer:
            try:
                body = message.body
            except BodyUnreadable as error:
                # No worker of this version will ever read it.
                keys, reason = message.keys, str(error)
                logger.error("event=task_unreadable topic=%s keys=%s reason=%r", self._topic, keys, reason)
                await consumer.nack(message, delay_level=_DEAD_LETTERS)
                continue
            yield AckableMessage(data=body, ack=partial(consumer.ack, message))


def _delay_of(message: BrokerMessage) -> float:
    """Return the delay of a task in seconds, 0 without one."""
    given = message.labels.get(_DELAY, 0)
    try:
        return float(given)
    except (TypeError, ValueError):
        raise IllegalArgument(f"label delay = {given!r} of task {message.task_name}: pass seconds") from None
