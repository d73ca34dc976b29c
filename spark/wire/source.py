"""Queues of brokers that a query reads over the wire, without access to their store directories.

Of static topics these are the physical queues, as in store directories: requests have ``lo=false``.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.decode.decoder import CHUNK_ROWS, DecodeOptions
from spark.files.segment import Positions
from spark.queues.data_loss import LostRange
from spark.queues.entries import OnLoss
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange, QueueSelection
from spark.queues.source import Snapshot
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from spark.wire.cluster import WireCluster, WireSettings
from spark.wire.connection import Asked
from spark.wire.pull import Pulled, Puller, Subscription
from spark.wire.records import PulledChunk, PulledSegment
from sprocket.client.errors import BrokerRefused, ClientError, TopicNotFound
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.message.topic_names import LIGHT_PREFIX

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 8 * 1024 * 1024
_QUEUES_AT_ONCE: Final = 64


@dataclass
class WireQueues:
    """Queues that `selection` selects, on every broker that the name servers know."""

    settings: WireSettings
    selection: QueueSelection
    subscription: Subscription
    _cluster: WireCluster = field(init=False)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._cluster = WireCluster(self.settings)

    def snapshot(self, strict: bool = True) -> Snapshot:
        """Return what is readable now.  Without `strict`, a broker without a responding member is left out.

        Raises NameServerUnreachable, TopicNotFound, BrokerRefused, and with `strict` ConnectFailed,
        ConnectionLost, RemotingTimeout or ServerBusy.
        """
        before = self._cluster.broker_names()
        routed: list[QueueId] = []
        closed: list[QueueId] = []
        for topic in self._topics():
            for queue, can_be_read in self._queues(topic):
                (routed if can_be_read else closed).append(queue)
        # A broker that stops or starts meanwhile has no routes, and its queues would look deleted.
        names = [name for name in self._cluster.broker_names() if name in before]
        queues: dict[str, list[QueueId]] = {}
        for queue in routed:
            if queue.broker_name in names:
                queues.setdefault(queue.broker_name, []).append(queue)
        ranges: dict[QueueId, tuple[int, int]] = {}
        behind: set[QueueId] = set()
        for broker_name, wanted in sorted(queues.items()):
            try:
                self._ask_bounds(broker_name, wanted, None if strict else 0, ranges, behind)
            except BrokerRefused:
                raise
            except ClientError as error:
                if strict:
                    raise
                logger.warning("event=broker_away broker=%s reason=%r", broker_name, str(error))
                names.remove(broker_name)
                ranges = {queue: bounds for queue, bounds in ranges.items() if queue.broker_name != broker_name}
        return Snapshot(tuple(names), dict(sorted(ranges.items())), frozenset(behind), frozenset(closed))

    def at_time(self, queue: QueueId, milliseconds: int, step_back_ms: int, *, is_end: bool = False) -> int:
        """Return the offset that the broker finds, which assumes that store timestamps never step back."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=max(0, milliseconds), boundary_type="LOWER", lo=False
        )
        answer = self._cluster.told(queue.broker_name, [(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)])[0]
        return max(0, answer.response.header(SearchOffsetResponseHeader).offset)

    def tasks(self, packs: Sequence[Sequence[QueueRange]]) -> "list[WireTask]":
        return [WireTask(self.settings, self.subscription, ranges) for ranges in packs]

    def close(self) -> None:
        self._cluster.close()

    def _topics(self) -> list[str]:
        named = self.selection.named_topics
        if named is not None:
            return sorted(named)
        return [topic for topic in self._cluster.topics() if self.selection.wants_topic(topic)]

    def _queues(self, topic: str) -> Iterator[tuple[QueueId, bool]]:
        """Yield the wanted queues of `topic`, and whether their broker permits reads."""
        route = self._cluster.route(topic)
        if route is None:
            if self.selection.named_topics is not None and topic not in self._seen:
                raise TopicNotFound(topic, ";".join(self.settings.name_servers))
            return
        self._seen.add(topic)
        for data in route.queue_datas:
            queues = (QueueId(data.broker_name, topic, number) for number in range(data.read_queue_nums))
            for queue in filter(self.selection.wants, queues):
                yield queue, bool(data.perm & PERM_READ)

    def _ask_bounds(
        self,
        broker_name: str,
        queues: Sequence[QueueId],
        retries: int | None,
        ranges: dict[QueueId, tuple[int, int]],
        behind: set[QueueId],
    ) -> None:
        for first in range(0, len(queues), _QUEUES_AT_ONCE):
            some = queues[first : first + _QUEUES_AT_ONCE]
            requests: list[Asked] = []
            for queue in some:
                topic, number = queue.topic, queue.queue_id
                least = GetMinOffsetRequestHeader(topic=topic, queue_id=number, lo=False)
                most = GetMaxOffsetRequestHeader(topic=topic, queue_id=number, lo=False)
                requests += [(RequestCode.GET_MIN_OFFSET, least), (RequestCode.GET_MAX_OFFSET, most)]
            answers = self._cluster.told(broker_name, requests, retries)
            for queue, first_at, last_at in zip(some, answers[::2], answers[1::2], strict=True):
                begin = max(0, first_at.response.header(GetMinOffsetResponseHeader).offset)
                end = max(0, last_at.response.header(GetMaxOffsetResponseHeader).offset)
                ranges[queue] = (min(begin, end), end)
                if last_at.broker_id != MASTER_ID:
                    behind.add(queue)


@dataclass(frozen=True)
class WireTask:
    """Ranges of queues for one task, which pulls them from their brokers."""

    settings: WireSettings
    subscription: Subscription
    ranges: Sequence[QueueRange]

    def read(self, columns: Sequence[str], rows: RowFilter, decode: DecodeOptions, on_loss: OnLoss) -> Iterator[Rows]:
        cluster = WireCluster(self.settings)
        try:
            for broker_name, group in groupby(self.ranges, key=lambda each: each.queue.broker_name):
                options = replace(decode, broker_name=broker_name)
                puller = Puller(cluster, self.subscription, on_loss)
                for pulled in _together(puller.pull(broker_name, list(group))):
                    yield from self._rows(pulled, columns, rows, options, on_loss)
        finally:
            cluster.close()

    def _rows(
        self, pulled: list[Pulled], columns: Sequence[str], rows: RowFilter, options: DecodeOptions, on_loss: OnLoss
    ) -> Iterator[Rows]:
        segment = PulledSegment(pulled[0].address, [each.body for each in pulled])
        positions, begins, ends = self._wanted(segment, pulled, on_loss)
        tags = self.subscription.tags
        for at in range(0, positions.size, CHUNK_ROWS):
            some = slice(at, at + CHUNK_ROWS)
            chunk = PulledChunk(segment, positions[some], options)
            if segment.has_batches:  # a broker returns whole records, even if a pull begins inside one
                record = np.searchsorted(positions[some], chunk.positions)
                offsets = chunk.queue_offsets().to_numpy()
                chunk.filter((offsets >= begins[some][record]) & (offsets < ends[some][record]))
            if tags is not None:
                wanted = pc.is_in(chunk.column("tags"), value_set=pa.array(sorted(tags), pa.string()))
                chunk.filter(pc.fill_null(wanted, False).to_numpy(zero_copy_only=False))
            yield from chunk_rows(chunk, columns, rows, options)

    def _wanted(
        self, segment: PulledSegment, pulled: Sequence[Pulled], on_loss: OnLoss
    ) -> tuple[Positions, Positions, Positions]:
        """Return the positions of the records within the ranges, and the wanted queue offsets [begin, end) of each.

        Missing offsets are reported as lost.
        """
        ends = np.cumsum([len(each.body) for each in pulled])
        bounds = np.searchsorted(segment.positions, np.concatenate([[0], ends]))
        keep = np.ones(segment.positions.size, np.bool_)
        begins = np.zeros(segment.positions.size, np.int64)
        pasts = np.full(segment.positions.size, np.iinfo(np.int64).max)
        for each, first, past in zip(pulled, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if each.queue.topic.startswith(LIGHT_PREFIX):
                continue  # its records have the offsets of the queue that they were sent to
            offsets = segment.queue_offsets[first:past]
            begins[first:past], pasts[first:past] = each.begin, each.past
            if segment.has_batches:
                continue  # records may begin earlier, and unused offsets are no loss
            keep[first:past] = (offsets >= each.begin) & (offsets < each.past)
            if self.subscription.takes_all and keep[first:past].sum() != each.past - each.begin:
                on_loss(_gaps(each, offsets[keep[first:past]].tolist()))
        return segment.positions[keep], begins[keep], pasts[keep]


def _gaps(pulled: Pulled, offsets: Sequence[int]) -> list[LostRange]:
    """Return the ranges of [begin, past) that are not in `offsets`."""
    lost = []
    at = pulled.begin
    for offset in [*offsets, pulled.past]:
        if offset > at:
            lost.append(LostRange(pulled.queue, at, offset))
        at = offset + 1
    return lost


def _together(answers: Iterator[Pulled]) -> Iterator[list[Pulled]]:
    """Yield responses grouped to about one chunk, those of one queue next to each other."""
    held: list[Pulled] = []
    size = messages = 0
    for answer in answers:
        held.append(answer)
        size += len(answer.body)
        messages += answer.past - answer.begin
        if size >= _CHUNK_BYTES or messages >= CHUNK_ROWS:
            yield sorted(held, key=lambda each: (each.queue, each.begin))
            held, size, messages = [], 0, 0
    if held:
        yield sorted(held, key=lambda each: (each.queue, each.begin))
