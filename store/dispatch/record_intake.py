"""Dispatch of a few records to their ConsumeQueues, without arrays.

Arrays cost half a millisecond before the first record.  A replica of a quiet master gets one record at a time, and the
master's senders wait for it.  The checks are those of `store.log.log_scan` and `store.dispatch.redispatch`, which
also handle every unusual record.  The compiled twin is `sprocket/engine/intake.pyx`.
"""

import struct
from typing import Any, Final

from sprocket.engine.choice import native
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    FIXED_IPV4_RAW,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    SysFlag,
)
from store.appender import Batch
from store.dispatch.redispatch import Redispatch
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue
from store.record.record import FIXED_IPV4_BYTES, TAGS_NAME, TagsCodes, crc_damage, topic_name

_UNUSUAL_FLAGS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6 | SysFlag.TRANSACTION_PREPARED)

_SHORT: Final = struct.Struct(">H")
# The compiled engine, None with pure Python.
_ENGINE: Final = native("intake")
# More records than this are cheaper in arrays; compiled, no number of them is.
_FEW: Final = 128 if _ENGINE is None else 1 << 31


class RecordIntake:
    """Dispatcher of a few records.  For the owner thread of its store."""

    def __init__(self, log: CommitLog, table: ConsumeQueueTable, tags_codes: TagsCodes, engine: Any = _ENGINE) -> None:
        self._log = log
        self._table = table
        self._tags_codes = tags_codes
        self._engine = engine

    def are_few(self, start: int, end: int) -> bool:
        """Return whether `start` to `end` is in one segment and, judged by its first record, holds few records."""
        log = self._log
        if end > log.segment_end(start):
            return False
        if end - start <= _FEW * MIN_RECORD_BYTES:
            return True
        head = log.slice_at(start, 4)
        return head is not None and end - start <= _FEW * int.from_bytes(head, "big")

    def take(self, dispatch: Redispatch, batch: Batch, start: int, content: memoryview) -> int:
        """Dispatch the usual records with which `content` begins, the bytes of the log from `start` on, in one segment.

        Return the offset of the first record that was not dispatched.  `batch` gets the store timestamp of the last
        dispatched record.  Raises `DiskFull` or `DiskFailed`.
        """
        if self._table.dispatches:
            return start
        if self._engine is not None:
            return self._take_compiled(dispatch, batch, start, content)
        log, queue_of, tag_code_of = self._log, self._table.by_key.get, self._tags_codes.of_tag
        fields_at, enter, requires_seals = FIXED_IPV4_RAW.unpack_from, dispatch.enter, log.requires_seals
        # After each record a segment has room for a blank.
        last = min(len(content), log.segment_end(start) - start - BLANK_MIN_BYTES)
        at = 0
        while at + MIN_RECORD_BYTES <= last:
            (
                size, magic, body_crc, queue_id, _, queue_offset, physical_offset, sys_flag, _, _, store_timestamp,
                _, _, _, body_bytes,
            ) = fields_at(content, at)  # fmt: skip
            end = at + size
            body_end = at + FIXED_IPV4_BYTES + body_bytes
            if magic != MAGIC_V1 or sys_flag & _UNUSUAL_FLAGS or physical_offset != start + at or end > last:
                break
            if size < MIN_RECORD_BYTES or body_bytes < 0 or body_end + 3 > end:
                break
            properties_at = body_end + content[body_end] + 3
            if properties_at > end or _SHORT.unpack_from(content, properties_at - 2)[0] != end - properties_at:
                break
            properties = bytes(content[properties_at:end])
            topic = topic_name(bytes(content[body_end + 1 : properties_at - 2]))
            body = content[body_end - body_bytes : body_end]
            if topic is None or (properties and not properties[-1]):
                break
            if crc_damage(content[at:end], len(properties), body, body_crc, requires_seals):
                break
            queue = queue_of((topic, queue_id))
            if queue is None or not _is_usual(queue):
                break
            enter(queue, queue_offset, start + at, size, tag_code_of(find_last(properties, TAGS_NAME) or b""))
            batch.store_timestamp = store_timestamp
            at = end
        return start + at

    def _take_compiled(self, dispatch: Redispatch, batch: Batch, start: int, content: memoryview) -> int:
        log, take, at = self._log, self._engine.take, 0
        room_bytes, requires_seals, queue_of = log.segment_end(start) - start, log.requires_seals, self._usual_queue
        while at < len(content):
            taken_bytes, store_timestamp, entries = take(
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

    def _usual_queue(self, topic_field: bytes, queue_id: int) -> LogicQueue | None:
        topic = topic_name(topic_field)
        queue = None if topic is None else self._table.by_key.get((topic, queue_id))
        return queue if queue is not None and _is_usual(queue) else None


def _is_usual(queue: LogicQueue) -> bool:
    return not queue.is_batch and not queue.is_schedule
