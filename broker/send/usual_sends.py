"""The compiled path of usual sends: one call reads them, one makes their records, one their responses.

It serves the usual sends with which a read begins.  `SendProcessor.send`, its twin, serves all others; both store the
same bytes and give the same responses.  See docs/engine-requests.md.

If several connections send, the sends of all reads of one turn of the loop are one append, at the end of the turn or
before the first request that this path does not serve.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol, runtime_checkable

from broker.config.live_config import LiveConfig
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.message_id import host_bytes
from broker.metrics.message_flow import FIRST_SIZE_BYTES, MessageFlow
from broker.send.admission import SendAdmission
from broker.send.settled import Settled
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.engine import header_fields
from sprocket.remoting.framing import Frames
from sprocket.remoting.headers.base import Header
from sprocket.remoting.message.record import FIXED_IPV4_RAW, IPV4_HOST_BYTES
from sprocket.remoting.message.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.appender import UsualRecords
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.moves import USUAL_FLAGS
from store.queue.logic_queue import LogicQueue

logger = logging.getLogger(__name__)

# None with pure Python: then all sends are single requests.
_engine: Final = native("broker.sends")
if _engine is not None and (
    FIXED_IPV4_RAW.size,
    CONSUME_QUEUE_UNIT_BYTES,
) != (_engine.RECORD_HEAD_BYTES, _engine.QUEUE_ENTRY_BYTES):
    raise ImportError("the compiled engine has another layout of records than store/layout.py: run `make engine`")

# If an unusual send follows fewer usual ones, all go one way: a second append costs more than it saves.
_MIN_USUAL: Final = 16
_MAX_USUAL: Final = 1024
# Max sends, and bytes of their records, of one append: a longer one would hold up the loop.
_MAX_GROUP: Final = 4096
_MAX_GROUP_BYTES: Final = 1 << 20
_SUCCESS: Final = ResponseCode.SUCCESS

Refuse = Callable[[Sequence[Request[Any]], Exception], None]
# Stores and answers sends of one connection by the Python path.
Send = Callable[[list[Request[Any]]], None]


@runtime_checkable
class UsualStore(Protocol):
    """Part of `MessageStore` that usual sends need."""

    @property
    def store_host(self) -> bytes: ...

    def usual_limits(self) -> tuple[int, int]: ...

    def plain_queue(self, topic: str, queue_id: int, /) -> LogicQueue | None: ...

    def append_usual(self, records: UsualRecords, /) -> int: ...


class UsualSends:
    """Handler of the usual sends of each of `routes`.  Lives in the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        store: UsualStore,
        admission: SendAdmission,
        waits: ConfirmWaits,
        flow: MessageFlow,
        timer: TimerIntake,
        routes: Sequence[Route],
        refuse: Refuse,
        send: Send,
        engine: ModuleType,
    ) -> None:
        self._config = config
        self._store = store
        self._admission = admission
        self._waits = waits
        self._flow = flow
        self._timer = timer
        self._refuse = refuse
        self._send = send
        # Decodes the sends of a failed append, so that each gets its refusal.
        self._table = RouteTable(routes)
        self._engine = engine
        self._headers = {int(route.code): route.header for route in routes}
        # Reads of this turn that are yet to be appended, and the sends in them.
        self._reads: list[_Read] = []
        self._group = engine.SendGroup()
        # Room in the segment, and for one record, when the first of them was read.
        self._room_bytes = self._max_record_bytes = 0
        self._is_scheduled = False
        # Appends whose sends are not answered yet.
        self._waiting = 0
        # The connection of the last usual sends: while it is the only one, waiting for others would gain nothing.
        self._last_channel = 0
        self._configure()

    @classmethod
    def of(
        cls,
        config: LiveConfig,
        store: object,
        admission: SendAdmission,
        waits: ConfirmWaits,
        flow: MessageFlow,
        timer: TimerIntake,
        routes: Sequence[Route],
        refuse: Refuse,
        send: Send,
    ) -> "UsualSends | None":
        """Return the handler; None with pure Python, or if `store` does not take what it makes."""
        if _engine is None or not isinstance(store, UsualStore):
            return None
        return cls(config, store, admission, waits, flow, timer, routes, refuse, send, _engine)

    def _configure(self) -> None:
        broker = self._config.broker
        self._settled = Settled(broker, self._store.store_host)
        suffix = self._settled.suffix
        # A suffix with a character that the compiled path looks for would make all messages unusual.
        is_usual = suffix.isascii() and b"#" not in suffix and not broker.start_accept_send_request_time_stamp
        kinds = self._engine.SendKinds(
            TRANS_HALF_TOPIC, TIMER_TOPIC, broker.broker_name.encode(), not broker.reject_transaction_message,
            self._timer.usual_times, self._timer.has_room,
        )  # fmt: skip
        self._readers = {}
        for code, header in self._headers.items() if is_usual else ():
            self._readers[code] = self._reader(code, header, suffix, kinds)

    def _reader(self, code: int, header: type[Header], suffix: bytes, kinds: Any) -> Any:
        fields = header_fields(code, header, self._engine)
        return None if fields is None else self._engine.SendReader(code, fields, USUAL_FLAGS, suffix, kinds)

    def handler(self, code: int) -> FramesHandler:
        """Return the handler for the sends of one request code."""
        return CodeFrames(code, self.serve, self.settle, self.serve)

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel, proof: object | None = None) -> int:
        """Take the usual sends from `index` on; return how many, 0 if others must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        try:
            sends = self._sends_of(code, frames, index, channel, proof)
        except Exception:
            # Nothing is stored: the Python path serves them, and responds to each.
            peer = channel.peer
            peer_lines.error(logger, peer, "event=usual_sends_failed peer=%s:%s", *peer, exc_info=True)
            sends = None
        if sends is None:
            return 0
        count = len(sends)
        read = _Read(self, code, sends, frames, index, channel)
        is_alone = channel.id == self._last_channel
        self._last_channel = channel.id
        if not self._reads and is_alone:
            group = self._engine.SendGroup()
            group.add(sends)
            # False: the Python path finds the message that is refused.
            return count if self._stored(group, [read]) else 0
        read.was_put_off = True
        self._reads.append(read)
        self._group.add(sends)
        if self._group.messages > _MAX_GROUP or self._group.size_bytes > _MAX_GROUP_BYTES:
            self.settle()
        elif not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        return count

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self.settle()

    def settle(self) -> None:
        """Store and answer what was put off to the end of this turn."""
        if not self._reads:
            return
        reads, self._reads = self._reads, []
        group, self._group = self._group, self._engine.SendGroup()
        if not (self._fits(group) and self._stored(group, reads)):
            for read in reads:
                read.serve_in_python(self._send)

    def _fits(self, group: Any) -> bool:
        """Return whether `group` can still be appended: something else may have been, between its reads and now."""
        store = self._store
        room_bytes, _ = store.usual_limits()
        return group.size_bytes <= room_bytes and all(
            store.plain_queue(queue.topic, queue.queue_id) is queue for queue in group.queues()
        )

    def _stored(self, group: Any, reads: "list[_Read]") -> bool:
        """Append `group`, the sends of `reads`, and answer or refuse them; return False if nothing of that was done."""
        try:
            end_offset = self._store.append_usual(group)
            self._count(group)
        except RequestError:
            return False
        except Exception as error:
            _refuse_all(reads, error)
            return True
        if self._waits.is_needed:
            for read in reads:
                read.was_later = True
            self._waiting += 1
            self._waits.wait(end_offset, partial(self._answer_later, reads), partial(_prepare_all, reads))
        else:
            _answer_all(reads, None, _SUCCESS)
        return True

    def _answer_later(self, reads: "list[_Read]", error: StoreError | None, code: ResponseCode) -> None:
        self._waiting -= 1
        # While other appends wait, these may be safe in the same turn, and their responses share a write.
        _answer_all(reads, error, code, at_once=not self._waiting)

    def _sends_of(self, code: int, frames: Frames, index: int, channel: FramesChannel, proof: object | None) -> Any:
        """Return the usual sends from `index` on; None if the Python path must serve them."""
        store = self._store
        if not self._reads:
            # Once for all reads of a turn: `settle` compares the room again.
            if not self._settled.is_for(self._config.broker, store.store_host):
                self._configure()
            self._room_bytes, self._max_record_bytes = store.usual_limits()
        reader = self._readers.get(code)
        if reader is None or not self._room_bytes or not self._waits.may_acknowledge:
            return None
        born_host = host_bytes(*channel.peer)
        if len(born_host) != IPV4_HOST_BYTES:
            return None
        return reader.read(
            frames, index, _MAX_USUAL, _MIN_USUAL, self._room_bytes - self._group.size_bytes, self._max_record_bytes,
            born_host, self._admission.usual, store.plain_queue, proof,
        )  # fmt: skip

    def _count(self, group: Any) -> None:
        for topic, is_fifo, messages, total_bytes, largest_bytes in group.by_topic():
            sizes = group.sizes_of(topic, is_fifo) if largest_bytes > FIRST_SIZE_BYTES else ()
            self._flow.stored_usual(topic, is_fifo, messages, total_bytes, sizes)
        for topic, delays_s in group.delays().items() if group.timed else ():
            self._timer.delays.of((topic,)).add_all(delays_s)

    def requests(self, frames: Frames, channel: FramesChannel, later_at: float) -> list[Request[Any]]:
        """Return the sends in `frames`; `later_at` is the time of their read, 0 if that is the last one."""
        return self._table.requests_of(frames, channel, later_at)

    def refuse(self, requests: Sequence[Request[Any]], error: Exception) -> None:
        """Refuse sends of one connection."""
        self._refuse(requests, error)

    def encoders(self, code: int) -> tuple[Any, Any]:
        """Return the encoders of responses with `code`, without and with a recall handle."""
        return self._settled.replies.encoders(code)


class _Read:
    """The usual sends of one read, which are answered at once, at the end of the turn, or when they are safe."""

    __slots__ = (
        "_channel", "_code", "_first", "_frames", "_owner", "_read_at", "_ready", "_sends", "was_later", "was_put_off",
    )  # fmt: skip

    def __init__(
        self, owner: UsualSends, code: int, sends: Any, frames: Frames, first: int, channel: FramesChannel
    ) -> None:
        self._owner = owner
        self._code = code
        self._sends = sends
        self._frames = frames
        self._first = first
        self._channel = channel
        self._read_at = channel.read_at
        self._ready: bytes | None = None  # the responses, if they were prepared
        self.was_put_off = False
        self.was_later = False

    def _requests(self) -> list[Request[Any]]:
        later_at = self._read_at if self.was_put_off or self.was_later else 0.0
        frames = self._frames[self._first : self._first + len(self._sends)]
        return self._owner.requests(frames, self._channel, later_at)

    def _responses(self, code: ResponseCode) -> bytes:
        frames: bytes = self._sends.responses(*self._owner.encoders(code))
        return frames

    def prepare(self) -> None:
        """Make the responses of success, before it is known whether these or others will be sent."""
        self._ready = self._responses(_SUCCESS)

    def answer(self, error: StoreError | None, code: ResponseCode, *, at_once: bool) -> None:
        """Send the responses, with `code`; with an error refuse the sends."""
        if error is not None:
            self.refuse(error)
            return
        try:
            ready = self._ready if code == _SUCCESS else None
            frames = self._responses(code) if ready is None else ready
        except Exception as bug:
            self.refuse(bug)
            return
        self._channel.answer_frames(
            self._code, len(self._sends), frames, code, self._read_at, was_later=self.was_later, at_once=at_once
        )

    def refuse(self, error: Exception) -> None:
        """Refuse the sends."""
        self._owner.refuse(self._requests(), error)

    def serve_in_python(self, send: Send) -> None:
        """Let `send`, the Python path, serve the sends: it refuses those alone that it must."""
        requests: list[Request[Any]] = []
        try:
            requests = self._requests()
            send(requests)
        except Exception as error:
            peer = self._channel.peer
            peer_lines.error(logger, peer, "event=usual_sends_failed peer=%s:%s", *peer, exc_info=True)
            for request in requests:
                if not request.is_answered:
                    self._channel.refuse(request, error)


# An error in one of `reads` must not reach the others, which are of other connections.


def _answer_all(reads: list[_Read], error: StoreError | None, code: ResponseCode, *, at_once: bool = False) -> None:
    for read in reads:
        try:
            read.answer(error, code, at_once=at_once)
        except Exception:
            peer_lines.error(logger, "", "event=usual_sends_not_answered", exc_info=True)


def _refuse_all(reads: list[_Read], error: Exception) -> None:
    for read in reads:
        try:
            read.refuse(error)
        except Exception:
            peer_lines.error(logger, "", "event=usual_sends_not_answered", exc_info=True)


def _prepare_all(reads: list[_Read]) -> None:
    # After an error, `answer` makes the responses that are missing.
    for read in reads:
        read.prepare()
