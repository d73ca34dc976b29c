"""Pop of messages from one queue.

Each pop is one turn of the event loop, so pops, acknowledgements and commits of a queue never interleave.  RocketMQ's
lock per topic, group and queue is not needed.
Source: RocketMQ 5.3.3, `PopMessageProcessor.popMsgFromQueue`, `appendCheckPoint`.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.core import BrokerCore
from broker.longpolling.held_pulls import PullFilter
from broker.pop.inflight import InflightMessages
from broker.pop.logical_pops import LogicalPops
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.order_info import ConsumerOrderInfo
from broker.pop.pop_counters import PopCounters
from broker.pop.pop_offsets import PopOffsets, Taken
from broker.pop.popped import Popped
from broker.pop.records import PopCheckPoint
from broker.pop.retry_record import queue_offsets_in, records_in, renamed
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import CorruptRecord, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.pop_extra_info import PopHandle, msg_offsets_entry, retry_kind, start_offset_entry
from sprocket.remoting.message.topic_names import is_light
from store.queue.get_result import GetResult, GetStatus
from store.queue.multi_dispatch import offset_in
from store.tier.reads.queue_reads import TierRead

logger = logging.getLogger(__name__)

_MAX_BYTES: Final = 0x7FFFFFFF
_WRONG_OFFSET: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
_NOTHING_WANTED: Final = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
)


class QueuePop:
    """Pops from the queues of one broker.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        log: ReviveLog,
        offsets: PopOffsets,
        order_info: ConsumerOrderInfo,
        inflight: InflightMessages,
        buffer: MergeBuffer,
        counters: PopCounters,
        logical: LogicalPops,
        came_near: Callable[[str, str, int], None] = lambda topic, group, queue_id: None,
    ) -> None:
        self._tier = core.tier
        # Called with topic, group and queue id when messages of the object store can be popped.
        self._came_near = came_near
        self._config = core.config
        self._logical = logical
        self._store = core.store
        self._consumer_offsets = core.offsets
        self._log = log
        self._offsets = offsets
        self._order_info = order_info
        self._inflight = inflight
        self._buffer = buffer
        self._counters = counters

    def take(self, popped: Popped, topic: str, queue_id: int, matches: PullFilter | None, *, is_retry: bool) -> None:
        """Take from one queue as many messages as `popped` accepts, and count the rest.

        A damaged record is noted in `popped.damage`; other queues can still be read.
        """
        header = popped.request.header
        group, max_offset = header.consumer_group, self._store.max_offset(topic, queue_id)
        if self._inflight.is_full(topic, group, queue_id):
            popped.rest += max(max_offset - self._offsets.current(topic, group, queue_id, header.init_mode), 0)
            peer_lines.log(
                logger, logging.DEBUG, "", "event=pop_stopped topic=%s group=%s queue=%d", topic, group, queue_id
            )
            return
        if self._logical.awaits_start(topic, group, queue_id, header.init_mode):
            return
        offset = self._offsets.begin(topic, group, queue_id, header.init_mode)
        if popped.is_ordered:
            is_blocked = self._order_info.blocks(header.attempt_id, topic, group, queue_id, header.invisible_time)
            if is_blocked or self._logical.blocks(topic, group, queue_id):
                # A blocked queue's further messages must wake no waiting pop.
                return
            self._inflight.clear(topic, group, queue_id)
        if popped.room <= 0:
            popped.rest += max(max_offset - offset, 0)
            return
        reads = self._store.kernel_reads
        if offset == max_offset and reads.queue(topic, queue_id) is not None:
            # A pop that was held finds its message in one queue; the others are at their ends.
            reads.missed(1)
            return
        try:
            offset, result = self._read(popped, topic, queue_id, offset, matches)
        except CorruptRecord as error:
            popped.damage = error
            return
        if result is None:
            popped.rest += max(max_offset - offset, 0)
            return
        if result.slices:
            self._hand_out(popped, topic, queue_id, offset, result, is_retry)
            return
        if result.status in _NOTHING_WANTED:
            self._skip(popped, topic, queue_id, result.next_offset)
            popped.is_cut_short = popped.is_cut_short or result.next_offset < result.max_offset
        popped.rest += max(result.max_offset - result.next_offset, 0)

    def took(self, topic: str, group: str, queues: Sequence[tuple[int, int, int]], found: list[Taken]) -> None:
        """Add to `found` what the compiled path took: queue id, next offset and messages of each of `queues`."""
        for queue_id, next_offset, messages in queues:
            taken = self._offsets.take(topic, group, queue_id, next_offset)
            taken.messages = messages
            self._inflight.popped(topic, group, queue_id, messages)
            found.append(taken)

    def count_checkpoints(self, topic: str, group: str, checkpoints: int) -> None:
        """Count what the compiled path made for what it took."""
        self._counters.checkpointed(topic, group, checkpoints)
        self._log.count_checkpoints(group, topic, checkpoints)

    def undo(self, taken: Taken) -> None:
        """Undo a pop whose messages were not delivered."""
        self._offsets.undo(taken)
        self._inflight.undo(taken.topic, taken.group, taken.queue_id, taken.messages)

    def _read(
        self, popped: Popped, topic: str, queue_id: int, offset: int, matches: PullFilter | None
    ) -> tuple[int, GetResult | None]:
        """Return the messages at `offset`, or at the queue's real next offset, and that offset.

        None if they are on their way from the object store; then a held pop is woken.
        """
        group = popped.request.header.consumer_group
        result = self._messages(popped, topic, queue_id, offset, matches)
        if result is not None and result.status in _WRONG_OFFSET:
            peer_lines.warning(
                logger, "", "event=pop_offset_corrected status=%s topic=%s group=%s queue=%d from=%d to=%d",
                result.status.name, topic, group, queue_id, offset, result.next_offset,
            )  # fmt: skip
            if result.next_offset < offset:
                self._offsets.place(topic, group, queue_id, result.next_offset)
            else:
                self._skip(popped, topic, queue_id, result.next_offset)
            offset = result.next_offset
            result = self._messages(popped, topic, queue_id, offset, matches)
        return offset, result

    def _messages(
        self, popped: Popped, topic: str, queue_id: int, offset: int, matches: PullFilter | None
    ) -> GetResult | None:
        if not self._tier.serves(topic, queue_id, offset):
            return self._store.get(topic, queue_id, offset, popped.room, _MAX_BYTES, matches)
        group = popped.request.header.consumer_group
        read = TierRead(group, topic, queue_id, offset, popped.room, _MAX_BYTES, matches)
        return self._tier.read_now(read, partial(self._came_near, topic, group, queue_id))

    def _skip(self, popped: Popped, topic: str, queue_id: int, next_offset: int) -> None:
        group = popped.request.header.consumer_group
        if not popped.is_ordered:
            self._offsets.skip(topic, group, queue_id, next_offset)
        elif next_offset > self._consumer_offsets.query(group, topic, queue_id):
            self._consumer_offsets.commit(group, topic, queue_id, next_offset)

    def _hand_out(
        self, popped: Popped, topic: str, queue_id: int, offset: int, result: GetResult, is_retry: bool
    ) -> None:
        header, group = popped.request.header, popped.request.header.consumer_group
        message_offsets = self._offsets_of(topic, queue_id, offset, result)
        if popped.is_ordered:
            self._order_info.update(
                header.attempt_id, topic, group, queue_id, popped.pop_time_ms, header.invisible_time, message_offsets,
                popped.order_counts,
            )  # fmt: skip
            # An ordered queue's offset stays until its messages are acknowledged.
            self._consumer_offsets.commit(group, topic, queue_id, offset)
        else:
            try:
                self._check_point(popped, topic, queue_id, offset, message_offsets, result.next_offset)
            except RequestError as error:
                popped.rest += result.max_offset - offset
                peer_lines.warning(
                    logger, "", "event=pop_refused topic=%s group=%s queue=%d reason=%r", topic, group, queue_id, error
                )
                return
        kind = retry_kind(topic)
        popped.start_offsets.append(start_offset_entry(kind, queue_id, offset))
        popped.message_offsets.append(msg_offsets_entry(kind, queue_id, message_offsets))
        popped.rest += result.max_offset - result.next_offset
        popped.count += len(message_offsets)
        self._inflight.popped(topic, group, queue_id, len(message_offsets))
        if is_retry and not self._config.broker.pop_response_return_actual_retry_topic:
            self._add_renamed(popped, topic, queue_id, offset, message_offsets, result)
        else:
            popped.add(result.slices, result.size_bytes)

    def _offsets_of(self, topic: str, queue_id: int, offset: int, result: GetResult) -> list[int]:
        """Return the queue offset of each record of a read that began at `offset`."""
        if is_light(topic):
            return [offset_in(topic, record) for record in records_in(result.slices)]
        is_whole = result.next_offset - offset == result.message_count
        if is_whole and self._store.kernel_reads.queue(topic, queue_id) is not None:
            # Every entry was read, and each has one message.
            return list(range(offset, result.next_offset))
        return queue_offsets_in(result.slices)

    def _check_point(
        self, popped: Popped, topic: str, queue_id: int, offset: int, message_offsets: list[int], next_offset: int
    ) -> None:
        """Record the delivery, in memory or for the revive topic.  Raises RequestError, with nothing changed."""
        header = popped.request.header
        checkpoint = PopCheckPoint(
            so=offset, pt=popped.pop_time_ms, it=header.invisible_time, n=len(message_offsets), q=queue_id, t=topic,
            c=header.consumer_group, d=[one - offset for one in message_offsets],
            bn=self._config.broker.broker_name,
        )  # fmt: skip
        message = self._log.checkpoint(checkpoint, popped.revive_queue_id)
        taken = self._offsets.take(topic, header.consumer_group, queue_id, next_offset)
        taken.messages = len(message_offsets)
        # Under the topic that the group knows, as in RocketMQ.
        self._counters.checkpointed(header.topic, header.consumer_group)
        if not self._buffer.add(checkpoint, popped.revive_queue_id, taken):
            popped.checkpoints.append(message)
            popped.taken.append(taken)

    def _add_renamed(
        self, popped: Popped, topic: str, queue_id: int, offset: int, message_offsets: list[int], result: GetResult
    ) -> None:
        header, kind = popped.request.header, retry_kind(topic)
        handle = PopHandle(
            offset, popped.pop_time_ms, header.invisible_time, popped.revive_queue_id, kind,
            self._config.broker.broker_name, queue_id,
        )  # fmt: skip
        for record, queue_offset in zip(records_in(result.slices), message_offsets, strict=True):
            text = handle._replace(queue_offset=queue_offset).encode()
            again = renamed(record, header.topic, text)
            popped.buffers.append(again)
            popped.size_bytes += len(again)
