"""Tables that follow their logs: one process polls the log for each table.

A table that fails does not stop the others.  It is opened again after a pause, which grows up to a limit.  Nothing is
lost, because the table itself records its place in the log.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import TableDeclaration
from spark.tables.job import TableJob
from spark.tables.workers import Workers
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_COMPACT_EVERY_S: Final = 60.0


@dataclass
class _Followed:
    declaration: TableDeclaration
    job: TableJob | None = None
    due_s: float = 0.0
    compact_due_s: float = 0.0
    failures: int = field(default=0)


class Follower:
    """Writer of new messages in `stores` to the tables of `declarations`; a context manager that closes every table."""

    def __init__(
        self, declarations: Sequence[TableDeclaration], stores: Sequence[StoreDirectory], workers: Workers, clock: Clock
    ) -> None:
        self._tables = [_Followed(declaration) for declaration in declarations]
        self._stores = stores
        self._workers = workers
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for table in self._tables:
            self._close(table)

    def run(self, pause: Callable[[float], bool]) -> None:
        """Process due tables until `pause`, which waits for the given seconds, returns True."""
        while not pause(max(0.0, min(table.due_s for table in self._tables) - self._clock.monotonic())):
            self.look()

    def look(self) -> None:
        """Process every due table once."""
        for table in self._tables:
            if table.due_s <= self._clock.monotonic():
                self._look_at(table)

    def _look_at(self, table: _Followed) -> None:
        declaration = table.declaration
        try:
            if table.job is None:
                job = TableJob(declaration, self._stores, self._workers, self._clock)
                table.job = job.__enter__()
            # Only one batch, so that a table with a large lag does not delay the others.
            table.job.run_batch()
            is_behind = table.job.is_behind
            self._compact_if_due(table, table.job)
        except Exception as error:  # the packages of the formats raise kinds of their own
            self._failed(table, error)
            return
        if table.failures:
            logger.info("event=table_recovered table=%s", declaration.directory)
            table.failures = 0
        table.due_s = self._clock.monotonic() + (0 if is_behind else declaration.interval_s)

    def _compact_if_due(self, table: _Followed, job: TableJob) -> None:
        if self._clock.monotonic() >= table.compact_due_s:
            table.compact_due_s = self._clock.monotonic() + max(_COMPACT_EVERY_S, table.declaration.interval_s)
            job.compact()

    def _failed(self, table: _Followed, error: Exception) -> None:
        self._close(table)
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(table.failures, 16))
        table.failures += 1
        table.due_s = self._clock.monotonic() + pause_s
        logger.error(
            "event=table_failed table=%s topic=%s retry_in_s=%g reason=%r",
            table.declaration.directory, table.declaration.topic, pause_s, str(error),
            exc_info=None if isinstance(error, SprocketError | OSError) else error,
        )  # fmt: skip

    def _close(self, table: _Followed) -> None:
        job, table.job = table.job, None
        if job is not None:
            job.__exit__(None, None, None)
