"""Broker for Dramatiq: a queue is a topic and a consumer group that pops::

    import dramatiq
    from sprocket.contrib.dramatiq import SprocketBroker

    dramatiq.set_broker(SprocketBroker("127.0.0.1:9876"))

    @dramatiq.actor
    def add(a: int, b: int) -> None: ...

A message is acknowledged after its actor returned.  Those of a worker that dies are delivered to another one after
`PopSettings.pop_invisible_time_s`, which a worker renews as long as it lives.  Brokers keep a message until its delay
is over, so there are no delay queues.  What Dramatiq gives up after its retries goes to the dead letters of the group.
"""

from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace

from sprocket.client.connect import connect
from sprocket.client.connection.client_instance import ClientSettings, settings_of
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.message import Message
from sprocket.client.pop.pop_requests import MAX_POP_NUMS
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.errors import SprocketError
from sprocket.common.extras import missing_package
from sprocket.contrib.blocking_connection import BlockingConnection
from sprocket.contrib.pops import task_pops

try:
    import dramatiq
    from dramatiq.broker import Broker, Consumer, MessageProxy
    from dramatiq.errors import ConnectionClosed, DecodeError, QueueNotFound
    from dramatiq.middleware import Middleware
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.contrib.dramatiq") or str(error), name=error.name) from error

__all__ = ["SprocketBroker"]


class SprocketBroker(Broker):
    """Broker of Dramatiq over a Sprocket or RocketMQ 5 cluster."""

    def __init__(
        self,
        namesrv: str | Sequence[str] = "",
        *,
        prefix: str = "dramatiq-",
        topic_queue_nums: int = 8,
        settings: PopSettings | None = None,
        client: ClientSettings | None = None,
        middleware: list[Middleware] | None = None,
    ) -> None:
        """The topic and the group of a queue are `prefix` and its name; a topic that is missing gets `topic_queue_nums`
        queues on all masters.  `namesrv` and `client` are those of `connect`.  Raises IllegalArgument.
        """
        super().__init__(middleware=middleware)
        self._prefix = prefix
        self._settings = task_pops(settings or PopSettings())
        known = settings_of(namesrv, client)
        self._connection = BlockingConnection(lambda: connect(client=known), topic_queue_nums)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def declare_queue(self, queue_name: str) -> None:
        """Make a queue known to this process."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: "dramatiq.Message[object]", *, delay: int | None = None) -> "dramatiq.Message[object]":
        """Send a message, to be delivered after `delay` ms; returns when a broker has stored it."""
        self.emit_before("enqueue", message, delay)
        sent = Message(
            self._prefix + message.queue_name,
            message.encode(),
            keys=[message.message_id],
            tags=message.actor_name,
            delay=delay / 1000 if delay else None,
        )
        try:
            shared_loop.call(self._connection.open(sent.topic).producer().send(sent))
        except SprocketError as error:
            raise ConnectionClosed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> "SprocketConsumer":
        """Return an iterator over a queue: a message, or None after `timeout` ms.  Raises QueueNotFound."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        name = self._prefix + queue_name
        settings = replace(self._settings, pop_threshold_for_queue=prefetch, pop_batch_nums=min(prefetch, MAX_POP_NUMS))
        try:
            mq = self._connection.open(name)
        except SprocketError as error:
            raise ConnectionClosed(error) from error
        consumer = mq.simple_consumer(name, name, consume_from=ConsumeFrom.FIRST, settings=settings)
        return SprocketConsumer(consumer, timeout / 1000)


class Popped(MessageProxy):
    """A message of Dramatiq with the popped message that settles it."""

    def __init__(self, popped: PoppedMessage) -> None:
        """Raises DecodeError."""
        super().__init__(dramatiq.Message.decode(popped.body))
        self.popped = popped


class SprocketConsumer(Consumer):
    """Iterator over one queue, for one thread."""

    def __init__(self, consumer: SimpleConsumer, timeout_s: float) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._messages: AsyncIterator[PoppedMessage] = aiter(consumer)
        # Outlives a call that found nothing in time.
        self._coming: Future[PoppedMessage] | None = None

    def __next__(self) -> Popped | None:
        if self._coming is None:
            self._coming = shared_loop.submit(_next(self._messages))
        try:
            popped = self._coming.result(self._timeout_s)
        except NotYet:
            return None
        except SprocketError as error:
            self._coming = None
            raise ConnectionClosed(error) from error
        self._coming = None
        try:
            return Popped(popped)
        except DecodeError:
            # No worker will ever read it.
            self._settle(self._consumer.dead_letter(popped, "not a message of Dramatiq"))
            return None

    def ack(self, message: MessageProxy) -> None:
        """Count a message as consumed.  Raises ConnectionClosed; then it is delivered again."""
        self._settle(self._consumer.ack(_popped(message)))

    def nack(self, message: MessageProxy) -> None:
        """Move a message to the dead letters."""
        self._settle(self._consumer.dead_letter(_popped(message), "rejected by Dramatiq"))

    def _settle(self, work: Coroutine[object, object, object]) -> None:
        try:
            shared_loop.call(work)
        except SprocketError as error:
            raise ConnectionClosed(error) from error

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Let other workers have messages that were not begun."""
        for message in messages:
            self._settle(self._consumer.nack(_popped(message)))

    def close(self) -> None:
        """Give back what was not delivered, and close."""
        if self._coming is not None:
            self._coming.cancel()
        shared_loop.call(self._consumer.close())


async def _next(messages: AsyncIterator[PoppedMessage]) -> PoppedMessage:
    return await anext(messages)


def _popped(message: MessageProxy) -> PoppedMessage:
    assert isinstance(message, Popped), "the message is of another broker"
    return message.popped
