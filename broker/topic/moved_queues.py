"""Messages that a broker stores itself for queues that are not the right ones since it accepted the messages.

A committed message of a transaction, and a delayed one, name the physical queue of their send.  There are two cases:

- The logical queue of a static topic has moved.  Nobody reads what is added to the old physical queue.  The message
  goes to the queue that leads now, if it is here.
- The sharding key of the message chose the queue (INNER_SHARDING), and the topic has grown since, or grows.  The key's
  other messages are in another queue, or will be.

Else it goes to rmq_sys_FORWARD_TOPIC, from which `broker.upkeep.forwarding` sends it to the present leader, or as a
producer sends a message with a key.  RocketMQ adds them to the old queue.
"""

from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from broker.topic.attributes import sharding_queues
from broker.topic.logical_queue import NO_STATIC_TOPICS, StaticTopics, own_item
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail
from sprocket.remoting.message.properties import INNER_SHARDING, REAL_TOPIC, encoded_name, find_last, without
from sprocket.remoting.message.topic_names import FORWARD_TOPIC
from store.delivery import Appending, OwnLog
from store.record.record import PendingMessage

# What cannot be sent holds up what is behind it in its queue: a queue of a static topic, or a topic that has grown.
FORWARD_QUEUES: Final = 16
_SHARDING: Final = encoded_name(INNER_SHARDING)
_REAL_TOPIC: Final = encoded_name(REAL_TOPIC)


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
    return FORWARD_TOPIC, _forward_queue(f"{topic}-{logical}")


def key_queues(config: TopicConfig, detail: TopicQueueMappingDetail | None) -> int:
    """Return a number that differs after the queues that keys choose from have become more."""
    return config.write_queue_nums if detail is None else detail.total_queues


def has_grown(sharding: bytes, config: TopicConfig | None, detail: TopicQueueMappingDetail | None) -> bool:
    """Return whether a topic grows, or has grown since a message with this INNER_SHARDING was accepted."""
    if config is None:
        return False
    count = sharding.partition(b" ")[2]
    return sharding_queues(config.attributes) is not None or count != b"%d" % key_queues(config, detail)


def _no_topic(_: str) -> TopicConfig | None:
    return None


class PresentPlaces:
    """Where late messages are stored now; `topic_of` returns the configuration of a topic, if it exists."""

    def __init__(
        self, static: StaticTopics = NO_STATIC_TOPICS, topic_of: Callable[[str], TopicConfig | None] = _no_topic
    ) -> None:
        self.static = static
        self._topic_of = topic_of

    def placed(self, messages: Sequence[PendingMessage]) -> Sequence[PendingMessage]:
        """Return `messages` with their present topics and queues."""
        return [self._at_place(message) for message in messages]

    def _at_place(self, message: PendingMessage) -> PendingMessage:
        topic, queue_id, properties = message.topic, message.queue_id, message.properties
        sharding = find_last(properties, _SHARDING) if _SHARDING in properties else None
        # A message that waits longer in the timer, or for a group's retry, is not for its own topic yet.
        if sharding is not None and find_last(properties, _REAL_TOPIC) == topic.encode():
            if has_grown(sharding, self._topic_of(topic), self.static.get(topic)):
                return replace(message, topic=FORWARD_TOPIC, queue_id=_forward_queue(topic))
            message = replace(message, properties=without(properties, _SHARDING))
        place = present_place(self.static, topic, queue_id)
        return message if place == (topic, queue_id) else replace(message, topic=place[0], queue_id=place[1])


def _forward_queue(name: str) -> int:
    return crc32(name.encode()) % FORWARD_QUEUES


class PresentQueues:
    """A `Delivery` into the broker's own log: each message goes to the queue that now takes those of its own."""

    def __init__(self, store: Appending, places: PresentPlaces) -> None:
        self._log = OwnLog(store)
        self._places = places

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> None:
        self._log.deliver(self._places.placed(messages), done)

    def refusals(self, messages: Sequence[PendingMessage]) -> dict[int, str]:
        return dict(self._log.refusals(self._places.placed(messages)))

    @property
    def is_own_log(self) -> bool:
        """Whether no message may have to go to another queue; the engine takes none with a key."""
        return not self._places.static
