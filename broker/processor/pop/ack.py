"""ACK_MESSAGE and BATCH_ACK_MESSAGE: acknowledgement of popped messages.

Source: RocketMQ 5.3.3, `AckMessageProcessor`, `BatchAck`.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from broker.ack.ack_frames import ACK_WRITTEN, BEFORE_ACK, DONE, AckedPop, count_acknowledged
from broker.ack.admission import AckAdmission
from broker.ack.ordered_acks import OrderedAcks
from broker.ack.planner import AckKey, AckPlanner, Why
from broker.core import BrokerCore
from broker.lite.acks import LiteAcks
from broker.plan.table import Refused
from broker.pop.inflight import InflightMessages
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.pop_counters import PopCounters
from broker.pop.pop_writes import PendingWrites
from broker.pop.records import AckMsg, BatchAckMsg
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.pop import BatchAck
from sprocket.remoting.bodies.requests import read_batch_ack
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.message.pop_extra_info import real_topic
from sprocket.remoting.routes import NoHeader
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

# Max offsets that one pop spans (it returns 32 messages, but a filter skips messages between them), and max acks of it.
_MAX_SPAN: Final = 1 << 19
_MAX_ACKS: Final = 4096
# The same for all pops of one request: more would block the loop for too long.
_MAX_TOTAL_SPAN: Final = 1 << 22
_MAX_TOTAL_ACKS: Final = 1 << 16


class AckProcessor:
    """Handler of acknowledgements.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        planner: AckPlanner,
        admission: AckAdmission,
        log: ReviveLog,
        buffer: MergeBuffer,
        ordered: OrderedAcks,
        inflight: InflightMessages,
        counters: PopCounters,
        lite: LiteAcks,
    ) -> None:
        self._quotas = core.quotas
        self._planner = planner
        self._admission = admission
        self._log = log
        self._buffer = buffer
        self._ordered = ordered
        self._inflight = inflight
        self._counters = counters
        self._lite = lite
        self._writes = PendingWrites(core, log, self._answer)

    def acknowledge(self, run: list[Request[Any]]) -> None:
        """Process the ACK_MESSAGEs of one read."""
        self._serve(run, self._records_of_one)

    def acknowledge_batches(self, run: list[Request[Any]]) -> None:
        """Process the BATCH_ACK_MESSAGEs of one read."""
        self._serve(run, self._records_of_batch)

    def _serve(
        self, run: list[Request[Any]], records_of: Callable[[Request[Any], list[AckedPop]], list[PendingMessage]]
    ) -> None:
        BEFORE_ACK()
        done: list[AckedPop] = []
        try:
            self._writes.serve(run, lambda request: (records_of(request, done), None), 0)
        finally:
            count_acknowledged(done, self._inflight, self._counters)
            for _, group, _, _, count in done:
                self._quotas.note(run[0].channel, group, count)

    def _answer(self, done: list[tuple[Request[Any], None]]) -> None:
        ACK_WRITTEN()
        requests = [request for request, _ in done]
        frames = [DONE.frame(request.serialization, request.opaque, ()) for request in requests if request.wants_answer]
        requests[0].channel.answer_run(requests, b"".join(frames))

    def _records_of_one(self, request: Request[AckMessageRequestHeader], done: list[AckedPop]) -> list[PendingMessage]:
        header = request.header
        if header.lite_topic and not header.lite_topic.isspace():
            self._lite.acknowledge(request)
            return []
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.offset
        handle, plan = self._admission.admit(request)
        if plan.needs_handler is Why.ORDERED:
            peer = request.channel.peer
            self._ordered.acknowledge(topic, group, queue_id, offset, handle.pop_time_ms, handle.invisible_ms, peer)
            return []
        ack = AckMsg(
            ao=offset, so=handle.first_offset, c=group, t=topic, q=queue_id, pt=handle.pop_time_ms,
            bn=handle.broker_name,
        )  # fmt: skip
        return self._written(ack, 1, handle.revive_queue_id, handle.invisible_ms, done)

    def _written(
        self, ack: AckMsg, count: int, revive_queue_id: int, invisible_ms: int, done: list[AckedPop]
    ) -> list[PendingMessage]:
        """Return the records to write for an acknowledgement; none if its pop is in memory."""
        records = []
        if not self._buffer.acknowledge(ack):
            records.append(self._log.ack(ack, revive_queue_id, ack.pt + invisible_ms))
        done.append((ack.t, ack.c, ack.q, ack.pt, count))
        return records

    # Batches

    def _records_of_batch(self, request: Request[NoHeader], done: list[AckedPop]) -> list[PendingMessage]:
        body = read_batch_ack(request.body)
        if not body.acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "")
        peer = request.channel.peer
        _check_sizes(body.acks)
        known: list[BatchAck] = []
        unknown: list[BatchAck] = []
        for batch in body.acks:
            (known if self._has_queue(batch) else unknown).append(batch)
        if unknown:
            # One line for all: a request may name 1,000.
            first = unknown[0]
            peer_lines.warning(
                logger, peer, "event=batch_ack_unknown_queue queues=%d topic=%s group=%s queue=%d",
                len(unknown), real_topic(first.t, first.c, first.r), first.c, first.q,
            )  # fmt: skip
        return [record for batch in known for record in self._records_of(batch, body.broker_name, peer, done)]

    def _has_queue(self, batch: BatchAck) -> bool:
        return self._planner.refused_queue(real_topic(batch.t, batch.c, batch.r), batch.q) is None

    def _records_of(
        self, batch: BatchAck, broker_name: str | None, peer: tuple[str, int], done: list[AckedPop]
    ) -> list[PendingMessage]:
        topic, group, queue_id = real_topic(batch.t, batch.c, batch.r), batch.c, batch.q
        low, high = self._admission.bounds(topic, queue_id)
        offsets = [offset for offset in _offsets_of(batch) if low <= offset <= high]
        if not offsets:
            return []
        plan = self._planner.plan(AckKey(topic, group, queue_id, batch.rq, broker_name or ""))
        if isinstance(plan, Refused):
            raise plan.error(peer)
        if plan.needs_handler is Why.ORDERED:
            for offset in offsets:
                self._ordered.acknowledge(topic, group, queue_id, offset, batch.pt, batch.it, peer)
            return []
        ack = BatchAckMsg(ao=-1, so=batch.so, c=group, t=topic, q=queue_id, pt=batch.pt, bn=broker_name, aol=offsets)
        return self._written(ack, len(offsets), batch.rq, batch.it, done)


def _check_sizes(batches: list[BatchAck]) -> None:
    """Raise RequestError if there are more acknowledgements than pops can have."""
    spans = acks = 0
    for batch in batches:
        bits = batch.b.rstrip(b"\0")
        span, count = len(bits) * 8, int.from_bytes(bits, "little").bit_count()
        if span > _MAX_SPAN or count > _MAX_ACKS:
            remark = f"a batch acknowledges {count} messages over {span} offsets of one pop"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        spans, acks = spans + span, acks + count
    if spans > _MAX_TOTAL_SPAN or acks > _MAX_TOTAL_ACKS:
        remark = f"a request acknowledges {acks} messages over {spans} offsets of its pops"
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)


def _offsets_of(batch: BatchAck) -> Iterator[int]:
    """Iterate over the offsets that a batch acknowledges."""
    bits = batch.b.rstrip(b"\0")
    for index, byte in enumerate(bits):
        if byte:
            for bit in range(8):
                if byte >> bit & 1:
                    yield batch.so + index * 8 + bit
