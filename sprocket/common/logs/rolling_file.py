"""Log file that rolls by size and by time, with a limit for all its files together.

The standard library's handlers roll by size or by time, not by both, and limit the number of files instead of their
bytes.  Their buffered stream keeps a line that a full disk refused, and fails again with each later line.  So this
handler takes locking, formatting and levels from `logging.Handler`, and writes the bytes itself.

A rolled file is named after the time of rolling: ``broker.log.20261123T102605123Z``.  Nothing is synced: a log must not
wait for the disk.
"""

import contextlib
import fcntl
import logging
import os
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.files.regular_file import open_regular

# A log may tell of clients and topics: no reading for everyone.
_MODE: Final = 0o640
_MAX_LINE_BYTES: Final = 1024 * 1024
# The bounded work of one line: after a lower limit, the next rolls delete the rest.
_MAX_DELETED: Final = 8
_RETRY_S: Final = 30.0
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RollingLimits:
    """Limits of a log file and of all its rolled files, in bytes; `roll_hours` 0 means by size alone."""

    file_max_bytes: int
    total_max_bytes: int
    roll_hours: int


class RollingFileHandler(logging.Handler):
    """Handler that appends to `path`; while the file cannot be written, `fallback` gets the records.

    An error of the file is told once, to `fallback`.  The file is tried again every 30 s.
    """

    def __init__(self, path: Path, limits: RollingLimits, clock: Clock, fallback: logging.Handler) -> None:
        super().__init__()
        self._path = path.absolute()
        self._limits = limits
        self._clock = clock
        self._fallback = fallback
        # Before the year 9000: the name after it must still be a date.
        self._named = re.compile(re.escape(path.name) + r"\.[0-8]\d{7}T\d{9}Z", re.ASCII)
        self._descriptor: int | None = None
        self._size = self._period = 0
        # Rolled files, the oldest first: name and size.
        self._rolled: deque[tuple[str, int]] = deque()
        self._newest_ms = 0
        # Whether the file ends within a line, because a write failed in the middle.
        self._is_torn = False
        self._is_told = False
        self._retry_at_s = clock.monotonic()

    def open(self) -> None:
        """Open the file now, so that an error is told at the start and not at the first line."""
        with self.lock or contextlib.nullcontext():
            self._try_open()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record.  Never raises: neither for the file nor for a record that cannot be formatted."""
        try:
            line = self._line(record)
        except Exception:  # as in every handler of logging
            self.handleError(record)
            return
        if self._descriptor is None and self._clock.monotonic() >= self._retry_at_s:
            self._try_open()
        if self._descriptor is not None:
            try:
                self._roll_if_due(len(line))
                self._write(line)
                return
            except OSError as error:
                self._lose(error)
        self._fallback.handle(record)

    def close(self) -> None:
        """Close the file; later records go to the fallback until it can be opened again."""
        with self.lock or contextlib.nullcontext():
            self._shut()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        line = self.format(record).encode("utf-8", "backslashreplace")
        limit = min(_MAX_LINE_BYTES, self._limits.file_max_bytes) - 1
        return (line if len(line) <= limit else line[:limit]) + b"\n"

    def _try_open(self) -> None:
        try:
            self._open()
        except OSError as error:
            self._lose(error)
            return
        if self._is_told:
            self._is_told = False
            self._tell(logging.WARNING, "event=log_file_writable path=%s", self._path)

    def _open(self) -> None:
        """Open the file, list the rolled ones and keep the limit.  Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._open_file()
        with os.scandir(self._path.parent) as entries:
            found = [
                (entry.name, entry.stat(follow_symlinks=False).st_size)
                for entry in entries
                if self._named.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
        # The names hold the time with a fixed number of digits.
        self._rolled = deque(sorted(found))
        if found:
            with contextlib.suppress(ValueError):
                stamp = self._rolled[-1][0][-len("20261123T102605123Z") :]
                moment = datetime.strptime(stamp, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
                self._newest_ms = (moment - _EPOCH) // _MS
        self._delete_oldest(len(self._rolled))

    def _open_file(self) -> None:
        descriptor = open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        try:
            # Two processes would roll each other's file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise OSError("another process writes to it; give each server a logFile of its own") from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._size = status.st_size
        # An earlier process may have written its last line days ago.
        last_ms = status.st_mtime_ns // 1_000_000 if status.st_size else self._clock.wall_ms()
        self._period = self._period_of(last_ms)

    def _period_of(self, wall_ms: int) -> int:
        hours = self._limits.roll_hours
        return wall_ms // (hours * _HOUR_MS) if hours else 0

    def _roll_if_due(self, more: int) -> None:
        """Roll before a line of `more` bytes if the file would get too large, or if its period has ended."""
        now_ms = self._clock.wall_ms()
        period = self._period_of(now_ms)
        if not self._size:
            self._period = period
        elif period != self._period or self._size + more > self._limits.file_max_bytes:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        # Also after the clock was set back, the newest file has the last name.
        self._newest_ms = max(now_ms, self._newest_ms + 1)
        moment = _EPOCH + self._newest_ms * _MS
        name = f"{self._path.name}.{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z"
        size = self._size
        self._path.rename(self._path.with_name(name))
        self._rolled.append((name, size))
        self._shut()
        self._is_torn = False
        self._open_file()
        self._delete_oldest(_MAX_DELETED)

    def _delete_oldest(self, count: int) -> None:
        """Delete up to `count` rolled files, so that the others leave room for a full log file.  Raises OSError."""
        total = sum(size for _, size in self._rolled) + self._limits.file_max_bytes
        while self._rolled and total > self._limits.total_max_bytes and count:
            name, size = self._rolled[0]
            self._path.with_name(name).unlink(missing_ok=True)
            self._rolled.popleft()
            total -= size
            count -= 1

    def _write(self, line: bytes) -> None:
        """Append a line.  Raises OSError, also if only a part of it had room."""
        if self._descriptor is None:
            raise OSError("the log file is closed")
        data = b"\n" + line if self._is_torn else line
        rest = memoryview(data)
        while rest:
            try:
                written = os.write(self._descriptor, rest)
            except OSError:
                self._is_torn = self._is_torn or len(rest) < len(data)
                raise
            rest = rest[written:]
            self._size += written
        self._is_torn = False

    def _lose(self, error: OSError) -> None:
        self._shut()
        self._retry_at_s = self._clock.monotonic() + _RETRY_S
        if not self._is_told:
            self._is_told = True
            self._tell(
                logging.ERROR,
                "event=log_file_lost path=%s reason=%r note=%r",
                self._path,
                error.strerror or str(error),
                "the log goes to stderr until the file can be written; free space, or correct logFile",
            )

    def _tell(self, level: int, text: str, *arguments: object) -> None:
        # Not through the logger: this handler is about to write a record.
        self._fallback.handle(logger.makeRecord(logger.name, level, __file__, 0, text, arguments, None))

    def _shut(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
