"""Which popped message a request names, and its plan.  Used for acknowledgements and changes of the invisible time."""

from broker.ack.planner import AckKey, AckPlan, AckPlanner
from broker.core import BrokerCore
from broker.plan.table import Refused
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from sprocket.remoting.message.pop_extra_info import PopHandle, parse_handle


class AckAdmission:
    """Decides about one message at a time, in the event loop's thread."""

    def __init__(self, core: BrokerCore, planner: AckPlanner) -> None:
        self._store = core.store
        self._tier = core.tier
        self._planner = planner

    def admit(
        self, request: Request[AckMessageRequestHeader] | Request[ChangeInvisibleTimeRequestHeader]
    ) -> tuple[PopHandle, AckPlan]:
        """Return the handle of a message in an existing queue, and its plan.  Raises RequestError."""
        header, peer = request.header, request.channel.peer
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        refused = self._planner.refused_queue(topic, queue_id)
        if refused is not None:
            raise refused.error(peer)
        low, high = self.bounds(topic, queue_id)
        # An acknowledgement may name the end itself, as in RocketMQ.
        is_change = isinstance(header, ChangeInvisibleTimeRequestHeader)
        if not low <= offset <= (high - 1 if is_change else high):
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise RequestError(ResponseCode.NO_MESSAGE, remark)
        handle = parse_handle(header.extra_info)
        key = AckKey(topic, header.consumer_group, queue_id, handle.revive_queue_id, handle.broker_name)
        plan = self._planner.plan(key)
        if isinstance(plan, Refused):
            raise plan.error(peer)
        return handle, plan

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the offset of the oldest message of a queue, and the queue's end."""
        return self._tier.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def check_topic(self, topic: str, queue_id: int, offset: int, pop_time_ms: int) -> None:
        """Check that a handle is not one of a deleted topic: its place may hold a message of a new topic."""
        if self._store.was_deleted(topic) and self._store.store_time(topic, queue_id, offset) > pop_time_ms:
            remark = f"the handle is of a topic {topic} that was deleted; the message is of a new one"
            raise RequestError(ResponseCode.NO_MESSAGE, remark)
