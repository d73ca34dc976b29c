"""Offsets of the logical queues of static topics, asked from the brokers of their items.

Consumer offsets are stored as physical ones, by the broker of the item that they are in.
Source: RocketMQ 5.3.3, `ConsumerManageProcessor`, `AdminBrokerProcessor.rewriteRequestForStaticTopic`.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Final, NamedTuple

import msgspec

from broker.out.other_brokers import OtherBrokers
from broker.plan.table import Refused
from broker.processor.consumer_offsets import OffsetProcessor
from broker.topic.logical_queue import StaticTopics, led_items
from broker.topic.logical_resets import LogicalPlace, LogicalResets
from sprocket.common.errors import RequestError
from sprocket.common.invariant import invariant
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Answer, Handler, Route
from sprocket.static_topic.item_checks import find_item
from store.message_store import Boundary

_SUCCESS: Final = ResponseCode.SUCCESS


class _Answer(NamedTuple):
    """Answer of the broker of one item: `number` is the offset or the time in it; None if there is none."""

    code: int
    remark: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request about a logical queue that this broker leads; `items` are those whose logical offsets are known."""

    request: Request[Any]
    items: Sequence[LogicQueueMappingItem]

    @property
    def header(self) -> Any:
        return self.request.header

    @property
    def place(self) -> LogicalPlace:
        """The group in the queue, of a request that names a group."""
        return LogicalPlace(self.header.consumer_group, self.header.topic, self.header.queue_id)


_Logical = Callable[[_Asked], Coroutine[Any, Any, Response]]


class StaticOffsets:
    """Handler of the requests of `OffsetProcessor` for static topics; that one serves all others.

    With ``lo=false`` the queue of a request is a physical one.
    """

    def __init__(
        self, physical: OffsetProcessor, static: StaticTopics, brokers: OtherBrokers, resets: LogicalResets
    ) -> None:
        self._static = static
        self._resets = resets
        self._brokers = brokers
        self._routes = physical.routes()
        self._here: dict[int, Handler] = {
            int(route.code): route.handle for route in self._routes if route.handle is not None
        }
        self._logical: dict[RequestCode, _Logical] = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def routes(self) -> list[Route]:
        """Return the routes of `OffsetProcessor`, with this handler."""
        return [replace(route, handle=partial(self._serve, self._logical[route.code])) for route in self._routes]

    def _serve(self, logical: _Logical, request: Request[Any]) -> Answer:
        header = request.header
        detail = self._static.get(header.topic)
        if detail is None or header.lo is False:
            return self._here[request.code](request)
        items = led_items(detail, header.queue_id)
        if isinstance(items, Refused):
            raise items.error(request.channel.peer)
        decided = [item for item in items if item.is_decided]
        if not decided:
            remark = f"{header.topic}-{header.queue_id} has no logical offsets yet, try again"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.BUSY)
        if len(items) == 1 and not items[0].offset_delta:
            # The offsets of both queues are the same (`TopicQueueMappingDetail.checkIfAsPhysical`).
            return self._here[request.code](_for_item(request, items[0], header))
        return logical(_Asked(request, decided))

    async def find(self, request: Request[Any], code: RequestCode, header: Any) -> int:
        """Return the number in the answer to a request with this header about a logical queue.  Raises RequestError."""
        asked = msgspec.structs.replace(request, code=code, header=header)
        number = (await _told(self._serve(self._logical[code], asked))).number
        invariant(number is not None, "ends of queues and times are answered with a number")
        assert number is not None
        return number

    async def find_in(self, request: Request[Any], item: LogicQueueMappingItem, code: RequestCode, header: Any) -> int:
        """Return the same for the physical queue of an item."""
        return await self._number(_Asked(request, ()), item, code, header)

    async def _ask(self, asked: _Asked, item: LogicQueueMappingItem, code: int, header: Any) -> _Answer:
        """Ask the broker of an item.  Raises RequestError if it does not answer, or an unexpected code."""
        request = _for_item(asked.request, item, header)
        detail = self._static.get(header.topic)
        if detail is not None and item.bname == detail.bname:
            return await _told(self._here[code](request))
        received = await self._brokers.ask(item.bname, code, request.header)
        return _Answer(received.code, received.remark, _number(received.ext_fields))

    async def _number(self, asked: _Asked, item: LogicQueueMappingItem, code: int, header: Any) -> int:
        answer = await self._ask(asked, item, code, header)
        if answer.code != _SUCCESS or answer.number is None:
            remark = f"broker {item.bname} answered {answer.code}: {answer.remark}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER)
        return answer.number

    # Offsets of groups

    async def _query(self, asked: _Asked) -> Response:
        """Return the offset of a reset that waits, else that in the newest item that has one."""
        waiting = self._resets.get(asked.place)
        if waiting is not None:
            return Response(header=QueryConsumerOffsetResponseHeader(offset=waiting))
        header = msgspec.structs.replace(asked.header, set_zero_if_not_found=False)
        for item in reversed(asked.items):
            answer = await self._ask(asked, item, RequestCode.QUERY_CONSUMER_OFFSET, header)
            if answer.code == _SUCCESS and answer.number is not None:
                return Response(header=QueryConsumerOffsetResponseHeader(offset=item.logical_open(answer.number)))
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                remark = f"broker {item.bname} answered {answer.code}: {answer.remark}"
                return Refusal(ResponseCode.SYSTEM_ERROR, remark, reason=Reason.OTHER_BROKER)
        return Response(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")

    async def _update(self, asked: _Asked) -> Response:
        """Commit the offset in the item that covers it; ignored while a reset waits."""
        if self._resets.get(asked.place) is not None:
            return Response(ResponseCode.SUCCESS, "Offset has been previously reset")
        offset = asked.header.commit_offset
        item = find_item(asked.items, offset) or asked.items[-1]
        header = msgspec.structs.replace(asked.header, commit_offset=max(0, item.physical(offset)))
        answer = await self._ask(asked, item, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return Response() if answer.code == _SUCCESS else Refusal(answer.code, answer.remark)

    # Ends of the queue

    async def _max(self, asked: _Asked) -> Response:
        item = asked.items[-1]
        offset = await self._number(asked, item, RequestCode.GET_MAX_OFFSET, asked.header)
        return Response(header=GetMaxOffsetResponseHeader(offset=item.logical_open(offset)))

    async def _min(self, asked: _Asked) -> Response:
        item = asked.items[0]
        offset = await self._number(asked, item, RequestCode.GET_MIN_OFFSET, asked.header)
        return Response(header=GetMinOffsetResponseHeader(offset=item.logical(offset)))

    # Times

    async def _earliest(self, asked: _Asked) -> Response:
        """Return the store time of the oldest message of all items; -1 without one."""
        timestamp = -1
        for item in asked.items:
            timestamp = await self._number(asked, item, RequestCode.GET_EARLIEST_MSG_STORETIME, asked.header)
            if timestamp >= 0:
                break
        return Response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    async def _search(self, asked: _Asked) -> Response:
        """Search in the newest item that begins before the time, and go on at the next one if it ends before it.

        RocketMQ asks every item from the oldest on, and its last answer counts.
        """
        header = asked.header
        place = {"topic": header.topic, "queue_id": header.queue_id}
        earliest, end = GetEarliestMsgStoretimeRequestHeader(**place), GetMaxOffsetRequestHeader(**place)
        upper = (header.boundary_type or "").strip().lower() == Boundary.UPPER.value
        later: LogicQueueMappingItem | None = None  # the oldest item with messages from that time on
        for item in reversed(asked.items):
            begin = await self._number(asked, item, RequestCode.GET_EARLIEST_MSG_STORETIME, earliest)
            if begin < 0:
                continue
            if begin > header.timestamp or (begin == header.timestamp and not upper):
                later = item
                continue
            found = await self._number(asked, item, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            if later is None or upper or found < await self._number(asked, item, RequestCode.GET_MAX_OFFSET, end):
                return _searched(item, found)
            break
        if later is not None:
            first = GetMinOffsetRequestHeader(**place)
            return _searched(later, await self._number(asked, later, RequestCode.GET_MIN_OFFSET, first))
        return _searched(asked.items[-1], 0)


def _searched(item: LogicQueueMappingItem, offset: int) -> Response:
    return Response(header=SearchOffsetResponseHeader(offset=item.logical_open(offset)))


def _for_item(request: Request[Any], item: LogicQueueMappingItem, header: Any) -> Request[Any]:
    """Return a request with this header to the physical queue of an item."""
    at_item = msgspec.structs.replace(header, queue_id=item.queue_id, lo=False, broker_name=item.bname)
    return msgspec.structs.replace(request, header=at_item)


async def _told(given: Answer) -> _Answer:
    """Return what a handler of this broker answers."""
    response = await given if isawaitable(given) else given
    invariant(isinstance(response, Response), "offsets are answered in one step")
    assert isinstance(response, Response)
    fields = to_ext_fields(response.header) if isinstance(response.header, Header) else {}
    return _Answer(response.code, response.remark, _number(fields))


def _number(fields: dict[str, str]) -> int | None:
    text = fields.get("offset", fields.get("timestamp", ""))
    return int(text) if text.removeprefix("-").isdecimal() else None
