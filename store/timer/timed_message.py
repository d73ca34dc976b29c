"""Record of rmq_sys_wheel_timer, and the message made from it: for its real topic, or for another roll of the wheel.

Source: RocketMQ 5.3.3, `TimerMessageStore.convert`, `convertMessage`, `buildDeleteKey`.
"""

from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import CorruptRecord
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last, terminated, without
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from store.record.checksum import SEAL_BYTES, SEAL_NAME
from store.record.record import (
    PendingMessage,
    Record,
    TagsCodes,
    decode,
    topic_field,
    topic_name,
)

_OUT_MS: Final = names.encoded_name(names.TIMER_OUT_MS)
_REAL_TOPIC: Final = names.encoded_name(names.REAL_TOPIC)
_REAL_QUEUE_ID: Final = names.encoded_name(names.REAL_QUEUE_ID)
_ENQUEUE_MS: Final = names.encoded_name(names.TIMER_ENQUEUE_MS)
_DEQUEUE_MS: Final = names.encoded_name(names.TIMER_DEQUEUE_MS)
# In both of these names, and in hardly any other property.
_QUEUE_MS: Final = b"QUEUE_MS\x01"
_ROLL_TIMES: Final = names.encoded_name(names.TIMER_ROLL_TIMES)
_DELETE_KEY: Final = names.encoded_name(names.TIMER_DEL_UNIQKEY)
_UNIQUE_KEY: Final = names.encoded_name(names.UNIQ_KEY)
_ID: Final = names.encoded_name(names.IDEMPOTENCE_ID)
_MAX_DIGITS: Final = 19
TOPIC_FIELD: Final = topic_field(TIMER_TOPIC)[1]
# TIMER_ENQUEUE_MS of a message that was already late when it reached the wheel: `Long.MAX_VALUE`.
NEVER_ENQUEUED: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """Record of the wheel's topic, with the properties that the wheel uses: TIMER_OUT_MS, REAL_TOPIC, REAL_QID."""

    record: Record
    properties: bytes
    due_ms: int
    real_topic: str
    queue_id: bytes | None

    @property
    def deleted_key(self) -> bytes | None:
        """Topic and unique key of the message that this one deletes; None if it deletes none."""
        return find_last(self.properties, _DELETE_KEY) if _DELETE_KEY in self.properties else None

    @property
    def key(self) -> bytes | None:
        """Topic and unique key, as a deleting message names it; None without a unique key."""
        unique_key = find_last(self.properties, _UNIQUE_KEY)
        return None if unique_key is None else b"%s+%s" % (self.real_topic.encode(), unique_key)

    def real(self, enqueue_ms: int, now_ms: int, tags_codes: TagsCodes) -> PendingMessage | None:
        """Return the message for its real topic; None if it names no queue.

        It keeps REAL_TOPIC and REAL_QID, as in RocketMQ.
        """
        queue_id = self.queue_id
        if queue_id is None or not queue_id.isdigit() or int(queue_id) >= 1 << 31:
            return None
        properties = _traced(self.properties, enqueue_ms, now_ms)
        code = tags_codes.of(self.real_topic, properties, 0)
        return self._pending(self.real_topic, int(queue_id), properties, code)

    def rolled(self, enqueue_ms: int, now_ms: int, tags_codes: TagsCodes) -> PendingMessage:
        """Return the message to append to the wheel's topic again."""
        times = find_last(self.properties, _ROLL_TIMES)
        number = int(times) + 1 if times is not None and times.isdigit() and len(times) < _MAX_DIGITS else 1
        properties = _traced(without(self.properties, _ROLL_TIMES), enqueue_ms, now_ms)
        properties = _added(properties, b"%s%d\x02" % (_ROLL_TIMES, number))
        return self._pending(TIMER_TOPIC, self.record.queue_id, properties, tags_codes.of("", properties, 0))

    def _pending(self, topic: str, queue_id: int, properties: bytes, tags_code: int) -> PendingMessage:
        record = self.record
        return PendingMessage(
            topic, queue_id, record.body, properties, tags_code, record.flag, record.sys_flag, record.born_timestamp,
            record.born_host, record.reconsume_times,
        )  # fmt: skip


def read_timed(store: MessageStore, physical_offset: int, size_bytes: int) -> TimedMessage | str:
    """Return the message of the wheel's topic whose record lies there, or why there is none."""
    try:
        view = store.record_at(physical_offset, size_bytes)
    except CorruptRecord as damage:
        return damage.reason
    if view is None:
        return "not in the log"
    record = decode(view, check_crc=False)
    if isinstance(record, str):
        return record
    if record.topic != TIMER_TOPIC:
        return f"a message of topic {record.topic}"
    properties = without(bytes(record.properties), SEAL_NAME)
    due, name = find_last(properties, _OUT_MS), find_last(properties, _REAL_TOPIC)
    if due is None or not due.isdigit() or len(due) > _MAX_DIGITS:
        return "TIMER_OUT_MS is not a time"
    topic = topic_name(name) if name else None
    if topic is None:
        return "REAL_TOPIC is not a topic"
    return TimedMessage(record, properties, int(due), topic, find_last(properties, _REAL_QUEUE_ID))


def _traced(properties: bytes, enqueue_ms: int, now_ms: int) -> bytes:
    """Return the properties of a copy: an idempotent message has its id only where it was stored first."""
    if _ID in properties:
        properties = without(properties, _ID)
    if _QUEUE_MS in properties:
        properties = without(without(properties, _ENQUEUE_MS), _DEQUEUE_MS)
    return _added(properties, b"%s%d\x02%s%d\x02" % (_ENQUEUE_MS, enqueue_ms, _DEQUEUE_MS, now_ms))


def _added(properties: bytes, more: bytes) -> bytes:
    """Return `properties` with `more`, if there is room: `more` only describes the message's way."""
    properties = terminated(properties)
    return properties + more if len(properties) + len(more) + SEAL_BYTES <= MAX_PROPERTIES_BYTES else properties
