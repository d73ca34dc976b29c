"""Transactions of one broker: ends them, and commits how far the half and op queues are done.

An end is one append: the real messages, then the op messages that mark their half messages as done.  So both are stored
or neither is.  RocketMQ collects op messages for transactionOpBatchInterval instead; a reader of the queues sees no
difference.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from broker.core import BrokerCore
from broker.topic.moved_queues import PresentPlaces
from broker.transaction.half_message import QUEUE_ID, HalfMessage, op_messages
from broker.transaction.open_transactions import OpenTransactions
from broker.transaction.recovery import recovered
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
from store.message_store import PendingMessage
from store.moves import new_moves
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

    def __init__(self, core: BrokerCore, places: PresentPlaces) -> None:
        """`places` says where committed messages go."""
        self._config = core.config
        self.store = core.store
        self.places = places
        self._offsets = core.offsets
        self._clock = core.clock
        self.tags_codes = TagsCodes(core.config.store.message_delay_level)
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
        self.open, ended = recovered(self.store, half_offset, op_offset)
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
        return _half(self.store.record_at(physical_offset) if physical_offset >= 0 else None, topic)

    def half_in_queue(self, queue_offset: int, physical_offset: int) -> HalfMessage | None:
        """Return the half message at an offset of the log, found faster if its queue offset fits.

        None if there is none.  Raises CorruptRecord.
        """
        entry = self.store.mapped_entry(TRANS_HALF_TOPIC, QUEUE_ID, queue_offset)
        if entry is None or entry[0] != physical_offset or entry[1] == BLANK_SIZE:
            return self.half_at(physical_offset)
        return _half(self.store.record_at(physical_offset, entry[1]), TRANS_HALF_TOPIC)

    def open_at(self, half: HalfMessage) -> int | None:
        """Return where a transaction is open: at its half message, or at the newest copy; None if it is not open."""
        offset = half.record.queue_offset
        return offset if self.open.is_open(offset) else self.open.newest_copy(half.identity)

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
        ((queue_offset, _, _),) = self.store.append([half.resumed(self.tags_codes)])
        self.open.copied(queue_offset, half.identity)
        return self.store.wrote_offset

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
        self.append(list(self.places.placed(messages)), done)
        ended: dict[str, tuple[list[int], list[int]]] = {}
        for ending in endings:
            target = ending.half.target
            born, rolled_back = ended.setdefault("" if target is None else target[0], ([], []))
            (born if ending.is_commit else rolled_back).append(ending.half.record.born_timestamp)
        self._count({topic: (born, len(rolled_back)) for topic, (born, rolled_back) in ended.items()})
        return self.store.wrote_offset

    def new_moves(self) -> Any | None:
        """Return what the engine adds real messages to, yet empty; None if all ends go to `end`."""
        return new_moves(self.store)

    def end_moved(self, ends: Any) -> int | None:
        """Do what `end` does, with `ends` of the kernel; None if only `end` will do."""
        queue, moves = self.store.plain_queue(TRANS_OP_HALF_TOPIC, QUEUE_ID), ends.moves
        if queue is None:
            return None
        first_op = end_op = queue.next_offset
        for op in self._op_messages(ends.offsets):
            if not moves.add_made(queue, op.body, op.properties, op.tags_code, op.born_timestamp, op.born_host):
                return None
            end_op += 1
        end_offset = self.store.append_encoded(moves)
        self._ended(ends.offsets, range(first_op, end_op))
        self._count(ends.by_topic())
        return end_offset

    def _count(self, ended: Mapping[str, tuple[Sequence[int], int]]) -> None:
        """Count by real topic: born timestamps of what was committed, and the number of rollbacks."""
        now_ms = self._clock.wall_ms()
        for topic, (born, rolled_back) in ended.items():
            if born:
                self.committed[topic] += len(born)
                self.latencies.of((topic,)).add_all([(now_ms - one) // 1000 for one in born])
            if rolled_back:
                self.rolled_back[topic] += rolled_back

    def _op_messages(self, done: Sequence[int]) -> list[PendingMessage]:
        max_bytes = self._config.broker.transaction_op_msg_max_size
        return list(op_messages(done, max_bytes, self.store.store_host, self._clock.wall_ms()))

    def append(self, messages: list[PendingMessage], done: Sequence[int]) -> list[Appended]:
        """Store `messages` with op messages for the half messages at `done`; return where `messages` were stored."""
        appended = self.store.append([*messages, *self._op_messages(done)])
        self._ended(done, [op_offset for op_offset, _, _ in appended[len(messages) :]])
        return appended[: len(messages)]

    def _ended(self, done: Sequence[int], op_offsets: Iterable[int]) -> None:
        """Note that the half messages at `done` are done, which op messages say."""
        self.open.end_all(done)
        for op_offset in op_offsets:
            self.open.noted(op_offset, max(done))
        self.moved()

    # Offsets

    def moved(self) -> None:
        """Note the new offsets, to be committed once what was appended is flushed."""
        position = (self.store.wrote_offset, self.open.half_offset, self.open.op_offset)
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
        flushed, reached = self.store.flushed_offset, None
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
