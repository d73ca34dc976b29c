"""Administration client: requests of an operator to name servers and brokers, as typed coroutines.

Source of requests and of the merging of responses: RocketMQ 5.3.3, `DefaultMQAdminExtImpl`, `MQClientAPIImpl`.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from sprocket.client import arguments
from sprocket.client.admin.admin_requests import AdminDenied, AdminError, ConfigRefused, decoded, none_if, queues_of
from sprocket.client.admin.auth_requests import AuthRequests
from sprocket.client.admin.own_requests import OwnRequests
from sprocket.client.admin.server_requests import ServerRequests
from sprocket.client.admin.table_requests import TableRequests
from sprocket.client.answers import header_of, route_of
from sprocket.client.lite.names import SESSION_GROUP, SESSION_TOPIC
from sprocket.remoting.bodies.client import ConsumerConnection, MessageQueue
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo
from sprocket.remoting.bodies.group import GroupList, SubscriptionGroupConfig
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.bodies.route import TopicRouteData, addresses_of
from sprocket.remoting.bodies.stats import ConsumeStats, TopicOffset, TopicStatsTable
from sprocket.remoting.bodies.topic import TopicConfig, TopicList
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping, TopicQueueMappingDetail
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from sprocket.remoting.headers.client import GetConsumerConnectionListRequestHeader, GetConsumerRunningInfoRequestHeader
from sprocket.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
)
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC, RETRY_PREFIX, retry_topic
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.stats import logical_extents, logical_progress

__all__ = ["ORDER_TOPIC_NAMESPACE", "AdminClient", "AdminDenied", "AdminError", "ConfigRefused"]

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


class _TopicStatsText(msgspec.Struct, rename="camel"):
    """`TopicStatsTable` with its keys as they are on the wire."""

    offset_table: dict[str, TopicOffset] = {}
    topic_put_tps: float = 0.0


class AdminClient(ServerRequests, TableRequests, OwnRequests, AuthRequests):
    """Client of the name servers, tried in turn until one answers, and of their brokers.

    Every method raises AdminError; if access control refuses, it is a PermissionDenied too.  `timeout_s` bounds one
    request; with `credentials` each is signed, with `tls` each connection is TLS.
    """

    async def topic_list(self) -> list[str]:
        """Return every topic that a name server knows, sorted."""
        response = await self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(decoded(response, TopicList).topic_list)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of `topic`."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return route_of(response.body, topic, AdminError)

    async def create_topic(self, broker: str, config: TopicConfig) -> None:
        """Create `config` on the broker at an address, or change it there."""
        header = _creation_header(config)
        header.attributes = ",".join(f"{key}={value}" if value else key for key, value in config.attributes.items())
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_session_topic(
        self, topic: str = SESSION_TOPIC, groups: Iterable[str] | str = SESSION_GROUP, *, cluster: str | None = None,
        exclusive: bool = True, expires: timedelta | float | None = None, queues: int = 8,
    ) -> None:  # fmt: skip
        """Create a topic of type LITE, and groups that read its sessions, on the masters of `cluster`, None: of all.

        With `exclusive` one client reads a session at a time.  Brokers delete a session that got no message for
        `expires` (whole minutes; None: never), with what was not read.  A second call changes these things.
        """
        minutes = -1 if expires is None else max(round(arguments.seconds("expires", expires) / 60), 1)
        attributes = {"+message.type": "LITE", "+lite.topic.expiration": str(minutes)}
        config = TopicConfig(topic, queues, queues, attributes=attributes)
        model = "Exclusive" if exclusive else "Shared"
        for broker in await self.masters(cluster):
            await self.create_topic(broker, config)
            for group in arguments.names_of("groups", groups):
                bound = {"+lite.bind.topic": topic, "+lite.sub.model": model}
                await self.create_group(broker, SubscriptionGroupConfig(group, attributes=bound))

    async def create_table_topic(self, topic: str, *, cluster: str | None = None, queues: int = 8) -> None:
        """Create a compacted topic, for tables, on the masters of `cluster`, None: of all.

        Where it exists with fewer queues it gets more.  If it is not compacted it is refused: the policy of a topic
        never changes.
        """
        for broker in await self.masters(cluster):
            await self.create_compacted_topic(broker, topic, queues)

    async def create_compacted_topic(self, broker: str, topic: str, queues: int) -> None:
        """Create a compacted topic on the broker at an address, or give it more queues; as `create_table_topic`."""
        present = await self.topic_config(broker, topic)
        if present is None:
            attributes = {"+cleanup.policy": "COMPACTION"}
            await self.create_topic(broker, TopicConfig(topic, queues, queues, attributes=attributes))
            return
        if present.attributes.get("cleanup.policy") != "COMPACTION":
            raise AdminError(
                f"topic {topic} exists at {broker} and is not compacted; choose another name, or delete it"
            )
        if present.read_queue_nums < queues:
            await self.create_topic(broker, TopicConfig(topic, queues, queues, perm=present.perm))

    async def masters(self, cluster: str | None) -> list[str]:
        """Return the addresses of the masters of `cluster`, None: of all."""
        clusters = list((await self.cluster_info()).cluster_addr_table) if cluster is None else [cluster]
        return [broker for name in clusters for broker in await self.broker_addresses(name, masters_only=True)]

    async def create_static_topic(
        self, broker: str, config: TopicConfigAndQueueMapping, *, force: bool = False
    ) -> None:
        """Give the broker at an address its part of a static topic; `force` overwrites what it has.

        The topic's attributes stay as they are there.
        """
        header = _creation_header(config)
        header.force = force
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, dumps(config.mapping_detail))

    async def delete_topic(self, topic: str, cluster: str) -> None:
        """Delete `topic` from the masters of `cluster`, then from every name server."""
        for broker in await self.broker_addresses(cluster, masters_only=True):
            await self.delete_topic_at(broker, topic)
        await self.delete_route(topic, cluster)

    async def delete_topic_at(self, broker: str, topic: str) -> None:
        """Delete `topic` from the broker at an address."""
        await self.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))

    async def delete_route(self, topic: str, cluster: str) -> None:
        """Delete what the name servers know of `topic` in a cluster, and its queues if it is ordered."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self.tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        await self.delete_kv_config(ORDER_TOPIC_NAMESPACE, topic)

    async def set_order_conf(self, topic: str, broker_queues: Mapping[str, int], *, whole: bool) -> str:
        """Set the number of queues of an ordered topic on each broker.  Without `whole` other entries are kept.

        Returns the new value: ``broker-a:8;broker-b:8``.
        """
        entries: dict[str, str] = {}
        if not whole:
            for entry in (await self.kv_config(ORDER_TOPIC_NAMESPACE, topic)).split(";"):
                if entry:
                    entries[entry.partition(":")[0]] = entry
        entries |= {name: f"{name}:{queues}" for name, queues in broker_queues.items()}
        value = ";".join(entries.values())
        await self.put_kv_config(ORDER_TOPIC_NAMESPACE, topic, value)
        return value

    async def kv_config(self, namespace: str, key: str) -> str:
        """Return a value of a namespace; empty if there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        answer = self.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        response = await none_if(ResponseCode.QUERY_NOT_FOUND, answer)
        return "" if response is None else header_of(response, GetKVConfigResponseHeader, AdminError).value or ""

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value of a namespace at every name server."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self.tell_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value of a namespace from every name server."""
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self.tell_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def topic_stats(self, topic: str, route_topic: str | None = None) -> TopicStatsTable:
        """Return the extent of every queue of `topic`, from each broker on its route or on `route_topic`'s.

        A static topic has its logical queues beside the physical ones, as with RocketMQ.
        """
        stats = TopicStatsTable()
        route = await self.topic_route(route_topic or topic)
        for broker in addresses_of(route.broker_datas).values():
            part = await self.broker_topic_stats(broker, topic)
            stats.offset_table |= part.offset_table
            stats.topic_put_tps += part.topic_put_tps
        with _possible(topic):
            stats.offset_table |= logical_extents(topic, await self._mappings(topic, route), stats.offset_table)
        return stats

    async def broker_topic_stats(self, broker: str, topic: str) -> TopicStatsTable:
        """Return the extents of the physical queues of `topic` on the broker at an address."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        part = await self.ask_body(broker, RequestCode.GET_TOPIC_STATS_INFO, _TopicStatsText, header)
        return TopicStatsTable(queues_of(part.offset_table), part.topic_put_tps)

    async def _mappings(self, topic: str, route: TopicRouteData) -> list[TopicQueueMappingDetail]:
        """Return the mappings of the brokers on `route`; none for a topic that is not static."""
        if not route.topic_queue_mapping_by_broker:
            return []
        brokers = addresses_of(route.broker_datas).values()
        configs = [await self.topic_config(broker, topic) for broker in brokers]
        return [each.mapping_detail for each in configs if each is not None and each.mapping_detail is not None]

    async def consume_stats(
        self, group: str, topic: str | None = None, route_topic: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> ConsumeStats[MessageQueue]:  # fmt: skip
        """Return the offsets of `group` in every queue, of `topic` or of all topics that it consumes.

        The brokers asked are those at the addresses `brokers`, else those on the route of the group's retry topic,
        else of `topic`, else of `route_topic`.  A static topic has its logical queues instead of the physical ones, as
        with RocketMQ.
        """
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        stats = ConsumeStats[MessageQueue]()
        for broker in brokers or await self._brokers_of_group(group, topic, route_topic):
            part = await self.ask_body(broker, RequestCode.GET_CONSUME_STATS, ConsumeStats[str], header)
            stats.offset_table |= queues_of(part.offset_table)
            stats.consume_tps += part.consume_tps
        for consumed in {queue.topic for queue in stats.offset_table}:
            if not consumed.startswith(RETRY_PREFIX):
                await self._make_logical(consumed, stats)
        return stats

    async def _make_logical(self, topic: str, stats: ConsumeStats[MessageQueue]) -> None:
        """Replace the physical queues of `topic` in `stats`, if it is static."""
        try:
            mappings = await self._mappings(topic, await self.topic_route(topic))
        except AdminError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return  # light topics, and topics of a broker that is gone, have no route
            raise
        if mappings:
            physical = {queue: offsets for queue, offsets in stats.offset_table.items() if queue.topic == topic}
            others = {queue: offsets for queue, offsets in stats.offset_table.items() if queue.topic != topic}
            with _possible(topic):
                stats.offset_table = others | logical_progress(topic, mappings, physical)

    async def consumer_connection(self, group: str, broker: str | None = None) -> ConsumerConnection:
        """Return the clients of `group` that are online, from the broker at an address or the first that serves it."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        address = broker or await self._broker_of_group(group)
        return await self.ask_body(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header)

    async def running_info(
        self, group: str, client_id: str, *, jstack: bool = False, broker: str | None = None
    ) -> ConsumerRunningInfo[str]:
        """Return a consumer's running info; its tables by queue have JSON texts as keys."""
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        address = broker or await self._broker_of_group(group)
        return await self.ask_body(address, RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfo[str], header)

    async def queue_holders(self, group: str) -> dict[MessageQueue, str]:
        """Return the client IP of each queue; a client that does not answer is left out.

        Source: RocketMQ 5.3.3, `ConsumerProgressSubCommand.getMessageQueueAllocationResult`.
        """
        holders: dict[MessageQueue, str] = {}
        broker = await self._broker_of_group(group)
        for client in (await self.consumer_connection(group, broker)).connection_set:
            try:
                queues = queues_of((await self.running_info(group, client.client_id, broker=broker)).mq_table)
            except AdminError:
                continue
            holders |= dict.fromkeys(queues, client.client_id.partition("@")[0])
        return holders

    async def set_request_mode(self, broker: str, mode: SetMessageRequestModeRequestBody) -> None:
        """Make a group's consumers take a topic by pull or by pop, if brokers assign their queues."""
        await self.ask(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(mode))

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Return the consumer groups that have consumed `topic`, sorted."""
        groups: set[str] = set()
        for broker in addresses_of((await self.topic_route(topic)).broker_datas).values():
            groups.update(await self.broker_groups_of_topic(broker, topic))
        return sorted(groups)

    async def broker_groups_of_topic(self, broker: str, topic: str) -> list[str]:
        """Return the consumer groups that have consumed `topic` on the broker at an address."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return (await self.ask_body(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header)).group_list

    # Ends of queues

    async def offset_at(self, broker: str, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset of a queue at or after a time."""
        header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return (await self.ask_header(broker, code, SearchOffsetResponseHeader, header)).offset

    async def end_of_queue(self, broker: str, topic: str, queue_id: int, *, written: bool = False) -> int:
        """Return the offset after the last message; `written`: of the physical queue, with what waits for its flush."""
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        if written:
            header.committed, header.lo = False, False
        return (await self.ask_header(broker, RequestCode.GET_MAX_OFFSET, GetMaxOffsetResponseHeader, header)).offset

    async def wait_for_broker(self, cluster: str, count: int, *, within_s: float) -> None:
        """Return when at least `count` masters of `cluster` are registered.  Raises AdminError after `within_s`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_s
        while True:
            try:
                if len(await self.broker_addresses(cluster, masters_only=True)) >= count:
                    return
            except AdminError:
                if clock() > deadline:
                    raise
            if clock() > deadline:
                raise AdminError(f"cluster {cluster} has fewer than {count} brokers after {within_s} s")
            await asyncio.sleep(0.02)

    async def _broker_of_group(self, group: str) -> str:
        brokers = await self._brokers_of_group(group, None, None)
        if not brokers:
            raise AdminError(f"group {group}: no broker on the route of {RETRY_PREFIX}{group}")
        return brokers[0]

    async def _brokers_of_group(self, group: str, topic: str | None, route_topic: str | None) -> list[str]:
        topics = [name for name in (retry_topic(group), topic, route_topic) if name]
        for position, name in enumerate(topics, 1):
            try:
                return list(addresses_of((await self.topic_route(name)).broker_datas).values())
            except AdminError:
                if position == len(topics):
                    raise
        return []


@contextmanager
def _possible(topic: str) -> Iterator[None]:
    """Raise AdminError for mappings that cannot be."""
    try:
        yield
    except MappingError as error:
        raise AdminError(f"the mappings of static topic {topic}: {error}") from None


def _creation_header(config: TopicConfig) -> CreateTopicRequestHeader:
    """Return the header without attributes, which are changes and not what the topic has."""
    return CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
    )
