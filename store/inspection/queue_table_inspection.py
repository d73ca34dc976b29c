"""Comparison of all ConsumeQueues of a store with its log: gives each queue its records."""

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.remoting.message.topic_names import is_light
from store.inspection.file_sequence import FileSequence, likely_file_bytes
from store.inspection.file_view import list_directory
from store.inspection.queue_inspection import UNIT, LogBounds, QueueInspection
from store.inspection.queue_runs import QueueRuns, Run
from store.record.record import TagsCodes
from store.scan.record_batch import RecordBatch

_NO_FILE_NAMES: Final = frozenset({"", ".", ".."})

Key = tuple[str, int]


class QueueTableInspection:
    """Queues under ``consumequeue/``, by topic and queue id.

    Records of a topic before its physical offset in `deleted` do not count.

    `strays` are paths under it that are not queues.  `excluded` are topics with queues of another kind, whose records
    have no entries here.  `missing` are queues without a folder for which the log has records.
    """

    def __init__(
        self,
        directory: Path,
        tags_codes: TagsCodes,
        file_bytes: int | None = None,
        excluded: Set[str] = frozenset(),
        deleted: Mapping[str, int] = MappingProxyType({}),
        *,
        is_running: bool = False,
    ) -> None:
        self._deleted = deleted
        self._directory = directory
        self._is_running = is_running
        self._excluded = excluded
        self.strays: list[Path] = []
        self.by_key: dict[Key, QueueInspection] = {}
        self.missing: dict[Key, QueueInspection] = {}
        for topic, queue_id, path in self._folders():
            self.by_key[topic, queue_id] = QueueInspection(topic, queue_id, FileSequence(path, file_bytes))
        self._runs = QueueRuns(tags_codes, with_light=any(is_light(topic) for topic, _ in self.by_key))
        self.file_bytes = file_bytes or self._likely_file_bytes()
        for queue in self.by_key.values():
            queue.files.file_bytes = self.file_bytes or queue.files.file_bytes

    def __iter__(self) -> Iterator[QueueInspection]:
        return iter(self.by_key.values())

    def _folders(self) -> Iterator[tuple[str, int, Path]]:
        for topic, is_directory, _ in list_directory(self._directory):
            if not is_directory:
                self.strays.append(self._directory / topic)
                continue
            for name, is_queue, _ in list_directory(self._directory / topic):
                path = self._directory / topic / name
                if is_queue and name.isascii() and name.isdigit() and int(name) < 1 << 31:
                    yield topic, int(name), path
                else:
                    self.strays.append(path)

    def _likely_file_bytes(self) -> int:
        sizes: dict[int, int] = {}
        for queue in self:
            size = likely_file_bytes(queue.files.parts)
            if size:
                sizes[size] = sizes.get(size, 0) + 1
        return max(sizes, key=lambda size: (sizes[size], size), default=0)

    def add(self, found: RecordBatch) -> None:
        """Compare records, which come in the order of the log."""
        for run in self._runs.add(found):
            self._add_run(run)

    def _add_run(self, run: Run) -> None:
        topic, queue_id, offset, entries = run.from_offset(self._deleted.get(run.topic, 0))
        if not len(entries):
            return
        key = (topic, queue_id)
        if topic in self._excluded:
            return
        queue = self.by_key.get(key) or self.missing.get(key)
        if queue is None:
            if topic in _NO_FILE_NAMES or "/" in topic or queue_id < 0:
                return
            try:
                files = FileSequence(self._directory / topic / str(queue_id), self.file_bytes)
            except StoreError:
                return
            queue = self.missing[key] = QueueInspection(topic, queue_id, files)
        queue.add(offset, entries, is_running=self._is_running)

    def finish(self, bounds: LogBounds) -> None:
        """Finish all queues after the walk.  Queues with doubtful entries are checked again."""
        for run in self._runs.release():
            self._add_run(run)
        for queue in self:
            queue.finish(bounds, is_running=self._is_running)


def end_entry(queue: QueueInspection) -> tuple[int, int, int, int] | None:
    """Return (queue offset, physical offset, size, tags code) of the last entry that is not zero; None without."""
    for part in reversed(queue.files.parts):
        content = queue.files.view(part).end_of_content()
        if content:
            offset = (part.start + min(content, queue.files.file_bytes) - 1) // UNIT
            physical_offset, size, tags_code = queue.entries_at(offset, 1)[0].item()
            return offset, physical_offset, size, tags_code
    return None
