"""Transactions of one broker: ends them, and commits how far the half and op queues are done.

An end is one append: the real messages, then the op messages that mark their half messages as done.  So both are stored
or neither is.  RocketMQ collects op messages for transactionOpBatchInterval instead; a reader of the queues sees no
difference.
"""

import logging
from collections import Counter, deque
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
from sprocket.common.refusal_reasons import Reason
from sprocket.metrics.distribution import Distributions
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

_MAX_UNCOMMITTED: Final = 64
# `BrokerMetricsManager`: 5 s, 1 and 10 minutes, 1, 12 and 24 hours.
_LATENCIES_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)


class Ending(msgspec.Struct, gc=False):
    """A transaction to end: its half message, and where it is open (its newest copy)."""

    half: HalfMessage
    open_at: int
    is_commit: bool


class Transactions:
    """Transactions of one broker.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, store: MessageStore, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self.tags_codes = TagsCodes(config.store.message_delay_level)
        self.open = OpenTransactions(0, 0)
        # (end of an append, half offset, op offset).  Committed once the append is flushed: otherwise a power loss
        # could take the real messages of transactions that count as done.
        self._uncommitted: deque[tuple[int, int, int]] = deque()
        # Transactions that ended since the start, by topic, and the ages of their half messages, s.
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.latencies = Distributions(_LATENCIES_S)

    def load(self, *, writes: bool = True) -> None:
        """Find the open transactions; with `writes`, write op messages for those that ended without one.

        Raises StoreError; no transaction may be ended then.
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
            # The table has them; the next start finds them again.
            logger.warning("event=op_messages_not_written count=%d reason=%r", len(ended), str(error))

    def half_at(self, physical_offset: int, topic: str = TRANS_HALF_TOPIC) -> HalfMessage | None:
        """Return the half message at an offset of the log; None if there is none.  Raises CorruptRecord."""
        # The store checks the record, because a client may send any offset.
        return _half(self._store.record_at(physical_offset) if physical_offset >= 0 else None, topic)

    def half_in_queue(self, queue_offset: int, physical_offset: int) -> HalfMessage | None:
        """Return the half message at an offset of the log, found faster if its queue offset fits.

        None if there is none.  Raises CorruptRecord.
        """
        if 0 <= queue_offset < self._store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID):
            entries = self._store.entries(TRANS_HALF_TOPIC, QUEUE_ID, queue_offset, queue_offset + 1)
            places: list[tuple[int, int, int]] = entries.tolist()
            if places and places[0][0] == physical_offset and places[0][1] != BLANK_SIZE:
                return _half(self._store.record_at(physical_offset, places[0][1]), TRANS_HALF_TOPIC)
        return self.half_at(physical_offset)

    def given_up_at(self, physical_offset: int) -> HalfMessage | None:
        """Return the given-up message at an offset of the log; None if there is none.  Raises CorruptRecord."""
        return self.half_at(physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)

    def resume(self, half: HalfMessage) -> int:
        """Write a given-up message as a half message again, to be checked; return the end of the append.

        Raises what `MessageStore.append` raises, and RequestError if its transaction is open.
        """
        if self.open.has_copy(half.identity):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "The transaction is being checked already", Reason.TRANSACTION_ENDED
            )
        ((queue_offset, _, _),) = self._store.append([half.resumed(self.tags_codes)])
        self.open.copied(queue_offset, half.identity)
        return self._store.wrote_offset

    def end(self, endings: Sequence[Ending]) -> int:
        """Commit or roll back; return the end of the append.

        Raises what `MessageStore.append` raises; no transaction has ended then.
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
        self._count(endings)
        return self._store.wrote_offset

    def _count(self, endings: Sequence[Ending]) -> None:
        now_ms = self._clock.wall_ms()
        for ending in endings:
            topic = ending.half.target[0] if ending.half.target is not None else ""
            if ending.is_commit:
                self.committed[topic] += 1
                self.latencies.add((topic,), (now_ms - ending.half.record.born_timestamp) // 1000)
            else:
                self.rolled_back[topic] += 1

    def append(self, messages: list[PendingMessage], done: Sequence[int]) -> list[Appended]:
        """Store `messages` with op messages for the half messages at `done`; return where `messages` were stored."""
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
        """Note the new offsets, to be committed once what was appended is flushed."""
        position = (self._store.wrote_offset, self.open.half_offset, self.open.op_offset)
        if not self._uncommitted or self._uncommitted[-1][1:] != position[1:]:
            self._uncommitted.append(position)
        if len(self._uncommitted) >= _MAX_UNCOMMITTED:
            self.commit_offsets()

    def commit_at_once(self) -> None:
        """Commit the offsets at once, because the messages are in another broker's log."""
        self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, self.open.half_offset)
        self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, self.open.op_offset)

    def commit_offsets(self) -> None:
        """Commit the offsets that are flushed, as those of a consumer group, where RocketMQ's broker finds them."""
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
