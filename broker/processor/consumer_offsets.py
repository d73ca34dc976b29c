"""Handlers for offsets: of groups, of the ends of queues, and of a time.

Source: RocketMQ 5.3.3, `ConsumerManageProcessor`, `AdminBrokerProcessor.getMaxOffset` and its neighbours.
"""

from broker.core import BrokerCore
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Answer, Resource, Route, Traffic
from store.message_store import Boundary


class OffsetProcessor:
    """Handler of QUERY and UPDATE_CONSUMER_OFFSET, GET_MIN, GET_MAX_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP and others."""

    def __init__(self, core: BrokerCore) -> None:
        self._tier = core.tier
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._offsets = core.offsets

    def routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self.query_consumer_offset,
                Resource.GROUP, Action.GET, Traffic.CLIENT,
            ),
            Route(
                RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self.update_consumer_offset,
                Resource.GROUP, Action.SUB, Traffic.CLIENT,
            ),
            Route(
                RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, self.get_max_offset,
                Resource.TOPIC, Action.GET, Traffic.CLIENT,
            ),
            Route(
                RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader, self.get_min_offset,
                Resource.TOPIC, Action.GET, Traffic.CLIENT,
            ),
            Route(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, self.search_offset,
                Resource.TOPIC, Action.GET, Traffic.CLIENT,
            ),
            Route(
                RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader, self.earliest_store_time,
                Resource.TOPIC, Action.GET, Traffic.CLIENT,
            ),
        ]  # fmt: skip

    def query_consumer_offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        """Return the committed offset.

        A group without a committed offset gets 0 if the queue never had a message, or has its first message in memory.
        Thus the group misses no message that arrives before it queries the queue's end, which would also be 0.  Else it
        gets an error and chooses by consumeFromWhere.  RocketMQ leaves the choice also for a queue without messages.
        """
        header = request.header
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return Response(ResponseCode.QUERY_NOT_FOUND, remark)
            if not self._has_begun_now(header.topic, header.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return Response(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return Response(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def _has_begun_now(self, topic: str, queue_id: int) -> bool:
        """Whether a queue never had a message, or its message 0 is close enough to the log's end to be in memory."""
        config = self._topics.get(topic)
        if (
            config is not None
            and 0 <= queue_id < config.read_queue_nums
            and not self._store.max_offset(topic, queue_id)
        ):
            return True
        found = self._store.get(topic, queue_id, 0, 1, 1)
        return found.message_count > 0 and not found.suggest_slave

    def update_consumer_offset(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response | None:
        """Commit an offset.  Refused for an unknown group or topic; ignored while a reset waits.

        A slave may not have replicated a new group yet, so there a group that could be created is enough.
        """
        header, groups = request.header, self._groups
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in groups and not (groups.is_copy and groups.find(group) is not None):
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        # The topic's queues limit the offsets that a peer can make the broker store; it may have had more queues.
        known = max(config.read_queue_nums, config.write_queue_nums)
        if not (0 <= queue_id < known or self._store.max_offset(topic, queue_id) > 0):
            remark = f"queueId {queue_id} is none of topic {topic}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if self._offsets.is_reset(group, topic, queue_id):
            return Response(ResponseCode.SUCCESS, "Offset has been previously reset")
        self._offsets.commit(group, topic, queue_id, header.commit_offset, peer=str(request.channel.peer[0]))
        return Response()

    def get_max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Response:
        """Return the queue offset after the newest message that consumers may see.

        With ``committed=false`` also messages count that are still being flushed or replicated.
        """
        header = request.header
        end_of = self._store.max_offset if header.committed else self._store.next_offset
        offset = end_of(header.topic, header.queue_id)
        return Response(header=GetMaxOffsetResponseHeader(offset=offset))

    def get_min_offset(self, request: Request[GetMinOffsetRequestHeader]) -> Response:
        """Return the queue offset of the oldest message; -1 for a BatchCQ queue that never had one."""
        topic, queue_id = request.header.topic, request.header.queue_id
        offset = self._store.reported_min_offset(topic, queue_id)
        if self._tier.has(topic, queue_id):
            offset = self._tier.min_offset(topic, queue_id)
        return Response(header=GetMinOffsetResponseHeader(offset=offset))

    def search_offset(self, request: Request[SearchOffsetRequestHeader]) -> Answer:
        """Return the offset of the first message from a time on (LOWER, default) or of the last up to it (UPPER)."""
        header = request.header
        upper = (header.boundary_type or "").strip().lower() == Boundary.UPPER.value
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        if self._tier.has(header.topic, header.queue_id):
            return self._search_tier(header, boundary)
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return Response(header=SearchOffsetResponseHeader(offset=offset))

    async def _search_tier(self, header: SearchOffsetRequestHeader, boundary: Boundary) -> Response:
        offset = await self._tier.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return Response(header=SearchOffsetResponseHeader(offset=offset))

    def earliest_store_time(self, request: Request[GetEarliestMsgStoretimeRequestHeader]) -> Answer:
        """Return the store time of the oldest message, ms; -1 without one."""
        if self._tier.has(request.header.topic, request.header.queue_id):
            return self._earliest_in_tier(request.header)
        timestamp = self._store.earliest_store_time(request.header.topic, request.header.queue_id)
        return Response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    async def _earliest_in_tier(self, header: GetEarliestMsgStoretimeRequestHeader) -> Response:
        timestamp = await self._tier.earliest_store_time(header.topic, header.queue_id)
        return Response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))
