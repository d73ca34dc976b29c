"""Acknowledgements of a read that the kernel serves: one call reads them, one makes their records, one their responses.

`AckProcessor.acknowledge` is the handler, which serves all others, and with pure Python every one: it is the
specification of the kernel.  See docs/engine-requests.md.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.ack.planner import AckKey, AckPlan, AckPlanner
from broker.core import BrokerCore
from broker.plan.table import PlanTable, Refused
from broker.pop.inflight import InflightMessages
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.pop_counters import PopCounters
from broker.pop.records import AckMsg
from broker.pop.revive.revive_log import ACK_TAGS_CODE, ReviveLog
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import Frames
from sprocket.remoting.message.pop_extra_info import parse_handle
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable

try:
    from broker.ack import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]
if TYPE_CHECKING:
    from broker.ack.kernel_native import AckKernel, Acks

logger = logging.getLogger(__name__)

DONE: Final = ResponseTemplate(ResponseCode.SUCCESS, ())
BEFORE_ACK: Final = failpoint("pop.before_ack")
ACK_WRITTEN: Final = failpoint("pop.ack_written")
# Topic, group, queue id, time of the pop in ms, acknowledged messages.
AckedPop = tuple[str, str, int, int, int]
# Max acknowledgements of one append: a longer one would hold up the loop.
_MAX_ACKS: Final = 1024
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_is_native = native("broker.ack.kernel_native") is not None


def count_acknowledged(pops: Iterable[AckedPop], inflight: InflightMessages, counters: PopCounters) -> None:
    """Count acknowledged messages, after their records are appended: this may wake pops, which append too."""
    for topic, group, queue_id, pop_time_ms, messages in pops:
        counters.acknowledged(topic, group, messages)
        inflight.done(topic, group, queue_id, pop_time_ms, messages)


class AckFrames:
    """`FramesHandler` of the acknowledgements of one route.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        planner: AckPlanner,
        log: ReviveLog,
        buffer: MergeBuffer,
        inflight: InflightMessages,
        counters: PopCounters,
    ) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._tier = core.tier
        self._waits = core.waits
        self._quotas = core.quotas
        self._planner = planner
        self._log = log
        self._buffer = buffer
        self._inflight = inflight
        self._counters = counters

    def handler(self, route: Route) -> FramesHandler | None:
        """Return the handler for the acknowledgements of a route; None with pure Python."""
        code = int(route.code)
        fields = header_fields(code, route.header, kernel_native) if _is_native else None
        if fields is None or DONE.encoder is None:
            return None
        kernel = kernel_native.AckKernel(
            code, fields, DONE.encoder, self._plan_of, PlanTable(self._planner.version), self._bounds, ACK_TAGS_CODE
        )
        # Decodes the acknowledgements of a failed append, so that each gets its refusal.
        table = RouteTable([route])
        serve = partial(self._serve, kernel, table)
        return CodeFrames(code, serve, prove_code=serve)

    def _plan_of(self, topic: str, group: str, queue_id: int, end: str) -> AckPlan | Refused | None:
        """Return the plan for handles that end with `end`, from the revive queue up to the offset."""
        try:
            handle = parse_handle(f"0 0 0 {end}0")
        except RequestError:
            return None  # the handler refuses each
        return self._planner.plan(AckKey(topic, group, queue_id, handle.revive_queue_id, handle.broker_name))

    def _bounds(self, plan: AckPlan, first_offset: int, pop_time_ms: int) -> tuple[int, int] | None:
        """Return the offsets of a pop that may be acknowledged with a record; None if the pop is in memory."""
        topic, queue_id = plan.topic, plan.queue_id
        ack = AckMsg(so=first_offset, c=plan.group, t=topic, q=queue_id, pt=pop_time_ms, bn=plan.broker_name)
        if self._buffer.find(ack) is not None:
            return None
        return self._tier.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def _serve(
        self, kernel: "AckKernel", table: RouteTable, code: int, frames: Frames, index: int, channel: FramesChannel,
        proof: object | None = None,
    ) -> int:  # fmt: skip
        """Serve acknowledgements from `index` on; return how many, 0 if the handler must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        try:
            acks = self._acks_of(kernel, frames, index, proof)
        except Exception:
            # Nothing is stored: the handler serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=ack_kernel_failed peer=%s:%s", *channel.peer, exc_info=True)
            acks = None
        if acks is None:
            return 0
        BEFORE_ACK()
        count = len(acks)
        read = _Read(table, code, acks, frames[index : index + count], channel)
        try:
            end = self._log.append_acks(acks)
            if not self._waits.is_needed or self._config.broker.append_ack_async:
                read.answer(was_later=False)
            else:
                self._waits.wait(end, partial(_stored, read))
        except Exception as error:  # nothing is stored
            read.refuse(error, was_later=False)
        pops = acks.pops()
        for topic, group, _, _, messages in pops:
            self._quotas.note(channel, group, messages)
            self._log.count_acks(group, topic, messages)
        count_acknowledged(pops, self._inflight, self._counters)
        return count

    def _acks_of(self, kernel: "AckKernel", frames: Frames, index: int, proof: object | None) -> "Acks | None":
        """Return what the kernel serves from `index` on; None if the handler must serve the next one."""
        queue = self._store.plain_queue(TIMER_TOPIC, 0)
        room_bytes, max_record_bytes = self._store.encoded_limits()
        if queue is None or not room_bytes:
            return None
        now_ms = self._clock.wall_ms()
        return kernel.read(frames, index, _MAX_ACKS, room_bytes, max_record_bytes, now_ms, queue, proof)


class _Read:
    """The acknowledgements of one read, which are answered at once or when they are safe."""

    __slots__ = ("_acks", "_channel", "_code", "_frames", "_read_at", "_table")

    def __init__(self, table: RouteTable, code: int, acks: "Acks", frames: Frames, channel: FramesChannel) -> None:
        self._table = table
        self._code = code
        self._acks = acks
        self._frames = frames
        self._channel = channel
        self._read_at = channel.read_at

    def answer(self, *, was_later: bool) -> None:
        """Send the responses."""
        ACK_WRITTEN()
        try:
            frames = self._acks.responses()
        except Exception as bug:  # they are stored, but nothing can say so
            self.refuse(bug, was_later=was_later)
            return
        self._channel.answer_frames(self._code, len(self._acks), frames, _SUCCESS, self._read_at, was_later=was_later)

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse them."""
        for request in self._table.requests_of(self._frames, self._channel, self._read_at if was_later else 0.0):
            self._channel.refuse(request, error)


def _stored(read: _Read, error: StoreError | None, code: ResponseCode) -> None:
    # The records are written, whatever the code says about flush and slaves.
    if error is None:
        read.answer(was_later=True)
    else:
        read.refuse(error, was_later=True)
