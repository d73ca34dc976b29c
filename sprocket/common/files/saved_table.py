"""Base class of the tables that servers keep in small files: load, change, save in a thread, wait for the disk.

Memory changes first, so that a request continues at once.  One write contains all changes that were made before it, in
a thread; the others share the next one.
Source of the idea and of the files: RocketMQ 5.3.3, `ConfigManager`.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sprocket.common.errors import SprocketError, StoreError
from sprocket.common.files.config_file import ConfigFile

logger = logging.getLogger(__name__)

Encode = Callable[[], bytes]
Saved = Callable[[StoreError | None], None]


class _Change(NamedTuple):
    """A change that is not in the file yet."""

    number: int
    names: Sequence[str]
    undo: Callable[[], None]


class _Taken(NamedTuple):
    """Content with all changes up to a number."""

    number: int
    encode: Encode


class SavedTable(ABC):
    """Table that is kept in one file.  Lives in the event loop's thread; only encoding and writing leave it.

    A table changes in one of two ways:

    - `_change`: somebody waits for it.  A write begins at once.  If it fails, the change is undone together with all
      later ones, because a change may depend on the one before.  All who wait get the error.
    - ``self.changes += 1``: the next `save` or `persist` writes it.  If that fails, the table stays unsaved.

    A full disk raises DiskFull, and the next write tries again.  Any other failure of the disk is told to the owner of
    the file, too (see `ConfigFile`).
    """

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self.changes = 0  # grows with every change
        self._saved = 0  # the last change that is in the file
        self._pending: deque[_Change] = deque()
        self._waiting: deque[tuple[int, Saved]] = deque()
        self._is_started = False
        # The write under way.  Its thread holds the lock, so that `persist` can wait for it.
        self._saving: asyncio.Future[None] | None = None
        self._write_lock = threading.Lock()

    # What a table defines

    @abstractmethod
    def decode(self, content: bytes) -> None:
        """Take over the content of the file.  Raises ProtocolError, with nothing changed."""

    @abstractmethod
    def _content(self) -> Encode:
        """Return a function that encodes the table as it is now; the writing thread calls it, once."""

    def _write(self, content: bytes) -> None:
        """Write the file; called in any thread.  Raises StoreError."""
        self._file.write(content)

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        """Follow up on changes that are in the file now, by the names given to `_change`."""
        del changes

    # Loading

    def load(self) -> bool:
        """Load the file, or its backup; return whether there is one.

        Raises `StoreError` if the file and its backup cannot be read.
        """

        def decoded(content: bytes) -> bool:
            self.decode(content)
            return True

        return bool(self._file.load(decoded))

    # Changing

    def _change(self, names: Sequence[str], undo: Callable[[], None]) -> None:
        """Save a change that was made in memory.

        Before `start` and after `stop` it is in the file when this returns, or StoreError is raised and it is undone.
        """
        self.changes += 1
        self._pending.append(_Change(self.changes, names, undo))
        if not self._is_started:
            self.persist()
        elif self._saving is None:
            self._begin(self._take())

    @property
    def is_unsaved(self) -> bool:
        """Whether there are changes that are not in the file."""
        return self.changes > self._saved

    # Saving

    async def save(self, ready: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Return when all changes so far are in the file.  Raises the `StoreError` of the write.

        With `ready` the content is taken now, and written after `ready` returned True; if it returns False, the table
        stays unsaved.
        """
        if not self.is_unsaved:
            return
        taken = None
        if ready is not None:
            taken = self._take()
            if not await ready():
                return
            while self._saving is not None:
                await asyncio.wait([self._saving])
            if taken.number <= self._saved:
                return
        number = self.changes if taken is None else taken.number
        outcome: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        self._wait(number, lambda error: None if outcome.done() else outcome.set_result(error), taken)
        error = await outcome
        if error is not None:
            raise error

    def when_saved(self, callback: Saved) -> None:
        """Call `callback(None)` when all changes so far are in the file, or `callback(error)` if that failed."""
        if self.is_unsaved:
            self._wait(self.changes, callback)
        else:
            callback(None)

    def persist(self) -> None:
        """Write the file now, changed or not.  Raises `StoreError`."""
        try:
            with self._write_lock:
                number, encode = self._take()
                self._write(encode())
        except SprocketError as error:
            self._fail(error if isinstance(error, StoreError) else StoreError(str(error)))
            raise
        self._succeed(number)

    def persist_changes(self) -> None:
        """Write the file now if anything changed.  Raises `StoreError`."""
        if self.is_unsaved:
            self.persist()

    # Life

    def start(self) -> None:
        """Write changes in a thread from now on."""
        self._is_started = True

    async def stop(self) -> None:
        """Wait until everything is written, and write each change at once from now on."""
        while self._saving is not None:
            await asyncio.wait([self._saving])
        self._is_started = False

    # Inside

    def _take(self) -> _Taken:
        return _Taken(self.changes, self._content())

    def _wait(self, number: int, callback: Saved, taken: _Taken | None = None) -> None:
        self._waiting.append((number, callback))
        if self._saving is None:
            self._begin(taken or self._take())

    def _begin(self, taken: _Taken) -> None:
        loop = asyncio.get_running_loop()
        self._saving = loop.create_future()
        self._write_lock.acquire()

        def write() -> None:
            failure = None
            try:
                self._write(taken.encode())
            except StoreError as error:
                failure = error
            except Exception as error:
                logger.exception("event=table_not_saved")
                failure = StoreError(f"{type(error).__name__}: {error}")
            finally:
                self._write_lock.release()
            loop.call_soon_threadsafe(self._end, taken.number, failure)

        try:
            loop.run_in_executor(None, write)
        except BaseException:
            self._saving = None
            self._write_lock.release()
            raise

    def _end(self, number: int, failure: StoreError | None) -> None:
        saving, self._saving = self._saving, None
        if failure is not None and number > self._saved:
            self._fail(failure)
        else:
            self._succeed(number)
        if self._saving is None and (self._pending or self._waiting):
            self._begin(self._take())
        if saving is not None:
            saving.set_result(None)

    def _succeed(self, number: int) -> None:
        self._saved = max(self._saved, number)
        while self._waiting and self._waiting[0][0] <= self._saved:
            self._waiting.popleft()[1](None)
        written = []
        while self._pending and self._pending[0].number <= self._saved:
            written.append(self._pending.popleft().names)
        if written:
            try:
                self._on_saved(written)
            except Exception:
                # The table is on the disk: a listener's error must not look like a failed write.
                logger.exception("event=table_listener_failed")

    def _fail(self, error: StoreError) -> None:
        if self._pending:
            self.changes += 1
        while self._pending:
            self._pending.pop().undo()
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)
