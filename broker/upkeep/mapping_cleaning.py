"""Removal of what mappings of static topics no longer need, every five minutes in the hours of deleteWhen.

The broker that leads a logical queue removes the oldest item once its physical queue is empty: all its messages have
expired.  A broker keeps its list of a queue that has moved on: it says where late messages for that queue go.
RocketMQ removes the list once the queue has moved twice.

Source: RocketMQ 5.3.3, `TopicQueueMappingCleanService`.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from broker.core import BrokerCore
from broker.out.other_brokers import OtherBrokers
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.errors import SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.stats import TopicOffset
from sprocket.remoting.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetTopicStatsInfoRequestHeader
from sprocket.remoting.headers.base import Header
from store.retention.rules import is_delete_hour

logger = logging.getLogger(__name__)

_PERIOD_S: Final = 300.0
T = TypeVar("T")
_Lists = Mapping[str, Sequence[LogicQueueMappingItem]]


class _Stats(msgspec.Struct, rename="camel"):
    """`TopicStatsTable` with its keys as they are on the wire."""

    offset_table: dict[str, TopicOffset] = {}


class MappingCleaning(Service):
    """Periodic cleaning of the mappings of a broker that serves its group."""

    def __init__(self, core: BrokerCore, brokers: OtherBrokers) -> None:
        self._core = core
        self._brokers = brokers

    def periodic(self) -> list[Periodic]:
        return [Periodic("mapping_cleaning", _PERIOD_S, self.clean_in_time)]

    async def clean_in_time(self) -> None:
        """Clean if this is an hour of deleteWhen."""
        core = self._core
        if core.role.serves_group and is_delete_hour(core.config.store, core.clock.wall_ms()):
            await self.clean()

    async def clean(self) -> None:
        """Clean the mappings of all topics; what a broker does not answer is left for the next time."""
        mappings = self._core.mappings
        for topic in list(mappings.by_name):
            detail = mappings.get(topic)
            if detail is None:
                continue
            try:
                lists = await self._empty_items(topic, detail)
            except SprocketError as error:
                peer_lines.warning(logger, "", "event=mapping_not_cleaned topic=%s reason=%r", topic, str(error))
                continue
            # Meanwhile an operator may have changed it.
            if lists != detail.hosted_queues and mappings.get(topic) is detail:
                mappings.put(topic, msgspec.structs.replace(detail, hosted_queues=dict(lists)))
                await mappings.save()
                peer_lines.info(logger, "", "event=mapping_cleaned topic=%s", topic)

    async def _empty_items(self, topic: str, detail: TopicQueueMappingDetail) -> _Lists:
        """Return the lists without oldest items that are empty.  Raises SprocketError."""
        lists: dict[str, list[LogicQueueMappingItem]] = dict(detail.hosted_queues)
        tables: dict[str, dict[MessageQueue, TopicOffset]] = {}
        for logical, items in detail.hosted_queues.items():
            if len(items) < 2 or items[-1].bname != detail.bname:
                continue
            oldest = items[0]
            if await self._is_empty(topic, oldest, tables):
                lists[logical] = items[1:]
        return lists

    async def _is_empty(
        self, topic: str, item: LogicQueueMappingItem, tables: dict[str, dict[MessageQueue, TopicOffset]]
    ) -> bool:
        """Whether a physical queue has no messages (any more); False if its broker does not know it."""
        if item.bname == self._core.config.broker.broker_name:
            store = self._core.store
            return store.max_offset(topic, item.queue_id) == store.min_offset(topic, item.queue_id)
        table = tables.get(item.bname)
        if table is None:
            header = GetTopicStatsInfoRequestHeader(topic=topic, lo=False, broker_name=item.bname)
            stats = await self._read(item.bname, RequestCode.GET_TOPIC_STATS_INFO, header, _Stats)
            table = tables[item.bname] = by_queue(stats.offset_table)
        extent = table.get(MessageQueue(topic, item.bname, item.queue_id))
        return extent is not None and (extent.max_offset in (0, extent.min_offset))

    async def _read(self, broker: str, code: RequestCode, header: Header, as_type: type[T]) -> T:
        response = await self._brokers.ask(broker, code, header)
        if response.code != ResponseCode.SUCCESS:
            raise SprocketError(f"broker {broker} answered {response.code}: {response.remark}")
        return loads(response.body, as_type)
