"""Handlers for the progress of consumer groups.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.getConsumeStats`, `fetchAllConsumeStatsInBroker`,
`queryConsumeTimeSpan`, `queryCorrectionOffset`.
"""

from collections.abc import Iterator

import msgspec

from broker.core import BrokerCore
from broker.metrics.statistics import RateWindow
from broker.timer.schedule import DelayOffsets
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.consumption import ConsumeStatsList, QueryCorrectionOffsetBody
from sprocket.remoting.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
)
from sprocket.remoting.bodies.topic import TopicConfig, TopicList
from sprocket.remoting.codec.fastjson import dumps, in_steps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps

_TOPIC_SEPARATOR = ";"
_GROUP_SEPARATOR = ","
_LONG_MAX = (1 << 63) - 1


class ConsumptionProcessor:
    """Handler of statistics of consumption."""

    def __init__(self, core: BrokerCore, delay_offsets: DelayOffsets, consume_rates: RateWindow) -> None:
        self._config = core.config
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._consumers = core.consumers
        self._offsets = core.offsets
        self._delay_offsets = delay_offsets
        self._consume_rates = consume_rates
        self._clock = core.clock
        self._static = core.mappings.by_name

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
            Route(
                code.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader, self.all_consume_stats,
                cluster, Action.GET,
            ),
            Route(
                code.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader, self.correction_offsets,
                group, Action.GET,
            ),
        ]  # fmt: skip

    # Looking

    def consume_stats(self, request: Request[GetConsumeStatsRequestHeader]) -> Steps:
        """Return for each queue of the group's topics its end, and the group's committed and pulled offsets."""
        header, group = request.header, request.header.consumer_group
        found = [config for topic in self._topics_for_stats(header) if (config := self._topics.get(topic)) is not None]
        rates: list[float] = []

        def progress() -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
            for config in found:
                rates.append(self._consume_rates.per_second(f"{config.topic_name}@{group}"))
                # Of a physical queue of a static topic, tools must know that the group has no offset in it.
                least = -1 if config.topic_name in self._static else 0
                for queue_id in range(config.read_queue_nums):
                    yield self._progress(group, config.topic_name, queue_id, least)

        table = yield from in_steps(progress(), dict)
        return Response(body=dumps(ConsumeStats[MessageQueue](table, sum(rates))))

    def _topics_for_stats(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        group = header.consumer_group
        listed = [topic for topic in (header.topic_list or "").split(_TOPIC_SEPARATOR) if topic]
        if listed:
            return listed
        topics = {header.topic} if header.topic and header.topic.strip() else self._offsets.topics_of(group)
        return self._still_consumed(group, topics)

    def _still_consumed(self, group: str, topics: set[str]) -> list[str]:
        """Return `topics` without those to which a connected group no longer subscribes."""
        online = self._consumers.group(group)
        if online is not None and online.subscriptions:
            return sorted(topics & online.subscriptions.keys())
        return sorted(topics)

    def all_consume_stats(self, request: Request[GetConsumeStatsInBrokerHeader]) -> Steps:
        """Return statistics of each group by topic, and the lag and messages in flight of all groups."""
        broker = self._config.broker
        found = ConsumeStatsList[MessageQueue](broker_addr=f"{broker.broker_ip1}:{broker.listen_port}")
        topics_by_group = yield from self._offsets.grouped()
        groups: list[bytes] = []
        for group in self._groups.snapshot().subscription_group_table:
            listed: list[bytes] = []
            for topic in self._still_consumed(group, topics_by_group.get(group, set())):
                config = self._topics.get(topic)
                if config is not None and (config.order or not request.header.is_order):
                    table = yield from in_steps(self._counted(found, group, config), dict)
                    rate = self._consume_rates.per_second(f"{topic}@{group}")
                    listed.append(dumps(ConsumeStats[MessageQueue](table, rate)))
                    yield
            groups.append(b"{%b:[%b]}" % (dumps(group), b",".join(listed)))
        stats = {"consumeStatsList": msgspec.Raw(b"[%b]" % b",".join(groups))}
        return Response(body=dumps({**msgspec.to_builtins(found), **stats}))

    def _counted(
        self, found: ConsumeStatsList[MessageQueue], group: str, config: TopicConfig
    ) -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
        """Yield the group's progress in each queue of a topic, and add it to the totals of `found`."""
        for queue_id in range(config.write_queue_nums):
            queue, offsets = self._progress(group, config.topic_name, queue_id)
            found.total_diff += offsets.broker_offset - offsets.consumer_offset
            found.total_inflight_diff += offsets.pull_offset - offsets.consumer_offset
            yield queue, offsets

    def _progress(self, group: str, topic: str, queue_id: int, least: int = 0) -> tuple[MessageQueue, OffsetWrapper]:
        consumed = max(least, self._offsets.query(group, topic, queue_id))
        pulled = max(consumed, self._offsets.query_pull(group, topic, queue_id))
        timestamp = max(0, self._store.store_time(topic, queue_id, consumed - 1))
        queue = MessageQueue(topic, self._config.broker.broker_name, queue_id)
        return queue, OffsetWrapper(self._store.max_offset(topic, queue_id), consumed, pulled, timestamp)

    def all_offsets(self, request: Request[NoHeader]) -> Steps:
        """Return the current content of consumerOffset.json."""
        return Response(body=(yield from self._offsets.encoded()))

    def all_delay_offsets(self, request: Request[NoHeader]) -> Response:
        """Return the current content of delayOffset.json."""
        return Response(body=self._delay_offsets.encode())

    def topics_of(self, request: Request[QueryTopicsByConsumerRequestHeader]) -> Response:
        """Return the topics in which a group has offsets."""
        topics = sorted(self._offsets.topics_of(request.header.group))
        broker = self._config.broker
        return Response(body=dumps(TopicList(topics, f"{broker.broker_ip1}:{broker.listen_port}")))

    def subscription(self, request: Request[QuerySubscriptionByConsumerRequestHeader]) -> Response:
        """Return the subscription of a connected group to a topic."""
        group, topic = request.header.group, request.header.topic
        found = self._consumers.find_subscription(group, topic) if topic else None
        return Response(body=dumps(QuerySubscriptionResponseBody(group, topic, found)))

    def time_span(self, request: Request[QueryConsumeTimeSpanRequestHeader]) -> Steps:
        """Return for each queue: times of its first, last and last consumed message, and the group's delay, all ms."""
        group, topic = request.header.group, request.header.topic
        config = self._topics.get(topic)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queues = range(config.write_queue_nums)
        spans = yield from in_steps((self._span(group, topic, queue_id) for queue_id in queues), list)
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

    def correction_offsets(self, request: Request[QueryCorrectionOffsetHeader]) -> Response:
        """Return for each queue of a topic the smallest offset of all groups, up to which all have consumed.

        Filtered groups are omitted; RocketMQ also deletes their offsets.  Offsets of deleted messages do not count.  If
        the group to compare with is below that minimum, the result is the largest number.
        """
        header = request.header
        topic, left_out = header.topic, set((header.filter_groups or "").split(_GROUP_SEPARATOR))
        min_offsets: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.queues(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    min_offsets[queue_id] = min(offset, min_offsets.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues(header.compare_group, topic).items():
            if queue_id in min_offsets and min_offsets[queue_id] > offset:
                min_offsets[queue_id] = _LONG_MAX
        return Response(body=dumps(QueryCorrectionOffsetBody(min_offsets)))
