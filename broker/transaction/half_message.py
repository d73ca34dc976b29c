"""Half messages and what they become: a real message, a copy for the next check, or a given-up message.

A half message was prepared by a producer but not committed.  It is in RMQ_SYS_TRANS_HALF_TOPIC, with its destination in
REAL_TOPIC and REAL_QID.  A message of RMQ_SYS_TRANS_OP_HALF_TOPIC with tag ``d`` lists in its body the queue offsets of
half messages that are done: ``12,13,17,``.
Source: RocketMQ 5.3.3, `TransactionalMessageBridge`, `TransactionalMessageUtil`, `EndTransactionProcessor`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from broker.message_id import offset_message_id
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.headers.client import CheckTransactionStateRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import ANY_V6, BORN_V6, IPV6_HOST_BYTES, STORE_V6, SysFlag, record_size
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.record.checksum import SEAL_BYTES, SEAL_NAME
from store.record.record import Appended, PendingMessage, Record, TagsCodes, encode_head, topic_field

# RocketMQ also has one queue of each.
QUEUE_ID: Final = 0
TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_CRC: Final = "__CRC32#"
_REMOVE_TAG: Final = "d"
_REMOVE_TAGS_CODE: Final = java_hash_code(_REMOVE_TAG)
_OP_PROPERTIES: Final = names.encode({names.TAGS: _REMOVE_TAG, names.WAIT: "true"}).encode()
_OP_TAG: Final = names.encoded_name(names.TAGS)
_SEPARATOR: Final = b","
_UNIQUE_KEY: Final = names.encoded_name(names.UNIQ_KEY)
_GROUP: Final = names.encoded_name(names.PRODUCER_GROUP)
_REAL_TOPIC: Final = names.encoded_name(names.REAL_TOPIC)
_REAL_QUEUE_ID: Final = names.encoded_name(names.REAL_QUEUE_ID)
_IMMUNITY: Final = names.encoded_name(names.CHECK_IMMUNITY_TIME_IN_SECONDS)

# Equal for a half message, its copies and its real message, and different for two transactions.
Identity: TypeAlias = tuple[str, int, bytes, int]


class HalfMessage:
    """A record of the half topic with its properties."""

    __slots__ = ("_encoded", "_plain", "_properties", "record", "target")

    def __init__(self, record: Record) -> None:
        self.record = record
        encoded = self._encoded = bytes(record.properties)
        self._properties: dict[str, str] | None = None
        # All properties without the seal, as the producer sent them; without a seal they are encoded again.
        self._plain = encoded[:-SEAL_BYTES] if encoded.startswith(SEAL_NAME, -SEAL_BYTES) else None
        # Destination topic and queue; None if the message has none.
        self.target = self._target()

    @property
    def properties(self) -> dict[str, str]:
        """All properties, parsed on first use: the end of a transaction needs few of them."""
        if self._properties is None:
            self._properties = names.parse(java_text(self._encoded))
            # The next record gets its own.
            self._properties.pop(_CRC, None)
        return self._properties

    def _value(self, name: bytes) -> str | None:
        value = names.find_last(self._encoded, name)
        return None if value is None else java_text(value)

    @property
    def identity(self) -> Identity:
        record = self.record
        return self.unique_key or "", record.born_timestamp, record.born_host, record.body_crc

    @property
    def producer_group(self) -> str | None:
        return self._value(_GROUP)

    @property
    def unique_key(self) -> str | None:
        return self._value(_UNIQUE_KEY)

    def _target(self) -> tuple[str, int] | None:
        topic, queue_id = self._value(_REAL_TOPIC), self._value(_REAL_QUEUE_ID) or ""
        if not topic or not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10):
            return None
        return None if topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC) else (topic, int(queue_id))

    @property
    def check_times(self) -> int:
        """How often the producer was asked."""
        return _number(self.properties.get(names.TRANSACTION_CHECK_TIMES)) or 0

    @property
    def prepared_offset(self) -> int | None:
        """Queue offset of the first half message, in a copy made while the message was immune."""
        return _number(self.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET))

    @property
    def is_copy(self) -> bool:
        return (
            names.TRANSACTION_CHECK_TIMES in self.properties
            or names.TRANSACTION_PREPARED_QUEUE_OFFSET in self.properties
        )

    def immunity_ms(self, timeout_ms: int) -> int | None:
        """Return how long the producer must not be asked; None if not given, `timeout_ms` if not valid."""
        text = self._value(_IMMUNITY)
        if text is None:
            return None
        seconds = _number(text)
        return timeout_ms if seconds is None or seconds < 0 else seconds * 1000

    # Conversions

    def real(self, topic: str, queue_id: int, tags_codes: TagsCodes) -> PendingMessage:
        """Return the message for its consumers; like RocketMQ's, it keeps REAL_TOPIC, REAL_QID and TRAN_MSG."""
        record, properties = self.record, self._plain or self.encoded()
        return PendingMessage(
            topic, queue_id, record.body, properties, tags_codes.of("", properties, 0), record.flag,
            record.sys_flag & ~TRANSACTION_MASK | COMMIT, record.born_timestamp, record.born_host,
            record.reconsume_times, record.physical_offset,
        )  # fmt: skip

    def encoded(self, changes: dict[str, str] | None = None) -> bytes:
        """Return the encoded properties without the seal, with `changes`."""
        return names.encode_copy(self.properties | (changes or {}), self._encoded)

    def checked_copy(self, tags_codes: TagsCodes) -> PendingMessage:
        """Return the half message to be written again, with one more check counted."""
        return self._copy({names.TRANSACTION_CHECK_TIMES: str(self.check_times + 1)}, tags_codes)

    def immune_copy(self, tags_codes: TagsCodes) -> PendingMessage:
        """Return the half message to be written again without a check, with its first queue offset."""
        first = self.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET, str(self.record.queue_offset))
        return self._copy({names.TRANSACTION_PREPARED_QUEUE_OFFSET: first}, tags_codes)

    def resumed(self, tags_codes: TagsCodes) -> PendingMessage:
        """Return a given-up message as a half message again, with its checks counted from 0."""
        first = HalfMessage(self.record)
        # The first half message's outcome means nothing for this one.
        first.properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        return first._copy({names.TRANSACTION_CHECK_TIMES: "0"}, tags_codes)

    def given_up(self, tags_codes: TagsCodes) -> PendingMessage:
        """Return the message for TRANS_CHECK_MAX_TIME_TOPIC."""
        return self._copy({}, tags_codes, TRANS_CHECK_MAX_TIME_TOPIC)

    def _copy(self, changes: dict[str, str], tags_codes: TagsCodes, topic: str = TRANS_HALF_TOPIC) -> PendingMessage:
        record, properties = self.record, self.encoded(changes)
        return PendingMessage(
            topic, QUEUE_ID, record.body, properties, tags_codes.of("", properties, 0), record.flag, record.sys_flag,
            record.born_timestamp, record.born_host, record.reconsume_times, record.prepared_transaction_offset,
        )  # fmt: skip


def prepare(properties: dict[str, str], topic: str, queue_id: int, producer_group: str) -> tuple[str, int]:
    """Convert a message's properties to those of a half message; return the topic and queue in which it is stored."""
    unique_key = properties.get(names.UNIQ_KEY)
    if unique_key:
        properties[names.TRANSACTION_ID] = unique_key
    properties.setdefault(names.PRODUCER_GROUP, producer_group)
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QUEUE_ID] = str(queue_id)
    # Only the broker sets these.
    properties.pop(names.TRANSACTION_CHECK_TIMES, None)
    properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return TRANS_HALF_TOPIC, QUEUE_ID


# Op messages


def op_messages(offsets: Sequence[int], max_bytes: int, host: bytes, now_ms: int) -> Iterator[PendingMessage]:
    """Yield messages that mark the half messages at `offsets` as done; a body ends at or after `max_bytes`."""
    whole = b"%b," % ",".join(map(str, offsets)).encode()
    if offsets and len(whole) <= max_bytes:
        yield _op_message(whole, host, now_ms)
        return
    body = bytearray()
    for offset in offsets:
        body += b"%d," % offset
        if len(body) >= max_bytes:
            yield _op_message(bytes(body), host, now_ms)
            body.clear()
    if body:
        yield _op_message(bytes(body), host, now_ms)


def _op_message(body: bytes, host: bytes, now_ms: int) -> PendingMessage:
    return PendingMessage(TRANS_OP_HALF_TOPIC, QUEUE_ID, body, _OP_PROPERTIES, _REMOVE_TAGS_CODE, 0, 0, now_ms, host)


def op_offsets(record: Record) -> list[int]:
    """Return the queue offsets that an op message lists, without what is no number."""
    if names.find_last(bytes(record.properties), _OP_TAG) != _REMOVE_TAG.encode():
        return []
    parts = bytes(record.body).split(_SEPARATOR)
    return [int(part) for part in parts if part.isdigit() and len(part) < 20]


# Checks


def check_request(
    half: HalfMessage, appended: Appended, broker_name: str, store_host: bytes, store_timestamp: int
) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """Return header and body of the check of a half message that is stored at `appended`."""
    queue_offset, physical_offset, _ = appended
    header = CheckTransactionStateRequestHeader(
        topic=TRANS_HALF_TOPIC,
        tran_state_table_offset=queue_offset,
        commit_log_offset=physical_offset,
        msg_id=half.unique_key,
        transaction_id=half.unique_key,
        offset_msg_id=offset_message_id(store_host, physical_offset),
        broker_name=broker_name,
    )
    return header, _as_sent(half, appended, store_host, store_timestamp)


def _as_sent(half: HalfMessage, appended: Appended, store_host: bytes, store_timestamp: int) -> bytes:
    """Return the message as a record under its real topic, which the producer decodes (`MessageDecoder.encode`)."""
    topic, queue_id = half.target or (TRANS_HALF_TOPIC, QUEUE_ID)
    queue_offset, physical_offset, _ = appended
    record, properties = half.record, half.encoded()
    message = PendingMessage(
        topic, queue_id, record.body, properties, 0, record.flag, record.sys_flag, record.born_timestamp,
        record.born_host, record.reconsume_times, record.prepared_transaction_offset,
    )  # fmt: skip
    sys_flag = record.sys_flag & ~ANY_V6
    sys_flag |= BORN_V6 if len(record.born_host) == IPV6_HOST_BYTES else 0
    sys_flag |= STORE_V6 if len(store_host) == IPV6_HOST_BYTES else 0
    magic, topic_bytes = topic_field(topic)
    length_bytes = len(topic_bytes) - len(topic.encode())
    size = record_size(sys_flag, len(record.body), len(topic.encode()), len(properties), length_bytes)
    head = encode_head(message, size, magic, queue_offset, physical_offset, sys_flag, store_timestamp, store_host)
    return b"".join((head, record.body, topic_bytes, len(properties).to_bytes(2, "big"), properties))


def _number(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
