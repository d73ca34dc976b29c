"""Encoding and writing of a batch of messages: the hot loop of every send.

Source: RocketMQ 5.3.3, `CommitLog.asyncPutMessage`, `DefaultAppendMessageCallback.doAppend`.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Protocol

from sprocket.common.errors import DiskFailed, RequestError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import VALUE_END_OCTET, terminated, without
from sprocket.remoting.message.record import (
    ANY_V6,
    BLANK_MIN_BYTES,
    CRC_MASK,
    FIXED_IPV4_RAW,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    V6_GROWTH_BYTES,
    SysFlag,
)
from store.config.store_config import StoreConfig
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.inner_batch import message_count, placed_at
from store.queue.logic_queue import LogicQueue
from store.queue.multi_dispatch import DISPATCHES, MultiDispatch
from store.record.checksum import NO_SEAL, SEAL_BYTES, SEAL_NAME, crc32, sealed_crc, with_seals
from store.record.record import (
    Appended,
    PendingMessage,
    TagsCodes,
    blank,
    encode_head,
    enters_consume_queue,
)

_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)

_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
# Flags that need more than the common path.
_UNUSUAL: Final = _PREPARED | ANY_V6 | DISPATCHES
# The field properties_length of most records, precomputed: five times as fast as `to_bytes`.
_SHORT_LENGTHS: Final = tuple(length.to_bytes(2, "big") for length in range(1024))

# The name of the seal has this character, and few other names do.
_HASH: Final = ord("#")
_END: Final = VALUE_END_OCTET
_BEFORE_LOG_WRITE: Final = failpoint("appender.before_log_write")
_AFTER_LOG_WRITE: Final = failpoint("appender.after_log_write")
_BETWEEN_QUEUES: Final = failpoint("appender.between_queues")
_AFTER_QUEUES: Final = failpoint("appender.after_queues")
_QUEUES_ROLLED_BACK: Final = failpoint("appender.queues_rolled_back")


class EncodedRecords(Protocol):
    """Records that an engine makes (`broker.send.kernel_native.SendTurn`): plain messages for plain queues."""

    def __len__(self) -> int: ...

    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes, /
    ) -> tuple[bytes, list[tuple[Any, bytes]]]:
        """Return the records, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """


class Batch:
    """Result of one append, and the queues that it changed."""

    __slots__ = ("appended", "end_offset", "message_count", "records", "size_bytes", "store_timestamp", "touched")

    def __init__(self, store_timestamp: int) -> None:
        self.store_timestamp = store_timestamp
        # Empty for `EncodedRecords`, which know their positions.
        self.appended: list[Appended] = []
        self.records = 0
        # Larger than the number of records if a record holds several messages.
        self.message_count = 0
        self.end_offset = 0
        # Bytes in the log, blanks included.
        self.size_bytes = 0
        # (queue, next offset of the queue before the batch)
        self.touched: list[tuple[LogicQueue, int]] = []


class Appender:
    """Encoder of messages; it assigns offsets and writes the log and the ConsumeQueues.  For the owner thread only."""

    def __init__(self, config: StoreConfig, log: CommitLog, table: ConsumeQueueTable, tags_codes: TagsCodes) -> None:
        self._log = log
        self._table = table
        self._tags_codes = tags_codes
        self._light = MultiDispatch(config, table)
        self.configure(config)
        self.store_host = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
        self._refusal = ""

    def configure(self, config: StoreConfig) -> None:
        """Set the limits of a message, and whether records are sealed."""
        self._max_body_bytes = config.max_message_size
        self._max_record_bytes = config.max_record_bytes
        # A record of at most this size exceeds no limit, whatever its parts are.
        self._unchecked_bytes = min(self._max_record_bytes, self._max_body_bytes, MAX_PROPERTIES_BYTES)
        self._seal_bytes = SEAL_BYTES if config.enabled_append_prop_crc else 0
        self._light.configure(config)

    def refuse(self, reason: str) -> None:
        """Refuse every append for `reason`; with the empty text, allow appends again."""
        self._refusal = reason

    def append(self, messages: Sequence[PendingMessage], store_timestamp: int) -> Batch:
        """Append all of `messages` or none.

        Raises `RequestError` for a message over a limit, `StoreError` while all appends are refused, `DiskFull`, or
        `DiskFailed`.  After any exception the log and the queues are as before.  If they cannot be rolled back, it is
        `DiskFailed`.
        """
        if self._refusal:
            raise StoreError(self._refusal)
        batch = Batch(store_timestamp)
        if self._light.is_enabled:
            messages = self._light.marked(messages)
        chunks: list[tuple[int, bytes]] = []
        begin = self._log.wrote_offset
        try:
            self._encode(messages, batch, chunks)
            batch.size_bytes = batch.end_offset - begin
            batch.message_count += len(messages)
            batch.records = len(messages)
            _BEFORE_LOG_WRITE()
            self._log.write(chunks, batch.end_offset)
            _AFTER_LOG_WRITE()
            for queue, _ in batch.touched:
                queue.write_pending()
                _BETWEEN_QUEUES()
            _AFTER_QUEUES()
        except BaseException as error:
            # Also MemoryError and KeyboardInterrupt: to the caller, every exception means "nothing is stored".
            self._roll_back(batch, chunks if self._log.wrote_offset != begin else [], error)
            raise
        return batch

    def encoded_limits(self) -> tuple[int, int]:
        """Return the room for `EncodedRecords` in this segment, and a size: a record up to it exceeds no limit.

        Both are bytes.  The room is 0 if the present configuration needs more than they have.
        """
        log = self._log
        if self._refusal or self._light.is_enabled or not self._seal_bytes or len(self.store_host) != IPV4_HOST_BYTES:
            return 0, 0
        room_bytes = log.segment_bytes - log.wrote_offset % log.segment_bytes - BLANK_MIN_BYTES
        return room_bytes, self._unchecked_bytes

    def plain_queue(self, topic: str, queue_id: int, *, may_be_new: bool = False) -> LogicQueue | None:
        """Return the queue, if it takes `EncodedRecords` and exists, or `may_be_new`: then the first ones create it."""
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None and may_be_new:
            queue = self._table.new(topic, queue_id)
        return queue if queue is not None and queue.is_plain else None

    def new_queues(self, own: tuple[str, int], messages: Sequence[PendingMessage]) -> list[tuple[str, int]]:
        """Return the keys of the queues without a file that `messages`, all of the queue `own`, would enter."""
        new = [] if self._has_file(own) else [own]
        if self._light.is_enabled:
            light = chain.from_iterable(map(self._light.queues_of, messages))
            new += [key for key in light if not self._has_file(key)]
        return new

    def _has_file(self, key: tuple[str, int]) -> bool:
        queue = self._table.by_key.get(key)
        return queue is not None and (queue.min_offset < queue.next_offset or queue.first_unit < queue.capacity_unit)

    def append_encoded(self, records: EncodedRecords, store_timestamp: int) -> Batch:
        """Append all of `records` or none, as `append`; they fit into the room and exceed no limit."""
        if self._refusal:
            raise StoreError(self._refusal)
        batch = Batch(store_timestamp)
        begin = self._log.wrote_offset
        content, entries = records.encode(begin, store_timestamp, self.store_host)
        chunks = [(begin, content)]
        batch.size_bytes = len(content)
        batch.end_offset = begin + batch.size_bytes
        batch.message_count = batch.records = len(records)
        try:
            _BEFORE_LOG_WRITE()
            self._log.write(chunks, batch.end_offset)
            _AFTER_LOG_WRITE()
            for queue, units in entries:
                if not queue.next_offset:
                    self._table.add(queue)
                batch.touched.append((queue, queue.next_offset))
                queue.next_offset += len(units) // CONSUME_QUEUE_UNIT_BYTES
                queue.write_units(units)
                _BETWEEN_QUEUES()
            _AFTER_QUEUES()
        except BaseException as error:
            self._roll_back(batch, chunks if self._log.wrote_offset != begin else [], error)
            raise
        return batch

    def refusals(self, messages: Sequence[PendingMessage]) -> dict[int, str]:
        """Return why some of `messages` are over a limit, by index; empty if `append` would accept all of them.

        Nothing is written.
        """
        if self._light.is_enabled:
            messages = self._light.marked(messages)
        batch, refused = Batch(0), dict[int, str]()
        try:
            while (done := len(batch.appended) + len(refused)) < len(messages):
                try:
                    self._encode(messages[done:], batch, [])
                except RequestError as error:
                    refused[len(batch.appended) + len(refused)] = error.remark
        finally:
            self._roll_back(batch, [], None)
        return refused

    def _roll_back(self, batch: Batch, chunks: list[tuple[int, bytes]], cause: BaseException | None) -> None:
        """Restore the queues as they were before `batch`, and the log as it was before `chunks`.

        Raises `DiskFailed` if that fails: then it is unknown what is stored.
        """
        try:
            for queue, offset in batch.touched:
                queue.roll_back(offset)
            if chunks:
                _QUEUES_ROLLED_BACK()
                self._log.erase(chunks, cause)
        except DiskFailed:
            raise
        except BaseException as error:
            raise DiskFailed(f"cannot roll back a failed append: {type(error).__name__}: {error}") from error

    # Written for speed and measured line by line: names are bound once, and one test finds every unusual case.
    def _encode(self, messages: Sequence[PendingMessage], batch: Batch, chunks: list[tuple[int, bytes]]) -> None:
        queues, log = self._table.by_key, self._log
        store_timestamp, store_host = batch.store_timestamp, self.store_host
        plain_host = IPV4_HOST_BYTES if len(store_host) == IPV4_HOST_BYTES else -1
        appended, touched, unchecked_bytes = batch.appended, batch.touched, self._unchecked_bytes
        start = position = log.wrote_offset
        limit = log.segment_end(position) - BLANK_MIN_BYTES
        pack, checksum, lengths, seal_bytes = FIXED_IPV4_RAW.pack, crc32, _SHORT_LENGTHS, self._seal_bytes
        # Parts of the chunk at `start`; with seals, whole records and their CRCs.
        parts: list[bytes | memoryview] = []
        crcs: list[int] = []
        for message in messages:
            queue = queues.get((message.topic, message.queue_id)) or self._new_queue(message)
            body, properties = message.body, message.properties
            sys_flag, born_host = message.sys_flag, message.born_host
            if _HASH in properties or not (queue.is_plain and seal_bytes and properties and properties[-1] == _END):
                properties = self._sealable(queue, message)
            body_bytes, properties_bytes = len(body), len(properties) + seal_bytes
            size = queue.record_base_bytes + body_bytes + properties_bytes
            usual = in_queue = len(born_host) == plain_host and not sys_flag & _UNUSUAL
            if not usual:
                in_queue = enters_consume_queue(sys_flag)
                properties, properties_bytes, sys_flag, size = self._unusual(queue, message, properties, size)
            if size > unchecked_bytes:
                self._check(body_bytes, properties_bytes, size)
            if position + size > limit:
                start = position = _end_segment(chunks, parts, crcs, start, position, limit + BLANK_MIN_BYTES)
                limit = log.segment_end(position) - BLANK_MIN_BYTES
            queue_offset = 0
            if in_queue:
                queue_offset, pending = queue.next_offset, queue.pending
                if not pending:
                    touched.append((queue, queue_offset))
                if queue.is_plain:
                    queue.next_offset = queue_offset + 1
                    pending += (position, size, message.tags_code)
                else:
                    self._assign(batch, queue, message, properties, position, size)
            if usual:
                head = pack(
                    size, queue.magic, checksum(body) & CRC_MASK, queue.queue_id, message.flag, queue_offset, position,
                    sys_flag, message.born_timestamp, born_host, store_timestamp, store_host,
                    message.reconsume_times, message.prepared_transaction_offset, body_bytes,
                )  # fmt: skip
            else:
                self._light.place(touched, position, size, message.tags_code, store_timestamp)
                rest = position, sys_flag, store_timestamp, store_host
                head = encode_head(message, size, queue.magic, queue_offset, *rest)
            length = lengths[properties_bytes] if properties_bytes < 1024 else properties_bytes.to_bytes(2, "big")
            if seal_bytes:
                record = b"".join((head, body, queue.topic_bytes, length, properties))
                parts.append(record)
                crcs.append(checksum(record) & CRC_MASK)
            else:
                parts += (head, body, queue.topic_bytes, length, properties)
            appended.append((queue_offset, position, size))
            position += size
        if parts:
            chunks.append((start, with_seals(parts, crcs) if crcs else b"".join(parts)))
        batch.end_offset = position

    def _new_queue(self, message: PendingMessage) -> LogicQueue:
        self._light.admit(message.topic)
        return self._table.get_or_create(message.topic, message.queue_id)

    def _unusual(
        self, queue: LogicQueue, message: PendingMessage, properties: bytes, size: int
    ) -> tuple[bytes, int, int, int]:
        """Return properties, properties' bytes, flags and size of an unusual record."""
        if message.sys_flag & DISPATCHES:
            plain_bytes = len(properties)
            properties = self._light.addressed(queue, properties)
            size += len(properties) - plain_bytes
        sys_flag, size = _with_host_flags(message.sys_flag & ~DISPATCHES, size, message.born_host, self.store_host)
        return properties, len(properties) + self._seal_bytes, sys_flag, size

    def _assign(
        self,
        batch: Batch,
        queue: LogicQueue,
        message: PendingMessage,
        properties: bytes,
        position: int,
        size: int,
    ) -> None:
        """Assign the record's offset in a queue that is not plain."""
        tags_code, count, store_timestamp = message.tags_code, 1, batch.store_timestamp
        if queue.is_schedule:
            tags_code = self._tags_codes.of_scheduled(properties, store_timestamp, tags_code)
        else:
            count = message_count(properties)
            batch.message_count += count - 1
        queue.add(position, size, tags_code, store_timestamp, count)

    def _sealable(self, queue: LogicQueue, message: PendingMessage) -> bytes:
        """Return the properties as they are stored.

        They get the properties of a batch's record and a final separator; a seal from the sender is removed.

        Source: RocketMQ 5.3.3, `CommitLog.asyncPutMessage`, `MessageExtEncoder.encode`.  RocketMQ keeps the sender's
        seal in messages of a batch, and in all messages if enabledAppendPropCRC is off.  Here a broker must have sealed
        every record whose end looks like a seal.  Otherwise a read of the record would report damage.
        """
        properties = _placed(message, queue.next_offset) if queue.is_batch else message.properties
        if _HASH in properties and SEAL_NAME in properties:
            properties = without(properties, SEAL_NAME)
        if self._seal_bytes:
            return terminated(properties)
        if len(properties) >= SEAL_BYTES and sealed_crc(properties[-SEAL_BYTES:]) != NO_SEAL:
            remark = "message is illegal: its last property looks like __CRC32#, which only the broker may set"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        return properties

    def _check(self, body_bytes: int, properties_bytes: int, size: int) -> None:
        """Raise `RequestError` for a record that is over a limit."""
        if properties_bytes > MAX_PROPERTIES_BYTES:
            remark = f"properties have {properties_bytes} bytes, allowed are {MAX_PROPERTIES_BYTES}"
        elif body_bytes > self._max_body_bytes:
            remark = f"body has {body_bytes} bytes, maxMessageSize is {self._max_body_bytes}"
        elif size > self._max_record_bytes:
            remark = f"record has {size} bytes, allowed are {self._max_record_bytes}"
        else:
            return
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"message is illegal: {remark}", Reason.MESSAGE_TOO_LARGE)


def _placed(message: PendingMessage, queue_offset: int) -> bytes:
    """Return the properties of a message for a queue whose records may hold several messages."""
    count = message_count(message.properties) if message.sys_flag & _INNER_BATCH else 1
    return placed_at(message.properties, queue_offset, count)


def _end_segment(
    chunks: list[tuple[int, bytes]],
    parts: list[bytes | memoryview],
    crcs: list[int],
    start: int,
    position: int,
    end: int,
) -> int:
    """Fill the segment to its `end` with a blank, and begin a new chunk there.  Return `end`."""
    content = with_seals(parts, crcs) if crcs else b"".join(parts)
    chunks.append((start, content + blank(end - position)))
    parts.clear()
    crcs.clear()
    return end


def _with_host_flags(sys_flag: int, size: int, born_host: bytes, store_host: bytes) -> tuple[int, int]:
    """Return flags and size for the given hosts; `size` is that of the record with two IPv4 hosts."""
    sys_flag &= ~ANY_V6
    if len(born_host) == IPV6_HOST_BYTES:
        sys_flag |= SysFlag.BORN_HOST_V6
        size += V6_GROWTH_BYTES
    elif len(born_host) != IPV4_HOST_BYTES:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "message is illegal: born host is not an address and port")
    if len(store_host) == IPV6_HOST_BYTES:
        sys_flag |= SysFlag.STORE_HOST_V6
        size += V6_GROWTH_BYTES
    return int(sys_flag), size
