"""Saver of a table whose file is replaced whole: in a thread, one write for all changes made during the last write.

Memory changes first, so that a request continues at once.  A handler that must not respond before a change is on the
disk waits for `saved`.  If a write fails, its changes are rolled back, and all waiting handlers get the error.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from sprocket.common.errors import SprocketError, StoreError

logger = logging.getLogger(__name__)
T = TypeVar("T")
Saved = Callable[[StoreError | None], None]


class Change(NamedTuple, Generic[T]):
    """A change, and the function that rolls it back."""

    what: T
    undo: Callable[[], None]


class TableSaver(Generic[T]):
    """Saver in the event loop's thread.  Before `start` and after `stop`, a change is written before the call returns.

    `content` is called in this thread; it returns a function that the writing thread calls for the bytes to write.
    `on_saved` gets the changes of each write.
    """

    def __init__(
        self,
        content: Callable[[], Callable[[], bytes]],
        write: Callable[[bytes], None],
        on_saved: Callable[[list[T]], None],
    ) -> None:
        self._content = content
        self._write = write
        self._on_saved = on_saved
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._pending: list[Change[T]] = []
        self._changed = self._saved = 0  # changes ever made, and those that are written
        self._waiting: deque[tuple[int, Saved]] = deque()
        # Whether appends of this turn of the loop depend on a change that is not written.
        self.is_relied_on = False

    # Changing

    def changed(self, what: T, undo: Callable[[], None]) -> None:
        """Save a change that was made in memory.  Before `start` a failure raises `StoreError` after a rollback."""
        self._pending.append(Change(what, undo))
        self._changed += 1
        if self._loop is None:
            self._save_now()
        elif self._task is None:
            self._task = self._loop.create_task(self._save())

    @property
    def is_behind(self) -> bool:
        """Whether there are changes that are not written."""
        return self._changed > self._saved

    @property
    def pending(self) -> list[T]:
        """The changes that no write includes yet."""
        return [change.what for change in self._pending]

    def rely(self) -> None:
        """Delay the responses to appends of this turn of the loop until all changes so far are written."""
        if self._changed > self._saved and self._loop is not None and not self.is_relied_on:
            self.is_relied_on = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.is_relied_on = False

    # Waiting

    def when_saved(self, callback: Saved) -> None:
        """Call `callback(None)` when all changes so far are written, or `callback(error)` after their rollback."""
        if self._saved == self._changed:
            callback(None)
        else:
            self._waiting.append((self._changed, callback))

    async def saved(self) -> None:
        """Wait until all changes so far are written.  Raises the `StoreError` that rolled them back."""
        if self._saved == self._changed:
            return
        future: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        self.when_saved(lambda error: None if future.done() else future.set_result(error))
        error = await future
        if error is not None:
            raise error

    # Life

    def start(self) -> None:
        """Write in a thread from now on."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Wait until everything is written, and write each change at once from now on."""
        if self._task is not None:
            await asyncio.wait([self._task])
        self._loop = None

    # Inside

    async def _save(self) -> None:
        while self._pending:
            written, self._pending = self._pending, []
            upto, make = self._changed, self._content()
            try:
                await asyncio.to_thread(self._write_made, make)
            except StoreError as error:
                self._take_back(written, error)
            except Exception as error:
                logger.exception("event=table_not_saved")
                self._take_back(written, StoreError(f"{type(error).__name__}: {error}"))
            else:
                self._written(written, upto)
        self._task = None

    def _write_made(self, make: Callable[[], bytes]) -> None:
        self._write(make())

    def _save_now(self) -> None:
        written, self._pending = self._pending, []
        try:
            self._write(self._content()())
        except SprocketError as error:
            failure = error if isinstance(error, StoreError) else StoreError(str(error))
            self._take_back(written, failure)
            raise
        self._written(written, self._changed)

    def _written(self, written: list[Change[T]], upto: int) -> None:
        self._saved = upto
        try:
            self._on_saved([change.what for change in written])
        except Exception:
            # The table is on the disk: a listener's error must not look like a failed write.
            logger.exception("event=table_listener_failed")
        while self._waiting and self._waiting[0][0] <= upto:
            self._waiting.popleft()[1](None)

    def _take_back(self, written: list[Change[T]], error: StoreError) -> None:
        """Roll back the unwritten changes and all later ones: a change may depend on the one before."""
        since, self._pending = self._pending, []
        for change in reversed([*written, *since]):
            change.undo()
        self._saved = self._changed
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)
