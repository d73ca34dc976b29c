"""A record of rmq_sys_wheel_timer and what becomes of it: its real message, or itself once more further on.

Source: RocketMQ 5.3.3, `TimerMessageStore.convert`, `convertMessage`, `buildDeleteKey`.
"""

import re
import struct
from functools import lru_cache
from typing import Final

from sprocket.common.errors import CorruptRecord
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find
from sprocket.remoting.message.record import FIXED_IPV4_RAW, MIN_RECORD_BYTES, SysFlag
from store.config.timer_config import TIMER_TOPIC
from store.message_store import MessageStore
from store.record.checksum import SEAL_BYTES, SEAL_NAME, without_seal
from store.record.record import (
    FIXED_IPV4_BYTES,
    PendingMessage,
    Record,
    TagsCodes,
    decode,
    topic_field,
    topic_name,
)

_OUT_MS: Final = f"{names.TIMER_OUT_MS}\x01".encode()
_REAL_TOPIC: Final = f"{names.REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID: Final = f"{names.REAL_QUEUE_ID}\x01".encode()
_ENQUEUE_MS: Final = f"{names.TIMER_ENQUEUE_MS}\x01".encode()
_DEQUEUE_MS: Final = f"{names.TIMER_DEQUEUE_MS}\x01".encode()
_ROLL_TIMES: Final = f"{names.TIMER_ROLL_TIMES}\x01".encode()
_DELETE_KEY: Final = f"{names.TIMER_DEL_UNIQKEY}\x01".encode()
_UNIQUE_KEY: Final = f"{names.UNIQ_KEY}\x01".encode()
_MOST_DIGITS: Final = 19
_SYS_FLAG: Final = struct.Struct(">i")
_SYS_FLAG_AT: Final = 36
_ANY_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_TOPIC_FIELD: Final = topic_field(TIMER_TOPIC)[1]
# As a broker of Sprocket writes them, one behind the other; the first of a name counts, so each is looked for first.
_PLACE: Final = re.compile(rb"\x02TIMER_OUT_MS\x01([0-9]{1,19})\x02REAL_TOPIC\x01([^\x02]+)\x02REAL_QID\x01")
_MOST_TOPICS: Final = 1024
# TIMER_ENQUEUE_MS of a message that was late already when the wheel met it: `Long.MAX_VALUE`.
NEVER_ENQUEUED: Final = (1 << 63) - 1


class TimedMessage:
    """A record of the wheel's topic with the properties that the wheel lives by."""

    __slots__ = ("_record", "due_ms", "properties", "real_topic")

    def __init__(self, record: Record | memoryview, properties: bytes, due_ms: int, real_topic: str) -> None:
        self._record = record
        self.properties = properties
        self.due_ms = due_ms  # TIMER_OUT_MS
        self.real_topic = real_topic

    @property
    def record(self) -> Record:
        """The record, decoded when it is first asked for: what enters the wheel needs its properties alone."""
        record = self._record
        if not isinstance(record, Record):
            decoded = decode(record, check_crc=False)
            assert isinstance(decoded, Record), decoded
            record = self._record = decoded
        return record

    @property
    def deleted_key(self) -> bytes | None:
        """Topic and unique key of the message that this one takes back; None if it takes none back."""
        return find(self.properties, _DELETE_KEY) if _DELETE_KEY in self.properties else None

    @property
    def key(self) -> bytes | None:
        """Topic and unique key, as one who takes it back names it; None without unique key."""
        unique_key = find(self.properties, _UNIQUE_KEY)
        return None if unique_key is None else b"%s+%s" % (self.real_topic.encode(), unique_key)

    def real(self, enqueue_ms: int, now_ms: int, tags_codes: TagsCodes) -> PendingMessage | None:
        """The message as it goes to its real topic; None if it names no queue.

        As in the reference it keeps REAL_TOPIC and REAL_QID.
        """
        queue_id = find(self.properties, _REAL_QUEUE_ID)
        if queue_id is None or not queue_id.isdigit() or int(queue_id) >= 1 << 31:
            return None
        properties = _traced(self.properties, enqueue_ms, now_ms)
        code = tags_codes.of(self.real_topic, properties, 0)
        return self._pending(self.real_topic, int(queue_id), properties, code)

    def rolled(self, enqueue_ms: int, now_ms: int, tags_codes: TagsCodes) -> PendingMessage:
        """The message as it goes to the wheel's topic once more."""
        times = find(self.properties, _ROLL_TIMES)
        number = int(times) + 1 if times is not None and times.isdigit() and len(times) < _MOST_DIGITS else 1
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
        # As usual, or it would be decoded: only what is needed is read.
        fields = FIXED_IPV4_RAW.unpack_from(record)
        body = record[FIXED_IPV4_BYTES : FIXED_IPV4_BYTES + fields[14]]
        return PendingMessage(
            topic, queue_id, body, properties, tags_code, fields[4], fields[7], fields[8], fields[9], fields[12]
        )


def read_timed(store: MessageStore, physical_offset: int, size_bytes: int) -> TimedMessage | str:
    """The message of the wheel's topic whose record lies there, or a few words why there is none."""
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
    if SEAL_NAME in properties:
        sealed = properties.startswith(SEAL_NAME, len(properties) - SEAL_BYTES)
        properties = properties[:-SEAL_BYTES] if sealed else without_seal(properties)
    at = properties.find(_OUT_MS) - 1
    place = _PLACE.match(properties, at) if at >= 0 else None
    if place is not None and properties.find(_REAL_TOPIC) == place.end(1) + 1:
        due, name = place.groups()
    else:
        found_due, found_name = find(properties, _OUT_MS), find(properties, _REAL_TOPIC)
        if found_due is None or not found_due.isdigit() or len(found_due) > _MOST_DIGITS:
            return "TIMER_OUT_MS is no time"
        due, name = found_due, found_name or b""
    topic = _topic(name) if name else None
    return "REAL_TOPIC is no topic" if topic is None else TimedMessage(record, properties, int(due), topic)


@lru_cache(_MOST_TOPICS)
def _topic(name: bytes) -> str | None:
    return topic_name(name)


def _properties(view: memoryview) -> bytes | None:
    """The properties of a record of the wheel's topic that is as usual; None for any other."""
    if len(view) < MIN_RECORD_BYTES or _SYS_FLAG.unpack_from(view, _SYS_FLAG_AT)[0] & _ANY_V6:
        return None
    body_bytes: int = _SYS_FLAG.unpack_from(view, FIXED_IPV4_BYTES - 4)[0]
    at = FIXED_IPV4_BYTES + body_bytes
    rest = at + len(_TOPIC_FIELD)
    if body_bytes < 0 or view[at:rest] != _TOPIC_FIELD:
        return None
    properties = bytes(view[rest + 2 :])
    return properties if int.from_bytes(view[rest : rest + 2], "big") == len(properties) else None


def without(properties: bytes, name: bytes) -> bytes:
    """`properties` without the first property `name`, which ends with 0x01."""
    value = find(properties, name) if name in properties else None
    if value is None:
        return properties
    item = name + value
    if properties.startswith(item):
        return properties[len(item) + 1 :]
    begin = properties.find(b"\x02" + item)
    return properties[:begin] + properties[begin + 1 + len(item) :]


def _traced(properties: bytes, enqueue_ms: int, now_ms: int) -> bytes:
    properties = without(without(properties, _ENQUEUE_MS), _DEQUEUE_MS)
    return _added(properties, b"%s%d\x02%s%d\x02" % (_ENQUEUE_MS, enqueue_ms, _DEQUEUE_MS, now_ms))


def _added(properties: bytes, more: bytes) -> bytes:
    """`properties` with `more`, if there is room; what would be added only tells of the way that a message took."""
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + more if len(properties) + len(more) + SEAL_BYTES <= MAX_PROPERTIES_BYTES else properties
