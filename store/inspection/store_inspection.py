"""Check of a whole store directory: every kind of file by itself, and all of them against the log.

It writes nothing and takes no lock.  On a store in use by a broker the log's end is fixed first.  Queues may then be
ahead of that end, and an unfinished tail is not a finding.
"""

from typing import Final

import numpy as np

from store.inspection import queue_findings, segment_findings
from store.inspection.finding import Severity
from store.inspection.inspected_store import InspectedStore
from store.inspection.log_inspection import Gap, LogInspection, Progress, is_record
from store.inspection.queue_inspection import LogBounds
from store.inspection.queue_table_inspection import end_entry
from store.inspection.small_files import (
    check_checkpoint,
    check_config,
    check_epochs,
    check_flushed_mark,
    check_queue_list,
    check_top_level,
    committed_offsets,
    intended_end,
    read_checkpoint,
    topic_names,
)
from store.scan.record_fields import store_timestamps

# Newest queue entries to try as the start of a walk to the log's end.
_TRIES: Final = 64


class StoreInspection(InspectedStore):
    """Check of the store at `root`.  After `run` the attributes hold the result."""

    @property
    def total_bytes(self) -> int:
        """Bytes of log that `run` walks; the values given to `progress` add up to it."""
        return len(self.log.parts) * self.log.file_bytes

    def run(self, progress: Progress = lambda size_bytes: None) -> "StoreInspection":
        """Check everything.  `progress` gets the bytes of log walked since its last call.  Return self."""
        check_top_level(self.root, self.findings)
        self.config = check_config(self.root, self.findings)
        self.checkpoint = read_checkpoint(self.root, self.findings)
        if not self.was_clean and not self.is_running:
            text = "the last run was not shut down cleanly; a broker's start checks the log, queues and index"
            self.findings.add("abort", Severity.NOTE, "abort", text)
        segment_findings.describe_files(self)
        self.compacted.check_files()
        self._walk(progress)
        segment_findings.describe_damage(self)
        bounds = LogBounds(self.figures.start, self.figures.end, [(gap.start, gap.end) for gap in self.gaps])
        if self.quick:
            queue_findings.check_ends(self, bounds)
        else:
            self.queues.finish(bounds)
            self.batch_queues.finish()
            self.compacted.finish()
            queue_findings.describe(self, topic_names(self.root))
            self.index.check_files()
            self.index.finish(is_behind_fine=self.is_running or not self.was_clean)
        if self.checkpoint is not None:
            newest = self.figures.newest_store_timestamp
            self.checkpoint_holds = self.is_running or check_checkpoint(
                self.checkpoint, self.findings, self.figures.end, newest
            )
        self.queue_list_holds = self.is_running or check_queue_list(self.root, self.findings, self.figures.end)
        self.flushed_mark_holds = self.is_running or check_flushed_mark(self.root, self.findings, self.figures.end)
        self.epochs_hold = self.is_running or check_epochs(self.root, self.findings, self.figures.end)
        self._check_committed()
        return self

    def _walk(self, progress: Progress) -> None:
        figures = self.figures
        figures.start = self.log.first_offset
        # A running broker makes its cuts itself.
        stop = self._stable_end() if self.is_running else intended_end(self.root, self.findings)
        start = self._late_start() if self.quick else figures.start
        figures.walked_from = start
        walk = LogInspection(self.log, start, stop, progress=progress)
        for found in walk:
            if isinstance(found, Gap):
                self.gaps.append(found)
                continue
            times = store_timestamps(found)
            figures.add(len(found), int(times[0]), int(times[-1]), int(np.max(times)))
            if not self.quick:
                self.queues.add(found)
                self.batch_queues.add(found)
                self.compacted.add(found)
                self.index.add(found)
        figures.end = walk.end_offset
        self.tail = walk.tail

    def _stable_end(self) -> int:
        """Return the log's present end; nothing that a running broker writes after it is read."""
        walk = LogInspection(self.log, self._late_start(), check_crc=False)
        for _ in walk:
            pass
        return walk.end_offset

    def _late_start(self) -> int:
        """Return where a record near the log's end begins, from the queues; else the last non-empty segment's start."""
        start = self.log.first_offset
        for part in self.log.parts:
            if part.size_bytes >= 8 and any(self.log.view(part).data[:8]):
                start = part.start
        ends = [last[1] for queue in self.queues if (last := end_entry(queue)) is not None]
        later = sorted({place for place in ends if start < place < self.log.end_offset}, reverse=True)
        # The newest one is a record unless something is damaged.
        return next((place for place in later[:_TRIES] if is_record(self.log, place)), start)

    def _check_committed(self) -> None:
        """Report committed offsets after the end of their queue: messages that a consumer saw are gone."""
        for (topic, group, queue_id), offset in committed_offsets(self.root).items():
            queue = self.queues.by_key.get((topic, queue_id))
            if queue is None or self.quick or self.is_running:
                continue
            last = max(queue.next_offset, queue.first_file_offset + queue.entries)
            if offset > last:
                text = f"group {group} is at {offset} of {topic} queue {queue_id}, which ends at {last}"
                self.findings.add("offset", Severity.NOTE, "config/consumerOffset.json", text)

    def own_files_to_drop(self, *, is_log_shorter: bool, are_queues_new: bool) -> list[str]:
        """Return Sprocket's own files that are damaged, or would be wrong after a repair."""
        names = []
        if (self.root / "queuelist").exists() and (is_log_shorter or are_queues_new or not self.queue_list_holds):
            names.append("queuelist")
        if (self.root / "flushed").exists() and (is_log_shorter or not self.flushed_mark_holds):
            names.append("flushed")
        if not self.epochs_hold:
            names += [found.path for found in self.findings.kept if found.kind == "epochs"]
        damaged = {found.path for found in self.findings.kept if found.kind == "own-file"}
        return names + sorted(damaged & {"deletedtopics", "truncate"})
