"""Builder of the index: reads the log and puts the keys of its messages into index files.

It remembers the physical offset up to which it has read.  So a start after a crash, the first start on an old log, and
live operation are one code path: the index only lags behind.  It reads confirmed records only.  It does not check
their CRC: recovery did that, or this process wrote them.

Beyond RocketMQ: a record may have only some of its keys indexed, because one file was full and the next one was lost.
The builder then continues at the first missing key.

Source of the rules: RocketMQ 5.3.3, `IndexService.buildIndex`, `getAndCreateLastIndexFile`.
"""

import logging
from typing import Final

import numpy as np

from store.index.index_file import IndexDamaged, IndexFile
from store.index.index_files import IndexFiles
from store.index.key_scan import IndexEntries, pieces_of
from store.layout import file_name
from store.log.commit_log import CommitLog
from store.record.record import Record, decode
from store.scan.record_scan import RecordScan, Stop

_log = logging.getLogger(__name__)
_STEP_BYTES: Final = 16 * 1024 * 1024
# Keys after which a step ends, too: a stop waits for it.
_STEP_KEYS: Final = 256 * 1024


class IndexBuilder:
    """Endless walk along the log.

    All records before `reached_offset` are indexed.  Of the record at it, the first keys may be indexed, too.
    `durable_timestamp`, ms, is the end of the newest file that is full and on the disk: the checkpoint's
    index_msg_timestamp.
    """

    def __init__(self, log: CommitLog, files: IndexFiles) -> None:
        self._log = log
        self._files = files
        self.reached_offset = 0
        self.durable_timestamp = 0
        self._entries_there = 0

    def begin(self, durable_timestamp: int) -> None:
        """Continue where the files end; `durable_timestamp` is the checkpoint's index_msg_timestamp."""
        self.durable_timestamp = durable_timestamp
        self.find_position()

    def find_position(self) -> None:
        """Continue at the record that the last unit names, after those of its keys that are indexed."""
        log, files = self._log, self._files
        while (last := files.last) is not None and last.header.end_physical_offset >= log.min_offset:
            offset = last.header.end_physical_offset
            count = self._entries_at(offset)
            if not count:
                break
            if self._is_record(offset):
                self.reached_offset, self._entries_there = offset, count
                return
            _log.warning(
                "event=index_rebuild reason=%r", f"{last.path}: its last entries name {offset}, where no record is"
            )
            files.remove((last,))
        self.reached_offset, self._entries_there = log.min_offset, 0

    def _entries_at(self, offset: int) -> int:
        """Return how many of the newest entries belong to the record at `offset`."""
        count = 0
        for file in reversed(self._files.files):
            index = file.header.index_count - 1
            while index >= 1 and file.units(index, index + 1)[0]["physical_offset"] == offset:
                index -= 1
                count += 1
            if index >= 1:
                break
        return count

    def _is_record(self, offset: int) -> bool:
        view = self._log.record_at(offset)
        record = None if view is None else decode(view, check_crc=False)
        return isinstance(record, Record) and record.physical_offset == offset

    def step(self, confirm: int) -> bool:
        """Index some of the log before `confirm`.  Return whether it advanced.  Raises `DiskFull` or `DiskFailed`."""
        log = self._log
        base = self.reached_offset
        if base >= confirm:
            return False
        if self._has_bad_slots():
            return True
        if base < log.min_offset:
            self.reached_offset, self._entries_there = log.min_offset, 0
            return True
        segment_end = log.segment_end(base)
        segment = self._segment(base, segment_end)
        if segment is None:
            return False
        limit = min(confirm, segment_end, base + _STEP_BYTES) - base
        scan, keys = RecordScan(segment, base, segment_end - base, check_crc=False, limit=limit), 0
        for batch in scan:
            for entries, last in pieces_of(batch):
                last_offset = batch.base + int(batch.positions[last])
                self._put(entries, last_offset, last_offset + int(batch.sizes[last]))
                keys += len(entries)
                if keys >= _STEP_KEYS:
                    return True
        if scan.end.stop is Stop.BLANK:
            self.reached_offset = segment_end
        elif self.reached_offset == base and segment_end <= confirm:
            _log.warning("event=records_not_indexed from=%d to=%d reason=%r", base, segment_end, scan.end.reason)
            self.reached_offset, self._entries_there = segment_end, 0
        return self.reached_offset > base

    def _has_bad_slots(self) -> bool:
        """Make the last file ready to write.  If its slots do not fit, remove it, to be rebuilt, and return True."""
        last = self._files.last
        if last is not None and not last.is_full:
            try:
                last.open_slots()
            except IndexDamaged as error:
                _log.warning("event=index_rebuild reason=%r", str(error))
                self._files.remove((last,))
                self.find_position()
                return True
        return False

    def _segment(self, base: int, segment_end: int) -> memoryview | None:
        """Return the log from `base` to the end of its segment; None if the segment is missing."""
        name = file_name(segment_end - self._log.segment_bytes)
        for file in self._log.files_between(base, base + 1):
            # Retention may have removed a segment between two looks at the list.
            if file.path.name == name:
                return file.view[base - segment_end :]
        return None

    def _put(self, entries: IndexEntries, last_offset: int, end_offset: int) -> None:
        """Put `entries`; then all before `end_offset` is indexed.  The last of their records lies at `last_offset`."""
        begin = self.reached_offset
        if self._entries_there:
            there = np.count_nonzero(entries.physical_offsets[: self._entries_there] == begin)
            entries = entries.between(int(there), len(entries))
            if not len(entries):
                # After a start all of it was indexed already: no other file is needed.
                self.reached_offset, self._entries_there = end_offset, 0
                return
        done = 0
        file = self._growing()
        while done < len(entries):
            done += file.put(entries.between(done, len(entries)))
            if file.is_full and (done < len(entries) or int(entries.physical_offsets[done - 1]) < last_offset):
                # The disk may have no room for another file: do not put the same entries twice.
                self._note(entries, done, begin, end_offset)
                file = self._growing()
        self.reached_offset, self._entries_there = end_offset, 0

    def _note(self, entries: IndexEntries, done: int, begin: int, end_offset: int) -> None:
        """Remember that the first `done` of `entries` are put.  The entries belong to records from `begin` on."""
        if done == len(entries):
            self.reached_offset, self._entries_there = end_offset, 0
            return
        offset = int(entries.physical_offsets[done])
        before = self._entries_there if offset == begin else 0
        count = int(np.count_nonzero(entries.physical_offsets[:done] == offset))
        self.reached_offset, self._entries_there = offset, before + count

    def _growing(self) -> IndexFile:
        """Return the file to write to.  A full file is flushed before the next one is created."""
        last = self._files.last
        if last is not None:
            if not last.is_full:
                return last
            if not last.is_flushed:
                last.flush()
                last.drop_slots()
                self.durable_timestamp = last.header.end_timestamp
        file = self._files.create()
        file.open_slots()
        return file
