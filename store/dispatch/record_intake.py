"""Dispatch of a replica's records to their ConsumeQueues, one by one.

A scan first makes a batch of columns, which takes three to ten times as long for one record.  A replica of a quiet
master gets one record at a time, and the master's senders wait for it.  The checks are those of `store.log.log_scan`
and `store.dispatch.redispatch`, which also handle every unusual record.  The compiled twin is
`store/dispatch/record_intake_native.pyx`.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sprocket.engine.choice import native
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    CRC_MASK,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    SysFlag,
    struct_of,
)
from store.appender import Batch
from store.dispatch.redispatch import Redispatch
from store.log.commit_log import CommitLog
from store.queue.consume_queue import encode_entries
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue
from store.record.checksum import SEAL_BYTES, crc32, seal
from store.record.record import FIXED_IPV4_BYTES, TAGS_NAME, TagsCodes, crc_damage, topic_name

_UNUSUAL_FLAGS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6 | SysFlag.TRANSACTION_PREPARED)

_FIELDS: Final = struct_of(
    "total_size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp",
    "body_length",
)  # fmt: skip
# Up to this size a copy pays: parts of bytes take half the time of parts of a memoryview.
_COPIED_BYTES: Final = 64 * 1024
_SHORT: Final = struct.Struct(">H")
# The compiled engine, None with pure Python.
_ENGINE: Final = native("store.dispatch.record_intake_native")

# Bytes of the taken records, the store timestamp of the last one, and for each queue its new entries.
Taken = tuple[int, int, list[tuple[LogicQueue, bytes]]]
# Returns the queue of a topic, as its bytes in the record, and a queue id; None if its records are unusual.
QueueOf = Callable[[bytes, int], LogicQueue | None]


class RecordIntake:
    """Dispatcher of records.  For the owner thread of its store."""

    def __init__(self, log: CommitLog, table: ConsumeQueueTable, tags_codes: TagsCodes, engine: Any = _ENGINE) -> None:
        self._log = log
        self._table = table
        self._walk: Any = partial(_walk, tags_codes.of_tag) if engine is None else engine.take

    def take(self, dispatch: Redispatch, batch: Batch, start: int, content: memoryview) -> int:
        """Dispatch the usual records with which `content` begins, the bytes of the log from `start` on, in one segment.

        Return the offset of the first record that was not dispatched.  `batch` gets the store timestamp of the last
        dispatched record.  Raises `DiskFull` or `DiskFailed`.
        """
        if self._table.dispatches:
            return start
        log, walk, at = self._log, self._walk, 0
        room_bytes, requires_seals, queue_of = log.segment_end(start) - start, log.requires_seals, self._known_queue
        while at < len(content):
            taken_bytes, store_timestamp, entries = walk(
                content[at:], start + at, room_bytes - at, _UNUSUAL_FLAGS, require_seal=requires_seals,
                queue_of=queue_of,
            )  # fmt: skip
            if not taken_bytes:
                break
            for queue, units in entries:
                dispatch.enter_units(queue, units)
            batch.store_timestamp = store_timestamp
            at += int(taken_bytes)
        return start + at

    def _known_queue(self, topic_field: bytes, queue_id: int) -> LogicQueue | None:
        topic = topic_name(topic_field)
        queue = None if topic is None else self._table.by_key.get((topic, queue_id))
        return None if queue is None or queue.is_batch or queue.is_schedule else queue


class _KnownQueue:
    """One queue that gets records, and their entries."""

    __slots__ = ("fields", "next_offset", "queue")

    def __init__(self, queue: LogicQueue) -> None:
        self.queue = queue
        self.next_offset = queue.next_offset
        self.fields: list[int] = []


def _walk(
    tag_code_of: Callable[[bytes], int],
    segment: memoryview,
    base: int,
    room_bytes: int,
    unusual_flags: int,
    *,
    require_seal: bool,
    queue_of: QueueOf,
) -> Taken:
    """Twin of `store.dispatch.record_intake_native.take`, for any number of records and any tags."""
    # Written for speed: a record costs few calls.
    content = bytes(segment) if len(segment) <= _COPIED_BYTES else segment
    fields_at, at, store_timestamp = _FIELDS.unpack_from, 0, 0
    known: dict[tuple[bytes, int], _KnownQueue] = {}
    # After each record a segment has room for a blank.
    last = min(len(content), room_bytes - BLANK_MIN_BYTES)
    while at + MIN_RECORD_BYTES <= last:
        size, magic, body_crc, queue_id, queue_offset, physical_offset, sys_flag, stored_at, body_bytes = fields_at(
            content, at
        )
        end = at + size
        body_end = at + FIXED_IPV4_BYTES + body_bytes
        if magic != MAGIC_V1 or sys_flag & unusual_flags or physical_offset != base + at or end > last:
            break
        if size < MIN_RECORD_BYTES or body_bytes < 0 or body_end + 3 > end:
            break
        properties_at = body_end + content[body_end] + 3
        if properties_at > end or _SHORT.unpack_from(content, properties_at - 2)[0] != end - properties_at:
            break
        properties = bytes(content[properties_at:end])
        if properties and not properties[-1]:
            break
        if not properties.endswith(seal(crc32(content[at : end - SEAL_BYTES]) & CRC_MASK)) and crc_damage(
            segment[at:end], len(properties), segment[body_end - body_bytes : body_end], body_crc, require_seal
        ):
            break
        place = bytes(content[body_end + 1 : properties_at - 2]), queue_id
        queue_run = known.get(place)
        if queue_run is None:
            queue = queue_of(*place)
            # The first entry of a queue is unusual.
            if queue is None or not queue.next_offset:
                break
            queue_run = known[place] = _KnownQueue(queue)
        if queue_offset != queue_run.next_offset:
            break
        queue_run.next_offset += 1
        queue_run.fields += (base + at, size, tag_code_of(find_last(properties, TAGS_NAME) or b""))
        store_timestamp = stored_at
        at = end
    return (
        at,
        store_timestamp,
        [(queue_run.queue, encode_entries(queue_run.fields)) for queue_run in known.values() if queue_run.fields],
    )
