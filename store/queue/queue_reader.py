"""Reads of a queue's messages.  Source: RocketMQ 5.3.3, `DefaultMessageStore.getMessage`, `isTheBatchFull`."""

import os
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sprocket.remoting.flow.joined_buffers import JOIN_BYTES
from store.config.store_config import StoreConfig
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.log.commit_log import CommitLog
from store.queue.cold_reads import ColdReads
from store.queue.consume_queue import BLANK_SIZE, ENTRY, UNIT, ConsumeQueue
from store.queue.gathered import gathered
from store.queue.get_result import GetResult, GetStatus
from store.queue.kept_values import KeptValues
from store.queue.logic_queue import LogicQueue
from store.queue.record_filter import RecordFilter, engine

# Returns for the tags codes (int64) of some entries which of them match.
TagsFilter: TypeAlias = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
MessageFilter: TypeAlias = TagsFilter | RecordFilter

_MIN_PULL_BYTES: Final = 100
_MAX_PULL_BYTES: Final = 128 * 1024 * 1024
_FAST_MAX_MESSAGES: Final = 1024
_FOUND: Final = GetStatus.FOUND


def physical_memory_bytes() -> int:
    """Return the physical memory of this machine, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class QueueReader:
    """Reader of messages from the mappings; it counts reads for the runtime figures."""

    def __init__(self, config: StoreConfig, log: CommitLog, memory_bytes: int) -> None:
        self._log = log
        self._memory_bytes = memory_bytes
        self.configure(config)
        self._values = KeptValues(log)
        self.cold = ColdReads(log, config.store_path_root_dir)
        self.found_times = 0
        self.missed_times = 0
        self.transferred_messages = 0

    def configure(self, config: StoreConfig) -> None:
        """Set the limits of a read."""
        self.memory_limit_bytes = self._memory_bytes * config.access_message_in_memory_max_ratio // 100
        self.max_scan_bytes = config.max_filter_message_size
        self.near = (
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_memory,
        )
        self._far = (
            config.max_transfer_count_on_message_in_disk,
            config.max_transfer_bytes_on_message_in_disk,
        )

    def found(self, reads: int, messages: int) -> None:
        """Count reads that found something, and their messages."""
        self.found_times += reads
        self.transferred_messages += messages

    def missed(self, reads: int) -> None:
        """Count reads that found nothing."""
        self.missed_times += reads

    def get(
        self, queue: LogicQueue, offset: int, max_messages: int, max_bytes: int, matches: MessageFilter | None
    ) -> GetResult:
        """Return messages from `offset` on, within one ConsumeQueue file and the configured limits.

        A damaged record ends the result.  Raises `CorruptRecord` if the first record is damaged.
        """
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if not min_offset <= offset < max_offset:
            self.missed_times += 1
            return _outside(offset, min_offset, max_offset, queue.reported_min_offset)
        if not isinstance(queue, ConsumeQueue):
            return self._get_units(queue, offset, max(1, max_messages), max_bytes, matches)
        found = queue.view_at(offset)
        if found is None:
            return self._no_file(queue, offset)
        available = found[2]
        if matches is not None:
            return self._get_matching(queue, offset, max_messages, max_bytes, matches, available)
        records = self._gathered(queue, offset, max_offset, found, max_messages, max_bytes)
        if records is not None:
            count, size_bytes, last, slices = records
            self.found_times += 1
            self.transferred_messages += count
            is_far = self._is_far(last)
            return GetResult(_FOUND, offset + count, min_offset, max_offset, slices, count, size_bytes, is_far)
        count = min(max(1, max_messages), available, max_offset - offset)
        entries, starts = queue.entries(offset, count), range(offset, offset + count)
        return self._collect(queue, starts, entries, offset + count, max_messages, max_bytes)

    def _gathered(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_offset: int,
        found: tuple[memoryview, int, int],
        max_messages: int,
        max_bytes: int,
    ) -> tuple[int, int, int, list[memoryview]] | None:
        """Return number, bytes, last physical offset and slices of the messages from `offset` on; `view_at` `found` it.

        The common case: all requested messages exist, are within the limits, and lie in one segment.  Else None.
        """
        view, position, available = found
        log = self._log
        first = ENTRY.unpack_from(view, position)[0]
        max_count, max_transfer_bytes = self._limits(first)
        count = min(max_messages, max_count, available, max_offset - offset, _FAST_MAX_MESSAGES)
        if count <= 0 or offset < queue.cold_end or first < self.cold.end_offset:
            return None
        segment, base, end = log.segment_at(first)
        records = gathered(
            view, position, count, segment, base, min(end, log.wrote_offset), min(max_bytes, max_transfer_bytes),
            JOIN_BYTES,
        )  # fmt: skip
        return None if records is None else (count, *records)

    def _no_file(self, queue: LogicQueue, offset: int) -> GetResult:
        """Return a result that skips a missing file within the bounds of the queue."""
        self.missed_times += 1
        next_offset = max(offset + 1, queue.first_offset)
        # RocketMQ treats it as a read at the log's first byte.
        return GetResult(
            GetStatus.OFFSET_FOUND_NULL, next_offset, queue.min_offset, queue.max_offset, [], 0, 0, self._is_far(0)
        )  # fmt: skip

    def _is_far(self, physical_offset: int) -> bool:
        """Return whether a record is further back than memory probably holds."""
        return self._log.wrote_offset - physical_offset > self.memory_limit_bytes

    def _limits(self, physical_offset: int) -> tuple[int, int]:
        """Return the maximum messages and bytes of a read that begins at `physical_offset`."""
        return self.near if self._log.wrote_offset - physical_offset <= self.memory_limit_bytes else self._far

    def _get_matching(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        matches: MessageFilter,
        available: int,
    ) -> GetResult:
        # RocketMQ goes entry by entry; here numpy selects the matching ones first.
        limit = max(1, max_messages)
        count = min(max(self.max_scan_bytes // UNIT, limit), available, queue.max_offset - offset)
        entries = queue.entries(offset, count)
        if isinstance(matches, RecordFilter):
            wanted, scanned = self._wanted(queue, offset, entries, matches, limit)
            found = self._copied(queue, offset, entries, wanted, scanned, max_bytes) if wanted else None
            if found is None:
                starts = [offset + number for number in wanted]
                found = self._collect(queue, starts, entries[wanted], offset + scanned, limit, max_bytes)
            return self._seen_to(found, offset, entries)
        chosen = np.flatnonzero(matches(entries["tags_code"].astype(np.int64)))
        # With too few matches, the next read begins after all searched entries; else after the last match.
        scanned = count if len(chosen) <= limit else int(chosen[limit])
        chosen = chosen[:limit]
        if len(chosen) and chosen[-1] - chosen[0] == len(chosen) - 1:
            found = self._neighbours(queue, offset + int(chosen[0]), len(chosen), offset + scanned, max_bytes)
            if found is not None:
                return self._seen_to(found, offset, entries)
        starts = (chosen + offset).tolist()
        result = self._collect(queue, starts, entries[chosen], offset + scanned, limit, max_bytes)
        return self._seen_to(result, offset, entries)

    def _neighbours(
        self, queue: ConsumeQueue, offset: int, count: int, next_offset: int, max_bytes: int
    ) -> GetResult | None:
        """Return the `count` messages from `offset` on, each of them wanted; None if `_collect` must read them."""
        found = queue.view_at(offset)
        records = found and self._gathered(queue, offset, offset + count, found, count, max_bytes)
        if not records or records[0] < count:
            return None
        _, size_bytes, last, slices = records
        return self._found(queue, next_offset, slices, count, size_bytes, last)

    def _copied(
        self,
        queue: LogicQueue,
        offset: int,
        entries: npt.NDArray[np.void],
        wanted: list[int],
        scanned: int,
        max_bytes: int,
    ) -> GetResult | None:
        """Return the records of the `wanted` entries, copied by the compiled engine.

        None if `_collect` must read them: they are in several segments, are checked at each read, or exceed a limit.
        """
        if engine is None or offset + wanted[0] < queue.cold_end:
            return None
        log, first = self._log, int(entries["physical_offset"][wanted[0]])
        max_count, max_transfer_bytes = self._limits(first)
        if first < self.cold.end_offset or len(wanted) > max_count:
            return None
        segment, base, end = log.segment_at(first)
        max_bytes = min(max_bytes, max_transfer_bytes, JOIN_BYTES)
        found = engine.gathered(entries, wanted, segment, base, min(end, log.wrote_offset), max_bytes)
        if found is None:
            return None
        size_bytes, last, copy = found
        return self._found(queue, offset + scanned, [memoryview(copy)], len(wanted), size_bytes, last)

    def _seen_to(self, result: GetResult, offset: int, entries: npt.NDArray[np.void]) -> GetResult:
        """Return `result`, which suggests a slave if the last searched of `entries` (from `offset` on) is far back."""
        seen = min(result.next_offset - offset, len(entries))
        if seen > 0:
            result.suggest_slave = self._is_far(int(entries["physical_offset"][seen - 1]))
        return result

    def _get_units(
        self, queue: LogicQueue, offset: int, max_messages: int, max_bytes: int, matches: MessageFilter | None
    ) -> GetResult:
        """Return records of a batch queue, from the record with the message at `offset` on."""
        span = max(self.max_scan_bytes // BATCH_CONSUME_QUEUE_UNIT_BYTES, max_messages)
        units = queue.entries(offset, span)
        if not len(units):
            return self._no_file(queue, offset)
        if isinstance(matches, RecordFilter):
            wanted, scanned = self._wanted(queue, offset, units, matches, max_messages)
            last, units = units[scanned - 1], units[wanted]
        else:
            last = units[-1]
            if matches is not None:
                units = units[matches(units["tags_code"].astype(np.int64))]
        next_offset = int(last["base_offset"]) + int(last["batch_size"])
        starts: list[int] = units["base_offset"].tolist()
        counts: list[int] = units["batch_size"].tolist()
        result = self._collect(queue, starts, units, next_offset, max_messages, max_bytes, counts)
        if result.status is GetStatus.NO_MATCHED_MESSAGE:
            result.suggest_slave = self._is_far(int(last["physical_offset"]))
        return result

    def _wanted(
        self, queue: LogicQueue, offset: int, entries: npt.NDArray[np.void], wants: RecordFilter, limit: int
    ) -> tuple[list[int], int]:
        """Return the numbers of up to `limit` `entries` with a wanted record, and the number of searched entries.

        `entries` begin at `offset`.  An entry whose record is gone is included, so that the result can say so.
        """
        entries = entries[: wants.max_records]
        if not len(entries):
            return [], 0
        limit = min(limit, self._limits(int(entries["physical_offset"][0]))[0])
        wanted: list[int] = []
        first = 0
        while first < len(entries):
            left = limit - len(wanted)
            if isinstance(queue, ConsumeQueue) and wants.chooser is not None:
                numbers, end = self._run_compiled(queue, offset, entries, first, wants, left)
            else:
                numbers, end = self._run_in_segment(entries, first, wants, left)
            wanted += [first + number for number in numbers]
            if len(wanted) >= limit:
                return wanted, wanted[-1] + 1
            first = end
        return wanted, len(entries)

    def _run_in_segment(
        self, entries: npt.NDArray[np.void], first: int, wants: RecordFilter, limit: int
    ) -> tuple[list[int], int]:
        """Return up to `limit` wanted entries from `first` on in one segment, and the first number not searched."""
        segment, positions, sizes = self._log.run_at(entries[first:])
        if not len(positions):
            # Its record is gone, or never existed.
            return ([] if entries["size"][first] == BLANK_SIZE else [0]), first + 1
        return wants.wanted(segment, positions, sizes, limit), first + len(positions)

    def _run_compiled(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: npt.NDArray[np.void],
        first: int,
        wants: RecordFilter,
        limit: int,
    ) -> tuple[list[int], int]:
        """Do `_run_in_segment` for entries that begin at `offset`, with the compiled engine and its kept values."""
        rest = entries[first:] if first else entries
        numbers, searched = self._values.chosen(queue, offset + first, rest, wants.chooser, limit)
        if not searched:
            return self._run_in_segment(entries, first, wants, limit)
        return numbers, first + searched

    def has_wanted(self, queue: LogicQueue, first_offset: int, end_offset: int, wants: RecordFilter) -> bool:
        """Return whether a message from `first_offset` to before `end_offset` is wanted, or there are too many."""
        count = end_offset - first_offset
        if count > wants.max_records:
            return True
        entries = queue.entries(first_offset, count)
        is_cut_short = isinstance(queue, ConsumeQueue) and len(entries) < count
        return is_cut_short or bool(self._wanted(queue, first_offset, entries, wants, 1)[0])

    def _collect(
        self,
        queue: LogicQueue,
        starts: Sequence[int],
        entries: npt.NDArray[np.void],
        next_offset: int,
        max_messages: int,
        max_bytes: int,
        counts: Sequence[int] | None = None,
    ) -> GetResult:
        """Collect the records of `entries` until a limit is reached.

        Entry i begins at queue offset ``starts[i]`` and holds ``counts[i]`` messages; without `counts`, one.  If all
        are collected, the next read begins at `next_offset`.
        """
        if counts is None:
            counts = [1] * len(entries)
        is_blank = entries["size"] == BLANK_SIZE
        if is_blank.any():
            # Blanks: messages that were never in this queue, or lost and repaired.
            kept: list[int] = np.flatnonzero(~is_blank).tolist()
            entries, starts, counts = entries[kept], [starts[k] for k in kept], [counts[k] for k in kept]
        physical_offsets: list[int] = entries["physical_offset"].tolist()
        sizes: list[int] = entries["size"].tolist()
        if not sizes:
            return self._answer(queue, next_offset, _Collected(self._log, max_bytes))
        max_count, max_transfer_bytes = self._limits(physical_offsets[0])
        max_messages = max(1, max_messages)
        if starts[0] < queue.cold_end or physical_offsets[0] < self.cold.end_offset:
            wanted = min(max_count, len(sizes))
            good = self.cold.good_prefix(queue, starts[:wanted], physical_offsets[:wanted], sizes[:wanted])
            if good < wanted:
                next_offset, counts = starts[good], counts[:good]
                physical_offsets, sizes = physical_offsets[:good], sizes[:good]
        count, size_bytes = sum(counts), sum(sizes)
        if count <= min(max_count, max_messages) and size_bytes <= min(max_bytes, max_transfer_bytes):
            slices = self._log.slices_of(physical_offsets, sizes)
            if slices is not None:
                return self._found(queue, next_offset, slices, count, size_bytes, physical_offsets[-1])
        collected = _Collected(self._log, max(max_bytes, _MIN_PULL_BYTES))
        for number, size in enumerate(sizes):
            is_enough = collected.count >= max_count or collected.count + counts[number] > max_messages
            if collected.count and (is_enough or collected.has_no_room(size, max_transfer_bytes)):
                next_offset = starts[number - 1] + counts[number - 1] if is_enough else starts[number]
                break
            collected.add(physical_offsets[number], size, counts[number])
        return self._answer(queue, next_offset, collected)

    def _found(
        self,
        queue: LogicQueue,
        next_offset: int,
        slices: list[memoryview],
        count: int,
        size_bytes: int,
        last_physical_offset: int,
    ) -> GetResult:
        self.found_times += 1
        self.transferred_messages += count
        is_far = self._is_far(last_physical_offset)
        return GetResult(
            _FOUND, next_offset, queue.min_offset, queue.max_offset, slices, count, size_bytes, is_far
        )  # fmt: skip

    def _answer(self, queue: LogicQueue, next_offset: int, collected: "_Collected") -> GetResult:
        if collected.count:
            return self._found(
                queue,
                next_offset,
                collected.slices(),
                collected.count,
                collected.size_bytes,
                collected.last_physical_offset,
            )
        self.missed_times += 1
        status = GetStatus.MESSAGE_WAS_REMOVING if collected.missing else GetStatus.NO_MATCHED_MESSAGE
        is_far = collected.missing and self._is_far(collected.last_physical_offset)
        return GetResult(status, next_offset, queue.min_offset, queue.max_offset, [], 0, 0, is_far)


class _Collected:
    """Records of one read; neighbours in the log are joined to one run."""

    def __init__(self, log: CommitLog, max_bytes: int) -> None:
        self._log = log
        self._max_bytes = max_bytes
        # (start, end) in the log.  Runs do not cross a segment's end, because a segment ends with a blank.
        self._runs: list[tuple[int, int]] = []
        self._skip_until = -1
        self.count = 0
        self.size_bytes = 0
        self.missing = False
        self.last_physical_offset = 0

    def has_no_room(self, size: int, max_bytes: int) -> bool:
        """Return whether a record of `size` bytes would exceed `max_bytes` or the reader's limit."""
        return self.size_bytes + size > min(max_bytes, self._max_bytes)

    def add(self, physical_offset: int, size: int, messages: int) -> None:
        """Add the record if the log has it, else note that it is gone."""
        self.last_physical_offset = physical_offset
        if physical_offset < self._skip_until:
            self.missing = True
            return
        if self._log.slice_at(physical_offset, size) is None:
            self.missing = True
            self._skip_until = self._log.segment_end(physical_offset)
            return
        self._skip_until = -1
        self.count += messages
        self.size_bytes += size
        if self._runs and self._runs[-1][1] == physical_offset:
            self._runs[-1] = (self._runs[-1][0], physical_offset + size)
        else:
            self._runs.append((physical_offset, physical_offset + size))

    def slices(self) -> list[memoryview]:
        """Return the runs as parts of the mapping."""
        pieces = (self._log.slice_at(start, end - start) for start, end in self._runs)
        return [piece for piece in pieces if piece is not None]


def _outside(offset: int, min_offset: int, max_offset: int, reported_min_offset: int) -> GetResult:
    """Return the result for an offset without a message in the queue."""
    if max_offset == 0:
        status, next_offset = GetStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < min_offset:
        status, next_offset = GetStatus.OFFSET_TOO_SMALL, min_offset
    elif offset == max_offset:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_ONE, offset
    else:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return GetResult(status, next_offset, reported_min_offset, max_offset, [], 0, 0, False)
