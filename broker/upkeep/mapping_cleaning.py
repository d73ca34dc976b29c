"""Removal of what mappings of static topics no longer need, every five minutes in the hours of deleteWhen.

- The oldest item of a logical queue, once its physical queue is empty: all its messages have expired.
- The list of a logical queue that has moved on twice since this broker led it: the broker named there as the leader
  does not lead it any more, and the real leader has the whole list.

Source: RocketMQ 5.3.3, `TopicQueueMappingCleanService`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
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
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader
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
            for find in (self._empty_items, self._moved_lists):
                detail = mappings.get(topic)
                if detail is None:
                    break
                try:
                    lists = await find(topic, detail)
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

    async def _moved_lists(self, topic: str, detail: TopicQueueMappingDetail) -> _Lists:
        """Return the lists without those whose queue has moved on.  Raises SprocketError."""
        own = {
            logical: items[-1].bname
            for logical, items in detail.hosted_queues.items()
            if items and items[-1].bname != detail.bname
        }
        if not own:
            return detail.hosted_queues
        route = await self._brokers.route(topic)
        leaders = leaders_of((route.topic_queue_mapping_by_broker or {}).values())
        details: dict[str, TopicQueueMappingDetail | None] = {}
        gone = set()
        for logical, known in own.items():
            leader = leaders.get(logical)
            if leader is None or leader == known:
                continue
            if leader not in details:
                header = GetTopicConfigRequestHeader(topic=topic, lo=True, broker_name=leader)
                answer = await self._read(leader, RequestCode.GET_TOPIC_CONFIG, header, TopicConfigAndQueueMapping)
                details[leader] = answer.mapping_detail
            if _leads(details[leader], leader, logical, detail):
                gone.add(logical)
        return {logical: items for logical, items in detail.hosted_queues.items() if logical not in gone}

    async def _read(self, broker: str, code: RequestCode, header: Header, as_type: type[T]) -> T:
        response = await self._brokers.ask(broker, code, header)
        if response.code != ResponseCode.SUCCESS:
            raise SprocketError(f"broker {broker} answered {response.code}: {response.remark}")
        return loads(response.body, as_type)


def leaders_of(infos: Iterable[TopicQueueMappingInfo]) -> dict[str, str]:
    """Return the broker that leads each logical queue; of several, that with the highest epoch."""
    leaders: dict[str, str] = {}
    for info in sorted(infos, key=lambda info: info.epoch):
        leaders |= dict.fromkeys(info.curr_id_map or (), info.bname or "")
    return leaders


def _leads(detail: TopicQueueMappingDetail | None, broker: str, logical: str, own: TopicQueueMappingDetail) -> bool:
    """Whether this detail is of the same state of the topic, and says that its broker leads a logical queue."""
    if detail is None or (detail.bname, detail.epoch, detail.total_queues) != (broker, own.epoch, own.total_queues):
        return False
    items = detail.hosted_queues.get(logical)
    return bool(items) and items is not None and items[-1].bname == broker
