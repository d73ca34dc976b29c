"""The transactions of one broker: ends them, and keeps how far the half and op queues are done with.

An end is one append: the real messages, then the op messages that say that their half messages are done with.  So
there is no moment at which one is stored and the other only remembered.  RocketMQ gathers op messages for
transactionOpBatchInterval instead; who reads the queues sees no difference.
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from broker.config.live_config import LiveConfig
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.transaction.half_message import QUEUE_ID, HalfMessage, op_messages
from broker.transaction.open_transactions import OpenTransactions
from broker.transaction.recovery import recovered
from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull, RequestError, StoreBusy
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from store.message_store import MessageStore, PendingMessage
from store.queue.consume_queue import BLANK_SIZE
from store.record.record import Appended, Record, TagsCodes, decode

logger = logging.getLogger(__name__)

_MOST_UNCOMMITTED: Final = 64


class Ending(msgspec.Struct, gc=False):
    """One transaction to be ended: its half message, and where it is open (its newest copy)."""

    half: HalfMessage
    open_at: int
    is_commit: bool


class Transactions:
    """Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, store: MessageStore, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self.tags_codes = TagsCodes(config.store.message_delay_level)
        self.open = OpenTransactions(0, 0)
        # (end of an append, half offset, op offset): committed once the append is on the disk, else a power cut
        # could take what they say is done.
        self._uncommitted: deque[tuple[int, int, int]] = deque()

    def load(self, *, writes: bool = True) -> None:
        """Find out what is open; with `writes`, write down what has ended and no op message says so.

        Raises `StoreError`; then nothing may be ended.
        """
        self._uncommitted.clear()
        query = self._offsets.query
        half_offset = query(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID)
        op_offset = query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID)
        self.open, ended = recovered(self._store, half_offset, op_offset)
        if not ended or not writes:
            return
        try:
            self.append([], ended)
        except (DiskFull, StoreBusy) as error:
            # The table knows; the next start finds them again.
            logger.warning("event=op_messages_not_written count=%d reason=%r", len(ended), str(error))

    def half_at(self, physical_offset: int, topic: str = TRANS_HALF_TOPIC) -> HalfMessage | None:
        """The half message at an offset of the log; None if there is none.  Raises `CorruptRecord`."""
        # The store checks what lies there: such a place may be anybody's guess.
        return _half(self._store.record_at(physical_offset) if physical_offset >= 0 else None, topic)

    def half_in_queue(self, queue_offset: int, physical_offset: int) -> HalfMessage | None:
        """The half message at an offset of the log, which is sure to be one if it is at that offset of its queue.

        None if there is none.  Raises `CorruptRecord`.
        """
        if 0 <= queue_offset < self._store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID):
            entries = self._store.entries(TRANS_HALF_TOPIC, QUEUE_ID, queue_offset, queue_offset + 1)
            places: list[tuple[int, int, int]] = entries.tolist()
            if places and places[0][0] == physical_offset and places[0][1] != BLANK_SIZE:
                return _half(self._store.record_at(physical_offset, places[0][1]), TRANS_HALF_TOPIC)
        return self.half_at(physical_offset)

    def given_up_at(self, physical_offset: int) -> HalfMessage | None:
        """The message at an offset of the log that was given up; None if there is none.  Raises `CorruptRecord`."""
        return self.half_at(physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)

    def resume(self, half: HalfMessage) -> int:
        """Have a message that was given up checked again; the end of what was written.

        Raises what `MessageStore.append` raises, and RequestError if its transaction is open.
        """
        if self.open.has_copy(half.identity):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction is being checked already")
        ((queue_offset, _, _),) = self._store.append([half.resumed(self.tags_codes)])
        self.open.copied(queue_offset, half.identity)
        return self._store.wrote_offset

    def end(self, endings: Sequence[Ending]) -> int:
        """Commit or roll back; the end of what was written.

        Raises what `MessageStore.append` raises; then nothing has ended.
        """
        messages = []
        done = []
        for ending in endings:
            half = ending.half
            if ending.is_commit and half.target is not None:
                messages.append(half.real(*half.target, self.tags_codes))
            done.append(ending.open_at)
            if half.record.queue_offset != ending.open_at:
                done.append(half.record.queue_offset)
        self.append(messages, done)
        return self._store.wrote_offset

    def append(self, messages: list[PendingMessage], done: Sequence[int]) -> list[Appended]:
        """Store `messages` together with the word that the half messages at `done` are done with; where they lie."""
        max_bytes = self._config.broker.transaction_op_msg_max_size
        ops = list(op_messages(done, max_bytes, self._store.store_host, self._clock.wall_ms()))
        appended = self._store.append([*messages, *ops])
        for offset in done:
            self.open.end(offset)
        for op_offset, _, _ in appended[len(messages) :]:
            self.open.noted(op_offset, max(done))
        self.moved()
        return appended[: len(messages)]

    # Offsets

    def moved(self) -> None:
        """Something was appended and half messages are done with: commit how far, as soon as it is on the disk."""
        position = (self._store.wrote_offset, self.open.half_offset, self.open.op_offset)
        if not self._uncommitted or self._uncommitted[-1][1:] != position[1:]:
            self._uncommitted.append(position)
        if len(self._uncommitted) >= _MOST_UNCOMMITTED:
            self.commit_offsets()

    def commit_at_once(self) -> None:
        """Commit how far half messages are done with, in another log than this broker's."""
        self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, self.open.half_offset)
        self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, self.open.op_offset)

    def commit_offsets(self) -> None:
        """Commit the offsets that the disk is sure of, as a consumer group's, where RocketMQ's broker finds them."""
        flushed, reached = self._store.flushed_offset, None
        while self._uncommitted and self._uncommitted[0][0] <= flushed:
            reached = self._uncommitted.popleft()
        if reached is not None:
            _, half_offset, op_offset = reached
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, half_offset)
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, op_offset)


def _half(view: memoryview | None, topic: str) -> HalfMessage | None:
    record = None if view is None else decode(view, check_crc=False)
    if not isinstance(record, Record) or record.topic != topic or record.queue_id != QUEUE_ID:
        return None
    return HalfMessage(record)
