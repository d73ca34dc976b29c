"""INVOKE_BROKER_TO_RESET_OFFSET of static topics: the leader of a logical queue moves a group in all of its items.

The group gets the offset in the item that covers it, the end of each older item, and no offset in newer ones: a query
for the group's offset takes the newest item that has one, and a pop group reads every item by itself.
RocketMQ 5.3.3 resets each physical queue by itself, so a group that is moved back skips what older items have.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from broker.out.other_brokers import OtherBrokers
from broker.plan.table import Refused
from broker.processor.admin.resets import ResetProcessor, check_in_range, named_offset
from broker.processor.static_offsets import StaticOffsets
from broker.topic.logical_queue import StaticTopics, led_items, led_queue_ids
from broker.topic.logical_resets import LogicalPlace, LogicalResets
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.bodies.topic_queue_mapping import (
    LOGICAL_BROKER,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.offset import (
    NO_OFFSET,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from sprocket.remoting.routes import Answer, Route
from sprocket.static_topic.item_checks import find_item

logger = logging.getLogger(__name__)

_RESET: Final = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


class StaticResets:
    """Handler of the requests of `ResetProcessor`, which serves all but resets in logical queues.

    With ``lo=false`` the queue of a request is a physical one: it comes from the leader of a logical queue.  The broker
    moves groups of static topics also with useServerSideResetOffset=false.
    """

    def __init__(
        self,
        physical: ResetProcessor,
        offsets: StaticOffsets,
        static: StaticTopics,
        brokers: OtherBrokers,
        resets: LogicalResets,
    ) -> None:
        self._physical = physical
        self._offsets = offsets
        self._static = static
        self._brokers = brokers
        self._resets = resets

    def routes(self) -> list[Route]:
        """Return the routes of `ResetProcessor`, with this handler."""
        routes = self._physical.routes()
        return [replace(route, handle=self.reset) if route.code == _RESET else route for route in routes]

    def reset(self, request: Request[ResetOffsetRequestHeader]) -> Answer:
        """Reset a group to an offset in one queue, or to a time in one queue or all that this broker leads."""
        header = request.header
        detail = self._static.get(header.topic)
        if detail is None or header.lo is False:
            return self._physical.reset(request)
        return self._physical.refusal(header) or self._move(request, detail)

    async def _move(self, request: Request[ResetOffsetRequestHeader], detail: TopicQueueMappingDetail) -> Response:
        header = request.header
        led = led_queue_ids(detail) if header.queue_id < 0 else [header.queue_id]
        moved = {}
        for queue_id in led:
            queue = MessageQueue(header.topic, LOGICAL_BROKER, queue_id)
            moved[queue] = await self._move_in(request, LogicalPlace(header.group, header.topic, queue_id))
        peer_lines.info(
            logger, "", "event=offsets_reset group=%s topic=%s logical=%s", header.group, header.topic,
            {queue.queue_id: offset for queue, offset in moved.items()},
        )  # fmt: skip
        return Response(body=dumps(ResetOffsetBody(moved)))

    async def _move_in(self, request: Request[ResetOffsetRequestHeader], place: LogicalPlace) -> int:
        """Move the group in one logical queue; return its new offset there."""
        items = self._items(request, place)
        offset = await self._target(request, place)
        if len(items) == 1 and not items[0].offset_delta:
            self._physical.place(place.group, place.topic, items[0].queue_id, offset)
            return offset
        self._resets.put(place, offset)
        try:
            for item in reversed(items):
                await self._place(request, place, item, await self._within(request, items, item, offset))
            if self._items(request, place) != items:
                remark = f"{place.topic}-{place.queue_id} has moved meanwhile, try again"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.BUSY)
        except RequestError:
            self._resets.take(place)
            raise
        self._physical.wake(place.group, place.topic, items[-1].queue_id)
        return offset

    def _items(self, request: Request[Any], place: LogicalPlace) -> list[LogicQueueMappingItem]:
        """Return the items of a queue that this broker leads.  Raises RequestError."""
        detail = self._static.get(place.topic)
        if detail is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {place.topic} is not static any more")
        found = led_items(detail, place.queue_id)
        if isinstance(found, Refused):
            raise found.error(request.channel.peer)
        if not found[-1].is_decided:
            remark = f"{place.topic}-{place.queue_id} is moving, try again"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.BUSY)
        return found

    async def _target(self, request: Request[ResetOffsetRequestHeader], place: LogicalPlace) -> int:
        """Return the logical offset that the request means.  Raises RequestError."""
        header, find = request.header, self._offsets.find
        topic, queue_id = place.topic, place.queue_id
        offset = named_offset(header)
        if offset is None and header.timestamp >= 0:
            search = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=header.timestamp)
            return await find(request, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        high = await find(
            request, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        )
        if offset is None:
            return high
        low = await find(request, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id))
        check_in_range(offset, low, high)
        return offset

    async def _within(
        self,
        request: Request[ResetOffsetRequestHeader],
        items: Sequence[LogicQueueMappingItem],
        item: LogicQueueMappingItem,
        offset: int,
    ) -> int:
        """Return what a logical offset is in the physical queue of an item."""
        current = find_item(items, offset)
        assert current is not None
        if item.gen > current.gen:
            return NO_OFFSET
        if item.gen == items[-1].gen:
            return max(0, item.physical(offset))
        end = GetMaxOffsetRequestHeader(topic=request.header.topic, queue_id=item.queue_id)
        high = await self._offsets.find_in(request, item, RequestCode.GET_MAX_OFFSET, end)
        return high if item.gen < current.gen else max(0, min(item.physical(offset), high))

    async def _place(
        self, request: Request[ResetOffsetRequestHeader], place: LogicalPlace, item: LogicQueueMappingItem, offset: int
    ) -> None:
        """Let the broker of an item move the group in its physical queue.  Raises RequestError."""
        detail = self._static.get(place.topic)
        if detail is not None and item.bname == detail.bname:
            self._physical.place(place.group, place.topic, item.queue_id, offset)
            return
        header = msgspec.structs.replace(
            request.header, queue_id=item.queue_id, offset=offset, timestamp=0, lo=False, broker_name=item.bname
        )
        answer = await self._brokers.ask(item.bname, _RESET, header)
        if answer.code != ResponseCode.SUCCESS:
            remark = f"broker {item.bname} answered {answer.code}: {answer.remark}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER)
