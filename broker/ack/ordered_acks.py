"""Acknowledgements and invisible times of ordered pops, which have no records in the revive topic.

Source: RocketMQ 5.3.3, `AckMessageProcessor.ackOrderly`,
`ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForOrder`.
"""

import logging
from collections.abc import Callable

from broker.core import BrokerCore
from broker.pop.inflight import InflightMessages
from broker.pop.order_info import ILLEGAL, ConsumerOrderInfo
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader
from sprocket.remoting.message.pop_extra_info import PopHandle

logger = logging.getLogger(__name__)


class OrderedAcks:
    """Acknowledgements of ordered pops, in the event loop's thread; calls `freed` with (topic, group, queue id)."""

    def __init__(
        self,
        core: BrokerCore,
        order_info: ConsumerOrderInfo,
        inflight: InflightMessages,
        freed: Callable[[str, str, int], None],
    ) -> None:
        self._clock = core.clock
        self._offsets = core.offsets
        self._store = core.store
        self._order_info = order_info
        self._inflight = inflight
        self._freed = freed

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, invisible_ms: int,
        peer: tuple[str, int],
    ) -> None:  # fmt: skip
        """Acknowledge one message; no effect on one before the committed offset.

        Raises RequestError if the message was not delivered.
        """
        committed = self._offsets.query(group, topic, queue_id)
        if offset < committed:
            return
        if not self._order_info.has(topic, group, queue_id) and not self._is_next(
            topic, queue_id, offset, committed, pop_time_ms
        ):
            peer_lines.warning(
                logger, peer, "event=ordered_ack_of_forgotten_pop topic=%s group=%s queue=%d offset=%d committed=%d",
                topic, group, queue_id, offset, committed,
            )  # fmt: skip
            return
        next_offset = self._order_info.commit_and_next(topic, group, queue_id, offset, pop_time_ms)
        if next_offset == ILLEGAL:
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, commit:{offset}, "
                f"next:{next_offset}, {peer[0]}:{peer[1]}"
            )
            peer_lines.warning(logger, peer, "event=ordered_ack_refused remark=%r", remark)
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if next_offset >= 0:
            if not self._offsets.is_reset(group, topic, queue_id):
                self._offsets.commit(group, topic, queue_id, next_offset, f"{peer[0]}:{peer[1]}")
            if not self._order_info.blocks(None, topic, group, queue_id, invisible_ms):
                self._freed(topic, group, queue_id)
        self._inflight.done(topic, group, queue_id, pop_time_ms, 1)

    def _is_next(self, topic: str, queue_id: int, offset: int, committed: int, pop_time_ms: int) -> bool:
        """Return whether a commit skips nothing although the pop was forgotten, after a crash or a reset.

        A message stored after the pop has replaced one that a power loss took from the log.  RocketMQ commits whatever
        the acknowledgement says.
        """
        return offset == committed and 0 <= self._store.store_time(topic, queue_id, offset) <= pop_time_ms

    def change(
        self, header: ChangeInvisibleTimeRequestHeader, handle: PopHandle
    ) -> ChangeInvisibleTimeResponseHeader | None:
        """Set a message's invisible time, counted from now; return None if the message is acknowledged already."""
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        if header.offset < self._offsets.query(group, topic, queue_id):
            return None
        visible_at = self._clock.wall_ms() + header.invisible_time
        self._order_info.update_next_visible_time(topic, group, queue_id, header.offset, handle.pop_time_ms, visible_at)
        return ChangeInvisibleTimeResponseHeader(
            pop_time=handle.pop_time_ms,
            invisible_time=visible_at - handle.pop_time_ms,
            revive_qid=handle.revive_queue_id,
        )
