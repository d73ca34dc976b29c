"""Figures of topics and groups of one broker, given by address: one dead broker then hides only its own part.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl.getTopicStatsInfo`, `getConsumeStats`.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.answers import body_of
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, ConsumeStatsList
from sprocket.remoting.bodies.group import GroupList
from sprocket.remoting.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from sprocket.remoting.headers.client import GetConsumerRunningInfoRequestHeader

T = TypeVar("T")


class _TopicStatsText(msgspec.Struct, rename="camel"):
    """`TopicStatsTable` with its keys as they are on the wire."""

    offset_table: dict[str, TopicOffset] = {}


class BrokerFigures:
    """Client of single brokers.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def extents(self, broker: str, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the extent of each queue of `topic` on a broker."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        response = await self._admin.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, header)
        return _by_queue(body_of(response.body, _TopicStatsText, AdminError).offset_table)

    async def groups_of_topic(self, broker: str, topic: str) -> list[str]:
        """Return the groups that have consumed `topic` on a broker."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        response = await self._admin.ask(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return body_of(response.body, GroupList, AdminError).group_list

    async def offsets(self, broker: str, group: str) -> dict[MessageQueue, OffsetWrapper]:
        """Return the offsets of a group in each queue of a broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        response = await self._admin.ask(broker, RequestCode.GET_CONSUME_STATS, header)
        return _by_queue(body_of(response.body, ConsumeStats[str], AdminError).offset_table)

    async def offsets_of_all(self, broker: str) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
        """Return the offsets of every group of a broker."""
        header = GetConsumeStatsInBrokerHeader(is_order=False)
        response = await self._admin.ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
        for entry in body_of(response.body, ConsumeStatsList[str], AdminError).consume_stats_list:
            for group, tables in entry.items():
                for table in tables:
                    found.setdefault(group, {}).update(_by_queue(table.offset_table))
        return found

    async def running_info(self, broker: str, group: str, client_id: str) -> ConsumerRunningInfo[str]:
        """Return what a consumer tells about its work, by way of a broker that it is connected to."""
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        response = await self._admin.ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return body_of(response.body, ConsumerRunningInfo[str], AdminError)


def queues_of(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    """Return a table of a body with queues as its keys.  Raises AdminError."""
    return _by_queue(table)


def _by_queue(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    try:
        return by_queue(table)
    except ProtocolError as error:
        raise AdminError(f"the answer's key is no queue: {error}") from None
