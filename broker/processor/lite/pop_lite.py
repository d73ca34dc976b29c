"""POP_LITE_MESSAGE: messages of all lite topics that a client subscribes.  Each lite topic is consumed in order.

A pop without messages is held until an event of its client.
Source: RocketMQ 5.5.1, `PopLiteMessageProcessor`, `PopLiteLongPollingService`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.core import BrokerCore
from broker.lite.admission import LiteAdmission
from broker.lite.events import LiteEvents
from broker.lite.offsets import LiteOffsets
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from broker.lite.subscriptions import LiteClient, LiteSubscriptions
from broker.longpolling.held_pops import HeldPops, HoldResult
from broker.longpolling.held_requests import answer_again
from broker.longpolling.quota_reads import Verdict, charge_found
from broker.pop.retry_record import records_in
from sprocket.common.errors import CorruptRecord, RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE
from store.queue.get_result import GetResult, GetStatus
from store.queue.multi_dispatch import offset_in

_MAX_BYTES: Final = 0x7FFFFFFF
_MAX_MESSAGES: Final = 32
# Lite topics that one pop looks at in one turn of the loop, which takes at most a few milliseconds.
_MAX_LOOKS: Final = 512
_WRONG_OFFSET: Final = frozenset(
    {
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


class _Taken:
    """What a pop has taken so far."""

    __slots__ = ("buffers", "counts", "damage", "is_unfinished")

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self.counts: list[int] = []  # earlier deliveries of each message
        self.damage: CorruptRecord | None = None
        self.is_unfinished = False  # whether lite topics are left to look at


class PopLiteProcessor:
    """Handler of pops of lite topics.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        admission: LiteAdmission,
        subscriptions: LiteSubscriptions,
        events: LiteEvents,
        offsets: LiteOffsets,
        order: LiteOrder,
        held: HeldPops,
    ) -> None:
        self._clock = core.clock
        self._call_later = core.call_later
        self._store = core.store
        self._flow = core.flow
        self._consumer_offsets = core.offsets
        self._admission = admission
        self._subscriptions = subscriptions
        self._events = events
        self._offsets = offsets
        self._order = order
        self._held = held
        self._quotas = core.quota_reads

    def pop(self, request: Request[PopLiteMessageRequestHeader]) -> Response | None:
        """Return messages, or hold the request.  Raises RequestError."""
        header = request.header
        header.born_time = header.born_time or self._clock.wall_ms()
        return self._serve(request, may_hold=True)

    def answer_held(self, request: Request[PopLiteMessageRequestHeader], may_hold: bool) -> None:
        """Answer a held pop with what there is now."""
        answer_again(request, partial(self._serve, request, may_hold=may_hold))

    def _serve(self, request: Request[PopLiteMessageRequestHeader], *, may_hold: bool) -> Response | None:
        header, now_ms = request.header, self._clock.wall_ms()
        if not 0 < header.max_msg_num <= _MAX_MESSAGES:
            remark = f"maxMsgNum is {header.max_msg_num}: a pop returns 1 to {_MAX_MESSAGES} messages"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        self._admission.check_pop(header.topic, header.consumer_group, request.channel.peer)
        planned = self._quotas.of_plan(header.topic, header.consumer_group)
        buckets = self._quotas.of(planned, request.channel)
        if buckets:
            again, max_s = partial(self.answer_held, may_hold=may_hold), max(header.poll_time, 0) / 1000
            verdict = self._quotas.admit(buckets, request, max_s, again, is_new=may_hold)
            if verdict is not Verdict.SERVE:
                return _nothing(header, now_ms) if verdict is Verdict.EMPTY else None
        client = self._subscriptions.find(header.consumer_group, header.client_id)
        taken = _Taken()
        if client is not None:
            self._take(client, header, now_ms, taken)
        if taken.counts:
            charge_found(buckets, len(taken.counts), self._count(header, taken))
            answer = _header(header, now_ms, taken.counts)
            return Response(ResponseCode.SUCCESS, GetStatus.FOUND.name, answer, taken.buffers)
        if taken.damage is not None:
            raise taken.damage
        return self._hold(request, now_ms, may_hold=may_hold, is_unfinished=taken.is_unfinished)

    # Take

    def _take(self, client: LiteClient, header: PopLiteMessageRequestHeader, now_ms: int, taken: _Taken) -> None:
        seen: set[str] = set()
        damaged: list[str] = []
        for _ in range(_MAX_LOOKS):
            queue = None if len(taken.counts) >= header.max_msg_num else self._events.take(client)
            if queue is None:
                break
            if queue in seen:
                continue  # In this turn of the loop nothing has changed since.
            seen.add(queue)
            try:
                self._take_from(queue, header, now_ms, taken)
            except CorruptRecord as error:
                taken.damage = error
                damaged.append(queue)
        else:
            taken.is_unfinished = True
        for queue in damaged:
            self._events.put_back(client, queue)

    def _take_from(self, queue: str, header: PopLiteMessageRequestHeader, now_ms: int, taken: _Taken) -> None:
        group = header.consumer_group
        if not self._offsets.has_unread(queue, group):
            return
        if self._order.blocks(header.attempt_id, queue, group, header.invisible_time) and not (
            self._consumer_offsets.is_reset(group, queue, LITE_QUEUE_ID)
        ):
            return
        result = self._read(queue, group, self._offsets.begin(queue, group), header.max_msg_num - len(taken.counts))
        if not result.slices:
            return
        offsets = [offset_in(queue, record) for record in records_in(result.slices)]
        taken.counts += self._order.popped(header.attempt_id, queue, group, now_ms, header.invisible_time, offsets)
        taken.buffers += result.slices

    def _read(self, queue: str, group: str, offset: int, room: int) -> GetResult:
        result = self._store.get(queue, LITE_QUEUE_ID, offset, room, _MAX_BYTES)
        if result.status not in _WRONG_OFFSET or result.slices:
            return result
        self._consumer_offsets.commit(group, queue, LITE_QUEUE_ID, result.next_offset)
        return self._store.get(queue, LITE_QUEUE_ID, result.next_offset, room, _MAX_BYTES)

    def _count(self, header: PopLiteMessageRequestHeader, taken: _Taken) -> int:
        """Count what a pop has taken; return its size."""
        size_bytes = sum(map(len, taken.buffers))
        self._flow.delivered(header.topic, header.consumer_group, len(taken.counts), size_bytes, "false")
        return size_bytes

    # Hold

    def _hold(
        self, request: Request[PopLiteMessageRequestHeader], now_ms: int, *, may_hold: bool, is_unfinished: bool
    ) -> Response | None:
        header, result = request.header, HoldResult.NOT_HELD
        if may_hold:
            result = self._held.hold(
                request, header.client_id, header.consumer_group, LITE_QUEUE_ID, None, header.poll_time,
                header.born_time,
            )  # fmt: skip
        if result is HoldResult.HELD:
            if is_unfinished:
                self._call_later(0.0, partial(self._wake, header.client_id, header.consumer_group))
            return None
        if result is HoldResult.FULL:
            remark = GetStatus.NO_MESSAGE_IN_QUEUE.name
            return Response(ResponseCode.POLLING_FULL, remark, _header(header, now_ms, ()))
        return _nothing(header, now_ms)

    def _wake(self, client_id: str, group: str) -> None:
        self._held.wake(client_id, group, LITE_QUEUE_ID)


def _nothing(header: PopLiteMessageRequestHeader, now_ms: int) -> Response:
    """Return the response to a pop that has waited and found nothing."""
    remark = GetStatus.NO_MESSAGE_IN_QUEUE.name
    return Response(ResponseCode.POLLING_TIMEOUT, remark, _header(header, now_ms, ()))


def _header(header: PopLiteMessageRequestHeader, now_ms: int, counts: Sequence[int]) -> PopLiteMessageResponseHeader:
    """Return the header of a response; one count for each message, which RocketMQ's client understands.

    Source: `ExtraInfoUtil.parseLiteOrderCount`.
    """
    return PopLiteMessageResponseHeader(
        pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=ORDER_REVIVE_QUEUE,
        order_count_info=";".join(map(str, counts)),
    )  # fmt: skip
