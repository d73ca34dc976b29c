"""Ends of a read that the kernel serves: one call reads them, one makes their records, one their responses.

It takes all ends of a run or none.  `TransactionProcessor.end` is the handler, which serves all others, and with pure
Python every one: it is the specification of the kernel.  See docs/engine-requests.md.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.plan.table import PlanTable, Refused
from broker.transaction.half_message import QUEUE_ID
from broker.transaction.planner import EndKey, EndPlan, EndPlanner
from broker.transaction.transactions import Transactions
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.engine import header_fields
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import Frames
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from sprocket.remoting.routes import AdmittedFrame, CodeFrames, FramesChannel, FramesHandler, Route, RouteTable
from store.record.record import topic_field

try:
    from broker.transaction import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]
if TYPE_CHECKING:
    from broker.transaction.kernel_native import EndKernel, Ends

logger = logging.getLogger(__name__)

DONE: Final = ResponseTemplate(ResponseCode.SUCCESS, ())
_HALF_TOPIC: Final = topic_field(TRANS_HALF_TOPIC)[1]
# As many as a batch handler gets at once: the ends of a run share their op messages.
_MAX_ENDS: Final = 1024
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_is_native = native("broker.transaction.kernel_native") is not None

# Responds to ends of one connection that failed with one error.
Refuse = Callable[[Sequence[Request[Any]], Exception], None]


class EndFrames:
    """Handler of the ends of `route` that the kernel serves.  Lives in the event loop's thread."""

    def __init__(
        self, transactions: Transactions, waits: ConfirmWaits, route: Route, kernel: "EndKernel", refuse: Refuse
    ) -> None:
        self._transactions = transactions
        self._store = transactions.store
        self._waits = waits
        self._refuse = refuse
        self._code = int(route.code)
        self._kernel = kernel
        # Decodes the ends of a failed append, so that each gets its refusal.
        self._table = RouteTable([route])

    @classmethod
    def of(
        cls, transactions: Transactions, planner: EndPlanner, waits: ConfirmWaits, route: Route, refuse: Refuse
    ) -> FramesHandler | None:
        """Return the handler; None with pure Python."""
        code, reads = int(route.code), transactions.store.kernel_reads
        fields = header_fields(code, route.header, kernel_native) if _is_native else None
        if fields is None or DONE.encoder is None:
            return None

        def plan_of(outcome: int, topic: str, queue_id: int) -> EndPlan | Refused:
            return planner.plan(EndKey(outcome, topic, queue_id))

        kernel = kernel_native.EndKernel(code, fields, DONE.encoder, plan_of, PlanTable(planner.version), reads)
        return CodeFrames(code, cls(transactions, waits, route, kernel, refuse).serve)

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel) -> int:
        """Serve the run of ends from `index` on; return how many, 0 if the handler must serve them."""
        try:
            ends = self._ends_of(frames, index)
        except RequestError:
            return 0  # the handler refuses those that may not publish
        except Exception:
            # Nothing is stored: the handler serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=end_kernel_failed peer=%s:%s", *channel.peer, exc_info=True)
            ends = None
        if ends is None:
            return 0
        count, read_at = len(ends), channel.read_at
        try:
            end_offset = self._transactions.end_moved(ends)
        except RequestError:
            return 0  # the handler finds the message that is refused
        except Exception as error:
            self._refuse(self._table.requests_of(frames[index : index + count], channel, 0.0), error)
            return count
        if end_offset is None:
            return 0
        if ends.waiting():
            if self._waits.is_needed:
                self._waits.wait(end_offset, partial(self._stored, ends, frames, index, channel, read_at))
            else:
                self._answer(ends, channel, read_at, was_later=False)
        return count

    def _ends_of(self, frames: Frames, index: int) -> "Ends | None":
        """Return the run of ends from `index` on; None if one of them is for the handler."""
        moves = self._transactions.new_moves()
        store, opened = self._store, self._transactions.open
        queue = store.kernel_reads.queue(TRANS_HALF_TOPIC, QUEUE_ID)
        if moves is None or queue is None:
            return None
        log_end = min(store.wrote_offset, store.confirm_offset)
        ends = self._kernel.read(
            frames, index, _MAX_ENDS, moves, queue, log_end, _HALF_TOPIC, opened.half_offset, opened.done
        )  # fmt: skip
        if ends is not None and isinstance(frames[index], AdmittedFrame):
            self._check_access(frames[index : index + len(ends)], ends.topics())
        return ends

    def _check_access(self, run: Frames, topics: Sequence[str]) -> None:
        """Raise RequestError unless the senders may publish to the real topics, which no header tells."""
        for frame, topic in zip(run, topics, strict=True):
            decoded = frame.decoded if isinstance(frame, AdmittedFrame) else None
            if not isinstance(decoded, tuple):
                raise RequestError(ResponseCode.NO_PERMISSION, "the frame has not passed access control")
            require_topic(decoded[1], topic, AuthAction.PUB)

    def _answer(self, ends: "Ends", channel: FramesChannel, read_at: float, *, was_later: bool) -> None:
        frames = ends.responses()
        channel.answer_frames(self._code, ends.waiting(), frames, _SUCCESS, read_at, was_later=was_later)

    def _stored(
        self,
        ends: "Ends",
        frames: Frames,
        index: int,
        channel: FramesChannel,
        read_at: float,
        error: StoreError | None,
        code: ResponseCode,
    ) -> None:
        # With any code the ends are stored, and a retry would be refused.
        if error is None:
            self._answer(ends, channel, read_at, was_later=True)
        else:
            requests = self._table.requests_of(frames[index : index + len(ends)], channel, read_at)
            self._refuse([one for one in requests if one.wants_answer], error)
