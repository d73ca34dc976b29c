"""Pops of a read that the kernel serves: one call reads a pop, finds its records, and makes checkpoints and response.

`PopProcessor.pop` is the handler, which serves all others, and with pure Python every one: it is the specification of
the kernel.  See docs/engine-requests.md.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.core import BrokerCore
from broker.longpolling.held_pops import HeldPops
from broker.plan.table import PlanTable
from broker.pop.planner import PopKey, PopPlan, PopPlanner
from broker.pop.pop_draws import PopDraws
from broker.pop.pop_end import PopEnd
from broker.pop.pop_offsets import PopOffsets, Taken
from broker.pop.popped import FOUND
from broker.pop.queue_pop import QueuePop
from broker.pop.revive.revive_log import CHECKPOINT_TAGS_CODE, ReviveLog
from broker.quota.bucket import Buckets, admits, charge
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.framing import Frames
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable

try:
    from broker.pop import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]
if TYPE_CHECKING:
    from broker.pop.kernel_native import PopKernel, Pops

logger = logging.getLogger(__name__)

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_is_native = native("broker.pop.kernel_native") is not None
# Plan, queue id of the header, messages left, messages, their bytes, and of each queue that was taken from: its id, the
# next offset, and the messages.
Note = tuple[PopPlan, int, int, int, int, list[tuple[int, int, int]]]


class PopFrames:
    """`FramesHandler` of the pops of one route.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        planner: PopPlanner,
        queues: QueuePop,
        offsets: PopOffsets,
        draws: PopDraws,
        end: PopEnd,
        log: ReviveLog,
        held: HeldPops,
    ) -> None:
        self._clock = core.clock
        self._store = core.store
        self._planner = planner
        self._assumed = core.consumers.assumed
        self._queues = queues
        self._offsets = offsets
        self._draws = draws
        self._end = end
        self._log = log
        self.flow = core.flow
        self.held = held
        self._reads = core.store.kernel_reads
        self._quotas = core.quota_reads

    def handler(self, route: Route) -> FramesHandler | None:
        """Return the handler for the pops of a route; None with pure Python."""
        code, planner = int(route.code), self._planner
        fields = header_fields(code, route.header, kernel_native) if _is_native else None
        if fields is None or FOUND.encoder is None:
            return None
        kernel = kernel_native.PopKernel(
            code, fields, FOUND.encoder, JOIN_BYTES, lambda *key: planner.plan(PopKey(*key)),
            PlanTable(planner.version), self._offsets.all_known, self._retry_reads, self._reads, CHECKPOINT_TAGS_CODE,
        )  # fmt: skip
        # Decodes the pops of a failed append, so that each gets its refusal.
        table = RouteTable([route])
        serve = partial(self._serve, kernel, table)
        return CodeFrames(code, serve, prove_code=serve)

    def _serve(
        self, kernel: "PopKernel", table: RouteTable, code: int, frames: Frames, index: int, channel: FramesChannel,
        proof: object | None = None,
    ) -> int:  # fmt: skip
        """Serve pops from `index` on; return how many, 0 if the handler must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        queue = self._store.plain_queue(TIMER_TOPIC, 0)
        room_bytes, max_record_bytes = self._store.encoded_limits()
        if queue is None or not room_bytes:
            return 0
        pops = kernel.begin(queue, room_bytes, max_record_bytes, self._clock.wall_ms())
        read = _Read(self, table, code, pops, channel, self._quotas.callers(channel))
        try:
            self._take(kernel, read, frames, index, proof)
            for (topic, group), (checkpoints, _, _) in read.totals.items():
                self._queues.count_checkpoints(topic, group, checkpoints)
        except Exception:
            # The handler serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=pop_kernel_failed peer=%s:%s", *channel.peer, exc_info=True)
            self._end.take_back(read.taken)
            return 0
        self._quotas.planned(channel)
        count = len(read.notes)
        if count:
            self._reads.found(len(read.taken), pops.messages)
            self._reads.missed(pops.missed)
            read.frames = frames[index : index + count]
            self._end.write(read, partial(self._log.append_checkpoints, pops))
        return count

    def _take(self, kernel: "PopKernel", read: "_Read", frames: Frames, index: int, proof: object | None) -> None:
        """Take the messages of each pop from `index` on."""
        pops, draws, end = read.pops, self._draws, len(frames)
        while index < end and pops.response_bytes < WRITE_BYTES and admits(read.callers):
            draw, revive_queue_id = draws.peek()
            note = kernel.take(frames, index, pops, draw, revive_queue_id, proof)
            if note is None:
                return
            draws.advance(revive_queue_id)
            self._note(read, note)
            index += 1

    def _note(self, read: "_Read", note: Note) -> None:
        """Note what a pop has taken: the next one begins after it."""
        plan, _, _, messages, size_bytes, taken = note
        if not read.notes or plan is not read.notes[-1][0]:
            self._assumed.note(plan.group, *plan.subscriptions)
        read.notes.append(note)
        if plan.buckets or read.callers:
            charge(plan.buckets + read.callers, messages, size_bytes)
        self._queues.took(plan.topic, plan.group, taken, read.taken)
        key = plan.topic, plan.group
        totals = read.totals.get(key)
        if totals is None:
            totals = read.totals[key] = [0, 0, 0]
        totals[0] += len(taken)
        totals[1] += messages
        totals[2] += size_bytes

    def _retry_reads(self, plan: PopPlan, draw: int) -> int:
        """Return how many empty queues of a retry topic a pop reads; -1 if the handler must read them."""
        config = self._draws.retry_topic(plan, draw)
        if config is None:
            return 0
        topic, ids = config.topic_name, range(config.read_queue_nums)
        offsets = self._offsets.all_known(topic, plan.group, ids)
        for queue, offset in zip(self._reads.queues(topic, ids), offsets, strict=True):
            if queue is None or offset != queue.max_offset:
                return -1
        return len(ids)


class _Read:
    """The pops of one read (`FoundPops`)."""

    __slots__ = (
        "_channel", "_code", "_owner", "_read_at", "_table", "callers", "frames", "notes", "pops", "taken", "totals",
    )  # fmt: skip

    def __init__(
        self, owner: PopFrames, table: RouteTable, code: int, pops: "Pops", channel: FramesChannel, callers: Buckets
    ) -> None:
        self.callers = callers  # buckets of quotas of who pops
        self._owner = owner
        self._table = table
        self._code = code
        self._channel = channel
        self._read_at = channel.read_at
        self.pops = pops
        self.frames: Frames = ()
        self.notes: list[Note] = []
        self.taken: list[Taken] = []
        # Checkpoints, messages and their bytes of each topic and group.
        self.totals: dict[tuple[str, str], list[int]] = {}

    def answer(self, *, was_later: bool) -> None:
        """Send the responses."""
        owner = self._owner
        for (topic, group), (_, messages, size_bytes) in self.totals.items():
            owner.flow.delivered(topic, group, messages, size_bytes, "false")
        frames = self.pops.frames()
        self._channel.answer_frames(self._code, len(self.notes), frames, _SUCCESS, self._read_at, was_later=was_later)
        for plan, queue_id, rest, *_ in self.notes:
            if rest > 0:
                owner.held.wake(plan.topic, plan.group, queue_id)

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse each pop."""
        for request in self._table.requests_of(self.frames, self._channel, self._read_at if was_later else 0.0):
            self._channel.refuse(request, error)
