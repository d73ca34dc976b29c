"""CHANGE_MESSAGE_INVISIBLETIME: a new invisible time, and a new handle, for one popped message.

One append has a new checkpoint of this message, and then the acknowledgement under its old checkpoint; so the second
never exists without the first.
Source: RocketMQ 5.5.1, `ChangeInvisibleTimeProcessor`.
"""

import logging
from typing import Any, Final

from broker.ack.admission import AckAdmission
from broker.ack.ordered_acks import OrderedAcks
from broker.ack.planner import Why
from broker.core import BrokerCore
from broker.lite.acks import LiteAcks
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.pop_counters import PopCounters
from broker.pop.pop_writes import PendingWrites
from broker.pop.records import AckMsg, PopCheckPoint
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

_BEFORE_CHANGE: Final = failpoint("pop.before_change")
_CHANGED: Final = failpoint("pop.change_written")


class _Change:
    """One change: its response, and what to acknowledge in memory after the new checkpoint is written."""

    __slots__ = ("header", "is_in_log", "old", "old_record")

    def __init__(self, header: ChangeInvisibleTimeResponseHeader | None, *, is_in_log: bool) -> None:
        self.header = header
        self.is_in_log = is_in_log  # false for a message that was popped in order
        self.old: AckMsg | None = None
        self.old_record: PendingMessage | None = None


class InvisibleTimeProcessor:
    """Handler of changes of the invisible time.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        admission: AckAdmission,
        log: ReviveLog,
        buffer: MergeBuffer,
        ordered: OrderedAcks,
        counters: PopCounters,
        lite: LiteAcks,
    ) -> None:
        self._clock = core.clock
        self._admission = admission
        self._log = log
        self._buffer = buffer
        self._ordered = ordered
        self._counters = counters
        self._lite = lite
        self._writes = PendingWrites(core, log, self._answer)

    def change(self, run: list[Request[Any]]) -> None:
        """Process the changes of one read."""
        _BEFORE_CHANGE()
        self._writes.serve(run, self._records_of, 1)

    def _records_of(self, request: Request[ChangeInvisibleTimeRequestHeader]) -> tuple[list[PendingMessage], _Change]:
        header = request.header
        if header.lite_topic and not header.lite_topic.isspace():
            return [], _Change(self._lite.change(request), is_in_log=False)
        handle, plan = self._admission.admit(request)
        if plan.needs_handler is Why.ORDERED:
            return [], _Change(self._ordered.change(header, handle), is_in_log=False)
        self._admission.check_topic(header.topic, header.queue_id, header.offset, handle.pop_time_ms)
        queue_id = handle.revive_queue_id
        # The pop time identifies a checkpoint, so it must differ from the old one's, which is acknowledged.
        pop_time = max(self._clock.wall_ms(), handle.pop_time_ms + 1)
        again = PopCheckPoint(
            so=header.offset, pt=pop_time, it=header.invisible_time, n=1, q=header.queue_id,
            t=header.topic, c=header.consumer_group, d=[0], bn=handle.broker_name, sp=bool(header.suspend),
        )  # fmt: skip
        old = AckMsg(
            ao=header.offset, so=handle.first_offset, c=header.consumer_group, t=header.topic, q=header.queue_id,
            pt=handle.pop_time_ms, bn=handle.broker_name,
        )  # fmt: skip
        change = _Change(
            ChangeInvisibleTimeResponseHeader(
                pop_time=again.pt, invisible_time=header.invisible_time, revive_qid=queue_id
            ),
            is_in_log=True,
        )
        records = [self._log.checkpoint(again, queue_id)]
        ack_record = self._log.ack(old, queue_id, handle.pop_time_ms + handle.invisible_ms)
        if self._buffer.holds(old):
            # The old checkpoint is in memory and is acknowledged there when the new one is written.
            change.old, change.old_record = old, ack_record
        else:
            records.append(ack_record)
        return records, change

    def _answer(self, done: list[tuple[Request[Any], _Change]]) -> None:
        _CHANGED()
        for request, change in done:
            if change.old is not None and change.old_record is not None and not self._buffer.acknowledge(change.old):
                self._write_late(change.old_record)
            if change.is_in_log:
                header = request.header
                self._counters.checkpointed(header.topic, header.consumer_group)
                self._counters.acknowledged(header.topic, header.consumer_group, 1)
            request.channel.reply(request, Response(ResponseCode.SUCCESS, None, change.header))

    def _write_late(self, record: PendingMessage) -> None:
        """Write the acknowledgement of an old checkpoint that has left memory meanwhile."""
        try:
            self._log.append([record], 0)  # only on a master: a slave has no checkpoints in memory
        except StoreError as error:
            # The message is also redelivered at its old time.
            peer_lines.warning(logger, "", "event=old_handle_not_acknowledged reason=%r", str(error))
