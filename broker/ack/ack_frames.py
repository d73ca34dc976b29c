"""The compiled path of usual acknowledgements: one call reads them, one makes their records, one their responses.

It serves the usual acknowledgements with which a read begins.  `AckProcessor.acknowledge`, its twin, serves all others;
both store the same bytes and give the same responses.  See docs/engine-requests.md.
"""

import logging
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol, runtime_checkable

from broker.core import BrokerCore
from broker.pop.ack_lanes import ACK_WRITTEN, BEFORE_ACK, DONE, MAX_COMMON_CHARS, AckLanes
from broker.pop.revive.revive_log import ACK_TAGS_CODE, ReviveLog
from sprocket.common.errors import StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.framing import Frames
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.logic_queue import LogicQueue

logger = logging.getLogger(__name__)

# None with pure Python: then all acknowledgements are single requests.
_engine: Final = native("broker.ack.kernel_native")
if _engine is not None and (
    FIXED_IPV4_RAW.size,
    CONSUME_QUEUE_UNIT_BYTES,
    MAX_COMMON_CHARS,
) != (_engine.RECORD_HEAD_BYTES, _engine.QUEUE_ENTRY_BYTES, _engine.MAX_COMMON_CHARS):
    raise ImportError("the compiled engine has another layout of records or limit of handles: run `make engine`")

# Max acknowledgements of one append: a longer one would hold up the loop.
_MAX_ACKS: Final = 1024
_SUCCESS: Final = int(ResponseCode.SUCCESS)


@runtime_checkable
class UsualAckStore(Protocol):
    """Part of `MessageStore` that usual acknowledgements need."""

    @property
    def store_host(self) -> bytes: ...

    def usual_limits(self) -> tuple[int, int]: ...

    def plain_queue(self, topic: str, queue_id: int, /) -> LogicQueue | None: ...


class UsualAcks:
    """Handler of the usual acknowledgements of `route`.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        store: UsualAckStore,
        log: ReviveLog,
        lanes: AckLanes,
        route: Route,
        fields: tuple[Any, ...],
        engine: ModuleType,
    ) -> None:
        """`fields` are those of the compiled reader."""
        self._config = core.config
        self._clock = core.clock
        self._store = store
        self._waits = core.waits
        self._topics = core.topics
        self._log = log
        self._lanes = lanes
        self.code = int(route.code)
        self._fields = fields
        self._engine = engine
        self.done = DONE.encoder
        # Decodes the acknowledgements of a failed append, so that each gets its refusal.
        self._table = RouteTable([route])
        self._configure()

    @classmethod
    def of(cls, core: BrokerCore, log: ReviveLog, lanes: AckLanes, route: Route) -> FramesHandler | None:
        """Return the handler; None with pure Python, or if the store does not take what it makes."""
        store: object = core.store
        if _engine is None or not isinstance(store, UsualAckStore):
            return None
        fields = header_fields(int(route.code), route.header, _engine)
        if fields is None or DONE.encoder is None:
            return None
        acks = cls(core, store, log, lanes, route, fields, _engine)
        return CodeFrames(int(route.code), acks.serve)

    def _configure(self) -> None:
        """Forget all kinds of acknowledgements, because the configuration or the revive topic has changed."""
        self._configured_for = self._config.broker, self._config.store
        self._revive_topic = self._topics.get(self._log.topic)
        lanes, engine = self._lanes, self._engine
        self._reader = engine.AckReader(
            self.code, self._fields, partial(lanes.kind, engine), self._topics.by_name.get, lanes.bounds
        )

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel) -> int:
        """Serve the usual acknowledgements from `index` on; return how many, 0 if others must serve the next one."""
        try:
            acks = self._acks_of(frames, index)
        except Exception:
            # Nothing is stored: the Python path serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=usual_acks_failed peer=%s:%s", *channel.peer, exc_info=True)
            acks = None
        if acks is None:
            return 0
        BEFORE_ACK()
        count = len(acks)
        read = _Read(self, acks, frames, index, channel)
        try:
            end = self._log.append_acks(acks)
            if not self._waits.is_needed or self._config.broker.append_ack_async:
                read.answer(was_later=False)
            else:
                self._waits.wait(end, partial(_stored, read))
        except Exception as error:  # nothing is stored
            read.refuse(error, was_later=False)
        # Not before the append: counting may wake pops, which append too.
        self._lanes.count_written(acks.lanes_served())
        return count

    def _acks_of(self, frames: Frames, index: int) -> Any:
        """Return the usual acknowledgements from `index` on; None if the Python path must serve the next one."""
        store, log = self._store, self._log
        queue, wheel = store.plain_queue(TIMER_TOPIC, 0), log.wheel_limits()
        room_bytes, max_record_bytes = store.usual_limits()
        if queue is None or wheel is None or not room_bytes or log.is_elsewhere:
            return None
        broker, settings = self._configured_for
        if (
            self._config.broker is not broker
            or self._config.store is not settings
            or self._topics.get(log.topic) is not self._revive_topic
        ):
            self._configure()
        return self._reader.read(
            frames, index, _MAX_ACKS, room_bytes, max_record_bytes, self._clock.wall_ms(), *wheel, queue, ACK_TAGS_CODE
        )

    def refuse(self, frames: Frames, channel: FramesChannel, read_at: float, error: Exception) -> None:
        """Refuse the acknowledgements in `frames`, which were read at `read_at`; 0 if that is the last read."""
        for request in self._table.requests_of(frames, channel, read_at):
            channel.refuse(request, error)


class _Read:
    """The usual acknowledgements of one read, which are answered at once or when they are safe."""

    __slots__ = ("_acks", "_channel", "_first", "_frames", "_owner", "_read_at")

    def __init__(self, owner: UsualAcks, acks: Any, frames: Frames, first: int, channel: FramesChannel) -> None:
        self._owner = owner
        self._acks = acks
        self._frames = frames
        self._first = first
        self._channel = channel
        self._read_at = channel.read_at

    def answer(self, *, was_later: bool) -> None:
        """Send the responses."""
        ACK_WRITTEN()
        try:
            frames: bytes = self._acks.responses(self._owner.done)
        except Exception as bug:  # they are stored, but nothing can say so
            self.refuse(bug, was_later=was_later)
            return
        self._channel.answer_frames(
            self._owner.code, len(self._acks), frames, _SUCCESS, self._read_at, was_later=was_later
        )

    def refuse(self, error: Exception, *, was_later: bool) -> None:
        """Refuse them."""
        frames = self._frames[self._first : self._first + len(self._acks)]
        self._owner.refuse(frames, self._channel, self._read_at if was_later else 0.0, error)


def _stored(read: _Read, error: StoreError | None, code: ResponseCode) -> None:
    # The records are written, whatever the code says about flush and slaves.
    if error is None:
        read.answer(was_later=True)
    else:
        read.refuse(error, was_later=True)
