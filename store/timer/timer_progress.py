"""Progress of the wheel, and the part of it that is safe on the disk.

Progress is three numbers: the slot to deliver next, the queue offset to enter next, and the end of the timer log.
They may be written only after the deliveries are flushed in the CommitLog, and must be of one moment.  Otherwise a
crash would lose messages, or leave a unit that points at a missing record.
Source of the file: RocketMQ 5.3.3, `TimerCheckpoint`; of its fields, `TimerMessageStore.prepareTimerCheckPoint`.

What Sprocket adds
------------------
RocketMQ ignores the rest of the page.  Sprocket stores there, with a CRC:

- `rebuild_until`: a queue offset, while wheel and timer log are rebuilt.  Messages before it whose slot is before
  `read_ms` were delivered already.  `read_ms` does not change until the rebuild reaches this offset.
- `barriers`: pairs of a position in the timer log and a time, written when the wall clock was set back.  Units before
  the position whose slot is before the time were delivered, although the clock reaches that time again.
"""

import struct
import zlib
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from store.disk.disk import Disk

PAGE_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">7q")
CHECKPOINT_BYTES: Final = _FIELDS.size
EXTENSION_AT: Final = 512
# Magic, CRC of what follows, CRC of the first fields, number of barriers, rebuild_until.
_EXTENSION_HEAD: Final = struct.Struct(">8sIIIq")
_BARRIER: Final = struct.Struct(">qq")
_MAGIC: Final = b"SPRTIMER"
# A clock may step back repeatedly.  Messages before the oldest barrier may then be delivered twice.
_MAX_BARRIERS: Final = 16
_MAX_UNFLUSHED: Final = 4096


@dataclass(frozen=True)
class Barrier:
    """Units before `position` were delivered if their slot is before `before_ms`."""

    position: int
    before_ms: int


@dataclass(frozen=True)
class Progress:
    """Progress at one moment."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    rebuild_until: int = 0
    barriers: tuple[Barrier, ...] = ()

    def stepped_back(self, log_end: int, to_ms: int) -> "Progress":
        """Return the progress after the wall clock went back to the slot `to_ms`, before `read_ms`."""
        kept = [barrier for barrier in self.barriers if barrier.before_ms > self.read_ms]
        barriers = (*kept, Barrier(log_end, self.read_ms))[-_MAX_BARRIERS:]
        return replace(self, read_ms=to_ms, barriers=barriers)

    def read_until(self, read_ms: int) -> "Progress":
        """Return the progress with all slots before `read_ms` delivered."""
        barriers = self.barriers
        if barriers:
            barriers = tuple(barrier for barrier in barriers if barrier.before_ms > read_ms)
        return replace(self, read_ms=read_ms, barriers=barriers)

    def delivered_before(self, slot_ms: int) -> int:
        """Return the position in the timer log before which the slot's units were delivered; 0 for none."""
        return max((barrier.position for barrier in self.barriers if barrier.before_ms > slot_ms), default=0)


@dataclass(frozen=True)
class DataVersion:
    """Version of the checkpoint, for slaves."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0


@dataclass
class TimerCheckpoint:
    """Content of ``config/timercheck``."""

    progress: Progress = field(default_factory=Progress)
    version: DataVersion = field(default_factory=DataVersion)
    # Whether Sprocket wrote it.  RocketMQ's three numbers may be of different moments.
    is_own: bool = True

    def encode(self) -> bytes:
        """Return the 56 bytes of the file, which are also the response to GET_TIMER_CHECK_POINT."""
        progress, version = self.progress, self.version
        return _FIELDS.pack(
            progress.read_ms, progress.log_position, progress.queue_offset, progress.queue_offset,
            version.state_version, version.timestamp_ms, version.counter,
        )  # fmt: skip

    def page(self) -> bytes:
        """Return the file's content."""
        barriers, head = self.progress.barriers, self.encode()
        body = struct.pack(">IIq", zlib.crc32(head), len(barriers), self.progress.rebuild_until)
        body += b"".join(_BARRIER.pack(barrier.position, barrier.before_ms) for barrier in barriers)
        extension = _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body
        return (head.ljust(EXTENSION_AT, b"\0") + extension).ljust(PAGE_BYTES, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> "TimerCheckpoint":
        """Decode a file's content; zeros if it is too short."""
        if len(content) < CHECKPOINT_BYTES:
            return cls()
        read_ms, log_position, queue_offset, master_offset, *version = _FIELDS.unpack_from(content)
        is_own, rebuild_until, barriers = _extension(content)
        progress = Progress(
            max(0, read_ms), max(0, log_position), max(0, min(queue_offset, master_offset)), rebuild_until, barriers
        )
        return cls(progress, DataVersion(*version), is_own)


def _extension(content: bytes) -> tuple[bool, int, tuple[Barrier, ...]]:
    if len(content) < EXTENSION_AT + _EXTENSION_HEAD.size:
        return False, 0, ()
    magic, crc, head_crc, count, rebuild_until = _EXTENSION_HEAD.unpack_from(content, EXTENSION_AT)
    begin = EXTENSION_AT + _EXTENSION_HEAD.size
    end = begin + count * _BARRIER.size
    body_at = EXTENSION_AT + len(_MAGIC) + 4
    if magic != _MAGIC or count > _MAX_BARRIERS or zlib.crc32(content[body_at:end]) != crc:
        return False, 0, ()
    barriers = tuple(Barrier(*fields) for fields in _BARRIER.iter_unpack(content[begin:end]))
    # RocketMQ rewrites its own fields and leaves ours.
    return zlib.crc32(content[:CHECKPOINT_BYTES]) == head_crc, rebuild_until, barriers


def load_checkpoint(disk: Disk, path: Path) -> TimerCheckpoint | None:
    """Return the checkpoint in the file; None without a file.  Raises `DiskFailed`."""
    content = disk.read(path)
    return None if content is None else TimerCheckpoint.decode(content)


class ProgressLog:
    """States that wait for the CommitLog's flush, oldest first."""

    def __init__(self, saved: Progress) -> None:
        self.saveable = saved
        self._unflushed: deque[tuple[int, Progress]] = deque()

    def note(self, log_end: int, progress: Progress) -> None:
        """Note that `progress` is safe once the CommitLog is flushed up to `log_end`."""
        waiting = self._unflushed
        if waiting and (waiting[-1][0] == log_end or len(waiting) >= _MAX_UNFLUSHED):
            waiting.pop()
        waiting.append((log_end, progress))

    def settle(self, flushed_offset: int) -> Progress:
        """Return the newest state that may be written, given the flushed offset of the CommitLog."""
        while self._unflushed and self._unflushed[0][0] <= flushed_offset:
            self.saveable = self._unflushed.popleft()[1]
        return self.saveable
