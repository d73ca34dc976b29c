"""A cluster of brokers that keep mappings of static topics as RocketMQ's do, and can fail at any request."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from sprocket.remoting.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from sprocket.remoting.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import (
    CreateTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from sprocket.remoting.routes import NoHeader
from sprocket.static_topic.item_checks import check_items, check_kept
from tests.client.fake_cluster import FakeServer, route


class Asked(NamedTuple):
    """A request that a broker took: its name, the request, and the undecided logical queues of the mapping in it."""

    broker: str
    code: int
    undecided: tuple[str, ...] = ()


class StaticBroker(FakeServer):
    """Keeps topics; `sent` messages are in each physical queue, and `consumed` has the offsets of any group."""

    def __init__(self, name: str, cluster: "StaticCluster") -> None:
        super().__init__(
            [
                route(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopicRequestHeader, self._create),
                route(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader, self._config),
                route(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader, self._stats),
                route(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader, self._consumed),
                route(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, self._end),
            ]
        )
        self.name = name
        self.topics: dict[str, TopicConfigAndQueueMapping] = {}
        self.sent = 0
        self.consumed: dict[int, int] = {}
        self._cluster = cluster

    def items(self, topic: str, number: int) -> list[LogicQueueMappingItem]:
        detail = self.topics[topic].mapping_detail
        return [] if detail is None else detail.items(number)

    def _create(self, request: Request[CreateTopicRequestHeader]) -> Response:
        header, detail = request.header, loads(request.body, TopicQueueMappingDetail)
        undecided = tuple(number for number, items in detail.hosted_queues.items() if not items[-1].is_decided)
        if not self._cluster.take(Asked(self.name, request.code, undecided)):
            return Response(ResponseCode.SYSTEM_ERROR, "the test stops here")
        old = self.topics[header.topic].mapping_detail if header.topic in self.topics else None
        try:
            for number, items in detail.hosted_queues.items():
                check_items(items)
                if old is not None and not header.force:
                    check_kept(old.hosted_queues.get(number, ()), items, epoch_equal=old.epoch == detail.epoch)
        except SprocketError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        if old is not None and detail.epoch < old.epoch and not header.force:
            return Response(ResponseCode.SYSTEM_ERROR, f"epoch {detail.epoch} is below {old.epoch}")
        self.topics[header.topic] = TopicConfigAndQueueMapping(
            header.topic, header.read_queue_nums, header.write_queue_nums, header.perm, mapping_detail=detail
        )
        return Response()

    def _config(self, request: Request[GetTopicConfigRequestHeader]) -> Response:
        config = self.topics.get(request.header.topic)
        return Response(ResponseCode.TOPIC_NOT_EXIST, "no topic") if config is None else Response(body=dumps(config))

    def _stats(self, request: Request[GetTopicStatsInfoRequestHeader]) -> Response:
        if not self._cluster.take(Asked(self.name, request.code)):
            return Response(ResponseCode.SYSTEM_ERROR, "the test stops here")
        topic = request.header.topic
        queues = [MessageQueue(topic, self.name, each) for each in range(self.topics[topic].write_queue_nums)]
        return Response(body=dumps(TopicStatsTable(dict.fromkeys(queues, TopicOffset(0, self.sent, 5)))))

    def _end(self, request: Request[GetMaxOffsetRequestHeader]) -> Response:
        if not self._cluster.take(Asked(self.name, request.code)):
            return Response(ResponseCode.SYSTEM_ERROR, "the test stops here")
        # Three more messages wait for their flush.
        waiting = 0 if request.header.committed else 3
        return Response(header=GetMaxOffsetResponseHeader(offset=self.sent + waiting))

    def _consumed(self, request: Request[GetConsumeStatsRequestHeader]) -> Response:
        table = {}
        for topic, config in self.topics.items():
            for each in range(config.write_queue_nums):
                offset = self.consumed.get(each, -1)
                table[MessageQueue(topic, self.name, each)] = OffsetWrapper(self.sent, offset, offset, 5)
        return Response(body=dumps(ConsumeStats(table)))


class StaticCluster:
    """The brokers by name, a name server, and what brokers were asked.  `fails_after` requests they take no more."""

    def __init__(self, names: Sequence[str]) -> None:
        self.brokers = {name: StaticBroker(name, self) for name in names}
        self.asked: list[Asked] = []
        self.fails_after: int | None = None
        self.name_server = FakeServer(
            [
                route(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader, self._info),
                route(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, self._route),
            ]
        )

    def take(self, asked: Asked) -> bool:
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            return False
        self.asked.append(asked)
        return True

    def leaders(self, topic: str) -> dict[int, str]:
        """Return the broker that leads each logical queue, by what brokers register."""
        found: dict[int, str] = {}
        for name, broker in self.brokers.items():
            if topic in broker.topics and (detail := broker.topics[topic].mapping_detail) is not None:
                found |= {int(number): name for number in detail.info().curr_id_map or {}}
        return found

    def _members(self) -> list[BrokerData]:
        return [BrokerData("c", name, {0: broker.address}) for name, broker in self.brokers.items()]

    def _info(self, request: Request[Any]) -> Response:
        members = {data.broker_name: data for data in self._members()}
        return Response(body=dumps(ClusterInfo(members, {"c": list(members)})))

    def _route(self, request: Request[GetRouteInfoRequestHeader]) -> Response:
        topic = request.header.topic
        if topic.startswith(RETRY_PREFIX):
            return Response(body=dumps(TopicRouteData(broker_datas=self._members())))
        having = {name: broker.topics[topic] for name, broker in self.brokers.items() if topic in broker.topics}
        if not having:
            return Response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        queues = [QueueData(name, each.read_queue_nums, each.write_queue_nums, 6) for name, each in having.items()]
        mappings = {name: each.mapping_detail.info() for name, each in having.items() if each.mapping_detail}
        return Response(body=dumps(TopicRouteData(None, queues, self._members(), {}, mappings or None)))


@asynccontextmanager
async def static_cluster(*names: str) -> AsyncIterator[StaticCluster]:
    cluster = StaticCluster(names)
    async with AsyncExitStack() as stack:
        for each in (cluster.name_server, *cluster.brokers.values()):
            await stack.enter_async_context(each)
        yield cluster
