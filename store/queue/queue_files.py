"""Files of one ConsumeQueue, of any kind, whose newest bytes are in memory first.

The entries of an append are readable at once.  They are written to the files behind the log, many at a time
(`store.flush.queue_writer`): a system call for each queue and append took longer than the append itself.  They may
be lost with the process, because recovery makes them again from the log.
"""

from pathlib import Path
from typing import Final, TypeAlias

from sprocket.common.errors import DiskFull
from store.disk.disk import Disk
from store.disk.mapped_file_queue import MappedFileQueue

# A buffer, a position in it, and how many bytes of the queue it holds from there on.
Run: TypeAlias = tuple[memoryview, int, int]

# Unwritten bytes of one queue; more are written at once.
MAX_UNWRITTEN_BYTES: Final = 32 * 1024
# Reads that begin at most this far before the unwritten bytes get both as one copy.
_JOINED_BYTES: Final = 32 * 1024


class Unwritten:
    """What the queues of one table have in memory only.  With `max_bytes` 0 a queue keeps nothing in memory."""

    __slots__ = ("is_recovering", "max_bytes", "queues")

    def __init__(self) -> None:
        self.max_bytes = 0
        # A store starts on a full disk, too: what it cannot write stays in memory.
        self.is_recovering = False
        # The queue that has waited longest comes first.
        self.queues: dict[QueueFiles, None] = {}

    def recovery_begins(self) -> None:
        """Write at once from now on, but keep in memory what a full disk does not take."""
        self.max_bytes, self.is_recovering = 0, True

    def recovery_ends(self) -> None:
        """Keep up to `MAX_UNWRITTEN_BYTES` of each queue in memory from now on."""
        self.max_bytes, self.is_recovering = MAX_UNWRITTEN_BYTES, False

    def write(self) -> None:
        """Write everything.  Raises `DiskFull` or `DiskFailed`; then the rest is still unwritten."""
        for files in list(self.queues):
            files.write_tail()


class QueueFiles(MappedFileQueue):
    """The bytes before `written_to` are in the files, and `unwritten_bytes` after that are in memory.

    For the owner thread; another one may read `written_to`.  `blank` fills the begin of a first file in which the queue
    begins later.
    """

    __slots__ = ("_blank", "_tail", "_unwritten", "unwritten_bytes", "written_to")

    def __init__(
        self, disk: Disk, directory: Path, file_bytes: int, unwritten: Unwritten | None = None, blank: bytes = b""
    ) -> None:
        # Sparse: most queues of a broker are nearly empty, and reserved files would cost a thousand of them 6 GB.
        super().__init__(disk, directory, file_bytes, preallocate=False)
        self._unwritten = Unwritten() if unwritten is None else unwritten
        self._blank = blank
        self._tail: list[bytes] = []
        self.unwritten_bytes = 0
        self.written_to = 0

    # Writing

    def append(self, content: bytes) -> None:
        """Add `content`.  Raises `DiskFull` or `DiskFailed` if it had to be written; then the caller truncates it."""
        tail = self._tail
        if not tail:
            if not self.files and self.written_to:
                self._fill_front()
            self._unwritten.queues[self] = None
        tail.append(content)
        self.unwritten_bytes += len(content)
        if self.unwritten_bytes > self._unwritten.max_bytes:
            self._write_or_keep()

    def _write_or_keep(self) -> None:
        try:
            self.write_tail()
        except DiskFull:
            if not self._unwritten.is_recovering or self.unwritten_bytes > MAX_UNWRITTEN_BYTES:
                raise

    def write_tail(self) -> None:
        """Write what is in memory only.  Raises `DiskFull` or `DiskFailed`; then it still is."""
        if self._tail:
            content = self._joined_tail()
            self.write(self.written_to, content)
            self.end_at(self.written_to + len(content))

    def _fill_front(self) -> None:
        # A queue whose older entries are gone begins within a file; RocketMQ fills the part before with blanks.
        end = self.written_to
        start = end - end % self.file_bytes
        self.begin_at(start)
        if start < end:
            self.write(start, self._blank * ((end - start) // len(self._blank)))

    def end_at(self, offset: int) -> None:
        """Take everything before `offset` as written, and forget what is in memory."""
        self.written_to = offset
        self.unwritten_bytes = 0
        self._tail.clear()
        self._unwritten.queues.pop(self, None)

    def truncate(self, offset: int) -> None:
        """Forget the bytes from `offset` on; those in the files stay there until others replace them."""
        kept_bytes = offset - self.written_to
        if kept_bytes <= 0:
            self.end_at(offset)
        elif kept_bytes < self.unwritten_bytes:
            self._tail[:] = [self._joined_tail()[:kept_bytes]]
            self.unwritten_bytes = kept_bytes

    def cut(self, offset: int, *, keeps_begin: bool = False) -> None:
        """Make `offset` the end, also in the files: see `MappedFileQueue.cut`."""
        self.truncate(offset)
        super().cut(offset, keeps_begin=keeps_begin)

    def close(self) -> None:
        """Close all files.  What is in memory only is lost."""
        self.end_at(self.written_to)
        super().close()

    # Reading

    def _joined_tail(self) -> bytes:
        tail = self._tail
        if len(tail) > 1:
            tail[:] = [b"".join(tail)]
        return tail[0]

    def place(self, offset: int) -> tuple[memoryview, int] | None:
        """Return a buffer with the unit at `offset`, and its position; None if neither a file nor memory has it."""
        ahead = offset - self.written_to
        if 0 <= ahead < self.unwritten_bytes:
            return memoryview(self._joined_tail()), ahead
        located = self.locate(offset)
        return None if located is None else (located[0].view, located[1])

    def run_at(self, offset: int) -> Run | None:
        """Return the bytes from `offset` on: to the end of its file, or of what the queue has, whichever is first."""
        unwritten_bytes = self.unwritten_bytes
        ahead = offset - self.written_to
        if 0 <= ahead < unwritten_bytes:
            return memoryview(self._joined_tail()), ahead, unwritten_bytes - ahead
        located = self.locate(offset)
        if located is None:
            return None
        file, position = located
        available = self.file_bytes - position
        if unwritten_bytes and -available <= ahead < 0:
            if ahead < -_JOINED_BYTES:
                return file.view, position, -ahead
            joined = b"".join((file.view[position : position - ahead], self._joined_tail()))
            return memoryview(joined), 0, len(joined)
        return file.view, position, available
