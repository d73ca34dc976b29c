"""Answers of a popping consumer to operators: it has no queues, so it has no offsets to report or to reset.

Source: RocketMQ 5.3.3, `DefaultMQPushConsumerImpl.consumerRunningInfo`, `PopProcessQueueInfo`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from sprocket.client.consume.handling import try_directly
from sprocket.client.consume.running_info import VERSION_NAME
from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
)
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle

PopHandler = Callable[[PoppedMessage], Awaitable[object] | object]


class PopSubject:
    """Answers of the popping consumer of `group`; `held` has the messages in work."""

    def __init__(
        self,
        group: str,
        name_servers: str,
        subscriptions: Mapping[str, SubscriptionData],
        held: Callable[[], Iterable[PoppedMessage]],
        monotonic: Callable[[], float],
        *,
        is_ordered: bool,
    ) -> None:
        self.group = group
        self._handler: PopHandler | None = None
        self._concurrency = 0
        self._started_ms = 0
        self._name_servers = name_servers
        self._subscriptions = subscriptions
        self._held = held
        self._monotonic = monotonic
        self._is_ordered = is_ordered

    def opened(self, now_ms: int) -> None:
        """Note the wall-clock time at which the consumer was opened."""
        self._started_ms = now_ms

    def begin(self, handler: PopHandler, concurrency: int) -> None:
        """Let operators try `handler`, which handles `concurrency` messages at a time."""
        self._handler, self._concurrency = handler, concurrency

    def end(self) -> None:
        """Forget the handler."""
        self._handler = None

    def running_info(self) -> ConsumerRunningInfo[MessageQueue]:
        """Return the number of unacknowledged messages of each queue, for `mqadmin consumerStatus`."""
        held = list(self._held())
        waiting = Counter(popped.queue for popped in held)
        last = {popped.queue: popped.handle.pop_time_ms for popped in held}
        return ConsumerRunningInfo(
            properties={
                PROP_NAMESERVER_ADDR: self._name_servers,
                PROP_CONSUME_TYPE: "CONSUME_POP",
                PROP_CLIENT_VERSION: VERSION_NAME,
                PROP_CONSUME_ORDERLY: "true" if self._is_ordered else "false",
                PROP_THREADPOOL_CORE_SIZE: str(self._concurrency),
                PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
                "consumerGroup": self.group,
            },
            subscription_set=sorted(self._subscriptions.values(), key=lambda data: data.topic),
            mq_pop_table={
                queue: PopProcessQueueInfo(wait_ack_count=waiting[queue], last_pop_timestamp=last[queue])
                for queue in sorted(waiting)
            },
            status_table={topic: ConsumeStatus() for topic in sorted(self._subscriptions)},
        )

    def consume_directly(self, message: ReceivedMessage) -> Awaitable[ConsumeMessageDirectlyResult] | None:
        """Let the handler consume `message`, which is not popped: it cannot be acknowledged or renewed."""
        handler = self._handler
        if handler is None:
            return None
        handle = PopHandle(
            message.queue_offset, 0, 0, 0, NORMAL, message.queue.broker_name, message.queue.queue_id,
            message.queue_offset,
        )  # fmt: skip
        popped = PoppedMessage(message, message.topic, handle, self._monotonic())
        return try_directly(lambda _: handler(popped), message, self._monotonic, is_orderly=self._is_ordered)

    def committed(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return no offsets: brokers keep the offsets of pops."""
        return {}

    def members_changed(self) -> None:
        """Do nothing: queues are not divided among members."""

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: the broker has reset the offsets."""
