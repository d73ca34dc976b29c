"""ACK_MESSAGE and BATCH_ACK_MESSAGE: acknowledgement of popped messages.

Source: RocketMQ 5.3.3, `AckMessageProcessor`, `BatchAck`.
"""

import logging
from collections.abc import Iterator
from typing import Any, Final

from broker.ack.ordered_acks import OrderedAcks
from broker.core import BrokerCore
from broker.pop.ack_lanes import ACK_WRITTEN, BEFORE_ACK, DONE, AckLane, AckLanes, parts_of
from broker.pop.inflight import InflightMessages
from broker.pop.merge_buffer import MergeBuffer
from broker.pop.pop_checks import PopChecks
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
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE, parse_handle, real_topic
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
        checks: PopChecks,
        log: ReviveLog,
        buffer: MergeBuffer,
        ordered: OrderedAcks,
        lanes: AckLanes,
        inflight: InflightMessages,
        counters: PopCounters,
    ) -> None:
        self._clock = core.clock
        self._store = core.store
        self._topics = core.topics
        self._checks = checks
        self._log = log
        self._buffer = buffer
        self._ordered = ordered
        self._inflight = inflight
        self._counters = counters
        self._lanes = lanes
        self._writes = PendingWrites(core, log, self._answer)

    def acknowledge(self, run: list[Request[Any]]) -> None:
        """Process the ACK_MESSAGEs of one read."""
        BEFORE_ACK()
        lanes: dict[tuple[str, str, int, str], AckLane | None] = {}
        born_ms, store_host = self._clock.wall_ms(), self._store.store_host

        def records_of(request: Request[AckMessageRequestHeader]) -> tuple[list[PendingMessage], None]:
            header = request.header
            common, is_usual = parts_of(header.extra_info)
            key = header.topic, header.consumer_group, header.queue_id, common
            if is_usual and key not in lanes:
                lanes[key] = self._lanes.lane(*key, request.channel.peer)
            lane, offset = lanes.get(key), header.offset
            if lane is None or not is_usual or not lane.low <= offset <= lane.high:
                return self._records_of_one(request)
            lane.acknowledged += 1
            if lane.in_memory is not None and self._lanes.is_in_memory(lane, offset):
                return [], None
            lane.written += 1
            return [lane.form.record(offset, born_ms, store_host)], None

        try:
            self._writes.serve(run, records_of, 0)
        finally:
            for lane in lanes.values():
                if lane is not None:
                    self._lanes.count(lane)

    def acknowledge_batches(self, run: list[Request[Any]]) -> None:
        """Process the BATCH_ACK_MESSAGEs of one read."""
        BEFORE_ACK()
        self._writes.serve(run, self._records_of_batch, 0)

    def _answer(self, done: list[tuple[Request[Any], None]]) -> None:
        ACK_WRITTEN()
        requests = [request for request, _ in done]
        frames = [DONE.frame(request.serialization, request.opaque, ()) for request in requests if request.wants_answer]
        requests[0].channel.answer_run(requests, b"".join(frames))

    def _records_of_one(self, request: Request[AckMessageRequestHeader]) -> tuple[list[PendingMessage], None]:
        header, peer = request.header, request.channel.peer
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.offset
        self._checks.popped(header, peer)
        handle = parse_handle(header.extra_info)
        if handle.is_ordered:
            self._ordered.acknowledge(topic, group, queue_id, offset, handle.pop_time_ms, handle.invisible_ms, peer)
            return [], None
        ack = AckMsg(
            ao=offset, so=handle.first_offset, c=group, t=topic, q=queue_id, pt=handle.pop_time_ms,
            bn=handle.broker_name,
        )  # fmt: skip
        return self._written(ack, 1, handle.revive_queue_id, handle.invisible_ms), None

    def _written(self, ack: AckMsg, count: int, revive_queue_id: int, invisible_ms: int) -> list[PendingMessage]:
        """Return the records to write for an acknowledgement; none if its pop is in memory."""
        self._checks.revive_queue(revive_queue_id)
        records = []
        if not self._buffer.acknowledge(ack):
            records.append(self._log.ack(ack, revive_queue_id, ack.pt + invisible_ms))
        self._inflight.done(ack.t, ack.c, ack.q, ack.pt, count)
        self._counters.acknowledged(ack.t, ack.c, count)
        return records

    # Batches

    def _records_of_batch(self, request: Request[NoHeader]) -> tuple[list[PendingMessage], None]:
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
        return [record for batch in known for record in self._records_of(batch, body.broker_name, peer)], None

    def _has_queue(self, batch: BatchAck) -> bool:
        config = self._topics.get(real_topic(batch.t, batch.c, batch.r))
        return config is not None and 0 <= batch.q < config.read_queue_nums

    def _records_of(self, batch: BatchAck, broker_name: str | None, peer: tuple[str, int]) -> list[PendingMessage]:
        topic, group, queue_id = real_topic(batch.t, batch.c, batch.r), batch.c, batch.q
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        offsets = [offset for offset in _offsets_of(batch) if low <= offset <= high]
        if batch.rq == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ordered.acknowledge(topic, group, queue_id, offset, batch.pt, batch.it, peer)
            return []
        if not offsets:
            return []
        ack = BatchAckMsg(ao=-1, so=batch.so, c=group, t=topic, q=queue_id, pt=batch.pt, bn=broker_name, aol=offsets)
        return self._written(ack, len(offsets), batch.rq, batch.it)


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
