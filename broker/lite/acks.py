"""Acknowledgements and invisible times of messages of lite topics.

Source: RocketMQ 5.5.1, `AckMessageProcessor.ackLite`,
`ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite`.
"""

from collections.abc import Callable

from broker.core import BrokerCore
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from broker.pop.order_info import ILLEGAL
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from sprocket.remoting.message.lite_groups import lite_bind_topic
from sprocket.remoting.message.lite_topics import lite_queue
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE, PopHandle, parse_handle

_Header = AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader


class LiteAcks:
    """Acknowledgements of lite messages, in the event loop's thread.

    Calls `freed` with light queue and group when the group can pop again.
    """

    def __init__(self, core: BrokerCore, order: LiteOrder, freed: Callable[[str, str], None]) -> None:
        self._clock = core.clock
        self._store = core.store
        self._groups = core.groups
        self._offsets = core.offsets
        self._order = order
        self._freed = freed

    def acknowledge(self, request: Request[AckMessageRequestHeader]) -> None:
        """Acknowledge the message of a request with a lite topic; no effect on one that is acknowledged already.

        Raises RequestError.
        """
        header = request.header
        queue, handle = self._admitted(header)
        group, offset = header.consumer_group, header.offset
        committed = self._offsets.query(group, queue, LITE_QUEUE_ID)
        if offset < committed:
            return
        if not self._order.has(queue, group):
            # The pop was forgotten, by a restart or a reset.  RocketMQ commits whatever the acknowledgement says.
            stored_ms = self._store.store_time(queue, LITE_QUEUE_ID, offset)
            if offset != committed or not 0 <= stored_ms <= handle.pop_time_ms:
                return
            next_offset = offset + 1
        else:
            next_offset = self._order.commit_and_next(queue, group, offset, handle.pop_time_ms)
        if next_offset == ILLEGAL:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if next_offset < 0:
            return
        if not self._offsets.is_reset(group, queue, LITE_QUEUE_ID):
            host, port = request.channel.peer
            self._offsets.commit(group, queue, LITE_QUEUE_ID, next_offset, f"{host}:{port}")
        if not self._order.blocks(None, queue, group, handle.invisible_ms):
            self._freed(queue, group)

    def change(self, request: Request[ChangeInvisibleTimeRequestHeader]) -> ChangeInvisibleTimeResponseHeader | None:
        """Set the invisible time of a message, counted from now; return None if it is acknowledged already.

        With `suspend` that of all messages of its pop.  Raises RequestError.
        """
        header = request.header
        queue, handle = self._admitted(header)
        group = header.consumer_group
        if header.offset < self._offsets.query(group, queue, LITE_QUEUE_ID):
            return None
        visible_at_ms = self._clock.wall_ms() + header.invisible_time
        if header.suspend:
            self._order.suspend(queue, group, handle.pop_time_ms, visible_at_ms)
        else:
            self._order.show_at(queue, group, header.offset, handle.pop_time_ms, visible_at_ms)
        return ChangeInvisibleTimeResponseHeader(
            pop_time=handle.pop_time_ms,
            invisible_time=visible_at_ms - handle.pop_time_ms,
            revive_qid=handle.revive_queue_id,
        )

    def _admitted(self, header: _Header) -> tuple[str, PopHandle]:
        """Return light queue and handle of a message that the group may have popped.  Raises RequestError.

        RocketMQ checks the group, and the queue of the handle, of acknowledgements only.
        """
        config = self._groups.get(header.consumer_group)
        if config is None or lite_bind_topic(config.attributes) != header.topic:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        queue = lite_queue(header.topic, header.lite_topic or "")
        if not 0 <= header.offset <= self._store.max_offset(queue, LITE_QUEUE_ID):
            raise RequestError(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        handle = parse_handle(header.extra_info)
        if header.queue_id != LITE_QUEUE_ID or handle.revive_queue_id != ORDER_REVIVE_QUEUE:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        return queue, handle
