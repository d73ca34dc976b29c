"""PULL_MESSAGE and LITE_PULL_MESSAGE: messages of one queue, sent from the mapped file without a copy.

For the differences on a slave see `broker.slave.slave_reads`.
Which pulls are served, `broker.pull.planner` says.
Source: RocketMQ 5.3.3, `PullMessageProcessor`, `DefaultPullMessageResultHandler`.
"""

import logging
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Final

from broker.coldctr.cold_flow import ColdFlow
from broker.core import BrokerCore
from broker.longpolling.held_pulls import AnswerPull, HeldPulls, PullFilter
from broker.longpolling.held_requests import answer_again
from broker.longpolling.quota_reads import Verdict, charge_found
from broker.plan.table import Refused
from broker.pull.broadcast_offsets import BroadcastOffsets
from broker.pull.logical_pull import LogicalOffsets, LogicalPull, Offsets
from broker.pull.planner import COMMIT_OFFSET, SUSPEND, PullPlan, PullPlanner, Why, pull_key
from broker.pull.pull_frames import PullFrames
from broker.quota.bucket import Buckets
from broker.slave.slave_reads import SlaveReads, suggested_id
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, Request, Response
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from store.queue.get_result import GetResult, GetStatus
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.tiered_reads import Respond

logger = logging.getLogger(__name__)

_DEFAULT_MAX_BYTES: Final = 0x7FFFFFFF
# Max time that a pull is held, whatever the client asks for.
_MAX_HOLD_S: Final = 10 * 60.0
# Max time that a pull waits until it is known where the next item of a logical queue begins.
MOVING_HOLD_S: Final = 1.0

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_FIELDS: Final = dict.fromkeys(
    ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag"), "%d"
)


@cache
def _template(status: GetStatus, code: int, *, has_delta: bool = False) -> ResponseTemplate:
    return ResponseTemplate(code, _FIELDS | {"offsetDelta": "%d"} if has_delta else _FIELDS, remark=status.name)


_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
_FOUND: Final = _template(GetStatus.FOUND, ResponseCode.SUCCESS)
# A lookup of an enum member takes longer than a comparison.
_STATUS_FOUND: Final = GetStatus.FOUND


def _code_of(status: GetStatus, offset: int) -> int:
    """Return the code of the response to a pull at an offset; in an empty queue, the start is a valid offset."""
    is_empty = status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
    return ResponseCode.PULL_NOT_FOUND if is_empty and offset == 0 else _CODES[status]


class PullProcessor:
    """Handler of pulls.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        held: HeldPulls | None,
        broadcasts: BroadcastOffsets,
        slave: SlaveReads | None = None,
        cold: ColdFlow | None = None,
    ) -> None:
        # Answers a held pull with what there is now.  One object for all, because each would live as long as its pull.
        self.answer_held: Final[AnswerPull] = partial(self._serve_again, False)
        self._core = core
        self._tier = core.tier
        self._quotas = core.quota_reads
        self._config = core.config
        self._store = core.store
        self._offsets = core.offsets
        self._flow = core.flow
        self.planner = PullPlanner(core, self._state)
        self.held = held  # None: no pull is held
        self.broadcasts = broadcasts
        self.slave = slave  # only on a slave
        self.cold = cold  # used while coldDataFlowControlEnable is on

    def routes(self) -> list[Route]:
        """Return the routes of this handler."""
        routes = [
            Route(code, PullMessageRequestHeader, self.pull, Resource.GROUP, Action.SUB, Traffic.PULL)
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        ]
        frames = PullFrames(self._core, self.planner, _FOUND, routes)
        return [replace(route, frames=frames.handler(int(route.code))) for route in routes]

    def _state(self) -> Why | None:
        """Return why the state of the broker leaves all pulls to this handler; None if it does not."""
        if self.slave is not None:
            return Why.SLAVE
        if self._tier.forces:
            return Why.TIER
        is_cold = self.cold is not None and self._config.store.cold_data_flow_control_enable
        return Why.COLD if is_cold else None

    def pull(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        """Answer a pull, or hold it."""
        return self.serve(request, None, may_hold=True)

    # Quotas

    def _admits(
        self, request: Request[PullMessageRequestHeader], plan: PullPlan, buckets: Buckets,
        logical: LogicalPull | None, may_hold: bool,
    ) -> bool:  # fmt: skip
        """Return whether the quotas admit a pull.

        If not, the pull waits.  If it has waited long enough, it is answered without messages.
        """
        header = request.header if logical is None else logical.header
        again = partial(self._serve_again, may_hold) if logical is None else logical.answer_held
        verdict = self._quotas.admit(buckets, request, _quota_wait_s(header), again, is_new=may_hold)
        if verdict is Verdict.EMPTY:
            self._answer_empty(request, header, plan, logical)
        return verdict is Verdict.SERVE

    def _serve_again(self, may_hold: bool, request: Request[PullMessageRequestHeader]) -> None:
        """Serve a pull that was held."""
        answer_again(request, partial(self.serve, request, None, may_hold=may_hold))

    def _answer_empty(
        self, request: Request[PullMessageRequestHeader], header: PullMessageRequestHeader, plan: PullPlan,
        logical: LogicalPull | None,
    ) -> None:  # fmt: skip
        """Answer a pull that has waited long enough for its quotas: nothing was found yet."""
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        result = GetResult(GetStatus.OFFSET_FOUND_NULL, header.queue_offset, low, high, [], 0, 0, False)
        if logical is None:
            self._write(request, ResponseCode.PULL_NOT_FOUND, result, plan)
            return
        shown = logical.shown(Offsets(ResponseCode.PULL_NOT_FOUND, result.next_offset, low, high))
        self._write_logical(request, shown, result, plan)

    def reset(self, group: str, topic: str, queue_id: int) -> None:
        """Answer a held pull of a group whose offset was reset, so that it moves to the new offset."""
        if self.held is not None:
            self.held.wake(topic, queue_id, lambda request: request.header.consumer_group == group)

    def serve(
        self, request: Request[PullMessageRequestHeader], logical: LogicalPull | None, *, may_hold: bool
    ) -> Response | None:
        """Answer a pull, or hold it; for a logical queue, answer what `logical` asks a physical one."""
        header, slave = request.header if logical is None else logical.header, self.slave
        if slave is not None and (refusal := slave.refusal(request)) is not None:
            return refusal
        plan = self.planner.plan(pull_key(request.code, header))
        self._quotas.planned(request.channel)
        if isinstance(plan, Refused):
            raise plan.error(request.channel.peer)
        buckets = self._quotas.of(plan.buckets, request.channel)
        if buckets and not self._admits(request, plan, buckets, logical, may_hold):
            return None
        if logical is not None:
            self._serve_logical(request, logical, plan, buckets, may_hold)
            return None
        cold = self.cold
        if cold is not None:
            if not cold.is_on:
                cold = None
            elif cold.delays(request, self.answer_held if may_hold else None):
                return None
        begin = self.broadcasts.begin(request) if plan.is_broadcasting else -1
        respond = partial(self._respond, request, plan, buckets, cold, may_hold)
        if begin < 0 and self._reads_tier(request, header, plan, respond):
            return None
        with self._quotas.work_of(request.channel) if plan.needs_handler is Why.SQL else nullcontext():
            result = self._get(header, plan.matches, begin)
        respond(result)
        return None

    def _reads_tier(
        self, request: Request[PullMessageRequestHeader], header: PullMessageRequestHeader, plan: PullPlan,
        respond: Respond,
    ) -> bool:  # fmt: skip
        """Return whether the object store has the messages; `respond` then gets them later."""
        if not self._tier.serves(header.topic, header.queue_id, header.queue_offset):
            return False
        if self._offsets.has_resets and self._offsets.is_reset(header.consumer_group, header.topic, header.queue_id):
            return False
        read = TierRead(
            header.consumer_group, header.topic, header.queue_id, header.queue_offset, header.max_msg_nums,
            _max_bytes(header), plan.matches,
        )  # fmt: skip
        self._tier.read(read, respond, partial(request.channel.refuse, request))
        return True

    def _respond(
        self, request: Request[PullMessageRequestHeader], plan: PullPlan, buckets: Buckets, cold: ColdFlow | None,
        may_hold: bool, result: GetResult,
    ) -> None:  # fmt: skip
        """Answer a pull with what was read for it, or hold it."""
        header, slave = request.header, self.slave
        broadcasts = self.broadcasts if plan.is_broadcasting else None
        if slave is not None:
            slave.correct(result, header.queue_offset)
        self._note_offsets(header, result, request.channel.peer, may_hold)
        status = result.status
        if status is _STATUS_FOUND:
            if cold is not None:
                cold.note(header, result)
            if broadcasts is not None:
                broadcasts.note(request, None)
            self._write(request, ResponseCode.SUCCESS, result, plan)
            self._flow.delivered(header.topic, header.consumer_group, result.message_count, result.size_bytes)
            charge_found(buckets, result.message_count, result.size_bytes)
            return
        code = _code_of(status, header.queue_offset)
        if broadcasts is not None:
            broadcasts.note(request, result.next_offset if code == _MOVED else None)
        hold_s = _MAX_HOLD_S if code == ResponseCode.PULL_NOT_FOUND else 0.0
        if slave is not None:
            code, hold_s = slave.verdict(request, result, code, may_hold=may_hold)
        if hold_s and may_hold and self._hold(request, header, plan.matches, hold_s, self.answer_held):
            return
        if code == _MOVED:
            peer_lines.info(
                logger, request.channel.peer,
                "event=pull_offset_moved status=%s group=%s topic=%s queue=%d from=%d to=%d", status.name,
                header.consumer_group, header.topic, header.queue_id, header.queue_offset, result.next_offset,
            )  # fmt: skip
        self._write(request, code, result, plan)

    def _serve_logical(
        self, request: Request[PullMessageRequestHeader], logical: LogicalPull, plan: PullPlan, buckets: Buckets,
        may_hold: bool,
    ) -> None:  # fmt: skip
        """Answer with what the physical queue has, in terms of the logical one."""
        respond = partial(self._respond_logical, request, logical, plan, buckets, may_hold)
        if not self._reads_tier(request, logical.header, plan, respond):
            respond(self._get(logical.header, plan.matches, -1))

    def _respond_logical(
        self, request: Request[PullMessageRequestHeader], logical: LogicalPull, plan: PullPlan, buckets: Buckets,
        may_hold: bool, result: GetResult,
    ) -> None:  # fmt: skip
        """Answer with what was read.

        A pull is held at the end of the queue, and for a moment at the end of an older item while it is not known where
        the next one begins.  (RocketMQ holds none.)
        """
        header = logical.header
        self._note_offsets(header, result, request.channel.peer, may_hold)
        status = result.status
        code = _code_of(status, header.queue_offset)
        shown = logical.shown(Offsets(code, result.next_offset, result.min_offset, result.max_offset))
        if shown.code == ResponseCode.PULL_NOT_FOUND and may_hold:
            max_s = _MAX_HOLD_S if logical.is_at_leader else MOVING_HOLD_S
            if self._hold(request, header, plan.matches, max_s, logical.answer_held):
                return
        if status is _STATUS_FOUND:
            self._flow.delivered(header.topic, header.consumer_group, result.message_count, result.size_bytes)
            charge_found(buckets, result.message_count, result.size_bytes)
        self._write_logical(request, shown, result, plan)

    # The answer

    def _get(self, header: PullMessageRequestHeader, matches: PullFilter | None, begin: int) -> GetResult:
        topic, queue_id, store = header.topic, header.queue_id, self._store
        if self._offsets.has_resets:
            reset = self._offsets.take_reset(header.consumer_group, topic, queue_id)
            if reset is not None and reset != header.queue_offset:
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                return GetResult(GetStatus.OFFSET_RESET, reset, low, high, [], 0, 0, False)
        if begin >= 0:
            return GetResult(GetStatus.OFFSET_RESET, begin, 0, 0, [], 0, 0, False)
        return store.get(topic, queue_id, header.queue_offset, header.max_msg_nums, _max_bytes(header), matches)

    def _note_offsets(
        self, header: PullMessageRequestHeader, result: GetResult, peer: tuple[str, int], is_first: bool
    ) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pull(group, topic, queue_id, result.next_offset)
        # With OFFSET_RESET, the committed offset is from before the reset.
        if is_first and header.sys_flag & COMMIT_OFFSET and result.status is not GetStatus.OFFSET_RESET:
            self._offsets.commit(group, topic, queue_id, header.commit_offset, f"{peer[0]}:{peer[1]}")

    def _hold(
        self, request: Request[PullMessageRequestHeader], header: PullMessageRequestHeader,
        matches: PullFilter | None, max_s: float, answer: AnswerPull,
    ) -> bool:  # fmt: skip
        held = self.held
        if held is None or not header.sys_flag & SUSPEND:
            return False
        broker = self._config.broker
        timeout_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_mills
        timeout_s = min(max(timeout_ms, 0) / 1000, max_s)
        return held.hold(request, header.topic, header.queue_id, header.queue_offset, matches, timeout_s, answer)

    def _write(self, request: Request[PullMessageRequestHeader], code: int, result: GetResult, plan: PullPlan) -> None:
        if self.slave is None:
            suggested = suggested_id(result, plan.group_config, self._config.broker.slave_read_enable)
        else:
            suggested = self.slave.suggested_id(result, plan.group_config)
        values = (
            suggested, result.next_offset, result.min_offset, result.max_offset,
            plan.topic_flags, plan.group_config.group_sys_flag,
        )  # fmt: skip
        self._send(request, _template(result.status, code), values, result)

    def _write_logical(
        self, request: Request[PullMessageRequestHeader], shown: LogicalOffsets, result: GetResult, plan: PullPlan
    ) -> None:
        values = (
            MASTER_ID, shown.next_begin, shown.min, shown.max, plan.topic_flags, plan.group_config.group_sys_flag,
            shown.delta,
        )  # fmt: skip
        self._send(request, _template(result.status, shown.code, has_delta=True), values, result)

    def _send(
        self, request: Request[PullMessageRequestHeader], template: ResponseTemplate, values: tuple[int, ...],
        result: GetResult,
    ) -> None:  # fmt: skip
        if request.flag & FLAG_ONEWAY:
            return
        frame = template.frame(request.serialization, request.opaque, values, result.size_bytes)
        request.channel.answer(request, frame, *result.slices, code=template.code)


def _max_bytes(header: PullMessageRequestHeader) -> int:
    asked = header.max_msg_bytes
    return asked if asked is not None and asked > 0 else _DEFAULT_MAX_BYTES


def _quota_wait_s(header: PullMessageRequestHeader) -> float:
    """Return how long a quota may hold a pull: as long as its client expects to wait, else a moment."""
    return max(header.suspend_timeout_millis, 0) / 1000 if header.sys_flag & SUSPEND else MOVING_HOLD_S
