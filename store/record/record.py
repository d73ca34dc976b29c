"""Encoding and decoding of messages in the CommitLog.

Source: RocketMQ 5.3.3, `MessageExtEncoder.encode`, `CommitLog.checkMessageAndReturnSize`.
The layout itself is declared in `sprocket.remoting.message.record`.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import DELAY, TAGS, encoded_name, find_last
from sprocket.remoting.message.record import (
    ANY_V6,
    BORN_V6,
    CRC_MASK,
    FIXED_IPV4_RAW,
    HEAD,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP,
    STORE_V6,
    SYS_FLAG_AT,
    TAIL,
    V6_GROWTH_BYTES,
    SysFlag,
    struct_of,
)
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.config.delay_levels import parse_delay_levels
from store.record.checksum import DAMAGED_SEAL, NO_SEAL, SEAL_BYTES, crc32, masked_crc, sealed_crc

MAX_V1_TOPIC_BYTES: Final = 127
TAGS_NAME: Final = encoded_name(TAGS)
_DELAY_NAME: Final = encoded_name(DELAY)

FIXED_IPV4_BYTES: Final = FIXED_IPV4_RAW.size
_short_at: Final = struct.Struct(">H").unpack_from
_sizes_of: Final = struct_of("total_size", "magic", "physical_offset", "sys_flag", "body_length").unpack_from
# Flag of messages without a ConsumeQueue entry.
NOT_DISPATCHED: Final = int(SysFlag.TRANSACTION_PREPARED)


class PendingMessage(msgspec.Struct, gc=False):
    """A message to append.  The store adds time, offsets, CRC and its own address.

    `properties` are encoded (name 0x01 value 0x02 ...).  `born_host` is the address, 4 or 16 bytes, then the port, 4
    bytes.  `tags_code` is the value for the ConsumeQueue; for the topic of scheduled messages, the store replaces it by
    the time of delivery.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes
    tags_code: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


# (queue_offset, physical_offset, size_bytes) of an appended message.  A plain tuple: a NamedTuple costs
# half a microsecond more per message.
Appended: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class Record:
    """A decoded record; `body` and `properties` are slices of the decoded bytes."""

    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: memoryview
    properties: memoryview

    @property
    def in_consume_queue(self) -> bool:
        """Whether the message has a ConsumeQueue entry: prepared and rolled back messages have none."""
        return enters_consume_queue(self.sys_flag)


def enters_consume_queue(sys_flag: int) -> bool:
    """Return whether a message with these flags gets a ConsumeQueue entry.

    Source: RocketMQ 5.3.3, `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`.
    """
    return not sys_flag & NOT_DISPATCHED


def topic_field(topic: str) -> tuple[int, bytes]:
    """Return the magic number for a topic, and its length and name as in a record."""
    name = topic.encode()
    if len(name) <= MAX_V1_TOPIC_BYTES:
        return MAGIC_V1, bytes([len(name)]) + name
    return MAGIC_V2, len(name).to_bytes(2, "big") + name


def encode_head(
    message: PendingMessage,
    size_bytes: int,
    magic: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    store_timestamp: int,
    store_host: bytes,
) -> bytes:
    """Return a record's bytes before the body, for any hosts; `FIXED_IPV4_RAW` is faster for two IPv4 hosts."""
    head = HEAD.pack(
        size_bytes,
        magic,
        masked_crc(message.body),
        message.queue_id,
        message.flag,
        queue_offset,
        physical_offset,
        sys_flag,
        message.born_timestamp,
    )
    tail = TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body))
    return b"".join((head, message.born_host, STORE_TIMESTAMP.pack(store_timestamp), store_host, tail))


# The fields of `FIXED_IPV4_RAW`, and where body, topic and properties begin, as `parts_of` returns them.
Parts: TypeAlias = tuple[tuple[Any, ...], int, int, int]


def parts_of(record: memoryview) -> Parts | str:
    """Return the fields of one whole record and where its parts begin, or a few words on why it is not a record.

    The magic number is that of a record, and the lengths add up to the size.  `record` has exactly `total_size` bytes.
    """
    size = len(record)
    if size < MIN_RECORD_BYTES:
        return "shorter than any record"
    fields = FIXED_IPV4_RAW.unpack_from(record)
    magic, sys_flag = fields[1], fields[7]
    if magic not in (MAGIC_V1, MAGIC_V2):
        return "magic number is none of a record"
    if fields[0] != size:
        return "size field differs from the record's size"
    body_at = FIXED_IPV4_BYTES
    if sys_flag & ANY_V6:
        body_at += V6_GROWTH_BYTES * ((sys_flag & BORN_V6 != 0) + (sys_flag & STORE_V6 != 0))
        if body_at + 3 > size:
            return "shorter than its fixed fields"
        fields = (*fields[:9], *_between_v6(record, sys_flag, body_at))
    body_bytes = fields[14]
    body_end = body_at + body_bytes
    topic_at = body_end + 1 if magic == MAGIC_V1 else body_end + 2
    if body_bytes < 0 or topic_at + 2 > size:
        return "body length exceeds the record"
    properties_at = topic_at + (record[body_end] if magic == MAGIC_V1 else _short_at(record, body_end)[0]) + 2
    if properties_at > size:
        return "topic length exceeds the record"
    if _short_at(record, properties_at - 2)[0] != size - properties_at:
        return "fields do not add up to the record's size"
    return fields, body_at, topic_at, properties_at


def plain_end(record: memoryview) -> tuple[int, bytes] | None:
    """Return the physical offset that a usual `record` names, and its bytes from the topic's length on.

    None for one with an IPv6 address or a topic of more than 127 bytes, and for what is none.
    """
    if len(record) < MIN_RECORD_BYTES:
        return None
    size, magic, physical_offset, sys_flag, body_bytes = _sizes_of(record)
    if size != len(record) or magic != MAGIC_V1 or sys_flag & ANY_V6 or not 0 <= body_bytes < size:
        return None
    return physical_offset, bytes(record[FIXED_IPV4_BYTES + body_bytes :])


def names_place(
    record: memoryview, topic_field_bytes: bytes, queue_id: int, queue_offset: int, physical_offset: int
) -> bool:
    """Return whether `record` is whole, and names this place in a queue and in the log; no CRC is checked.

    It is `decode` for recovery, which checks two records of each queue.
    """
    parts = parts_of(record)
    if isinstance(parts, str):
        return False
    fields, body_at, _, properties_at = parts
    if (fields[3], fields[5], fields[6]) != (queue_id, queue_offset, physical_offset):
        return False
    has_topic = record[body_at + fields[14] : properties_at - 2] == topic_field_bytes
    return has_topic and (properties_at == len(record) or record[-1] != 0)


# The fields of `FIXED_IPV4_RAW`, where the body begins, the topic, and where the properties begin.
Checked: TypeAlias = tuple[tuple[Any, ...], int, str, int]


def checked_parts(record: memoryview, *, check_crc: bool, require_seal: bool) -> Checked | str:
    """Return the fields and parts of one whole record, or a few words on why it is not a record; see `decode`."""
    parts = parts_of(record)
    if isinstance(parts, str):
        return parts
    fields, body_at, topic_at, properties_at = parts
    size = len(record)
    if check_crc:
        body = record[body_at : body_at + fields[14]]
        damage = crc_damage(record, size - properties_at, body, fields[2], require_seal)
        if damage:
            return damage
    topic = topic_name(bytes(record[topic_at : properties_at - 2]))
    # The CRC of the body covers only the body.  If a page of the rest never reached the disk, it holds zeros.  They are
    # found here, because a topic's name and the end of properties have none.
    if topic is None or (size > properties_at and not record[-1]):
        return "topic is not a name, or properties end with a zero"
    return fields, body_at, topic, properties_at


def decode(record: memoryview, *, check_crc: bool = True, require_seal: bool = False) -> Record | str:
    """Decode one whole record, or return a few words on why it is not a record.

    `record` has exactly `total_size` bytes.  Never raises on any content.  `check_crc` checks all of a record with a
    seal (`store.record.checksum`), and the body of a record without.  With `require_seal` a record must have a seal.
    """
    parts = checked_parts(record, check_crc=check_crc, require_seal=require_seal)
    if isinstance(parts, str):
        return parts
    fields, body_at, topic, properties_at = parts
    (
        size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body_bytes,
    ) = fields  # fmt: skip
    return Record(
        size, topic, queue_id, queue_offset, physical_offset, sys_flag, flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body_crc,
        record[body_at : body_at + body_bytes], record[properties_at:],
    )  # fmt: skip


def crc_damage(record: memoryview, properties_bytes: int, body: memoryview, body_crc: int, require_seal: bool) -> str:
    """Return the damage that the CRC shows in a record with consistent lengths; empty if none."""
    claimed = NO_SEAL
    if properties_bytes >= SEAL_BYTES:
        claimed = sealed_crc(bytes(record[-SEAL_BYTES:]))
    if claimed == DAMAGED_SEAL:
        return "the property that holds the record's CRC is damaged"
    if claimed != NO_SEAL:
        return "" if crc32(record[:-SEAL_BYTES]) & CRC_MASK == claimed else "record does not match its CRC"
    if require_seal:
        return "record has no CRC of its own, and forceVerifyPropCRC is set"
    return "body does not match its CRC" if len(body) and crc32(body) & CRC_MASK != body_crc else ""


def _between_v6(record: memoryview, sys_flag: int, body_at: int) -> tuple[bytes, int, bytes, int, int, int]:
    """Return the fields from the born host to the body length, if a host has 16 bytes."""
    born_end = HEAD.size + (IPV6_HOST_BYTES if sys_flag & BORN_V6 else IPV4_HOST_BYTES)
    tail_at = body_at - TAIL.size
    (store_timestamp,) = STORE_TIMESTAMP.unpack_from(record, born_end)
    reconsume_times, prepared_transaction_offset, body_bytes = TAIL.unpack_from(record, tail_at)
    store_host = bytes(record[born_end + STORE_TIMESTAMP.size : tail_at])
    born_host = bytes(record[HEAD.size : born_end])
    return born_host, store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body_bytes


@lru_cache(maxsize=4096)
def topic_name(name: bytes) -> str | None:
    """Return the topic of the encoded `name`; None if it is not a valid name."""
    if b"\0" in name:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def store_timestamp_of(record: memoryview) -> int:
    """Return the store timestamp, ms, of a valid record."""
    sys_flag = int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    at = HEAD.size + (IPV6_HOST_BYTES if sys_flag & BORN_V6 else IPV4_HOST_BYTES)
    timestamp: int = STORE_TIMESTAMP.unpack_from(record, at)[0]
    return timestamp


class TagsCodes:
    """Computation of the tags code of ConsumeQueue entries.

    Source: RocketMQ 5.3.3, `CommitLog.checkMessageAndReturnSize`, `computeDeliverTimestamp`.
    """

    _MAX_CACHED: Final = 4096

    def __init__(self, delay_levels: str) -> None:
        self._delays_ms = parse_delay_levels(delay_levels)
        self._hashes: dict[bytes, int] = {}

    def of(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """Return the hash of the tag, or for a scheduled message the time, ms, at which it is due; 0 without either."""
        if topic == SCHEDULE_TOPIC:
            due = self._delivery_time(properties, store_timestamp)
            if due is not None:
                return due
        return self.of_tag(find_last(properties, TAGS_NAME) or b"")

    def of_tag(self, tag: bytes) -> int:
        """Return the hash of the tag; 0 for an empty tag."""
        code = self._hashes.get(tag)
        if code is None:
            code = java_hash_code(java_text(tag))
            if len(self._hashes) < self._MAX_CACHED:
                self._hashes[tag] = code
        return code

    def of_scheduled(self, properties: bytes, store_timestamp: int, otherwise: int) -> int:
        """Return the time, ms, at which a message of the schedule topic is due; `otherwise` if it has no level."""
        due = self._delivery_time(properties, store_timestamp)
        return otherwise if due is None else due

    def _delivery_time(self, properties: bytes, store_timestamp: int) -> int | None:
        text = find_last(properties, _DELAY_NAME)
        if text is None or not text.isdigit():
            return None
        level = min(int(text[:10]), len(self._delays_ms))
        if level <= 0:
            return None
        return store_timestamp + self._delays_ms[level - 1]


def blank(size_bytes: int) -> bytes:
    """Return the first 8 bytes of the blank at the end of a segment; the rest of it may be anything."""
    return SIZE_AND_MAGIC.pack(size_bytes, MAGIC_BLANK)
