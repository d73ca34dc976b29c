"""The compiled path of usual pops: one call reads a pop, finds its records, and makes its checkpoints and response.

It serves the usual pops with which a read begins.  `PopProcessor.pop`, its Python twin, serves all others, and with
pure Python every one; both store the same bytes and give the same responses.  See docs/engine-requests.md.
"""

import logging
from functools import partial
from types import ModuleType
from typing import Any, Final

from broker.core import BrokerCore
from broker.longpolling.held_pops import HeldPops
from broker.pop.pop_checks import LATE_MS, MAX_MESSAGES, PopChecks
from broker.pop.pop_filters import PopFilters
from broker.pop.pop_offsets import PopOffsets, Taken
from broker.pop.popped import FOUND
from broker.pop.queue_pop import QueuePop
from broker.pop.records import ACK_INTERVAL_MS
from broker.pop.revive.revive_log import CHECKPOINT_TAGS_CODE, ReviveLog
from broker.pop.pop_draws import PopDraws
from broker.pop.pop_end import PopEnd
from broker.processor.pop.pop_lanes import PopLanes, may_be_usual
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.framing import Frames
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.layout import CONSUME_QUEUE_UNIT_BYTES

logger = logging.getLogger(__name__)

_engine: Final = native("broker.pop.kernel_native")
if _engine is not None and (
    FIXED_IPV4_RAW.size,
    CONSUME_QUEUE_UNIT_BYTES,
    (MAX_MESSAGES, LATE_MS, ACK_INTERVAL_MS),
) != (_engine.RECORD_HEAD_BYTES, _engine.QUEUE_ENTRY_BYTES, _engine.LIMITS):
    raise ImportError("the compiled engine has another layout of records or other limits of pops: run `make engine`")

_SUCCESS: Final = int(ResponseCode.SUCCESS)


class UsualPops:
    """Handler of the usual pops of `route`.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        lanes: PopLanes,
        queues: QueuePop,
        offsets: PopOffsets,
        draws: PopDraws,
        end: PopEnd,
        log: ReviveLog,
        held: HeldPops,
        route: Route,
        fields: tuple[Any, ...],
        engine: ModuleType,
    ) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._lanes = lanes
        self._assumed = core.consumers.assumed
        self._queues = queues
        self._offsets = offsets
        self._draws = draws
        self._end = end
        self._log = log
        self.flow = core.flow
        self.held = held
        self.code = int(route.code)
        self._reads = core.store.usual_reads
        self._fields = fields
        self._engine = engine
        # Decodes the pops of a failed append, so that each gets its refusal.
        self._table = RouteTable([route])
        self._configure()

    @classmethod
    def of(
        cls,
        core: BrokerCore,
        checks: PopChecks,
        filters: PopFilters,
        queues: QueuePop,
        offsets: PopOffsets,
        draws: PopDraws,
        end: PopEnd,
        log: ReviveLog,
        held: HeldPops,
        route: Route,
    ) -> FramesHandler | None:
        """Return the handler; None with pure Python."""
        if _engine is None or FOUND.encoder is None:
            return None
        fields = header_fields(int(route.code), route.header, _engine)
        if fields is None:
            return None
        lanes = PopLanes(core, checks, filters, log, _engine)
        pops = cls(core, lanes, queues, offsets, draws, end, log, held, route, fields, _engine)
        return CodeFrames(pops.code, pops.serve)

    def _configure(self) -> None:
        """Forget all lanes, because the configuration has changed."""
        self._configured_for = self._config.broker, self._config.store
        self._may_be_usual = may_be_usual(self._config)
        self._reader = self._engine.PopReader(
            self.code, self._fields, FOUND.encoder, JOIN_BYTES, self._lanes.lane,
            self._groups.by_name.get, self._topics.by_name.get, self._reads.queues, self._offsets.all_known,
            self._retry_reads, self._reads.segment_at,
        )  # fmt: skip

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel) -> int:
        """Serve the usual pops from `index` on; return how many, 0 if others must serve the next one."""
        broker, store = self._configured_for
        if self._config.broker is not broker or self._config.store is not store:
            self._configure()
        if not self._may_be_usual or self._log.is_elsewhere:
            return 0
        read = _Read(self, channel)
        try:
            self._take(read, frames, index)
            for lane, (checkpoints, _, _) in read.totals.items():
                self._queues.count_checkpoints(lane.topic, lane.group, checkpoints)
        except Exception:
            # The Python path serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=usual_pops_failed peer=%s:%s", *channel.peer, exc_info=True)
            self._end.take_back(read.taken)
            return 0
        count = len(read.notes)
        if count:
            self._reads.found(len(read.taken), read.pops.messages)
            self._reads.missed(read.pops.missed)
            read.frames = frames[index : index + count]
            self._end.write(read, partial(self._log.append_checkpoints, read.pops))
        return count

    def _take(self, read: "_Read", frames: Frames, index: int) -> None:
        """Take the messages of each usual pop from `index` on."""
        pops = read.pops = self._pops()
        if pops is None:
            return
        end = len(frames)
        while index + len(read.notes) < end and pops.response_bytes < WRITE_BYTES:
            draw, revive_queue_id = self._draws.peek()
            note = self._reader.take(
                frames, index + len(read.notes), pops, draw, self._draws.is_retry_first(draw), revive_queue_id
            )
            if note is None:
                return
            self._draws.advance(revive_queue_id)
            self._note(read, note)

    def _pops(self) -> Any:
        """Return an empty `Pops`; None if the Python path must write the checkpoints."""
        store, wheel = self._store, self._log.wheel_limits()
        queue = store.plain_queue(TIMER_TOPIC, 0)
        room_bytes, max_record_bytes = store.usual_limits()
        if queue is None or wheel is None or not room_bytes:
            return None
        return self._engine.Pops(
            self._reads.limits(), queue, room_bytes, max_record_bytes, self._clock.wall_ms(), *wheel,
            CHECKPOINT_TAGS_CODE,
        )  # fmt: skip

    def _note(self, read: "_Read", note: tuple[Any, ...]) -> None:
        """Note what a pop has taken: the next one begins after it."""
        lane, _, _, messages, size_bytes, taken = note
        if not read.notes or lane is not read.notes[-1][0]:
            self._assumed.note(lane.group, *lane.subscriptions)
        read.notes.append(note)
        self._queues.took(lane.topic, lane.group, taken, read.taken)
        totals = read.totals.get(lane)
        if totals is None:
            totals = read.totals[lane] = [0, 0, 0]
        totals[0] += len(taken)
        totals[1] += messages
        totals[2] += size_bytes

    def _retry_reads(self, lane: Any, draw: int) -> int:
        """Return how many empty queues of a retry topic a pop reads; -1 if the Python path must read them."""
        config = self._draws.retry_topic(lane.topic, lane.group, draw)
        if config is None:
            return 0
        topic, ids = config.topic_name, range(config.read_queue_nums)
        offsets = self._offsets.all_known(topic, lane.group, ids)
        for queue, offset in zip(self._reads.queues(topic, ids), offsets, strict=True):
            if queue is None or offset != queue.max_offset:
                return -1
        return len(ids)

    def refuse(self, frames: Frames, channel: FramesChannel, read_at: float, error: Exception) -> None:
        """Refuse the pops in `frames`, which were read at `read_at`; 0 if that is the last read."""
        for request in self._table.requests_of(frames, channel, read_at):
            channel.refuse(request, error)


class _Read:
    """The usual pops of one read (`FoundPops`)."""

    __slots__ = ("_channel", "_owner", "_read_at", "frames", "notes", "pops", "taken", "totals")

    def __init__(self, owner: UsualPops, channel: FramesChannel) -> None:
        self._owner = owner
        self._channel = channel
        self._read_at = channel.read_at
        self.pops: Any = None
        self.frames: Frames = ()
        self.notes: list[tuple[Any, ...]] = []  # what `PopReader.take` returned
        self.taken: list[Taken] = []
        # Checkpoints, messages and their bytes of each lane.
        self.totals: dict[Any, list[int]] = {}

    def answer(self, *, was_later: bool) -> None:
        """Send the responses."""
        owner = self._owner
        for lane, (_, messages, size_bytes) in self.totals.items():
            owner.flow.delivered(lane.topic, lane.group, messages, size_bytes, "false")
        frames = self.pops.frames()
        self._channel.answer_frames(owner.code, len(self.notes), frames, _SUCCESS, self._read_at, was_later=was_later)
        for lane, queue_id, rest, *_ in self.notes:
            if rest > 0:
                owner.held.wake(lane.topic, lane.group, queue_id)

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse each pop."""
        self._owner.refuse(self.frames, self._channel, self._read_at if was_later else 0.0, error)
