"""ConsumeQueues of light queues (LMQ), of which a broker may have hundreds of thousands, most of them quiet.

A quiet light queue keeps a few numbers only.  What it needs to be read or written, `_Work`, is made when it is used,
and dropped when more queues than `_MAX_AWAKE` have it.  RocketMQ keeps everything of each queue in memory; for many
light queues it has a store of another type (`storeType=defaultRocksDB`).
"""

from collections import deque
from pathlib import Path
from typing import Any, Final

from sprocket.remoting.message.record import RECORD_BASE_BYTES
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID
from store.disk.disk import Disk, DiskFile
from store.disk.mapped_file_queue import MappedFileQueue
from store.layout import CONSUME_QUEUE_UNIT_BYTES as UNIT
from store.layout import file_name
from store.queue.consume_queue import ENTRY, NEAR_UNITS, ConsumeQueue
from store.queue.logic_queue import Entry
from store.record.record import topic_field

_MAX_AWAKE: Final = 1024
# Queues to look at when one more wakes, and in one call of `rest`.
_LOOKS: Final = 4
_LOOKS_AT_REST: Final = 256


class _Work:
    """What a light queue needs while it is read or written."""

    __slots__ = ("files", "last_end", "last_file", "last_start", "last_view", "pending")

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files
        self.pending: list[int] = []
        self.last_file: DiskFile | None = None
        self.last_view: memoryview | None = None
        self.last_start = self.last_end = 0


class LightQueues:
    """What all light queues of a store have in common, and which of them have a `_Work`."""

    def __init__(self, disk: Disk, directory: Path, file_bytes: int, max_awake: int = _MAX_AWAKE) -> None:
        self._max_awake = max_awake
        self.disk = disk
        self.directory = directory
        self.file_bytes = file_bytes
        self._prefix = f"{directory}/"
        self._awake: deque[LightQueue] = deque()

    def path(self, topic: str, first_bytes: int) -> str:
        """Return the path of a file; a `Path` of each of very many costs a second."""
        return f"{self._prefix}{topic}/{LIGHT_QUEUE_ID}/{file_name(first_bytes)}"

    def files(self, topic: str) -> MappedFileQueue:
        """Return the files of a queue, none of them known yet."""
        directory = Path(f"{self._prefix}{topic}/{LIGHT_QUEUE_ID}")
        return MappedFileQueue(self.disk, directory, self.file_bytes, preallocate=False)

    def woke(self, queue: "LightQueue") -> None:
        """Note that a queue has its `_Work`; let others, if they are too many, drop theirs."""
        self._awake.append(queue)
        self._look(_LOOKS)

    def awake(self) -> list["LightQueue"]:
        """Return the queues that have their `_Work`, perhaps some that were removed.  Any thread may call it."""
        return list(self._awake)

    def rest(self) -> None:
        """Let some queues drop their `_Work`, if too many have it."""
        self._look(_LOOKS_AT_REST)

    def _look(self, most: int) -> None:
        for _ in range(min(most, len(self._awake) - self._max_awake)):
            queue = self._awake.popleft()
            if not queue.sleep():
                self._awake.append(queue)


def _of_work(name: str) -> Any:
    return property(lambda queue: getattr(queue.work(), name), lambda queue, value: setattr(queue.work(), name, value))


class LightQueue(ConsumeQueue):
    """One light queue.  Belongs to the owner thread, except for what `QueueFlush` calls."""

    __slots__ = (
        "_file_count",
        "_first_bytes",
        "_head",
        "_light",
        "_synced_unit",
        "_work",
        "cold_end",
        "max_offset",
        "min_offset",
        "next_offset",
        "topic",
        "written_offset",
    )
    queue_id = LIGHT_QUEUE_ID
    is_plain = True
    is_schedule = False
    pending: Any = _of_work("pending")
    _files: Any = _of_work("files")
    _last_file: Any = _of_work("last_file")
    _last_view: Any = _of_work("last_view")
    _last_start: Any = _of_work("last_start")
    _last_end: Any = _of_work("last_end")

    def __init__(self, light: LightQueues, topic: str) -> None:
        self.topic = topic
        self._light = light
        self._work: _Work | None = None
        # Of the files, while there is no `_Work`.
        self._first_bytes = self._file_count = 0
        self._reset(0)

    @property
    def magic(self) -> int:  # type: ignore[override]
        return topic_field(self.topic)[0]

    @property
    def topic_bytes(self) -> bytes:  # type: ignore[override]
        return topic_field(self.topic)[1]

    @property
    def record_base_bytes(self) -> int:  # type: ignore[override]
        return RECORD_BASE_BYTES + len(self.topic_bytes)

    # Sleep

    @property
    def is_awake(self) -> bool:
        """Whether it has what reads and writes need."""
        return self._work is not None

    def work(self) -> _Work:
        """Return what reads and writes need; made now if necessary."""
        work = self._work
        if work is None:
            light = self._light
            files = light.files(self.topic)
            files.begin_at(self._first_bytes)
            for number in range(self._file_count):
                path = Path(light.path(self.topic, self._first_bytes + number * light.file_bytes))
                files.files.append(light.disk.open(path, preallocate=False))
            work = self._work = _Work(files)
            light.woke(self)
        return work

    def sleep(self) -> bool:
        """Drop what reads and writes need; return False if some of it is not on the disk yet."""
        work = self._work
        if work is None:
            return True
        if work.pending or self._synced_unit != self.written_offset:
            return False
        self._work = None
        self._first_bytes, self._file_count = work.files.first_offset, len(work.files.files)
        work.files.close()
        return True

    # What needs no `_Work`

    @property
    def has_pending(self) -> bool:
        return self._work is not None and bool(self._work.pending)

    @property
    def first_offset(self) -> int:
        return (self._first_bytes if self._work is None else self._work.files.first_offset) // UNIT

    @property
    def capacity_unit(self) -> int:
        if self._work is None:
            return (self._first_bytes + self._file_count * self._light.file_bytes) // UNIT
        return self._work.files.end_offset // UNIT

    def load_listed(self, first: int, end: int) -> bool:
        at, light = first * UNIT, self._light
        if at % light.file_bytes or not at < end * UNIT <= at + light.file_bytes:
            return False
        self._first_bytes, self._file_count = at, 1
        if first:
            self._reset(first)
        return True

    def border_units(self, start: int, end: int) -> tuple[Entry | None, Entry | None, Entry | None]:
        if self._work is not None or self._file_count != 1 or start * UNIT != self._first_bytes:
            return super().border_units(start, end)
        light, count = self._light, end - start
        path, size_bytes = light.path(self.topic, self._first_bytes), min(count + 1, NEAR_UNITS) * UNIT
        head = light.disk.peek(path, light.file_bytes, 0, size_bytes)
        if head is None:
            return None, None, None
        if len(head) <= count * UNIT:
            return super().border_units(start, end)
        unpack = ENTRY.unpack_from
        return unpack(head), unpack(head, (count - 1) * UNIT), unpack(head, count * UNIT)

    def close(self) -> None:
        if self._work is not None:
            super().close()

    def _forget_work(self) -> None:
        if self._work is not None:
            super()._forget_work()
