"""Reads of a queue's messages.  Source: RocketMQ 5.3.3, `DefaultMessageStore.getMessage`, `isTheBatchFull`."""

import os
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from store.config.store_config import StoreConfig
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.log.commit_log import CommitLog
from store.queue.cold_reads import ColdReads
from store.queue.consume_queue import BLANK_SIZE, UNIT, ConsumeQueue
from store.queue.get_result import GetResult, GetStatus
from store.queue.kept_values import KeptValues
from store.queue.logic_queue import LogicQueue
from store.queue.record_filter import RecordFilter

# Returns for the tags codes (int64) of some entries which of them match.
TagsFilter: TypeAlias = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
MessageFilter: TypeAlias = TagsFilter | RecordFilter

_MIN_PULL_BYTES: Final = 100
# Max entries that one read looks at.
_MAX_ENTRIES: Final = 1024
_EMPTY: Final = memoryview(b"")
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
        count = min(max(1, max_messages), _MAX_ENTRIES, available, max_offset - offset)
        entries, starts = queue.entries(offset, count), range(offset, offset + count)
        return self._collect(queue, starts, entries, offset + count, max_messages, max_bytes)

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
            starts = [offset + number for number in wanted]
            result = self._collect(queue, starts, entries[wanted], offset + scanned, limit, max_bytes)
            return self._seen_to(result, offset, entries)
        chosen = np.flatnonzero(matches(entries["tags_code"].astype(np.int64)))
        # With too few matches, the next read begins after all searched entries; else after the last match.
        scanned = count if len(chosen) <= limit else int(chosen[limit])
        chosen = chosen[:limit]
        starts = (chosen + offset).tolist()
        result = self._collect(queue, starts, entries[chosen], offset + scanned, limit, max_bytes)
        return self._seen_to(result, offset, entries)

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
        """Return the records of `entries` up to a limit, without those that the log no longer has.

        Entry i begins at queue offset ``starts[i]`` and holds ``counts[i]`` messages; without `counts`, one.  If all
        are taken, the next read begins at `next_offset`.
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
        taken = _Taken()
        if sizes:
            max_count, max_transfer_bytes = self._limits(physical_offsets[0])
            if starts[0] < queue.cold_end or physical_offsets[0] < self.cold.end_offset:
                wanted = min(max_count, len(sizes))
                good = self.cold.good_prefix(queue, starts[:wanted], physical_offsets[:wanted], sizes[:wanted])
                if good < wanted:
                    next_offset, sizes = starts[good], sizes[:good]
            limits = max_count, max(1, max_messages), min(max(max_bytes, _MIN_PULL_BYTES), max_transfer_bytes)
            stop, is_enough = taken.take(self._log, physical_offsets, sizes, counts, *limits)
            if stop < len(sizes):
                next_offset = starts[stop - 1] + counts[stop - 1] if is_enough else starts[stop]
        if taken.count:
            self.found(1, taken.count)
            status = _FOUND
        else:
            self.missed(1)
            status = GetStatus.MESSAGE_WAS_REMOVING if taken.is_missing else GetStatus.NO_MATCHED_MESSAGE
        is_far = (taken.count > 0 or taken.is_missing) and self._is_far(taken.last_offset)
        return GetResult(
            status, next_offset, queue.min_offset, queue.max_offset, taken.slices, taken.count, taken.size_bytes, is_far
        )  # fmt: skip


class _Taken:
    """Records of one read, as slices of the log's mapping: neighbours in the log are one slice."""

    __slots__ = ("count", "is_missing", "last_offset", "size_bytes", "slices")

    def __init__(self) -> None:
        self.slices: list[memoryview] = []
        self.count = 0
        self.size_bytes = 0
        # Whether the log no longer has one of the records.
        self.is_missing = False
        # Physical offset of the last record, whether the log has it or not.
        self.last_offset = 0

    def take(
        self, log: CommitLog, offsets: Sequence[int], sizes: Sequence[int], counts: Sequence[int],
        max_count: int, max_messages: int, max_bytes: int,
    ) -> tuple[int, bool]:  # fmt: skip
        """Take records up to a limit.  Return the number of the next one, and whether there are enough messages."""
        segment, base, end = _EMPTY, 0, 0
        # Neighbours that are no slice yet, and where the part of the log ends that is gone.
        run_at = run_end = gone_end = count = size_bytes = 0
        stop, is_enough = len(sizes), False
        for number, size in enumerate(sizes):
            is_enough = count >= max_count or count + counts[number] > max_messages
            if count and (is_enough or size_bytes + size > max_bytes):
                stop = number
                break
            offset = self.last_offset = offsets[number]
            if offset < gone_end:
                self.is_missing = True
                continue
            if offset != run_end or offset + size > end:
                if run_at < run_end:
                    self.slices.append(segment[run_at - base : run_end - base])
                if not base <= offset < end:
                    segment, base, end = log.segment_at(offset)
                    end = min(end, log.wrote_offset)
                run_at = run_end = offset
                if size <= 0 or not base <= offset <= end - size:
                    # With this record, the rest of its segment is gone.
                    self.is_missing, gone_end = True, log.segment_end(offset)
                    continue
            gone_end = 0
            run_end += size
            count += counts[number]
            size_bytes += size
        if run_at < run_end:
            self.slices.append(segment[run_at - base : run_end - base])
        self.count, self.size_bytes = count, size_bytes
        return stop, is_enough


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
