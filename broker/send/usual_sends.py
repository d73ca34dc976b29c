"""The path of usual sends: one call reads them, one makes their records, one their responses.

It serves the usual sends with which a read begins, with pure Python only long runs of sends that are alike
(`broker.send.alike`).  `SendProcessor.send`, its twin, serves all others; both store the same bytes and give the same
responses.  See docs/engine.md.

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
from broker.metrics.message_flow import FIRST_SIZE_BYTES, MessageFlow
from broker.send.admission import RETRY_MARK, SendAdmission
from broker.send.alike import alike_sends
from broker.send.confirm_waits import ConfirmWaits
from broker.send.message_id import host_bytes
from broker.send.settled import Settled
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError, StoreError
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.engine import header_fields
from sprocket.remoting.framing import Frame
from sprocket.remoting.headers.base import Header
from sprocket.remoting.message.record import FIXED_IPV4_RAW, IPV4_HOST_BYTES
from sprocket.remoting.message.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.appender import UsualRecords
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.moves import USUAL_FLAGS
from store.queue.logic_queue import LogicQueue

logger = logging.getLogger(__name__)

_compiled: Final = native("sends")
_engine: Final = _compiled or alike_sends
if _compiled is not None and (
    FIXED_IPV4_RAW.size,
    CONSUME_QUEUE_UNIT_BYTES,
) != (_compiled.RECORD_HEAD_BYTES, _compiled.QUEUE_ENTRY_BYTES):
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
        self._is_compiled = engine is not alike_sends
        self._headers = {int(route.code): route.header for route in routes}
        # Fewer frames are not worth a look.
        self._min_frames = 1 if self._is_compiled else alike_sends.MIN_SENDS
        # Reads of this turn that are yet to be appended, and the sends in them.
        self._reads: list[_Read] = []
        self._group = engine.SendGroup()
        self._is_scheduled = False
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
        """Return the handler; None if `store` does not take what it makes."""
        if not isinstance(store, UsualStore):
            return None
        return cls(config, store, admission, waits, flow, timer, routes, refuse, send, _engine)

    def _configure(self) -> None:
        self._settled = settled = Settled(self._config.broker, self._store.store_host)
        # A suffix with a character that the compiled path looks for would make all messages unusual.
        is_usual = settled.suffix.isascii() and b"#" not in settled.suffix
        broker = self._config.broker
        kinds = self._engine.SendKinds(
            TRANS_HALF_TOPIC, TIMER_TOPIC, broker.broker_name.encode(), not broker.reject_transaction_message,
            self._timer.usual_times, self._timer.has_room,
        )  # fmt: skip
        self._readers = {}
        for code, header in self._headers.items() if is_usual else ():
            self._readers[code] = self._reader(code, header, settled.suffix, kinds)

    def _reader(self, code: int, header: type[Header], suffix: bytes, kinds: Any) -> Any:
        if not self._is_compiled:
            return alike_sends.SendReader(self._table, header, USUAL_FLAGS, suffix, kinds)
        fields = header_fields(code, header, self._engine)
        return None if fields is None else self._engine.SendReader(code, fields, USUAL_FLAGS, suffix, kinds)

    def handler(self, code: int) -> FramesHandler:
        """Return the handler for the sends of one request code."""
        return CodeFrames(code, self.serve, self.settle, self.serve)

    def serve(
        self, code: int, frames: list[Frame], index: int, channel: FramesChannel, proof: object | None = None
    ) -> int:
        """Take the usual sends from `index` on; return how many, 0 if others must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        if len(frames) - index < self._min_frames:
            return 0
        if index or len(frames) > _MAX_USUAL:
            frames = frames[index : index + _MAX_USUAL]
        try:
            sends = self._sends_of(code, frames, channel, proof)
        except Exception:
            # Nothing is stored: the Python path serves them, and responds to each.
            logger.exception("event=usual_sends_failed peer=%s:%s", *channel.peer)
            sends = None
        if sends is None:
            return 0
        count = len(sends)
        read = _Read(self, code, sends, frames[:count], channel)
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
            self._waits.wait(end_offset, partial(_answer_all, reads))
        else:
            _answer_all(reads, None, _SUCCESS)
        return True

    def _sends_of(self, code: int, frames: list[Frame], channel: FramesChannel, proof: object | None) -> Any:
        """Return the usual sends with which `frames` begin; None if the Python path must serve them."""
        store, broker = self._store, self._config.broker
        if not self._settled.is_for(broker, store.store_host):
            self._configure()
        reader = self._readers.get(code)
        room_bytes, max_record_bytes = store.usual_limits()
        if reader is None or not room_bytes or not self._waits.may_acknowledge:
            return None
        born_host = host_bytes(*channel.peer)
        if len(born_host) != IPV4_HOST_BYTES or broker.start_accept_send_request_time_stamp:
            return None
        room_bytes -= self._group.size_bytes
        queue_of = store.plain_queue
        return reader.read(frames, _MIN_USUAL, room_bytes, max_record_bytes, born_host, self._topic, queue_of, proof)

    def _count(self, group: Any) -> None:
        for topic, is_fifo, messages, total_bytes, largest_bytes in group.by_topic():
            sizes = group.sizes_of(topic, is_fifo) if largest_bytes > FIRST_SIZE_BYTES else ()
            self._flow.stored_usual(topic, is_fifo, messages, total_bytes, sizes)
        for topic, delays_s in group.delays().items():
            self._timer.delays.of((topic,)).add_all(delays_s)

    def _topic(self, name: str) -> tuple[str, int, int] | None:
        """Return topic, limit of queue ids and flags of an admitted topic whose messages may be usual."""
        admission = self._admission.settled(name)
        if admission is None or admission.flags & RETRY_MARK:
            return None
        return admission.topic, admission.queue_limit, admission.flags

    def requests(self, frames: Sequence[Frame], channel: FramesChannel, later_at: float) -> list[Request[Any]]:
        """Return the sends in `frames`; `later_at` is the time of their read, 0 if that is the last one."""
        return self._table.requests_of(frames, channel, later_at)

    def refuse(self, requests: Sequence[Request[Any]], error: Exception) -> None:
        """Refuse sends of one connection."""
        self._refuse(requests, error)

    def responses(self, sends: Any, code: int) -> bytes:
        """Return the responses to stored sends."""
        replies = self._settled.replies
        templates = replies.template(code), replies.timed_template(code)
        encoders = [template.encoder for template in templates] if self._is_compiled else templates
        frames: bytes = sends.responses(*encoders)
        return frames


class _Read:
    """The usual sends of one read, which are answered at once, at the end of the turn, or when they are safe."""

    __slots__ = ("_channel", "_code", "_frames", "_owner", "_read_at", "_sends", "was_later", "was_put_off")

    def __init__(
        self, owner: UsualSends, code: int, sends: Any, frames: Sequence[Frame], channel: FramesChannel
    ) -> None:
        self._owner = owner
        self._code = code
        self._sends = sends
        self._frames = frames
        self._channel = channel
        self._read_at = channel.read_at
        self.was_put_off = False
        self.was_later = False

    def _requests(self) -> list[Request[Any]]:
        later_at = self._read_at if self.was_put_off or self.was_later else 0.0
        return self._owner.requests(self._frames, self._channel, later_at)

    def answer(self, error: StoreError | None, code: ResponseCode) -> None:
        """Send the responses, with `code`; with an error refuse the sends."""
        failure: Exception | None = error
        try:
            frames = b"" if failure is not None else self._owner.responses(self._sends, code)
        except Exception as bug:
            failure = bug
        if failure is not None:
            self.refuse(failure)
            return
        self._channel.answer_frames(self._code, len(self._sends), frames, code, self._read_at, was_later=self.was_later)

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
            logger.exception("event=usual_sends_failed peer=%s:%s", *self._channel.peer)
            for request in requests:
                if not request.is_answered:
                    self._channel.refuse(request, error)


# An error in one of `reads` must not reach the others, which are of other connections.


def _answer_all(reads: list[_Read], error: StoreError | None, code: ResponseCode) -> None:
    for read in reads:
        try:
            read.answer(error, code)
        except Exception:
            logger.exception("event=usual_sends_not_answered")


def _refuse_all(reads: list[_Read], error: Exception) -> None:
    for read in reads:
        try:
            read.refuse(error)
        except Exception:
            logger.exception("event=usual_sends_not_answered")
