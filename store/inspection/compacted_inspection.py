"""Check of compacted queues: their files by themselves, and against what the log still has.

Each part has whole records in the order of their offsets, each key once.  Of each key the newest message that the log
has from before the end of the compacted queue is kept, or a newer one, unless a later message deleted the key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from sprocket.common.errors import StoreError
from store.compaction.key_offsets import KeyOffsets, key_of
from store.compaction.manifest import DIRECTORY, MANIFEST, Part, read_manifest
from store.disk.disk import RealDisk
from store.inspection.batch_queue_inspection import queue_records
from store.inspection.file_view import FileView, list_directory
from store.inspection.finding import Findings, Severity
from store.layout import BATCH_CONSUME_QUEUE_DTYPE
from store.record.record import Record, decode
from store.scan.record_batch import RecordBatch

# Memory for the keys of all queues; the newest message of keys beyond that is not looked for.
_MAX_KEY_BYTES: Final = 1 << 30
_TRIES: Final = 5
_ADVICE: Final = "restore {} from a backup, or from another member of the broker's group; `store repair` cannot make it"


@dataclass
class _Queue:
    """What one queue keeps; `missing` are the offsets of messages in the log that it should keep, by key."""

    topic: str
    queue_id: int
    directory: Path
    parts: tuple[Part, ...]
    end_offset: int
    kept: KeyOffsets
    missing: dict[bytes, int] = field(default_factory=dict)


class CompactedInspection:
    """Check of the compacted queues in the store at `root`.  Records before `deleted` of their topic do not count."""

    def __init__(
        self, root: Path, findings: Findings, deleted: Mapping[str, int] = MappingProxyType({}), *, quick: bool = False
    ) -> None:
        self._root = root / DIRECTORY
        self._findings = findings
        self._deleted = deleted
        self._quick = quick
        self._left_bytes = _MAX_KEY_BYTES
        self.queues: dict[tuple[str, int], _Queue] = {}
        self.records = 0

    def check_files(self) -> None:
        """Check manifests and parts, before the walk of the log."""
        for topic, is_directory, _ in list_directory(self._root):
            for name, is_queue, _ in list_directory(self._root / topic) if is_directory else ():
                if is_queue and name.isascii() and name.isdigit():
                    self._check_queue(topic, int(name))
        self._topics = {topic for topic, _ in self.queues}

    def _check_queue(self, topic: str, queue_id: int, tries: int = _TRIES) -> None:
        directory = self._root / topic / str(queue_id)
        try:
            manifest = read_manifest(RealDisk(), directory)
        except StoreError as error:
            self._findings.add("compacted", Severity.LOSS, self._name(directory / MANIFEST), str(error))
            return
        kept = KeyOffsets(self._left_bytes)
        queue = _Queue(topic, queue_id, directory, manifest.parts, manifest.end_offset, kept)
        faults = [(part, fault) for part in manifest.parts if (fault := self._fault(queue, part))]
        if faults and tries and read_manifest(RealDisk(), directory) != manifest:
            self._check_queue(topic, queue_id, tries - 1)  # a broker has compacted it meanwhile
            return
        for part, fault in faults:
            path = self._name(directory / part.file_names[0])
            self._findings.add("compacted", Severity.LOSS, path, fault, _ADVICE.format(self._name(directory)))
        named = {MANIFEST, *(name for part in manifest.parts for name in part.file_names)}
        for name, _, size_bytes in list_directory(directory):
            if name not in named:
                text = "is in no manifest: the rest of a compaction that did not end; a broker's start removes it"
                self._findings.add(
                    "compacted", Severity.NOTE, self._name(directory / name), text, size_bytes=size_bytes
                )
        if manifest.parts:
            self.queues[topic, queue_id] = queue
        self._left_bytes -= kept.size_bytes

    def _fault(self, queue: _Queue, part: Part) -> str:
        """Return what is wrong with a part; empty if nothing is."""
        try:
            log, units = (FileView(queue.directory / name) for name in part.file_names)
        except StoreError as error:
            return str(error)
        for view, size_bytes in zip((log, units), part.file_bytes, strict=True):
            if view.size_bytes < size_bytes:
                return f"{view.path.name} has {view.size_bytes} of {size_bytes} bytes"
        end = 0
        seen = KeyOffsets(_MAX_KEY_BYTES)
        for record, position, offset in () if self._quick else _records(log, units, part):
            where = f"position {position}, queue offset {offset}"
            if isinstance(record, str):
                return f"{where}: {record}"
            if (record.topic, record.queue_id, record.queue_offset) != (queue.topic, queue.queue_id, offset):
                return f"{where}: record of {record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
            if position != end or not part.first_offset <= offset < part.end_offset:
                return f"{where}: is not in its order"
            end = position + record.size_bytes
            key = key_of(record)
            if not key or seen.last(key) >= 0:
                return f"{where}: {'has no key' if not key else 'the same key was before it'}"
            seen.note(key, offset)
            queue.kept.note(key, offset)
            self.records += 1
        return "" if self._quick or end == part.log_bytes else f"has records up to {end} of {part.log_bytes} bytes"

    def add(self, found: RecordBatch) -> None:
        """Compare records, which come in the order of the log."""
        for record in queue_records(found, self._topics) if self._topics else ():
            queue = self.queues.get((record.topic, record.queue_id))
            is_new = queue is None or record.queue_offset >= queue.end_offset
            if queue is None or is_new or record.physical_offset < self._deleted.get(record.topic, 0):
                continue
            key = key_of(record)
            if not record.body:
                queue.missing.pop(key, None)
            elif key and not queue.kept.is_full and queue.kept.last(key) < record.queue_offset:
                queue.missing[key] = record.queue_offset

    def finish(self) -> None:
        """Report, after the walk, what should be kept and is not."""
        for queue in self.queues.values():
            for key, offset in queue.missing.items():
                text = f"the newest message of key {key[:64]!r}, queue offset {offset}, is in the log and is not kept"
                path = self._name(queue.directory)
                self._findings.add("compacted-key", Severity.LOSS, path, text, _ADVICE.format(path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root.parent).as_posix()


def _records(log: FileView, units: FileView, part: Part) -> Iterator[tuple[Record | str, int, int]]:
    """Yield each record, or what is wrong with it, its position and the queue offset that its unit says."""
    if not part.records:
        return
    found = np.frombuffer(units.data, BATCH_CONSUME_QUEUE_DTYPE, part.records)
    for position, size, offset in zip(
        found["physical_offset"].tolist(), found["size"].tolist(), found["base_offset"].tolist(), strict=True
    ):
        content = log.data[max(0, position) : max(0, min(position + size, part.log_bytes))]
        yield decode(content), position, offset
