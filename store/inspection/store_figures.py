"""Figures of a store: topics, queues, bytes, ages, and numbers of distinct keys and tags."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import KEYS, encoded_name, find_last
from store.inspection.file_sequence import FileSequence
from store.inspection.log_inspection import Gap, LogInspection, Progress
from store.record.record import TagsCodes
from store.scan.columns import Integers
from store.scan.engine import tags_codes_of
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps

_KEYS: Final = encoded_name(KEYS)
_QUEUE_BITS: Final = 32
# Up to this many distinct values are counted exactly; above it the number is estimated.
_EXACT: Final = 1 << 15
# Values are gathered before they are counted: sorting many at once is cheaper.
_PENDING: Final = 1 << 14
Hashes = npt.NDArray[np.uint64]
_REGISTER_BITS: Final = 12
_REGISTERS: Final = 1 << _REGISTER_BITS


class Cardinality:
    """Number of distinct 64-bit hashes: exact up to 32,768, then by HyperLogLog within about 2 %."""

    def __init__(self) -> None:
        self._seen = np.empty(0, np.uint64)
        self._registers = np.zeros(_REGISTERS, np.uint8)
        self._pending: list[Hashes] = []
        self._pending_count = 0
        self.is_estimated = False

    def add(self, hashes: Hashes) -> None:
        """Add hashes of values."""
        self._pending.append(hashes)
        self._pending_count += hashes.size
        if self._pending_count >= _PENDING:
            self._take()

    def _take(self) -> None:
        if not self._pending_count:
            return
        hashes = np.unique(np.concatenate(self._pending))
        self._pending.clear()
        self._pending_count = 0
        if not self.is_estimated:
            self._seen = np.union1d(self._seen, hashes)
            if self._seen.size > _EXACT:
                self.is_estimated = True
                hashes, self._seen = self._seen, np.empty(0, np.uint64)
        if self.is_estimated:
            mixed = _mixed(hashes)
            rest = (mixed << np.uint64(_REGISTER_BITS)) | np.uint64(1 << (_REGISTER_BITS - 1))
            # The rank is one more than the number of leading zeros.
            zeros = 63 - np.floor(np.log2(rest.astype(np.float64))).astype(np.int64)
            ranks = np.minimum(zeros + 1, 64 - _REGISTER_BITS + 1).astype(np.uint8)
            np.maximum.at(self._registers, (mixed >> np.uint64(64 - _REGISTER_BITS)).astype(np.int64), ranks)

    @property
    def count(self) -> int:
        """Return the number of distinct hashes."""
        self._take()
        if not self.is_estimated:
            return int(self._seen.size)
        alpha = 0.7213 / (1 + 1.079 / _REGISTERS)
        return round(alpha * _REGISTERS**2 / float(np.sum(np.exp2(-self._registers.astype(np.float64)))))


def _mixed(values: Hashes) -> Hashes:
    """Apply splitmix64's finalizer: close values become distant ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return values ^ (values >> np.uint64(31))


@dataclass
class QueueFigures:
    """Figures of one queue; times are store timestamps, ms."""

    messages: int = 0
    size_bytes: int = 0
    first_time: int = 1 << 62
    last_time: int = 0

    def add(self, messages: int, size_bytes: int, first_time: int, last_time: int) -> None:
        """Add messages, their bytes, and their first and last store timestamp."""
        self.messages += messages
        self.size_bytes += size_bytes
        self.first_time = min(self.first_time, first_time)
        self.last_time = max(self.last_time, last_time)


@dataclass
class TopicFigures:
    """Figures of one topic: its queues, and its distinct keys and tags."""

    queues: dict[int, QueueFigures] = field(default_factory=dict)
    keys: Cardinality = field(default_factory=Cardinality)
    tags: Cardinality = field(default_factory=Cardinality)

    @property
    def total(self) -> QueueFigures:
        """Return the sum over all queues."""
        total = QueueFigures()
        for queue in self.queues.values():
            total.add(queue.messages, queue.size_bytes, queue.first_time, queue.last_time)
        return total


class StoreFigures:
    """Figures of one store; `hidden` are records that no consumer sees (transactions not committed)."""

    def __init__(self, log: FileSequence, delay_levels: str) -> None:
        self.log = log
        self.topics: dict[str, TopicFigures] = {}
        self.records = self.hidden = self.damaged_bytes = 0
        self.end_offset = log.first_offset
        self._tags_codes = TagsCodes(delay_levels)

    def run(self, stop: int | None = None, progress: Progress = lambda size_bytes: None) -> "StoreFigures":
        """Walk the log.  Return self."""
        walk = LogInspection(self.log, None, stop, check_crc=False, progress=progress)
        for found in walk:
            if isinstance(found, Gap):
                self.damaged_bytes += found.end - found.start
            else:
                self._add_batch(found)
        self.end_offset = walk.end_offset
        return self

    def _topic(self, name: str) -> TopicFigures:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicFigures()
        return topic

    def _add_batch(self, batch: RecordBatch) -> None:
        self.records += len(batch)
        chosen = np.flatnonzero(batch.in_consume_queue)
        self.hidden += len(batch) - chosen.size
        times, codes = store_timestamps(batch), tags_codes_of(batch, self._tags_codes)
        keys = batch.topic_index[chosen] << _QUEUE_BITS | batch.queue_ids[chosen].astype(np.int64)
        for key, records in _grouped(keys, chosen):
            topic = self._topic(batch.topics[key >> _QUEUE_BITS])
            queue = topic.queues.setdefault(key & ((1 << _QUEUE_BITS) - 1), QueueFigures())
            when = times[records]
            queue.add(records.size, int(batch.sizes[records].sum()), int(when.min()), int(when.max()))
        for number, records in _grouped(batch.topic_index[chosen], chosen):
            topic = self._topic(batch.topics[number])
            tags = codes[records]
            topic.tags.add(tags[tags != 0].view(np.uint64))
            topic.keys.add(_hashes(list(_keys(batch, records))))


def _grouped(keys: Integers, records: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield each distinct key, and the records that have it."""
    order = np.argsort(keys, kind="stable")
    values, begins = np.unique(keys[order], return_index=True)
    yield from zip(values.tolist(), np.split(records[order], begins[1:]), strict=True)


def _keys(batch: RecordBatch, records: Integers) -> Iterator[bytes]:
    for record in records.tolist():
        value = find_last(batch.properties(record), _KEYS)
        if value:
            yield from value.split()


def _hashes(keys: list[bytes]) -> Hashes:
    """Return 64 bits for each key: Python's own hash, valid within one run of the program."""
    return np.array([hash(key) for key in keys], np.int64).view(np.uint64)
