"""Messages that a broker stores itself for queues of static topics that have moved since it accepted the messages.

A committed message of a transaction, and a delayed one, name the physical queue that led when they were sent.  After a
move nobody reads what is added there.  They go to the queue that leads now, if it is here; else to
rmq_sys_FORWARD_TOPIC, from which `broker.upkeep.forwarding` sends them to the present leader.  RocketMQ adds them to
the old queue.
"""

from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from broker.topic.logical_queue import StaticTopics, own_item
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail
from sprocket.remoting.message.topic_names import FORWARD_TOPIC
from store.delivery import Appending, OwnLog
from store.record.record import PendingMessage

# A leader that does not answer holds up the messages of its queue of the topic only.
FORWARD_QUEUES: Final = 16


def logical_id(detail: TopicQueueMappingDetail, queue_id: int) -> int | None:
    """Return the logical queue of a physical one of this broker; None if the topic has none.

    An item is forgotten once its messages have expired.  Then it is any logical queue, but always the same.
    """
    own = own_item(detail, queue_id)
    if own is not None:
        return own.logical_id
    return queue_id % detail.total_queues if detail.total_queues > 0 else None


def present_place(static: StaticTopics, topic: str, queue_id: int) -> tuple[str, int]:
    """Return the topic and the queue of this broker in which a message for a physical queue is stored now."""
    detail = static.get(topic)
    logical = None if detail is None else logical_id(detail, queue_id)
    if detail is None or logical is None:
        return topic, queue_id
    items = detail.items(logical)
    if items and items[-1].bname == detail.bname:
        return topic, items[-1].queue_id
    return FORWARD_TOPIC, crc32(f"{topic}-{logical}".encode()) % FORWARD_QUEUES


class PresentQueues:
    """A `Delivery` into the broker's own log: each message goes to the queue that now takes those of its own."""

    def __init__(self, store: Appending, static: StaticTopics) -> None:
        self._log = OwnLog(store)
        self._static = static

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> None:
        self._log.deliver(self._placed(messages), done)

    def refusals(self, messages: Sequence[PendingMessage]) -> dict[int, str]:
        return dict(self._log.refusals(self._placed(messages)))

    def own_store(self) -> object | None:
        """Return the store, unless messages may have to go to another queue."""
        return None if self._static else self._log.own_store()

    def _placed(self, messages: Sequence[PendingMessage]) -> Sequence[PendingMessage]:
        if not self._static:
            return messages
        return [self._at_place(message) for message in messages]

    def _at_place(self, message: PendingMessage) -> PendingMessage:
        topic, queue_id = present_place(self._static, message.topic, message.queue_id)
        if (topic, queue_id) == (message.topic, message.queue_id):
            return message
        return replace(message, topic=topic, queue_id=queue_id)
