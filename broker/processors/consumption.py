"""How far groups have come, as operators see and change it.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.getConsumeStats`, `queryConsumeTimeSpan`, `resetOffsetInner`,
`Broker2Client.resetOffset`.
"""

import logging

from broker.clients import ConsumerRegistry
from broker.consumer_offsets import ConsumerOffsets
from broker.live_config import LiveConfig
from broker.schedule import DelayOffsets
from broker.statistics import RateWindow
from broker.subscription_groups import SubscriptionGroups
from broker.topics import TopicTable
from remoting.bodies.client import MessageQueue
from remoting.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
    ResetOffsetBody,
)
from remoting.bodies.topic import TopicConfig, TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Request, Response
from remoting.fastjson import dumps
from remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from remoting.headers.offset import ResetOffsetRequestHeader
from remoting.routes import Action, NoHeader, Resource, Route
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

_TOPIC_SEPARATOR = ";"


class ConsumptionProcessor:
    """Statistics of consumption, and resets."""

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        consumers: ConsumerRegistry,
        offsets: ConsumerOffsets,
        delay_offsets: DelayOffsets,
        consume_rates: RateWindow,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._consume_rates = consume_rates
        self._clock = clock

    def routes(self) -> list[Route]:
        code, group, cluster = RequestCode, Resource.GROUP, Resource.CLUSTER
        return [
            Route(code.GET_CONSUME_STATS, GetConsumeStatsRequestHeader, self.consume_stats, group, Action.GET),
            Route(code.GET_ALL_CONSUMER_OFFSET, NoHeader, self.all_offsets, cluster, Action.GET),
            Route(code.GET_ALL_DELAY_OFFSET, NoHeader, self.all_delay_offsets, cluster, Action.GET),
            Route(
                code.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader, self.topics_of,
                group, Action.GET,
            ),
            Route(
                code.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequestHeader, self.subscription,
                group, Action.GET,
            ),
            Route(
                code.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader, self.time_span,
                group, Action.GET,
            ),
            Route(code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, self.reset, group, Action.UPDATE),
            Route(code.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader, self.clone, group, Action.UPDATE),
        ]  # fmt: skip

    # Looking

    def consume_stats(self, request: Request[GetConsumeStatsRequestHeader]) -> Response:
        """For each queue of the group's topics: the queue's end, and how far the group has come and pulled."""
        header = request.header
        stats, name = ConsumeStats[MessageQueue](), self._config.broker.broker_name
        for topic in self._topics_for_stats(header):
            config = self._topics.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                queue = MessageQueue(topic, name, queue_id)
                stats.offset_table[queue] = self._progress(header.consumer_group, topic, queue_id)
            stats.consume_tps += self._consume_rates.per_second(f"{topic}@{header.consumer_group}")
        return Response(body=dumps(stats))

    def _topics_for_stats(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        group = header.consumer_group
        listed = [topic for topic in (header.topic_list or "").split(_TOPIC_SEPARATOR) if topic]
        if listed:
            return listed
        topics = {header.topic} if header.topic and header.topic.strip() else self._offsets.topics_of(group)
        online = self._consumers.group(group)
        if online is not None and online.subscriptions:
            # What a connected group has offsets in from earlier, but does not subscribe to, is left out.
            topics &= online.subscriptions.keys()
        return sorted(topics)

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(0, self._offsets.query(group, topic, queue_id))
        pulled = max(consumed, self._offsets.query_pull(group, topic, queue_id))
        timestamp = max(0, self._store.store_time(topic, queue_id, consumed - 1))
        return OffsetWrapper(self._store.max_offset(topic, queue_id), consumed, pulled, timestamp)

    def all_offsets(self, request: Request[NoHeader]) -> Response:
        """What consumerOffset.json holds, as it is now."""
        return Response(body=self._offsets.encode())

    def all_delay_offsets(self, request: Request[NoHeader]) -> Response:
        """What delayOffset.json holds, as it is now."""
        return Response(body=self._delay_offsets.encode())

    def topics_of(self, request: Request[QueryTopicsByConsumerRequestHeader]) -> Response:
        """Topics that a group has offsets in."""
        topics = sorted(self._offsets.topics_of(request.header.group))
        broker = self._config.broker
        return Response(body=dumps(TopicList(topics, f"{broker.broker_ip1}:{broker.listen_port}")))

    def subscription(self, request: Request[QuerySubscriptionByConsumerRequestHeader]) -> Response:
        """What a connected group subscribes to in a topic."""
        group, topic = request.header.group, request.header.topic
        found = self._consumers.find_subscription(group, topic) if topic else None
        return Response(body=dumps(QuerySubscriptionResponseBody(group, topic, found)))

    def time_span(self, request: Request[QueryConsumeTimeSpanRequestHeader]) -> Response:
        """For each queue: times of its first, last and last consumed message, and the group's delay, all ms."""
        group, topic = request.header.group, request.header.topic
        config = self._topics.get(topic)
        if config is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = [self._span(group, topic, queue_id) for queue_id in range(config.write_queue_nums)]
        return Response(body=dumps(QueryConsumeTimeSpanBody(spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first = store.earliest_store_time(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_at = store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first
        next_at = store.store_time(topic, queue_id, max(consumed, 0)) if consumed < end else -1
        delay = self._clock.wall_ms() - next_at if next_at >= 0 else 0
        queue = MessageQueue(topic, self._config.broker.broker_name, queue_id)
        return QueueTimeSpan(queue, first, store.store_time(topic, queue_id, end - 1), consumed_at, delay)

    # Resetting

    def reset(self, request: Request[ResetOffsetRequestHeader]) -> Response:
        """Move a group to an offset or a time.

        Pulls of the group are sent there one by one.  A group that broadcasts keeps its offsets itself, so
        its members are told.
        """
        header = request.header
        config = self._topics.get(header.topic)
        if config is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self._groups:
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        targets = self._targets(header, config)
        if not targets:
            return Response(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in targets.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
        logger.info("event=offsets_reset group=%s topic=%s targets=%s", header.group, header.topic, targets)
        name = self._config.broker.broker_name
        body = dumps(
            ResetOffsetBody({MessageQueue(header.topic, name, queue_id): at for queue_id, at in targets.items()})
        )
        self._tell_broadcasters(header, body)
        return Response(body=body)

    def _targets(self, header: ResetOffsetRequestHeader, config: TopicConfig) -> dict[int, int]:
        topic, queue_id = header.topic, header.queue_id
        if queue_id < 0:
            return {each: self._offset_at(topic, each, header.timestamp) for each in range(config.read_queue_nums)}
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"queueId {queue_id} is none of topic {topic}")
        if header.offset is None or header.offset == -1:
            return {queue_id: self._offset_at(topic, queue_id, header.timestamp)}
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= header.offset <= high:
            remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return {queue_id: header.offset}

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp)

    def _tell_broadcasters(self, header: ResetOffsetRequestHeader, body: bytes) -> None:
        group = self._consumers.group(header.group)
        if group is not None and group.is_broadcasting:
            for member in group.members.values():
                member.channel.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)

    def clone(self, request: Request[CloneGroupOffsetRequestHeader]) -> Response:
        """Give one group the offsets of another, in one topic or in all that the other subscribes to."""
        header = request.header
        topics = {header.topic} if header.topic else self._offsets.topics_of(header.src_group)
        online = self._consumers.group(header.src_group)
        if not header.offline and online is not None and online.subscriptions:
            topics &= online.subscriptions.keys()
        for topic in topics:
            if topic in self._topics:
                self._offsets.clone(header.src_group, header.dest_group, topic)
        logger.info("event=offsets_cloned from=%s to=%s topics=%s", header.src_group, header.dest_group, sorted(topics))
        return Response()
