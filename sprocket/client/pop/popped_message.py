"""Popped messages, and their decoding from a pop's response.

Source: RocketMQ 5.3.3, `MQClientAPIImpl.processPopResponse`, `buildQueueOffsetSortedMap`.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.client.settlement import Settleable, Settlement
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.headers.pop import PopMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import (
    PopHandle,
    message_key,
    parse_handle,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
    queue_key,
    retry_kind,
)

_QUEUE_ID_AT: Final = 12
# Parsing all properties costs several times as much as finding one.
_POP_CK: Final = names.encoded_name(names.POP_CK)


class PoppedMessage(Settleable):
    """Message that is invisible to others until `invisible_until` (monotonic s of its consumer's clock).

    `message` is the sent message.  `handle` acknowledges it or extends its invisible time; it changes with every
    `change_invisible`.  `topic` is the topic that it was first sent to.  The usual fields are here too.
    """

    __slots__ = ("_is_settled", "_owner", "handle", "invisible_until", "message", "topic")

    def __init__(
        self,
        message: ReceivedMessage,
        topic: str,
        handle: PopHandle,
        invisible_until: float,
        consumer: Settlement | None = None,
    ) -> None:
        """`consumer` acknowledges and rejects it."""
        self._owner = consumer
        self._is_settled = False
        self.message = message
        self.topic = topic
        self.handle = handle
        self.invisible_until = invisible_until

    def _settlement(self) -> Settlement | None:
        return self._owner

    @property
    def is_settled(self) -> bool:
        """Whether `ack`, `nack` or `dead_letter` was called."""
        return self._is_settled

    @property
    def body(self) -> bytes:
        """As `ReceivedMessage.body`."""
        return self.message.body

    @property
    def tags(self) -> str:
        return self.message.tags

    @property
    def keys(self) -> list[str]:
        return self.message.keys

    @property
    def properties(self) -> dict[str, str]:
        return self.message.properties

    @property
    def sharding_key(self) -> str:
        """The `sharding_key` of its send, empty for none."""
        return self.message.sharding_key

    @property
    def priority(self) -> int | None:
        """The `priority` of its send, None for none."""
        return self.message.priority

    @property
    def lite_topic(self) -> str:
        """The `lite_topic` of its send, empty for none."""
        return self.message.lite_topic

    @property
    def message_id(self) -> str:
        """The id that the producer gave."""
        return self.message.message_id

    @property
    def queue(self) -> MessageQueue:
        """The queue that it was popped from."""
        return self.message.queue

    @property
    def queue_offset(self) -> int:
        return self.message.queue_offset

    @property
    def reconsume_times(self) -> int:
        """Number of earlier deliveries without an acknowledgement."""
        return self.message.reconsume_times

    def _exchange_handles(self, other: "PoppedMessage") -> None:
        self.handle, other.handle = other.handle, self.handle
        self.invisible_until, other.invisible_until = other.invisible_until, self.invisible_until

    def __repr__(self) -> str:
        return f"PoppedMessage({self.message!r})"


def renew_handle(popped: PoppedMessage, handle: PopHandle, invisible_until: float) -> None:
    """Give `popped` the handle of a longer invisible time, which ends at `invisible_until`."""
    popped.handle, popped.invisible_until = handle, invisible_until


# What all deliveries of one message have in common: its topic, its id, and when it was sent.
Identity = tuple[str, str, int]


def identity(popped: PoppedMessage) -> Identity:
    """Return what all deliveries of a message have in common."""
    message = popped.message
    return popped.topic, message.message_id, message.born_timestamp_ms


class Delivery(NamedTuple):
    """One delivery of a message: where the record lies, and the number of earlier ones."""

    broker_name: str
    queue_id: int
    offset: int | None
    reconsume_times: int

    def repeats(self, earlier: "Delivery") -> bool:
        """Return whether two deliveries with the same `identity` are of one message.

        A program that sends an object twice within a millisecond makes two messages with one identity.  In doubt they
        are two: a message that is given twice is better than one that is lost.
        """
        return self[:3] == earlier[:3] or self.reconsume_times > earlier.reconsume_times


def delivery_of(popped: PoppedMessage) -> Delivery:
    """Return where `popped` lies, and how often it was delivered."""
    handle = popped.handle
    return Delivery(handle.broker_name, handle.queue_id, handle.queue_offset, popped.reconsume_times)


def exchange_handles(one: PoppedMessage, other: PoppedMessage) -> None:
    """Give each of two deliveries of a message the handle of the other one."""
    one._exchange_handles(other)


def mark_settled(popped: PoppedMessage) -> None:
    """Record that the consumer of `popped` sends an acknowledgement or a rejection."""
    popped._is_settled = True


def popped_messages(
    body: bytes,
    header: PopMessageResponseHeader,
    topic: str,
    broker_name: str,
    now: float,
    consumer: Settlement | None = None,
) -> list[PoppedMessage]:
    """Return the messages of a pop's answer that was asked for at `now` (monotonic s).  Raises ProtocolError."""
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_msg_offsets(header.msg_offset_info)
    counts = parse_order_counts(header.order_count_info)
    taken: defaultdict[str, int] = defaultdict(int)
    first: dict[str, int] = {}
    visible_at = now + header.invisible_time / 1000
    popped = []
    queue, stored_topic = None, ""
    for message in _records(body, topic, broker_name):
        if starts and _POP_CK in message.stored_properties and names.POP_CK in message.properties:
            # In a retry topic the broker wrote the handle into the message.
            own = _handle(message.properties[names.POP_CK])
            popped.append(PoppedMessage(message, topic, own, visible_at, consumer))
            continue
        if message.queue is not queue or message.topic != stored_topic:
            # Most lie in the queue of the message before.
            queue, stored_topic = message.queue, message.topic
            retry, queue_id = retry_kind(stored_topic), queue.queue_id
            key = queue_key(retry, queue_id)
            known, start = offsets.get(key, ()), starts.get(key)
        index = taken[key]
        taken[key] = index + 1
        offset = known[index] if index < len(known) else message.queue_offset
        first_offset = first.setdefault(key, message.queue_offset) if start is None else start
        handle = PopHandle(
            first_offset, header.pop_time, header.invisible_time, header.revive_qid, retry, broker_name, queue_id,
            offset,
        )  # fmt: skip
        if counts:
            count = counts.get(message_key(retry, queue_id, message.queue_offset), counts.get(key, 0))
            message.reconsume_times = max(count, message.reconsume_times)
        popped.append(PoppedMessage(message, topic, handle, visible_at, consumer))
    return popped


def _records(body: bytes, topic: str, broker_name: str) -> list[ReceivedMessage]:
    """Return the messages of `body`, which lie in several queues, each with its own."""
    messages: list[ReceivedMessage] = []
    begin = position = 0
    before = b""  # queue id of the records from `begin` on
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        if size <= _QUEUE_ID_AT or position + size > len(body):
            raise ProtocolError("record", f"size {size} at byte {position} of {len(body)}")
        queue_id = body[position + _QUEUE_ID_AT : position + _QUEUE_ID_AT + 4]
        if queue_id != before:
            messages += _of_queue(body[begin:position], topic, broker_name, before)
            begin, before = position, queue_id
        position += size
    return messages + _of_queue(body[begin:], topic, broker_name, before)


def _of_queue(records: bytes, topic: str, broker_name: str, queue_id: bytes) -> list[ReceivedMessage]:
    return decode_records(records, MessageQueue(topic, broker_name, int.from_bytes(queue_id, "big"))) if records else []


def _handle(text: str) -> PopHandle:
    try:
        return parse_handle(text)
    except RequestError as error:
        raise ProtocolError("pop_info", str(error)) from None
