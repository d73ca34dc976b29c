"""Compaction of a store's queues: a thread that follows the closed segments of the log.

Source: RocketMQ 5.3.3, `CompactionStore`, `CompactionLog`.  RocketMQ copies each message of such a topic to a log of
its own when it arrives.  Here nothing is written then: the CommitLog has the messages, and retention keeps its segments
until compaction has taken them in.

The owner thread chooses the work and reads; the worker's thread reads and writes files, and it alone writes the
directory of compacted queues.  A crash at any point leaves the manifest before or after the compaction.

Every member of a group compacts by itself.  Only what is confirmed and on the disk, in closed segments, is taken in.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.compaction.compacted_queue import CompactedQueue, OpenPart
from store.compaction.manifest import DIRECTORY, MANIFEST, Manifest, read_manifest, write_manifest
from store.compaction.merge import Merge, Work
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.flush.group_commit import Notify
from store.log.commit_log import CommitLog
from store.queue.blank_entries import first_unit
from store.queue.consume_queue import BLANK_SIZE, ConsumeQueue
from store.queue.consume_queue_table import ConsumeQueueTable
from store.worker import Workers

_log = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
# The thread rests after each so many bytes, for as long as it has worked or longer, because work holds the
# interpreter's lock.
_PACE_BYTES: Final = 64 * 1024

QueueKey = tuple[str, int]


class _StopRequested(Exception):
    """The store stops, and the compaction gives up."""


class Compaction:
    """Compaction of one store.  `durable_end` returns the end of the log that is confirmed and on the disk."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        *,
        disk: Disk,
        log: CommitLog,
        table: ConsumeQueueTable,
        durable_end: Callable[[], int],
        notify: Notify,
        workers: Workers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._commit_log = log
        self._table = table
        self._durable_end = durable_end
        self._notify = notify
        self._root = config.store_path_root_dir / DIRECTORY
        # Topics that are compacted.
        self.topics: frozenset[str] = frozenset()
        self.queues: dict[QueueKey, CompactedQueue] = {}
        # Compactions that ended, those that failed, and what they read, since the start.
        self.finished = self.failed = self.read_bytes = 0
        self._todo: list[QueueKey] = []
        self._next_round_s = 0.0
        self._stopping = threading.Event()
        # Shared with the thread.
        self._work: Work | None = None
        self._gone: list[QueueKey] = []
        self._is_asking = False
        self._paced_bytes, self._paced_s = 0, 0.0
        self._ran: Work | None = None
        self._worker = workers("store-compact", self._turn, _LOOK_S)

    # Life

    def load(self, deleted_end: Callable[[str], int]) -> None:
        """Open the compacted queues, after recovery of the log.

        `deleted_end` returns the end of the log when a topic was last deleted, 0 if it was not.  Raises `StoreError` if
        a manifest or a file is damaged.
        """
        if not self._config.enable_compaction:
            return
        for topic in self._disk.names(self._root):
            for name in self._disk.names(self._root / topic):
                if name.isascii() and name.isdigit():
                    self._load((topic, int(name)), deleted_end(topic))
        self.topics = frozenset(topic for topic, _ in self.queues)

    def _load(self, key: QueueKey, deleted_end: int) -> None:
        directory = self._directory(key)
        known = read_manifest(self._disk, directory)
        log_end = self._commit_log.wrote_offset
        kept = tuple(part for part in known.parts if deleted_end < part.log_end <= log_end)
        if len(kept) < len(known.parts):
            # The topic was deleted, or the log was cut, and the queue will be compacted again.
            _log.warning("event=compacted_parts_dropped topic=%s queue=%d kept=%d", *key, len(kept))
            if not kept:
                self._disk.remove_tree(directory)
                return
            write_manifest(self._disk, directory, Manifest(kept))
        self._remove_unnamed(directory, Manifest(kept))
        if kept:
            compacted = self.queues[key] = self._open(directory, Manifest(kept))
            self._continue(key, compacted.end_offset)

    def _open(self, directory: Path, manifest: Manifest) -> CompactedQueue:
        return CompactedQueue([OpenPart(self._disk, directory, part) for part in manifest.parts])

    def _continue(self, key: QueueKey, end_offset: int) -> None:
        """Let the ConsumeQueue continue after what was compacted, if its files were lost."""
        queue = self._table.get_or_create(*key)
        if queue.next_offset < end_offset:
            _log.warning("event=queue_continues_after_compacted topic=%s queue=%d offset=%d", *key, end_offset)
            queue.put(end_offset - 1, 0, BLANK_SIZE, 0, 0, 1)

    def configure(self, config: StoreConfig) -> None:
        """Apply a changed configuration."""
        self._config = config

    def start(self) -> None:
        """Start the thread."""
        self._next_round_s = self._clock.monotonic() + self._interval_s
        self._worker.start()

    @property
    def _interval_s(self) -> float:
        return self._config.compaction_schedule_internal / 1000

    def stop(self) -> None:
        """End the thread; a compaction is given up."""
        self._stopping.set()
        self._worker.stop()
        for queue in self.queues.values():
            queue.close()
        self.queues = {}

    # For the owner

    def set_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics that are compacted."""
        self.topics = frozenset(topics) if self._config.enable_compaction else frozenset()

    def is_compacted(self, topic: str) -> bool:
        """Return whether a topic is compacted."""
        return topic in self.topics

    def of(self, topic: str, queue_id: int) -> CompactedQueue | None:
        """Return the compacted part of a queue; None if there is none."""
        return self.queues.get((topic, queue_id))

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages that all compacted queues keep."""
        return sum(queue.size_bytes for queue in self.queues.values())

    def adopt(self, queues: Mapping[QueueKey, CompactedQueue]) -> None:
        """Serve `queues`, which other brokers have compacted, and no others.  They belong to this from now on."""
        for key, queue in self.queues.items():
            if queue is not queues.get(key):
                queue.close()
        self.queues = dict(queues)

    def hurry(self) -> None:
        """Begin a round now, because retention waits."""
        self._next_round_s = 0.0

    def held_from(self) -> int | None:
        """Return the physical offset of the oldest message that is not taken in; None if there is none."""
        held = [self._oldest_new(queue) for queue in self._compacted()]
        return min((offset for offset in held if offset is not None), default=None)

    def _compacted(self) -> list[ConsumeQueue]:
        queues = [self._table.by_key[key] for key in self._table.usual if key[0] in self.topics] if self.topics else []
        return [queue for queue in queues if isinstance(queue, ConsumeQueue)]

    def _first_new(self, queue: ConsumeQueue) -> int:
        known = self.queues.get((queue.topic, queue.queue_id))
        return max(queue.min_offset, 0 if known is None else known.end_offset)

    def _oldest_new(self, queue: ConsumeQueue) -> int | None:
        first = self._first_new(queue)
        if first >= queue.next_offset:
            return None
        entry = queue.unit(first) if first < queue.written_offset else None
        # The place of a blank is not known, nor that of an entry that is not written yet.
        return self._commit_log.min_offset if entry is None or entry[1] == BLANK_SIZE else entry[0]

    def forget(self, topic: str) -> None:
        """Forget the queues of a topic that was deleted; the thread removes their files."""
        for key in [key for key in self.queues if key[0] == topic]:
            self.queues.pop(key).close()
            self._gone.append(key)
        if self._work is not None and self._work.topic == topic:
            self._gone.append((topic, self._work.queue_id))
            self._work = None

    # Work

    def _choose(self) -> None:
        """Choose the next work, in the owner thread."""
        self._is_asking = False
        if self._stopping.is_set():
            return
        if not self._todo and self._clock.monotonic() >= self._next_round_s:
            self._next_round_s = self._clock.monotonic() + self._interval_s
            self._todo = [(queue.topic, queue.queue_id) for queue in self._compacted()]
        end = self._durable_end()
        log_end = end - end % self._commit_log.segment_bytes
        while self._todo and self._work is None:
            self._work = self._work_of(self._todo.pop(), log_end)
        if self._work is not None:
            self._worker.wake()

    def _work_of(self, key: QueueKey, log_end: int) -> Work | None:
        """Return what is to be compacted of a queue before physical offset `log_end`; None if nothing."""
        queue, known = self._table.by_key.get(key), self.queues.get(key)
        if key[0] not in self.topics or not isinstance(queue, ConsumeQueue):
            return None
        first, end = self._first_new(queue), min(queue.max_offset, queue.written_offset)
        end = first_unit(queue, first, end, lambda entry: entry[0] >= log_end)
        if first >= end:
            return None
        if known is not None and first > known.end_offset:
            _log.error("event=messages_lost_before_compaction topic=%s queue=%d offset=%d", *key, first)
        return Work(
            *key, first, end, log_end, Manifest() if known is None else known.manifest, self._directory(key),
            queue.directory, self._config.consume_queue_file_bytes, self._commit_log.directory,
            self._commit_log.segment_bytes,
        )  # fmt: skip

    def _directory(self, key: QueueKey) -> Path:
        return self._root / key[0] / str(key[1])

    def _finished(self, work: Work, manifest: Manifest | None, opened: CompactedQueue | None) -> None:
        """Let reads use the result of `work`, in the owner thread."""
        key = work.topic, work.queue_id
        if manifest is None:
            self.failed += 1
        if self._work is not work:
            # The topic was deleted meanwhile.
            if opened is not None:
                opened.close()
            return
        self._work = None
        if opened is not None and manifest is not None:
            self.finished += 1
            former = self.queues.get(key)
            self.queues[key] = opened
            if former is not None:
                former.close()
            if manifest.end_offset < work.end_offset:
                self._todo.append(key)
        self._choose()

    # In the thread

    def _turn(self) -> bool:
        while self._gone:
            key = self._gone.pop()
            try:
                self._disk.remove_tree(self._directory(key))
            except StoreError as error:
                _log.error("event=compacted_not_removed topic=%s queue=%d reason=%r", *key, str(error))
        work = self._work
        if work is not None and work is not self._ran:
            self._ran = work
            self._run(work)
        elif work is None and not self._is_asking:
            self._is_asking = True
            self._notify(self._choose)
        return not self._stopping.is_set()

    def _run(self, work: Work) -> None:
        config = self._config
        delete_before_ms = self._clock.wall_ms() - config.compaction_delete_retention
        self._paced_bytes, self._paced_s = 0, self._clock.monotonic()
        merge = Merge(self._disk, work, config.max_offset_map_size, delete_before_ms, self._pace)
        manifest = opened = None
        try:
            manifest = merge.run()
            opened = self._open(work.directory, manifest)
            self._remove_unnamed(work.directory, manifest)
        except _StopRequested:
            return
        except (StoreError, OSError) as error:
            _log.error(
                "event=compaction_failed topic=%s queue=%d from=%d to=%d reason=%r", work.topic, work.queue_id,
                work.first_offset, work.end_offset, str(error),
            )  # fmt: skip
        else:
            _log.info(
                "event=compacted topic=%s queue=%d to=%d parts=%d records=%d bytes=%d", work.topic, work.queue_id,
                manifest.end_offset, len(manifest.parts), opened.records, opened.size_bytes,
            )  # fmt: skip
        self._notify(partial(self._finished, work, manifest, opened))

    def _remove_unnamed(self, directory: Path, manifest: Manifest) -> None:
        """Remove the files that the manifest does not name."""
        named = {MANIFEST, *(name for part in manifest.parts for name in part.file_names)}
        unnamed = [name for name in self._disk.names(directory) if name not in named]
        if unnamed:
            self._disk.remove_files(directory, unnamed)

    def _pace(self, size_bytes: int) -> None:
        """Rest, so that the thread works for half of the time and reads no more than the configured rate."""
        self.read_bytes += size_bytes
        self._paced_bytes += size_bytes
        if self._paced_bytes < _PACE_BYTES:
            return
        worked_s = self._clock.monotonic() - self._paced_s
        at_rate_s = self._paced_bytes / self._config.compaction_max_bytes_per_second
        if self._stopping.wait(max(worked_s, at_rate_s - worked_s)):
            raise _StopRequested
        self._paced_bytes, self._paced_s = 0, self._clock.monotonic()
