"""PULL_MESSAGE of static topics: served here at the leader of the logical queue, or by the broker that has the offset.

Source: RocketMQ 5.3.3, `PullMessageProcessor.rewriteRequestForStaticTopic`.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from broker.longpolling.held_requests import answer_again
from broker.out.other_brokers import OtherBrokers, header_of
from broker.plan.table import Refused
from broker.processor.pull import MOVING_HOLD_S, PullProcessor
from broker.pull.logical_pull import LogicalPull, Offsets, logical_offsets, physical_header
from broker.pull.planner import SUSPEND
from broker.topic.logical_queue import StaticTopics, led_items
from broker.topic.logical_resets import LogicalPlace, LogicalResets
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.routes import Answer, Route
from sprocket.static_topic.item_checks import find_item

# No message of a queue has this offset: its arrival wakes no pull.
_NO_MESSAGE: Final = (1 << 63) - 1
_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class StaticPulls:
    """Handler of pulls that the kernel leaves: those of static topics, and through `PullProcessor` all others.

    With ``lo=false`` the queue of a pull is a physical one: it comes from the leader of a logical queue.
    """

    def __init__(
        self, pulls: PullProcessor, static: StaticTopics, brokers: OtherBrokers, resets: LogicalResets
    ) -> None:
        self._pulls = pulls
        self._static = static
        self._brokers = brokers
        self._resets = resets

    def routes(self) -> list[Route]:
        """Return the routes of `PullProcessor`, with this handler."""
        return [replace(route, handle=self.pull) for route in self._pulls.routes()]

    def pull(self, request: Request[PullMessageRequestHeader]) -> Answer:
        """Answer a pull, hold it, or let another broker answer it."""
        return self._serve(request, may_hold=True)

    def _serve(self, request: Request[PullMessageRequestHeader], *, may_hold: bool) -> Answer:
        header = request.header
        detail = self._static.get(header.topic)
        if detail is None or header.lo is False:
            return self._pulls.serve(request, None, may_hold=may_hold)
        items, current = self._place(request, detail)
        moved = self._moved(header)
        if moved is not None:
            return moved
        if current.bname == detail.bname:
            logical = LogicalPull(
                items, current, physical_header(header, items, current, current.bname), self._answer_held
            )
            return self._pulls.serve(request, logical, may_hold=may_hold)
        if may_hold:
            return self._forward(request, items, current, detail.bname)
        # The mapping has changed meanwhile: the next pull finds the other broker.
        return _go_on(ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset)

    def _place(
        self, request: Request[PullMessageRequestHeader], detail: TopicQueueMappingDetail
    ) -> tuple[list[LogicQueueMappingItem], LogicQueueMappingItem]:
        """Return the items of the logical queue, and the one that covers the offset.  Raises RequestError."""
        header = request.header
        if self._pulls.slave is not None:
            remark = f"topic {header.topic} is static: it is read at the masters of its brokers"
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, remark, Reason.SLAVE)
        items = led_items(detail, header.queue_id)
        if isinstance(items, Refused):
            raise items.error(request.channel.peer)
        current = find_item(items, header.queue_offset)
        if current is None:
            remark = f"{header.topic}-{header.queue_id} has no logical offsets yet, try again"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.BUSY)
        return items, current

    def _answer_held(self, request: Request[PullMessageRequestHeader]) -> None:
        """Answer a held pull with what there is now."""
        answer_again(request, partial(self._serve, request, may_hold=False))

    def _moved(self, header: PullMessageRequestHeader) -> Response | None:
        """Return the answer that moves a group whose offset was reset; None for others, and for one that is there."""
        offset = self._resets.take(LogicalPlace(header.consumer_group, header.topic, header.queue_id))
        if offset is None or offset == header.queue_offset:
            return None
        return _go_on(ResponseCode.PULL_OFFSET_MOVED, offset)

    async def _forward(
        self,
        request: Request[PullMessageRequestHeader],
        items: list[LogicQueueMappingItem],
        current: LogicQueueMappingItem,
        own_name: str | None,
    ) -> Response | None:
        header = physical_header(request.header, items, current, own_name or "")
        response = await self._brokers.ask(current.bname, request.code, header)
        if response.code not in _PULLED:
            remark = f"broker {current.bname} refused the pull: {response.code} {response.remark}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER)
        found = header_of(response, current.bname, PullMessageResponseHeader)
        code, next_begin, low, high, delta = logical_offsets(
            items,
            current,
            header.queue_offset,
            Offsets(response.code, found.next_begin_offset, found.min_offset, found.max_offset),
        )
        found = msgspec.structs.replace(
            found, suggest_which_broker_id=MASTER_ID, next_begin_offset=next_begin, min_offset=low, max_offset=high,
            offset_delta=delta,
        )  # fmt: skip
        answer = Response(code, response.remark, found, response.body if code == ResponseCode.SUCCESS else b"")
        return None if code == ResponseCode.PULL_NOT_FOUND and self._held(request, items, answer) else answer

    def _held(
        self, request: Request[PullMessageRequestHeader], items: list[LogicQueueMappingItem], answer: Response
    ) -> bool:
        """Answer at the next change of the mapping, or in a second; return False if the pull cannot be held.

        It is not known yet where the next item begins, and consumers pull again at once.
        """
        header, held = request.header, self._pulls.held
        if held is None or not header.sys_flag & SUSPEND:
            return False
        timeout_s = min(max(header.suspend_timeout_millis, 0) / 1000, MOVING_HOLD_S)
        return held.hold(
            request, header.topic, items[-1].queue_id, _NO_MESSAGE, None, timeout_s,
            lambda request: request.channel.reply(request, answer),
        )  # fmt: skip


def _go_on(code: ResponseCode, offset: int) -> Response:
    """Return an answer without messages, after which the consumer pulls from a logical offset on."""
    header = PullMessageResponseHeader(
        suggest_which_broker_id=MASTER_ID, next_begin_offset=offset, min_offset=offset, max_offset=offset,
        offset_delta=0,
    )  # fmt: skip
    return Response(code, header=header)
