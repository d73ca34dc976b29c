"""Sends that the kernel serves: one call reads them, one makes their records, one their responses.

`SendProcessor.send` is the handler, which serves all others, and with pure Python every one: it is the specification of
the kernel.  See docs/engine-requests.md.

If several connections send, the sends of all reads of one turn of the loop are one append, at the end of the turn or
before the first request that the kernel does not serve.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.core import BrokerCore
from broker.message_id import host_bytes
from broker.metrics.message_flow import FIRST_SIZE_BYTES, SHARDING_NAME
from broker.plan.table import PlanTable, Refused
from broker.send.planner import SendHeader, SendKey, SendPlan, SendPlanner
from broker.send.replies import SendForm, SendReplies
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.limits import MAX_BATCH_MESSAGES, MAX_PROPERTIES_BYTES
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.engine import header_fields
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from sprocket.remoting.routes import BatchHandler, CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.moves import PLAIN_FLAGS
from store.record.record import TAGS_NAME

try:
    from broker.send import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]
if TYPE_CHECKING:
    from broker.send.kernel_native import SendKernel, SendRead, SendTurn

logger = logging.getLogger(__name__)

# Sends, and bytes of their records, after which a turn is stored at once: a longer append would hold up the loop.
_MAX_MESSAGES: Final = 4096
_MAX_BYTES: Final = 1 << 20
# Max sends that the kernel takes from one read.
_MAX_SENDS: Final = 1024
_SUCCESS: Final = ResponseCode.SUCCESS
# Parts of the common properties of a batch that the handler must look at.
_FOR_HANDLER: Final = (b"INNER_", b"__LITE", b"__CRC32#")
_is_native = native("broker.send.kernel_native") is not None

Refuse = Callable[[Sequence[Request[Any]], Exception], None]


def send_kernel(routes: Sequence[Route], planner: SendPlanner) -> "SendKernel | None":
    """Return the kernel of the sends of some routes; None with pure Python."""
    if not _is_native:
        return None
    readers = {}
    for route in routes:
        code = int(route.code)
        fields = header_fields(code, route.header, kernel_native)
        if fields is not None:
            readers[code] = kernel_native.SendReader(code, fields, PLAIN_FLAGS)

    def plan_of(topic: str, queue_id: int) -> SendPlan | Refused:
        return planner.plan(SendKey(topic, queue_id))

    return kernel_native.SendKernel(readers, plan_of, PlanTable(planner.version), _MAX_SENDS)


class SendFrames:
    """`FramesHandler` of the sends of each of `routes`.  Lives in the event loop's thread."""

    def __init__(
        self, core: BrokerCore, planner: SendPlanner, timer: TimerIntake, routes: Sequence[Route], refuse: Refuse,
        send: BatchHandler, kernel: "SendKernel",
    ) -> None:  # fmt: skip
        self._config = core.config
        self._store = core.store
        self._planner = planner
        self._waits = core.waits
        self._flow = core.flow
        self._timer = timer
        self._refuse = refuse
        self._send = send
        # Decodes the sends of a failed append, so that each gets its refusal.
        self._table = RouteTable(routes)
        self._kernel = kernel
        self._form: SendForm | None = None
        self._replies: SendReplies  # of the form
        self._intake = kernel.intake(
            self._begin, self._stored, self._store_or_serve, self._end_later, host_bytes, _log_not_served,
            _MAX_MESSAGES, _MAX_BYTES,
        )  # fmt: skip
        self.settle: Callable[[], None] = self._intake.settle
        self._is_scheduled = False
        # Appends whose sends are not answered yet.
        self._waiting = 0

    def _configure(self, form: SendForm) -> None:
        broker, self._form, self._replies = self._config.broker, form, form.replies
        self._kernel.configure(
            form.suffix, self._planner.charging, TRANS_HALF_TOPIC, TIMER_TOPIC, broker.broker_name.encode(),
            not broker.reject_transaction_message, self._timer.wheel_times, self._timer.has_room,
            self._store.plain_queue,
        )  # fmt: skip

    def handler(self, code: int) -> FramesHandler:
        """Return the handler for the sends of one request code."""
        return CodeFrames(code, self._intake.serve, self.settle, self._intake.serve)

    def _begin(self) -> "SendTurn | None":
        """Return a turn without sends; None if the handler must serve all sends now."""
        form = self._planner.form()
        if form is not self._form:
            self._configure(form)
        room_bytes, max_record_bytes = self._store.encoded_limits()
        if not (form.is_for_kernel and room_bytes and self._waits.may_acknowledge):
            return None
        return self._kernel.begin(self._planner.version.number, room_bytes, max_record_bytes)

    def batch(
        self, plan: SendPlan, header: SendHeader, born_host: bytes, content: bytes, common: bytes
    ) -> "SendTurn | None":
        """Return the messages of a client's batch, each with the properties `common` after its own.

        None if the handler must make them: it would change or refuse one of them, or they do not fit in this segment.
        """
        sys_flag, queue = header.sys_flag | plan.sys_flag, plan.queue
        if queue is None and plan.needs_handler is None:
            queue = self._store.plain_queue(plan.topic, plan.queue_id, may_be_new=True)
        if queue is None or sys_flag & ~PLAIN_FLAGS or any(name in common for name in _FOR_HANDLER):
            return None
        turn = self._begin()
        is_taken = turn is not None and turn.take_batch(
            plan.topic, queue, sys_flag, header.born_timestamp, header.reconsume_times or 0, born_host, content,
            common, find_last(common, TAGS_NAME), SHARDING_NAME in common, MAX_BATCH_MESSAGES, MAX_PROPERTIES_BYTES,
            self._config.store.max_record_bytes,
        )  # fmt: skip
        return turn if is_taken else None

    def append_batch(self, turn: "SendTurn") -> tuple[int, int, str]:
        """Append what `batch` returned; return where it ends in the log, its first queue offset, and its ids."""
        end_offset = self._store.append_encoded(turn)
        self._count(turn)
        return end_offset, *turn.batch_place(self._replies.host_hex.encode())

    def _end_later(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self.settle()

    def _store_or_serve(self, turn: "SendTurn") -> None:
        """Store and answer what was put off to the end of the turn."""
        if not (self._fits(turn) and self._stored(turn)):
            for read in turn.reads:
                self._serve_by_handler(read)

    def _fits(self, turn: "SendTurn") -> bool:
        """Return whether `turn` can still be appended: something else may have been, between its reads and now."""
        return turn.version == self._planner.version.number and turn.size_bytes <= self._store.encoded_limits()[0]

    def _stored(self, turn: "SendTurn") -> bool:
        """Append `turn`, and answer or refuse its sends; return False if nothing of that was done."""
        try:
            end_offset = self._store.append_encoded(turn)
            self._count(turn)
        except RequestError:
            return False
        except Exception as error:
            turn.spend()
            self._refuse_all(turn, error)
            return True
        if self._waits.is_needed:
            turn.wait()
            self._waiting += 1
            self._waits.wait(end_offset, partial(self._answer_later, turn), partial(self._prepare, turn))
        else:
            self._answer(turn, _SUCCESS, at_once=False)
        return True

    def _prepare(self, turn: "SendTurn") -> None:
        turn.prepare(*self._replies.encoders(_SUCCESS))

    def _answer_later(self, turn: "SendTurn", error: StoreError | None, code: ResponseCode) -> None:
        self._waiting -= 1
        if error is not None:
            self._refuse_all(turn, error)
        else:
            # While other appends wait, these may be safe in the same turn, and their responses share a write.
            self._answer(turn, code, at_once=not self._waiting)

    def _answer(self, turn: "SendTurn", code: ResponseCode, *, at_once: bool) -> None:
        turn.answer(code, *self._replies.encoders(code), at_once, self._refuse_read, _log_not_answered)

    def _count(self, turn: "SendTurn") -> None:
        turn.spend()
        for topic, is_fifo, messages, total_bytes, largest_bytes in turn.by_topic():
            sizes = turn.sizes_of(topic, is_fifo) if largest_bytes > FIRST_SIZE_BYTES else ()
            self._flow.stored_run(topic, is_fifo, messages, total_bytes, sizes)
        for topic, delays_s in turn.delays().items() if turn.timed else ():
            self._timer.delays.of((topic,)).add_all(delays_s)

    def _requests(self, read: "SendRead") -> list[Request[Any]]:
        return self._table.requests_of(read.whole_frames(), read.channel, read.read_at if read.was_later else 0.0)

    def _refuse_all(self, turn: "SendTurn", error: Exception) -> None:
        for read in turn.reads:
            # An error in one read must not reach the others, which are of other connections.
            try:
                self._refuse_read(read, error)
            except Exception:
                _log_not_answered()

    def _refuse_read(self, read: "SendRead", error: Exception) -> None:
        self._refuse(self._requests(read), error)

    def _serve_by_handler(self, read: "SendRead") -> None:
        """Let the handler serve the sends of a read: it refuses those alone that it must."""
        try:
            requests = self._requests(read)
        except Exception:
            _log_not_served(read.channel)
            return
        while requests:
            run = requests.copy()
            try:
                self._send(run)
            except Exception as error:
                _log_not_served(read.channel)
                for request in run:
                    if not request.is_answered:
                        read.channel.refuse(request, error)
            requests = requests[len(run) :]


# Both are called in an except clause.


def _log_not_served(channel: FramesChannel) -> None:
    peer = channel.peer
    peer_lines.error(logger, peer, "event=send_frames_failed peer=%s:%s", *peer, exc_info=True)


def _log_not_answered() -> None:
    peer_lines.error(logger, "", "event=send_frames_not_answered", exc_info=True)
