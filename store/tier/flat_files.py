"""RocketMQ's tiered storage in a directory (tieredStoreFilePath): the records of all queues of one broker.

Layout: ``<hash>_<cluster>/<broker>/<topic>/<queueId>/COMMIT_LOG/<hash><base offset>``.  A queue has a log of its own,
whose files have any size and follow each other.  Records are those of the CommitLog, with the offset in the queue's log
as physical offset.  A file that was closed ends with a blank.  Queue offsets are in the records, so CONSUME_QUEUE,
INDEX and tieredStoreMetadata.json are not needed.

Source: RocketMQ 5.3.3, `PosixFileSegment`, `FlatCommitLogFile`, `CommitLogInputStream`, `MessageStoreUtil`.
"""

import heapq
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sprocket.common.errors import CorruptRecord, StoreError
from sprocket.remoting.message.record import BLANK_MIN_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC
from store.inspection.file_view import FileView, list_directory
from store.record.record import Record, decode

_CLUSTER: Final = re.compile(r"[0-9a-f]{8}_.+")
_FILE: Final = re.compile(r"[0-9a-f]{8}([0-9]{20})")
_COMMIT_LOG: Final = "COMMIT_LOG"

Progress = Callable[[int], None]


class FlatQueue(NamedTuple):
    """One queue, and the files of its log by their base offsets, in order."""

    topic: str
    queue_id: int
    files: tuple[tuple[int, Path], ...]


class FlatRecord(NamedTuple):
    """One record, and where it was found."""

    record: Record
    content: memoryview
    where: str


class FlatFiles:
    """The queues below `folder`, that of one broker.

    `lost` are the queue offsets that are missing between records, by topic and queue, after `records` has ended.
    """

    def __init__(self, folder: Path) -> None:
        """Raises `StoreError` if a folder cannot be read."""
        self.queues = [
            FlatQueue(topic, int(name), files)
            for topic, is_topic, _ in list_directory(folder)
            for name, is_queue, _ in (list_directory(folder / topic) if is_topic else ())
            if is_queue and name.isascii() and name.isdigit() and (files := _files(folder / topic / name / _COMMIT_LOG))
        ]
        self.size_bytes = sum(path.stat().st_size for queue in self.queues for _, path in queue.files)
        self.lost: dict[tuple[str, int], int] = {}

    def records(self, progress: Progress = lambda size_bytes: None) -> Iterator[FlatRecord]:
        """Yield the records of all queues by store time; those of a queue in the order of their offsets, each once.

        Raises `CorruptRecord`, which names the file, for bytes that are no record.
        """
        return heapq.merge(
            *(self._queue(queue, progress) for queue in self.queues), key=lambda found: found.record.store_timestamp
        )

    def _queue(self, queue: FlatQueue, progress: Progress) -> Iterator[FlatRecord]:
        following = -1
        for base, path in queue.files:
            for found in _records(path, base):
                offset = found.record.queue_offset
                if (found.record.topic, found.record.queue_id) != (queue.topic, queue.queue_id):
                    raise CorruptRecord(
                        found.record.physical_offset,
                        f"{found.where}: is of {found.record.topic}, queue {found.record.queue_id}",
                    )
                if offset < following:
                    continue  # dispatched again after a restart
                if 0 <= following < offset:
                    key = queue.topic, queue.queue_id
                    self.lost[key] = self.lost.get(key, 0) + offset - following
                following = offset + 1
                yield found
            progress(path.stat().st_size)


def broker_folder(source: Path) -> Path | None:
    """Return the folder of the only broker in `source`: itself, the folder of its cluster, or tieredStoreFilePath.

    None if there are no such files.  Raises `StoreError` that names the folders if there are several.
    """
    if any(source.glob(f"*/*/{_COMMIT_LOG}")):
        return source
    clusters = [source] if _CLUSTER.fullmatch(source.name) else []
    clusters += [path for path in sorted(source.glob("*_*")) if _CLUSTER.fullmatch(path.name)]
    found = [path for cluster in clusters for path in sorted(cluster.iterdir()) if any(path.glob(f"*/*/{_COMMIT_LOG}"))]
    if len(found) > 1:
        raise StoreError(f"{source}: has several brokers: name one of {', '.join(map(str, found))}")
    return found[0] if found else None


def _files(folder: Path) -> tuple[tuple[int, Path], ...]:
    found = ((name, _FILE.fullmatch(name)) for name, is_directory, _ in list_directory(folder) if not is_directory)
    return tuple(sorted((int(match[1]), folder / name) for name, match in found if match is not None))


def _records(path: Path, base: int) -> Iterator[FlatRecord]:
    data, at = FileView(path).data, 0
    while len(data) - at >= BLANK_MIN_BYTES:
        size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
        if magic == MAGIC_BLANK or size == magic == 0:
            return
        where = f"{path} at {at}"
        if size > len(data) - at:
            return  # the write of the newest record did not end
        # Its own seal, if it has one, covers the physical offset that it had in the broker's log.
        record = decode(data[at : at + size], check_crc=False)
        if not isinstance(record, Record):
            raise CorruptRecord(base + at, f"{where}: {record}")
        yield FlatRecord(record, data[at : at + size], where)
        at += size
