"""The channel: AMQP's methods as the users of kombu call them, in the thread of the application."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.pop.pop_requests import MAX_POP_NUMS
from sprocket.contrib.kombu.bindings import DIRECT, FANOUT, TOPIC, Binding, QueueBindings
from sprocket.contrib.kombu.pace import Pace
from sprocket.contrib.kombu.payload import Payload
from sprocket.contrib.kombu.reader import Delivery, QueueReader

if TYPE_CHECKING:
    from sprocket.contrib.kombu.transport import Transport

# Without a prefetch count a channel holds so many messages that the application has not seen.
_UNLIMITED: Final = 256
# Acknowledgements wait so long for others that share their request, unless the channel waits for room.
_ACK_PAUSE_S: Final = 0.005
_KINDS: Final = (DIRECT, TOPIC, FANOUT)


class QoS(virtual.QoS):  # type: ignore[misc]
    """Messages that were delivered and not settled: brokers redeliver them, nothing is sent again from here."""

    channel: "Channel"

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag, requeue=False)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag, requeue=requeue)

    def restore_unacked(self) -> list[object]:
        for tag in [tag for tag in self._delivered if tag not in self._dirty]:
            self.reject(tag, requeue=True)
        self._flush()
        return []


class Channel(virtual.Channel):  # type: ignore[misc]
    """Channel over a cluster.

    A queue is a consumer group: it gets what is sent to the exchanges that it is bound to.  One that is declared
    `auto_delete` or `exclusive` begins with what is sent from then on and is deleted when the channel closes; any other
    begins with the oldest message that the exchange still has.
    """

    QoS = QoS
    supports_fanout = True
    # Readers give back what is not settled when they close.
    do_restore = False
    connection: "Transport"

    def __init__(self, connection: "Transport", **kwargs: object) -> None:
        super().__init__(connection, **kwargs)
        self._queues: dict[str, QueueBindings] = {}
        self._arguments: dict[str, dict[str, Any]] = {}
        self._temporary: set[str] = set()
        self._consumed: set[str] = set()
        self._readers: dict[str, QueueReader] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._requeued: list[Delivery] = []
        self._acked: deque[Delivery] = deque()
        self._is_acking = False
        self._pace = Pace(connection.clock.monotonic)

    # Exchanges and queues

    def exchange_declare(
        self,
        exchange: str = "",
        type: str = DIRECT,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Declare an exchange, which is a topic.  Raises ChannelError for a type that there is not."""
        if type not in _KINDS:
            raise ChannelError(f"exchange {exchange!r} is of type {type!r}; use {', '.join(_KINDS)}")
        super().exchange_declare(exchange, type, durable, auto_delete, arguments, nowait, passive)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Forget an exchange; its topic stays, with the messages that others may read."""
        self.state.exchanges.pop(exchange, None)

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **kwargs: object,
    ) -> queue_declare_ok_t:
        """Declare a queue; `x-message-ttl` and `x-max-priority` of `arguments` count.

        Raises ChannelError with `passive` if no broker knows it.
        """
        queue = queue or f"amq.gen-{uuid()}"
        if passive and queue not in self._queues and not shared_loop.call(self.connection.cluster.has_queue(queue)):
            raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404")
        self._arguments[queue] = arguments or {}
        if auto_delete or exclusive:
            self._temporary.add(queue)
        bindings = self._bindings(queue)
        if "x-max-priority" in self._arguments[queue]:
            # Priorities are a matter of topics, so the queue gets one of its own.
            bindings.add(Binding(queue, DIRECT, queue))
        if not passive:
            self._bind(bindings)
        size = shared_loop.call(self.connection.cluster.size(bindings)) if passive else 0
        return queue_declare_ok_t(queue, size, 0)

    def prepare_queue_arguments(self, arguments: dict[str, Any], **kwargs: object) -> dict[str, Any]:
        """Return the arguments of a queue under RabbitMQ's names."""
        found: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return found

    def _bindings(self, queue: str) -> QueueBindings:
        return self._queues.setdefault(queue, QueueBindings(queue))

    def _bind(self, bindings: QueueBindings) -> None:
        queue = bindings.queue
        shared_loop.call(
            self.connection.cluster.bind(
                bindings,
                list(bindings.subscriptions(self.connection.naming.prefix)),
                from_now=queue in self._temporary,
                max_priority=self._arguments.get(queue, {}).get("x-max-priority"),
            )
        )

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: object,
    ) -> None:
        """Let the queue get what `exchange` gets for `routing_key`, or for all keys if it is a fanout exchange."""
        if not exchange:
            return  # the default exchange is bound to every queue
        bindings = self._bindings(queue)
        kind = self.state.exchanges.get(exchange, {}).get("type", DIRECT)
        if bindings.add(Binding(exchange, kind, routing_key or "")):
            self._bind(bindings)
            self._reopen(queue)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: object,
    ) -> None:
        """End what `queue_bind` began."""
        bindings = self._bindings(queue)
        for binding in [one for one in bindings.bindings if (one.exchange, one.key) == (exchange, routing_key or "")]:
            bindings.bindings.discard(binding)
        self._reopen(queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: object) -> None:
        """Delete the queue's group with its offsets, from all brokers."""
        if if_empty and self._size(queue):
            return
        self._close_reader(queue)
        shared_loop.call(self.connection.cluster.delete_queue(queue))
        self._queues.pop(queue, None)
        self._temporary.discard(queue)

    def _size(self, queue: str) -> int:
        found: int = shared_loop.call(self.connection.cluster.size(self._bindings(queue)))
        return found

    def _purge(self, queue: str) -> int:
        found: int = shared_loop.call(self.connection.cluster.purge(self._bindings(queue)))
        return found

    def list_bindings(self) -> list[tuple[str, str, str]]:
        """Return the bindings that this channel made: queue, exchange and routing key of each."""
        return [(name, one.exchange, one.key) for name, each in self._queues.items() for one in each.bindings]

    # Sending

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **kwargs: object) -> None:
        """Send to the topic of `exchange`; returns when the broker has stored it."""
        self._inplace_augment_message(message, exchange, routing_key)
        shared_loop.call(self.connection.cluster.send(message, exchange or "", routing_key or ""))

    def encode_body(self, body: object, encoding: str | None = None) -> tuple[object, str | None]:
        """Return the body as it stands in the payload: text as it is, bytes in base64."""
        if isinstance(body, str):
            return body, "utf-8"
        found: tuple[object, str | None] = super().encode_body(body, encoding)
        return found

    # Receiving

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Change the prefetch count; what waits for room is delivered."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        if self._readers:
            shared_loop.soon(self._ack_waiting)
            self.connection.inbox.wake()

    def room(self) -> int:
        """Return how many more messages the channel takes now."""
        estimate = self.qos.can_consume_max_estimate()
        most = _UNLIMITED if estimate is None else estimate
        return most - self.connection.inbox.waiting(self)

    def takes(self) -> bool:
        """Return whether the application may get a message now."""
        return not self.closed and bool(self.qos.can_consume())

    def ahead(self) -> int:
        """Return how many messages may wait beyond the prefetch count: what a fast worker settles in a moment."""
        return self._pace.recent() if self.qos.prefetch_count else 0

    def min_room(self, ahead: int) -> int:
        """Return for how much room a pop is worth while: a quarter of what the channel may hold."""
        most = (self.qos.prefetch_count or _UNLIMITED) + ahead
        return max(min(most // 4, MAX_POP_NUMS), 1)

    def deliver(self, found: Sequence[Delivery]) -> None:
        """Hand messages to the application's thread."""
        self.connection.inbox.add(self, found)

    def surplus(self, reader: QueueReader) -> Sequence[Delivery]:
        """Take back the messages of `reader` that wait beyond the prefetch count."""
        return self.connection.inbox.surplus(self, reader)

    def _reader(self, queue: str) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            transport = self.connection
            bindings = self._bindings(queue)
            ttl_ms = self._arguments.get(queue, {}).get("x-message-ttl")

            async def opened() -> QueueReader:
                consumer = transport.cluster.consumer(bindings, transport.pops)
                return QueueReader(bindings, consumer, self, transport.clock, ttl_ms)

            self._bind(bindings)
            reader = self._readers[queue] = shared_loop.call(opened())
        return reader

    def _reopen(self, queue: str) -> None:
        """Subscribe again after a change of bindings."""
        if queue in self._readers:
            self._close_reader(queue)
            if queue in self._active_queues:
                self._start(queue)

    def _close_reader(self, queue: str) -> None:
        reader = self._readers.pop(queue, None)
        if reader is not None:
            shared_loop.call(self._closed(reader))
            self.connection.inbox.forget(reader)

    def _start(self, queue: str) -> None:
        shared_loop.soon(self._reader(queue).start)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[..., object], consumer_tag: str, **kwargs: object
    ) -> None:
        """Begin to read `queue`."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        deliver = self.connection._callbacks[queue]

        def delivered(payload: Payload) -> object:
            result = deliver(payload)
            if no_ack:
                self.settle(payload["properties"]["delivery_tag"], requeue=False)
            return result

        self.connection._callbacks[queue] = delivered
        self._consumed.add(queue)
        for delivery in [one for one in self._requeued if one.reader.bindings.queue == queue]:
            self._requeued.remove(delivery)
            self.connection.inbox.put_back(self, delivery)
        self._start(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End to read; what was delivered may still be settled."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        reader = self._readers.get(queue or "")
        if reader is not None and queue not in self._active_queues:
            shared_loop.call(reader.stop())
            for delivery in self.connection.inbox.forget(reader):
                shared_loop.call(reader.give_back(delivery.popped))

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        """Take one message.  Raises Empty."""
        for at, delivery in enumerate(self._requeued):
            if delivery.reader.bindings.queue == queue:
                del self._requeued[at]
                return self.taken(delivery)
        found = shared_loop.call(self._reader(queue).take(1, wait_s=timeout or 0.0))
        if not found:
            raise Empty
        return self.taken(found[0])

    def taken(self, delivery: Delivery) -> Payload:
        """Return the payload of a delivery that the application gets now."""
        tag = self._next_delivery_tag()
        delivery.payload["properties"]["delivery_tag"] = tag
        self._deliveries[tag] = delivery
        return delivery.payload

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: object) -> Any:
        """Return one message, None if there is none."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, requeue=False)
        return message

    def settle(self, delivery_tag: str, *, requeue: bool) -> None:
        """Acknowledge a delivery, or put it back in front of its queue."""
        delivery = self._deliveries.pop(delivery_tag, None)
        if delivery is None:
            return
        if requeue:
            self._requeue(delivery)
            return
        self._acked.append(delivery)
        self._pace.add()
        # Each call of the loop costs a change of threads, so it is called for many at once.
        if len(self._acked) == self.min_room(self.ahead()):
            shared_loop.soon(self._ack_waiting)
        elif not self._is_acking:
            self._is_acking = True
            shared_loop.soon(self._ack_soon)
        if self.connection.inbox.waiting(self):
            # There is room for it now.
            self.connection.inbox.wake()

    def _ack_soon(self) -> None:
        asyncio.get_running_loop().call_later(_ACK_PAUSE_S, self._ack_waiting)

    def _ack_waiting(self) -> None:
        """Acknowledge what was settled; runs in the loop of the connection."""
        self._is_acking = False
        while self._acked:
            delivery = self._acked.popleft()
            delivery.reader.ack(delivery.popped)
        for reader in list(self._readers.values()):
            reader.room_changed()

    async def _closed(self, reader: QueueReader) -> None:
        self._ack_waiting()
        await reader.close()

    def _requeue(self, delivery: Delivery) -> None:
        """Deliver again at once, here; when the channel closes, brokers deliver it elsewhere."""
        delivery.payload["properties"]["delivery_info"]["redelivered"] = True
        if delivery.reader.bindings.queue in self._active_queues:
            self.connection.inbox.put_back(self, delivery)
        else:
            self._requeued.append(delivery)

    def close(self) -> None:
        """Give back what is not settled, delete temporary queues, and close."""
        if self.closed:
            return
        transport = self.connection
        super().close()
        if not transport.is_open:
            return
        for queue in list(self._readers):
            reader = self._readers.pop(queue)
            shared_loop.call(self._closed(reader))
            transport.inbox.forget(reader)
        for queue in self._temporary & self._consumed:
            shared_loop.call(transport.cluster.delete_queue(queue))
