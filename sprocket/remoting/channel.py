"""One connection, at either end: the edge between asyncio and the pure framing and routing.

A read is handled as a batch.  All whole frames are cut out at once, a batch handler gets a run of requests together,
and all responses leave in one write.  Frames that do not fit in a slice of the turn wait for the next turn, and the
connection is not read meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from math import inf
from types import GeneratorType
from typing import Any, cast

from sprocket.common import limits
from sprocket.common.errors import InvariantError, ProtocolError, SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, Buffer, ReceivedResponse, Request, Response
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.flow.handler_tasks import HandlerTasks
from sprocket.remoting.flow.long_answers import ENDED, LongAnswers
from sprocket.remoting.flow.read_checks import admitted, with_few_fields
from sprocket.remoting.flow.read_pressure import ReadPressure
from sprocket.remoting.flow.shedding import LARGE_READ_BYTES
from sprocket.remoting.flow.slow_reads import SlowReads
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.frames import encode_response
from sprocket.remoting.framing import Frame, FrameDecoder, Frames
from sprocket.remoting.outgoing import Outgoing
from sprocket.remoting.refusals import Refusal, refusal_of
from sprocket.remoting.routes import AdmittedFrame, Guard, Overload, Result, RouteTable, UnroutableRequest
from sprocket.remoting.tls.names import common_name

logger = logging.getLogger(__name__)

_channel_ids = count(1)
# Requests that a batch handler gets at once; fewer if so many took much longer than a slice.  A slow peer has least.
_MAX_RUN = 1024
# uvloop reads 256,000 bytes, and after such a read the same connection again, up to 32 times.
_LONG_READ_BYTES = 128 * 1024
_MIN_RUN = 16
# Frames that a guard checks at once.
_MAX_GUARDED = 128


class RemotingChannel(Outgoing):
    """A connection that serves the requests of its peer and can send requests of its own.

    `on_close` is called once when the connection is gone.  `on_bug` gets an InvariantError of a handler.
    """

    def __init__(
        self,
        table: RouteTable,
        counters: ChannelCounters,
        *,
        on_open: Callable[["RemotingChannel"], None] | None = None,
        on_close: Callable[["RemotingChannel"], None] | None = None,
        on_crowded: Callable[[], None] | None = None,
        on_bug: Callable[[InvariantError], None] | None = None,
        max_frame_bytes: int = limits.MAX_FRAME_BYTES,
        turn: Turn | None = None,
        pause_reads: bool = True,
        credentials: Credentials | None = None,
        is_trusted: bool = False,
    ) -> None:
        super().__init__(counters, on_crowded, credentials)
        self.id = next(_channel_ids)
        self.is_trusted = is_trusted  # whether its peer is in this process, and has asked the same access control
        self.local: tuple[str, int] = ("", 0)
        self.certificate_name: str | None = None  # common name of the peer's certificate, if it was verified
        self.read_at = 0.0  # loop time of the last read
        self.partial_at: float | None = None  # loop time at which a frame became incomplete
        self.attributes: dict[str, Any] = {}  # what a server remembers of this peer
        self.charged: Any = None  # to what a server charges requests here, until another account signs one
        self.proofs = {}  # of its requests, given by the guard of the table
        self._table = table
        self._on_open = on_open
        self._on_close = on_close
        self._on_crowded = on_crowded
        self._on_bug = on_bug
        # A client keeps reading while it cannot write: if both ends stopped reading, neither would continue.
        self._pause_reads = pause_reads
        self._decoder = FrameDecoder(max_frame_bytes)
        # A client is asked little, and never stops reading.
        self._turn = turn or Turn(self._loop, slice_s=inf)
        self._pressure: ReadPressure | None = None
        self._tasks = HandlerTasks(self._loop)
        self._backlog: deque[Frame] = deque()
        self._is_waiting = False  # whether the backlog waits for a turn, and the peer is not read meanwhile
        self._is_ended = False  # whether the peer has sent its last byte, and responses must still be written
        self._max_run = _MAX_RUN
        self._long = LongAnswers(self._turn, self._reply_late, self._may_write, lambda: self._is_slow)
        self.partial_bytes = 0  # received bytes of an incomplete frame
        self._held: deque[bytes] | None = None  # what arrived since `hold`; keeps nothing if that is dropped
        self._slow = SlowReads(self._loop, self._read_on)
        self._measured, self._failed = 0, False  # responses whose latency was measured; whether a frame was none

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        transport.set_write_buffer_limits(high=limits.WRITE_PAUSE_BYTES)
        self.peer = self._pending.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.local = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self.certificate_name = common_name(transport.get_extra_info("peercert"))
        self.read_at = self._loop.time()
        self._counters.opened += 1
        if self._on_open is not None:
            self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._out.clear()
        self._backlog.clear()
        self._long.drop()
        self._tasks.cancel_in_turns(self._turn)
        self._pending.fail_all(f"{self.peer[0]}:{self.peer[1]} closed the connection")
        self._count_partial(0)
        self.unsent.looked_at(0)
        self._end_drain()
        if self._on_close is not None:
            self._on_close(self)

    def eof_received(self) -> bool:
        # Requests before the end still get their responses; then the transport closes.
        self._table.settle()
        self._is_ended = self._is_waiting or bool(self._long)
        return self._is_ended

    def pause_writing(self) -> None:
        # A peer that does not read its responses sends no more requests either.
        self.stalled_at = self._loop.time()
        if self._transport is not None and self._pause_reads:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_at = None
        self._end_drain()
        if self._backlog and self._held is None:
            self._handle(())
        if self._pause_reads:
            self._read_on()
        self._long.resume()

    def receive(self, data: bytes) -> None:
        """Serve the frames of a read, usual or not."""
        self.read_at = self._loop.time()
        if self._held is not None:
            self._held.append(data)
            return
        decoder, counters = self._decoder, self._counters
        counters.received_bytes += len(data)
        frames = decoder.feed(data)
        self._is_slow = self._is_slow and self._slow.was_on
        if not decoder.pending_bytes:
            self.partial_at = None
        elif frames or self.partial_at is None:
            self.partial_at = self.read_at
        if decoder.pending_bytes != self.partial_bytes:
            self._count_partial(decoder.pending_bytes)
        if frames:
            counters.frames += len(frames)
            if decoder.has_large_header:
                frames = with_few_fields(decoder, frames, self)
            overload = self._table.overload
            if len(data) >= LARGE_READ_BYTES and overload is not None and not self._is_slow:
                frames = self._shed(overload, frames, len(data))
            self._handle(frames)
            if len(data) >= _LONG_READ_BYTES:
                self._read_in_turn()
        self._end_if_wrong()

    def _end_if_wrong(self) -> None:
        """Close the connection after a frame that is none, once all before it are served."""
        if self._decoder.error is not None and not self._is_waiting:
            self._fail(self._decoder.error)

    def _shed(self, overload: Overload, frames: Frames, size_bytes: int) -> Frames:
        """Return the frames of a read to serve, and refuse the others."""
        self._pressure = self._pressure or ReadPressure(self._transport, self._turn)
        kept, answers = self._pressure.shed(frames, size_bytes, self._table, overload)
        if answers:
            self.write(answers)
            self._read_in_turn()
        return kept

    def _read_in_turn(self) -> None:
        """Let other connections be read first."""
        if self._transport is not None and self.stalled_at is None:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def read_after(self, seconds: float) -> None:
        """Serve a peer that sends more than it may after some seconds; one in this process never waits."""
        if self._transport is not None and not self.is_closed and not self.is_trusted:
            self._transport.pause_reading()
            self._is_slow = True
            self._slow.wait(seconds)

    def _read_on(self) -> None:
        if self._is_waiting and not self._slow and not self._long.is_full:
            self._turn.share(self._go_on, is_slow=self._is_slow)
        keeps = self._held is not None and self._held.maxlen is None
        may_read = not (keeps or self._is_waiting or self._slow or self.is_closed or self.stalled_at is not None)
        if may_read and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count_partial(self, size_bytes: int) -> None:
        grown = size_bytes - self.partial_bytes
        self._counters.partial_bytes += grown
        self.partial_bytes = size_bytes
        if grown > 0 and self._counters.partial_bytes > limits.MAX_PARTIAL_BYTES and self._on_crowded is not None:
            self._on_crowded()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken yet, and bytes of its requests that wait for that."""
        if self._transport is None or self.is_closed:
            return 0
        return self._transport.get_write_buffer_size() + sum(len(frame[1]) + len(frame[2]) for frame in self._backlog)

    # Another table

    def hold(self, *, drops: bool = False) -> None:
        """Serve nothing until `serve`: what arrives waits, or `drops`.  What handlers have yet to answer is refused."""
        if self._held is None and not self.is_closed:
            self._table.settle()
            self._held = deque(maxlen=0 if drops else None)
            if drops:
                self._backlog, self._is_waiting = deque(), False
                self._read_on()  # unread bytes would end the connection with a reset
            elif self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
            self._tasks.cancel()
            self._long.end()

    def serve(self, table: RouteTable) -> None:
        """Serve `table` from now on, first what arrived since `hold`."""
        self._table = table
        self.proofs.clear()
        held, self._held = self._held or (), None
        # The old table's guard admitted some of these.
        backlog: list[Frame] = [(frame[0], frame[1], frame[2]) for frame in self._backlog]
        self._backlog, self._is_waiting = deque(), False
        if backlog:
            self._handle(backlog)
        for data in held:
            if not self.is_closed:
                self.data_received(data)
        self._read_on()

    # Requests of the peer

    def _handle(self, frames: Frames) -> None:
        """Serve those frames that wait, then `frames`, in a slice of this turn; the others wait for the next turn."""
        if self._is_waiting or self._is_slow:
            self._leave(frames)  # a slow peer is only served in the part of a turn that all slow ones share
            return
        if self._backlog:
            frames = [*self._backlog, *frames]
            self._backlog.clear()
        self._serve(frames, self._ends_at(frames))

    def _ends_at(self, frames: Frames) -> float:
        return self._turn.now() + self._turn.slice_s if len(frames) > 1 else inf  # after one frame nothing is left

    def serve_rest(self, frames: Frames, index: int) -> None:
        """Serve the frames of a usual read from `index` on."""
        self._serve(frames, self._ends_at(frames), index)
        self._end_if_wrong()

    def serving_failed(self, error: Exception) -> None:
        """Close the connection if its peer is to blame for what the handler of a usual read raised.  Raises others."""
        if not isinstance(error, ProtocolError):
            raise error
        self._fail(error)

    def _serve(self, frames: Frames, ends_at: float, index: int = 0) -> None:
        """Serve `frames` from `index` on until monotonic `ends_at`; the others become the backlog."""
        guard = self._table.guard
        self._reading = True
        try:
            if guard is not None:
                frames = self._serve_guarded(guard, index, frames, ends_at)
            else:
                if self._pending.waiting and not index:
                    index = self._pending.resolve_first(frames)
                frames = self._serve_from(index, frames, ends_at)
        except ProtocolError as error:
            frames = ()
            self._fail(error)
        finally:
            self._reading = False
        if self._out:
            self._flush()
        if (frames or self._long.is_full) and not self.is_closed:
            self._leave(frames)

    def _serve_from(self, index: int, frames: Frames, ends_at: float) -> Frames:
        """Serve the frames from `index` on; return those that must wait."""
        count, is_grouped = len(frames), False
        while index < count:
            if not is_grouped and index + 1 < count and self._table.differ(frames, index):
                # One read holds requests for several handlers: give each handler a batch, where order allows it.
                frames, is_grouped = self._table.grouped(frames, index), True
            index = self._serve_next(frames, index)
            if self._out_bytes > limits.WRITE_PAUSE_BYTES:
                self._flush()
                if self.stalled_at is not None:
                    break
            is_over = self.is_closed or self._long.is_full or bool(self._slow)
            if index < count and (is_over or self._turn.now() >= ends_at):
                break
        return frames[index:] if index < count else ()

    def _serve_guarded(self, guard: Guard, index: int, frames: Frames, ends_at: float) -> Frames:
        """Serve the frames from `index` on that the guard admits, or that prove it; return those that must wait."""
        while frames:
            # What was left of an earlier turn may have passed the guard already.
            if not (isinstance(frames, list) and isinstance(frames[0], AdmittedFrame)):
                frames, index = self._serve_proved(index, frames, ends_at), 0
                if self.stalled_at is not None or self._turn.now() >= ends_at:
                    return frames
            error = self._decoder.error
            passed = admitted(guard, self._decoder, frames[:_MAX_GUARDED], self)
            frames = frames[_MAX_GUARDED:] if self._decoder.error is error else ()
            left = self._serve_from(0, passed, ends_at)
            if left:
                return [*left, *frames]
            if self._turn.now() >= ends_at:
                break
        return frames

    def _serve_proved(self, index: int, frames: Frames, ends_at: float) -> Frames:
        """Serve the frames from `index` on that prove what the guard asks for; return those from the first other on."""
        while index < len(frames) and self.stalled_at is None and not self.is_closed:
            served = self._table.serve_proved(frames, index, self)
            if not served:
                break
            index += served
            if self._out_bytes > limits.WRITE_PAUSE_BYTES:
                self._flush()
            if self._turn.now() >= ends_at:
                break
        return frames[index:] if index else frames

    # Frames that wait

    def _leave(self, frames: Frames) -> None:
        """Let `frames` wait: until the peer reads again if it does not, else for the next turn of this connection."""
        self._backlog.extend(frames)
        if self.stalled_at is not None:
            if frames:
                self.unsent.written(self.unsent_bytes, 0, self.read_at)
            return
        self._is_waiting = True
        self.partial_at = None  # the peer is not read, so it cannot finish its frame
        if self._transport is not None:
            self._transport.pause_reading()
        if not self._long.is_full:
            self._turn.share(self._go_on, is_slow=self._is_slow)

    def _go_on(self, ends_at: float) -> bool:
        """Serve the backlog until monotonic `ends_at`; what is left waits for another turn."""
        is_closing = self._transport is not None and self._transport.is_closing()
        if not self._is_waiting or self._held is not None or is_closing or self._slow:
            return False  # `_read_on` comes later
        waiting, self._backlog, self._is_waiting = self._backlog, deque(), False
        count, error = _MIN_RUN if self._is_slow else len(waiting), self._decoder.error
        self._serve([waiting.popleft() for _ in range(min(count, len(waiting)))], ends_at)
        if waiting and not self.is_closed and self._decoder.error is error:
            self._leave(waiting)
        if self._is_waiting:
            return False  # `_leave` has asked for another turn
        if self._decoder.pending_bytes:
            self.partial_at = self._loop.time()
        self._end_if_wrong()
        if self._decoder.error is None:
            self._read_on()
            self._close_at_end()
        return False

    def _close_at_end(self) -> None:
        if self._is_ended and not self._is_waiting and not self._long:
            self.close()

    def _serve_next(self, frames: Frames, index: int) -> int:
        """Serve the frame at `index`, or the run for one batch handler from there.  Return the index after it."""
        table = self._table
        served = table.serve_frames(frames, index, self)
        if served:
            return index + served
        try:
            decoded = table.decode(frames[index])
        except UnroutableRequest as error:
            error.request.channel = self
            self.reply(error.request, refusal_of(error))
            return index + 1
        if isinstance(decoded, ReceivedResponse):
            self._pending.resolve(decoded)
            return index + 1
        entry, request = decoded
        request.channel = self
        if entry.batch is None:
            self.serve_one(entry.handle, request)
            return index + 1
        measured, run = self._measured, [request]
        if index + 1 < len(frames):
            table.decode_run(entry, frames[index], frames[index + 1 : index + self._max_run], run)
        decoded_count, began = len(run), self._turn.now()
        try:
            entry.batch(run)
        except Exception as error:
            refusal = self._refusal(request, error)
            for request in run:
                if not request.is_answered:  # the others keep their response
                    self.reply(request, refusal)
        if table.latency is not None and self._measured - measured < len(run):
            self._note_unanswered(run)
        if len(run) < decoded_count:
            self._max_run = _MIN_RUN  # the rest is decoded again
        elif decoded_count >= _MIN_RUN:
            self._fit_runs(len(run), self._turn.now() - began)
        return index + len(run)

    def _fit_runs(self, count: int, took_s: float) -> None:
        """Let later runs take less than two slices, as far as a run of `count` that `took_s` tells."""
        if took_s > 2 * self._turn.slice_s:
            self._max_run = max(_MIN_RUN, count // 2)
        elif took_s < self._turn.slice_s and self._max_run < _MAX_RUN:
            self._max_run *= 2

    def serve_one(self, handle: Any, request: Request[Any]) -> None:
        measured = self._measured
        try:
            answer = handle(request)
            if isinstance(answer, GeneratorType):
                answer = self._long.begin(request, answer)
        except Exception as error:
            answer = self._refusal(request, error)
        if isinstance(answer, Response):
            self.reply(request, answer)
        elif answer is not None:
            self._tasks.add(self._finish(answer, request), answer)
        if self._table.latency is not None and self._measured == measured:
            self._note_unanswered((request,))

    async def _finish(self, answer: Awaitable[Result], request: Request[Any]) -> None:
        # A closed connection cancels its tasks some in each turn: others do not begin, or go on with its answer.
        try:
            response = None if self.is_closed else await answer
            if self.is_closed:
                return
            if response is not None and not isinstance(response, Response):
                response = self._long.begin(request, response)
        except asyncio.CancelledError:
            if self.is_closed:
                raise
            response = ENDED
        except Exception as error:
            response = self._refusal(request, error)
        if response is not None:
            self.reply(request, response)

    def _may_write(self) -> bool:
        return self.stalled_at is None and not self.is_closed

    def _reply_late(self, request: Request[Any], answer: Response | Exception | None) -> None:
        """Send a response that took more than one step."""
        if answer is not None:
            self.reply(request, self._refusal(request, answer) if isinstance(answer, Exception) else answer)
        if self._is_waiting:
            self._turn.share(self._go_on, is_slow=self._is_slow)
        self._close_at_end()

    def _refusal(self, request: Request[Any], error: Exception) -> Refusal:
        if isinstance(error, InvariantError) and self._on_bug is not None:
            self._on_bug(error)
        if isinstance(error, SprocketError):
            return refusal_of(error)
        peer_lines.error(
            logger, self.peer, "event=handler_failed code=%s peer=%s:%s", request.code, *self.peer, exc_info=error
        )
        return Refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", reason=Reason.BUG)

    def _fail(self, error: ProtocolError) -> None:
        if self._failed:
            return
        self._failed = True
        self._counters.count_protocol_error(error.kind)
        self._table.refusals.count_closed(error)
        peer_lines.warning(
            logger, self.peer, "event=protocol_error peer=%s:%s kind=%s detail=%r", *self.peer, error.kind, error.detail
        )
        self._flush()
        self.close()

    # Writing

    def reply(self, request: Request[Any], response: Response) -> None:
        if request.is_answered:
            self._drop_answer(request)
            return
        if isinstance(response, Refusal):
            # The one place that every refused request passes, except those that `shed` refuses by the hundred.
            self._table.refusals.count(response.reason, request.code)
        frame = self._encoded(request, response) if request.wants_answer else ()
        self.answer(request, *frame, code=response.code)

    def _encoded(self, request: Request[Any], response: Response) -> list[Buffer]:
        try:
            return encode_response(response, request.opaque, request.serialization)
        except Exception as error:
            # This must not end the connection, which carries the responses to other requests.
            peer_lines.error(
                logger, self.peer, "event=response_not_encodable code=%s peer=%s:%s",
                request.code, *self.peer, exc_info=error,
            )  # fmt: skip
            refusal = Refusal(ResponseCode.SYSTEM_ERROR, "the response cannot be encoded; see the server's log")
            self._table.refusals.count(Reason.BUG, request.code)
            return encode_response(refusal, request.opaque, request.serialization)

    def refuse(self, request: Request[Any], error: Exception) -> None:
        self.reply(request, self._refusal(request, error))

    def answer(self, request: Request[Any], *frame: Buffer, code: int = 0) -> None:
        if request.is_answered:
            self._drop_answer(request)
            return
        request.is_answered = 1
        if self._table.latency is not None:
            self._note_latency(request, 1, code)
        if not request.flag & FLAG_ONEWAY:
            self.write(*frame)

    def answer_run(self, requests: Sequence[Request[Any]], frames: bytes, code: int = 0) -> None:
        for request in requests:
            request.is_answered = 1
        if self._table.latency is not None and requests:
            self._note_latency(requests[0], len(requests), code)
        if frames:
            self.write(frames)

    def send_frames(
        self, request_code: int, count: int, frames: bytes, code: int, read_at: float, *, was_later: bool,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Send any responses as `answer_frames`."""
        latency = self._table.latency
        if latency is not None:
            latency.note(request_code, code, self._loop.time() - read_at, count, was_later, False)
        if was_later and not at_once:
            self.write(frames)
        elif not self.is_closed:
            self._out.append(frames)
            self._out_bytes += len(frames)
            if not self._reading:  # nothing else follows for this connection in this turn
                self._flush()

    def _note_latency(self, request: Request[Any], count: int, code: int) -> None:
        """Measure the latency of `count` responses; one of them is for `request`."""
        latency, later = self._table.latency, request.read_at
        assert latency is not None
        self._measured += count
        seconds = self._loop.time() - (later or self.read_at)
        latency.note(request.code, code, seconds, count, later > 0, request.flag & FLAG_ONEWAY != 0)

    def _note_unanswered(self, run: Sequence[Request[Any]]) -> None:
        """Keep the time of the read for requests that are answered later."""
        for request in run:
            if not request.is_answered:
                request.read_at = self.read_at

    def _drop_answer(self, request: Request[Any]) -> None:
        peer_lines.error(logger, self.peer, "event=second_answer_dropped code=%s peer=%s:%s", request.code, *self.peer)

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self.is_closed and self._transport is not None:
            self._table.settle()
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent output."""
        if not self.is_closed and self._transport is not None:
            self._counters.stalled += 1
            self._count_partial(0)
            self.unsent.looked_at(0)
            self.stalled_at = None
            peer_lines.warning(logger, self.peer, "event=channel_aborted peer=%s:%s reason=%s", *self.peer, reason)
            self._transport.abort()
