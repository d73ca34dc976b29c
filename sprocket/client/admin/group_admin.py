"""Administration of consumer and producer groups: offsets, members, and the work of members.

Source of requests and of the merging of responses: RocketMQ 5.3.3, `DefaultMQAdminExtImpl`, and the commands of
`tools.command.offset`, `consumer`, `connection`, `producer`, `broker`, `queue`.
"""

from typing import Final, NamedTuple

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import decoded, none_if, queues_of
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.remoting.bodies.client import (
    ConsumerConnection,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerConnection,
    ProducerTableInfo,
)
from sprocket.remoting.bodies.consumption import ConsumeStatsList, GetConsumerStatusBody, QueryConsumeQueueResponseBody
from sprocket.remoting.bodies.route import addresses_of
from sprocket.remoting.bodies.stats import BrokerStatsData, ConsumeStats, OffsetWrapper, ResetOffsetBody
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from sprocket.remoting.headers.client import (
    GetProducerConnectionListRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.message.topic_names import TIMER_TOPIC, is_light

# Time that resets to the end of the queue.
TO_END: Final = -1


class Rollback(NamedTuple):
    """Outcome of a reset by commit in one queue; `reset_offset` is the new offset."""

    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    reset_offset: int


class GroupAdmin:
    """Client of the brokers that `admin` finds.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    # Offsets

    async def reset_to_time(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True, route_topic: str | None = None
    ) -> dict[MessageQueue, int]:
        """Reset `group` to a time, or `TO_END`, in all queues of `topic`.  Return the new offsets.

        A broker that lets its clients do it refuses with CONSUMER_NOT_ONLINE if there are none.  The queues of a static
        topic are logical ones; a broker of RocketMQ resets physical ones, which is an error, and undone by nothing.
        """
        is_static = await self._is_static(topic)
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp_ms, is_force=force)
        offsets: dict[MessageQueue, int] = {}
        for address in (await self._brokers(_route_topic(topic, route_topic))).values():
            answer = await self._admin.ask_body(
                address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetBody[str], header
            )
            found = queues_of(answer.offset_table)
            if is_static and any(queue.broker_name != LOGICAL_BROKER for queue in found):
                raise AdminError(
                    f"broker {address} has reset physical queues of static topic {topic}, not logical ones"
                )
            offsets |= found
        return offsets

    async def commit_to_time(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True, route_topic: str | None = None
    ) -> list[Rollback]:
        """Reset an offline group by commits.  Without `force` no queue moves forward.

        Refused for static topics: in a logical queue the newest item with an offset counts.
        """
        if await self._is_static(topic):
            raise AdminError(f"topic {topic} is static: brokers must reset its groups, not commits (resetOffsetByTime)")
        done = []
        for name, address in (await self._brokers(_route_topic(topic, route_topic))).items():
            extents = {
                queue.queue_id: (offsets.broker_offset, offsets.consumer_offset)
                for queue, offsets in (await self.offsets(address, group)).items()
                if queue.topic == topic
            }
            if not extents:
                table = (await self._admin.topic_stats(topic, route_topic)).offset_table
                extents = {
                    queue.queue_id: (extent.max_offset, extent.min_offset)
                    for queue, extent in table.items()
                    if queue.broker_name == name
                }
            for queue_id, (broker_offset, consumer_offset) in sorted(extents.items()):
                found = await self.offset_at(address, topic, queue_id, timestamp_ms)
                reset_offset = found if force or found <= consumer_offset else consumer_offset
                if reset_offset == found:
                    await self.commit(address, group, topic, queue_id, found)
                done.append(Rollback(name, queue_id, broker_offset, consumer_offset, found, reset_offset))
        return done

    async def offset_at(self, broker: str, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset of a queue at or after a time; with `TO_END` the offset after the last."""
        if timestamp_ms == TO_END:
            return await self._admin.end_of_queue(broker, topic, queue_id)
        return await self._admin.offset_at(broker, topic, queue_id, timestamp_ms)

    async def reset_queue(self, broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset `group` to an offset of one queue: by a commit, and by a reset for its online members.

        In a logical queue of a static topic the reset does both; `broker` must be its leader.
        """
        if not await self._is_static(topic):
            await self.commit(broker, group, topic, queue_id, offset)
        header = ResetOffsetRequestHeader(
            group=group, topic=topic, queue_id=queue_id, offset=offset, timestamp=0, is_force=False
        )
        await self._admin.ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def commit(self, broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in one queue."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self._admin.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, broker: str, group: str, topic: str, queue_id: int) -> int | None:
        """Return a group's offset in one queue; None if the broker has none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = self._admin.ask_header(broker, code, QueryConsumerOffsetResponseHeader, header)
        found = await none_if(ResponseCode.QUERY_NOT_FOUND, answer)
        return None if found is None else found.offset

    async def lock(self, broker: str, group: str, client_id: str, queue: MessageQueue) -> bool:
        """Lock a queue for a member of a group, or renew its lock; return False if another member has it."""
        body = dumps(LockBatchRequestBody(group, client_id, mq_set=[queue]))
        answer = await self._admin.ask_body(
            broker, RequestCode.LOCK_BATCH_MQ, LockBatchResponseBody, LockBatchMqRequestHeader(), body
        )
        return queue in answer.lock_ok_mq_set

    async def unlock(self, broker: str, group: str, client_id: str, queue: MessageQueue) -> None:
        """End a lock of `lock`."""
        body = dumps(LockBatchRequestBody(group, client_id, mq_set=[queue]))
        await self._admin.ask(broker, RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of `source` in every topic that it consumes to `target`, on the brokers of `topic`."""
        stats = await self._admin.consume_stats(source)
        if not stats.offset_table:
            return
        for static in {queue.topic for queue in stats.offset_table if queue.broker_name == LOGICAL_BROKER}:
            for queue, leader in await MessageLookup(self._admin).queues(static):
                if queue in stats.offset_table and stats.offset_table[queue].consumer_offset >= 0:
                    offset = stats.offset_table[queue].consumer_offset
                    await self.reset_queue(leader, target, static, queue.queue_id, offset)
        addresses = await self._brokers(topic)
        for queue, offsets in sorted(stats.offset_table.items()):
            address = addresses.get(queue.broker_name)
            if address is not None and offsets.consumer_offset >= 0:
                await self.commit(address, target, queue.topic, queue.queue_id, offsets.consumer_offset)

    # Members

    async def positions(self, topic: str, group: str, client_id: str = "") -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets of one or every client of the group in its queues of `topic`, by client id."""
        brokers = list((await self._brokers(topic)).values())
        if not brokers:
            return {}
        header = GetConsumerStatusRequestHeader(topic=topic, group=group, client_addr=client_id)
        body = await self._admin.ask_body(
            brokers[0], RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusBody[str], header
        )
        return {client: queues_of(table) for client, table in body.consumer_table.items()}

    async def consumers(self, group: str, broker: str | None = None) -> ConsumerConnection:
        """Return the members of a consumer group, as one broker knows them."""
        found = await self._admin.consumer_connection(group, broker)
        if not found.connection_set:
            raise AdminError("Not found the consumer group connection", ResponseCode.CONSUMER_NOT_ONLINE)
        return found

    async def producers(self, group: str, topic: str) -> ProducerConnection:
        """Return the members of a producer group, as the first broker of `topic` knows them."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        broker = await self._first_broker(topic)
        return await self._admin.ask_body(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection, header)

    async def all_producers(self, broker: str) -> ProducerTableInfo:
        """Return the members of every producer group on a broker."""
        return await self._admin.ask_body(broker, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo)

    # Figures of brokers

    async def broker_consume_stats(
        self, broker: str, *, ordered_only: bool = False, timeout_s: float | None = 50.0
    ) -> ConsumeStatsList[str]:
        """Return the offsets of every group of a broker; the tables have JSON texts as keys."""
        header = GetConsumeStatsInBrokerHeader(is_order=ordered_only)
        return await self._admin.ask_body(
            broker, RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsList[str], header, timeout_s=timeout_s
        )

    async def offsets(self, broker: str, group: str) -> dict[MessageQueue, OffsetWrapper]:
        """Return the offsets of a group in each queue of a broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        answer = await self._admin.ask_body(broker, RequestCode.GET_CONSUME_STATS, ConsumeStats[str], header)
        return queues_of(answer.offset_table)

    async def offsets_of_all(self, broker: str) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
        """Return the offsets of every group of a broker."""
        found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
        for entry in (await self.broker_consume_stats(broker, timeout_s=None)).consume_stats_list:
            for group, tables in entry.items():
                for table in tables:
                    found.setdefault(group, {}).update(queues_of(table.offset_table))
        return found

    async def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """Return the sums and rates of a broker's statistic: of a topic (TOPIC_PUT_NUMS) or of ``topic@group``."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        return await self._admin.ask_body(broker, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsData, header)

    async def consume_queue(
        self, topic: str, queue_id: int, index: int, count: int, *, group: str | None = None, broker: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Return entries of a ConsumeQueue of the named broker, or of the first broker of `topic`."""
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        address = broker or await self._first_broker(topic)
        response = await self._admin.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        if not response.body:
            raise AdminError(response.remark or f"index {index} is none of the queue")
        return decoded(response, QueryConsumeQueueResponseBody)

    async def masters(self, topic: str) -> list[str]:
        """Return the addresses of the masters of a topic."""
        route = await self._admin.topic_route(topic)
        return [data.broker_addrs[0] for data in route.broker_datas if 0 in data.broker_addrs]

    async def _is_static(self, topic: str) -> bool:
        """Say whether a topic is static; one without a route is not."""
        try:
            route = await self._admin.topic_route(topic)
        except AdminError:
            return False
        return bool(route.topic_queue_mapping_by_broker)

    async def _first_broker(self, topic: str) -> str:
        for address in (await self._brokers(topic)).values():
            return address
        raise AdminError(f"topic {topic} has no broker")

    async def _brokers(self, topic: str) -> dict[str, str]:
        return addresses_of((await self._admin.topic_route(topic)).broker_datas)


def _route_topic(topic: str, route_topic: str | None) -> str:
    """Return the topic whose route to use: light topics and the timer wheel's have no route of their own."""
    if route_topic and (is_light(topic) or topic == TIMER_TOPIC):
        return route_topic
    return topic
