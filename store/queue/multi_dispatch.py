"""Multi-dispatch: a record in the log also enters the light queues (LMQ) that its properties name.

``INNER_MULTI_DISPATCH`` names the queues, separated by commas.  The store writes the message's offset in each of them
into ``INNER_MULTI_QUEUE_OFFSET``, so that the queues can be rebuilt from the log.
Source: RocketMQ 5.3.3, `LmqDispatch`, `MultiDispatchUtils`, `MixAll.isLmq`, `ConsumeQueue.multiDispatchLmqQueue`.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from sprocket.common.errors import RequestError
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    VALUE_END_BYTES,
    encoded_name,
    find_last,
    terminated,
    without,
)
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    LIGHT_QUEUE_ID,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANS_HALF_TOPIC,
    is_light,
)
from store.config.store_config import StoreConfig
from store.queue.consume_queue_table import ConsumeQueueTable, is_file_name
from store.queue.logic_queue import LogicQueue
from store.record.record import PendingMessage, Record, decode, plain_end
from store.scan.record_batch import RecordBatch

# A flag of messages during an append, never of records.
DISPATCHES: Final = 1 << 33
NAMES: Final = encoded_name(INNER_MULTI_DISPATCH)
OFFSETS: Final = encoded_name(INNER_MULTI_QUEUE_OFFSET)
_SEPARATOR: Final = ","
# Unlike RocketMQ: there a dead letter enters its light queues again, and a half message enters them before its commit.
_NOT_DISPATCHED: Final = (RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, DLQ_PREFIX)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_MAX_OFFSET: Final = (1 << 63) // 20


def dispatches(topic: str) -> bool:
    """Return whether messages of `topic` enter light queues (`MixAll.topicAllowsLMQ`)."""
    return not topic.startswith(_NOT_DISPATCHED) and topic not in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC)


def named_queues(names: bytes) -> list[str]:
    """Return the names in ``INNER_MULTI_DISPATCH``, split as in Java: empty names at the end do not count."""
    text = java_text(names).rstrip(_SEPARATOR)
    return text.split(_SEPARATOR) if text.strip() else []


def places(properties: bytes) -> list[tuple[str, int]]:
    """Return (light queue, offset) pairs of a stored record; empty if its properties are inconsistent."""
    names, offsets = find_last(properties, NAMES), find_last(properties, OFFSETS)
    if names is None or offsets is None:
        return []
    queues, numbers = named_queues(names), offsets.decode("latin-1").split(_SEPARATOR)
    if len(queues) != len(numbers) or not all(number.isascii() and number.isdigit() for number in numbers):
        return []
    found: dict[str, int] = {}
    for queue, number in zip(queues, numbers, strict=True):
        if is_light(queue) and is_file_name(queue) and len(number) < 20 and int(number) < _MAX_OFFSET:
            found.setdefault(queue, int(number))
    return list(found.items())


def names_only_place(record: memoryview, queue: str, offset: int, physical_offset: int) -> bool:
    """Return whether `record` names this light queue and offset, no other ones, and this place in the log.

    It is `places` for recovery, which checks a record of each light queue; most of them have one name.
    """
    found = plain_end(record)
    if found is None or found[0] != physical_offset or not found[1]:
        return False
    end = found[1]
    properties = end[end[0] + 3 :]
    if end[end[0] + 1 : end[0] + 3] != len(properties).to_bytes(2, "big"):
        return False
    return find_last(properties, NAMES) == queue.encode() and find_last(properties, OFFSETS) == b"%d" % offset


def offset_in(topic: str, record: memoryview) -> int:
    """Return the queue offset of a record read from a queue of `topic`; for a light queue its properties give it."""
    decoded = decode(record, check_crc=False)
    if not isinstance(decoded, Record):
        return -1
    if decoded.topic == topic or not is_light(topic):
        return decoded.queue_offset
    return dict(places(bytes(decoded.properties))).get(topic, decoded.queue_offset)


class MultiDispatch:
    """Assignment of offsets in light queues, for the appender.  Disabled, it costs one test per batch."""

    def __init__(self, config: StoreConfig, table: ConsumeQueueTable) -> None:
        self.is_enabled = config.enable_lmq and config.enable_multi_dispatch
        self.configure(config)
        self._table = table
        # In the order of the names.  A dictionary, because a message may name thousands.
        self._queues: dict[LogicQueue, None] = {}

    def configure(self, config: StoreConfig) -> None:
        """Set the limit of light queues."""
        self._max_queues = config.max_lmq_consume_queue_num

    def marked(self, messages: Sequence[PendingMessage]) -> Sequence[PendingMessage]:
        """Return `messages`; those that enter light queues get the flag `DISPATCHES`."""
        self._queues.clear()
        for message in messages:
            if NAMES in message.properties:
                return [_marked(message) for message in messages]
        return messages

    def queues_of(self, message: PendingMessage) -> list[tuple[str, int]]:
        """Return the keys of the light queues that a message enters."""
        is_dispatched = self.is_enabled and NAMES in message.properties
        return [(name, LIGHT_QUEUE_ID) for name in named_queues(_names_of(message))] if is_dispatched else []

    def admit(self, topic: str) -> None:
        """Raise `RequestError` if `topic` is a light queue and the maximum number of light queues is reached."""
        if is_light(topic):
            self._admit(1)

    def _admit(self, count: int) -> None:
        """Raise `RequestError` if there would be too many light queues with `count` more.

        RocketMQ 5.3.3 has the key maxLmqConsumeQueueNum and this text, but does not check the number.  The code is that
        of 5.5.1, which checks it with enableLmqQuota.
        """
        if self._table.light_count + count > self._max_queues:
            remark = (
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num"
                " exceed maxLmqConsumeQueueNum config num, default limit 2w."
            )
            raise RequestError(ResponseCode.LMQ_QUOTA_EXCEEDED, remark)

    def addressed(self, queue: LogicQueue, properties: bytes) -> bytes:
        """Return the properties of a message for `queue` with the next offset in each named queue; then call `place`.

        Raises `RequestError` for a name that is not a light queue's.  RocketMQ stores such a record, and then
        dispatches no later record.
        """
        names = named_queues(find_last(properties, NAMES) or b"")
        if not names or queue.is_batch:
            return properties
        self._check(names)
        offsets = [self._offset(name, queue) for name in names]
        properties = terminated(without(properties, OFFSETS))
        return b"".join((properties, OFFSETS, _SEPARATOR.join(map(str, offsets)).encode(), VALUE_END_BYTES))

    def _check(self, names: Sequence[str]) -> None:
        """Raise `RequestError` before any queue is made: one that is made stays."""
        for name in names:
            if not is_light(name):
                remark = f"INNER_MULTI_DISPATCH names {name[:60]!r}, allowed are names that begin with %LMQ%"
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"message is illegal: {remark}")
        known = self._table.by_key
        new = {name for name in names if "/" not in name and (name, LIGHT_QUEUE_ID) not in known}
        if new:
            self._admit(len(new))

    def _offset(self, name: str, own: LogicQueue) -> int:
        if "/" in name:
            return 0  # as in RocketMQ: the message enters no queue for this name
        queue = self._table.by_key.get((name, LIGHT_QUEUE_ID))
        if queue is None:
            queue = self._table.get_or_create(name, LIGHT_QUEUE_ID)
        if queue is not own:
            self._queues[queue] = None
        return queue.next_offset

    def place(
        self, touched: list[tuple[LogicQueue, int]], position: int, size: int, tags_code: int, store_timestamp: int
    ) -> None:
        """Put a record into the light queues of the last `addressed` call, if any."""
        for queue in self._queues:
            if not queue.pending:
                touched.append((queue, queue.next_offset))
            queue.add(position, size, tags_code, store_timestamp, 1)
        self._queues.clear()


def _marked(message: PendingMessage) -> PendingMessage:
    if _names_of(message):
        return msgspec.structs.replace(message, sys_flag=message.sys_flag | DISPATCHES)
    return message


def _names_of(message: PendingMessage) -> bytes:
    """Return the names of the light queues that a message enters."""
    if dispatches(message.topic) and not message.sys_flag & _PREPARED:
        return find_last(message.properties, NAMES) or b""
    return b""


def dispatched_records(batch: RecordBatch) -> list[int]:
    """Return the numbers of the records of `batch` that may be in light queues; most logs have none."""
    found, is_dispatched = batch.records_with(OFFSETS), batch.in_consume_queue
    return [one for one in found if is_dispatched[one] and dispatches(batch.topics[batch.topic_index[one]])]
