"""The fields of a record that revive needs, for little more than half the cost of a full decode.

Source: RocketMQ 5.3.3, `MessageExtEncoder.encode`; the layout is declared in `store.record.record`.
"""

from typing import Final, NamedTuple

from sprocket.remoting.message.properties import TAGS, TIMER_DELIVER_MS, encoded_name, find_last
from sprocket.remoting.message.record import ANY_V6, FIXED_IPV4_RAW, MAGIC_V1, MIN_RECORD_BYTES
from store.record.record import FIXED_IPV4_BYTES, Record, decode

_TAGS: Final = encoded_name(TAGS)
_DELIVER_AT: Final = encoded_name(TIMER_DELIVER_MS)
_MAX_DIGITS: Final = 18


class ReviveRecord(NamedTuple):
    """One record of the revive topic."""

    queue_offset: int
    deliver_at: int  # time set for the timer, ms; the store time of a record without one
    tag: bytes | None
    body: memoryview


def read_record(view: memoryview) -> ReviveRecord | str:
    """Return the fields of a stored record, or why it is invalid.  The store checks its CRC."""
    if len(view) < MIN_RECORD_BYTES:
        return _decoded(view)
    fields = FIXED_IPV4_RAW.unpack_from(view)
    body_end = FIXED_IPV4_BYTES + fields[14]
    if fields[1] != MAGIC_V1 or fields[7] & ANY_V6 or not FIXED_IPV4_BYTES <= body_end < len(view):
        return _decoded(view)
    # One byte for the length of the topic, the topic, two bytes for the length of the properties.
    properties = bytes(view[body_end + view[body_end] + 3 :])
    return _parts(fields[5], fields[10], properties, view[FIXED_IPV4_BYTES:body_end])


def _decoded(view: memoryview) -> ReviveRecord | str:
    record = decode(view, check_crc=False)
    if not isinstance(record, Record):
        return record
    return _parts(record.queue_offset, record.store_timestamp, bytes(record.properties), record.body)


def _parts(queue_offset: int, stored_at: int, properties: bytes, body: memoryview) -> ReviveRecord:
    deliver_at = find_last(properties, _DELIVER_AT)
    is_time = deliver_at is not None and deliver_at.isdigit() and len(deliver_at) <= _MAX_DIGITS
    return ReviveRecord(
        queue_offset, int(deliver_at) if is_time and deliver_at else stored_at, find_last(properties, _TAGS), body
    )
