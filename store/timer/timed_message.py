"""Record of rmq_sys_wheel_timer, and the message made from it: for its real topic, or for another roll of the wheel.

Source: RocketMQ 5.3.3, `TimerMessageStore.convert`, `convertMessage`, `buildDeleteKey`.
"""

import re
from functools import lru_cache
from typing import Final

from sprocket.common.errors import CorruptRecord
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last, terminated, without
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from store.record.checksum import SEAL_BYTES, SEAL_NAME
from store.record.record import (
    FIXED_IPV4_BYTES,
    PendingMessage,
    Record,
    TagsCodes,
    decode,
    plain_end,
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
# The order in which a broker of Sprocket writes them.  The first property of a name counts, so search for each first.
_PLACE: Final = re.compile(
    rb"\x02TIMER_OUT_MS\x01([0-9]{1,19})\x02REAL_TOPIC\x01([^\x02]+)\x02REAL_QID\x01([^\x02]+)\x02"
)
_MAX_TOPICS: Final = 1024
# TIMER_ENQUEUE_MS of a message that was already late when it reached the wheel: `Long.MAX_VALUE`.
NEVER_ENQUEUED: Final = (1 << 63) - 1


class TimedMessage:
    """Record of the wheel's topic, with the properties that the wheel uses."""

    __slots__ = ("_record", "due_ms", "properties", "queue_id", "real_topic")

    def __init__(
        self, record: Record | memoryview, properties: bytes, due_ms: int, real_topic: str, queue_id: bytes | None
    ) -> None:
        self._record = record
        self.properties = properties
        self.due_ms = due_ms  # TIMER_OUT_MS
        self.real_topic = real_topic
        self.queue_id = queue_id  # REAL_QID

    @property
    def record(self) -> Record:
        """The record, decoded on first use: entering the wheel needs only its properties."""
        record = self._record
        if not isinstance(record, Record):
            decoded = decode(record, check_crc=False)
            assert isinstance(decoded, Record), decoded
            record = self._record = decoded
        return record

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
        record = self._record
        if isinstance(record, Record):
            return PendingMessage(
                topic, queue_id, record.body, properties, tags_code, record.flag, record.sys_flag,
                record.born_timestamp, record.born_host, record.reconsume_times,
            )  # fmt: skip
        # A usual record, else it would be decoded: read only the fields needed.
        fields = FIXED_IPV4_RAW.unpack_from(record)
        body = record[FIXED_IPV4_BYTES : FIXED_IPV4_BYTES + fields[14]]
        return PendingMessage(
            topic, queue_id, body, properties, tags_code, fields[4], fields[7], fields[8], fields[9], fields[12]
        )


def read_timed(store: MessageStore, physical_offset: int, size_bytes: int) -> TimedMessage | str:
    """Return the message of the wheel's topic whose record lies there, or why there is none."""
    try:
        view = store.record_at(physical_offset, size_bytes)
    except CorruptRecord as damage:
        return damage.reason
    if view is None:
        return "not in the log"
    record: Record | memoryview = view
    properties = _properties(view)
    if properties is None:
        decoded = decode(view, check_crc=False)
        if isinstance(decoded, str):
            return decoded
        if decoded.topic != TIMER_TOPIC:
            return f"a message of topic {decoded.topic}"
        record, properties = decoded, bytes(decoded.properties)
    if properties.startswith(SEAL_NAME, len(properties) - SEAL_BYTES):
        properties = properties[:-SEAL_BYTES]
    elif SEAL_NAME in properties:
        properties = without(properties, SEAL_NAME)
    at = properties.find(_OUT_MS) - 1
    place = _PLACE.match(properties, at) if at >= 0 else None
    if place is not None and properties.find(_REAL_TOPIC) == place.end(1) + 1:
        due, name, queue_id = place.groups()
        if properties.find(_REAL_QUEUE_ID, place.end(3)) >= 0:
            queue_id = find_last(properties, _REAL_QUEUE_ID)
    else:
        found_due, found_name = find_last(properties, _OUT_MS), find_last(properties, _REAL_TOPIC)
        if found_due is None or not found_due.isdigit() or len(found_due) > _MAX_DIGITS:
            return "TIMER_OUT_MS is not a time"
        due, name, queue_id = found_due, found_name or b"", find_last(properties, _REAL_QUEUE_ID)
    topic = topic_of(name) if name else None
    if topic is None:
        return "REAL_TOPIC is not a topic"
    return TimedMessage(record, properties, int(due), topic, queue_id)


@lru_cache(_MAX_TOPICS)
def topic_of(name: bytes) -> str | None:
    """Return the topic with this encoded name; None if there can be none."""
    return topic_name(name)


def _properties(view: memoryview) -> bytes | None:
    """Return the properties of a usual record of the wheel's topic; None for any other record."""
    end = plain_end(view)
    if end is None or not end[1].startswith(TOPIC_FIELD):
        return None
    rest = end[1]
    begin = len(TOPIC_FIELD) + 2
    properties = rest[begin:]
    return properties if int.from_bytes(rest[begin - 2 : begin], "big") == len(properties) else None


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
