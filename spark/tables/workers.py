"""Who runs the tasks of a table: this process, several of this machine, or the executors of a Spark session."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from spark.tables.write_task import Failed, WriteTask, Written, run_task
from sprocket.common.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is less is done here: handing it over takes longer.
_WORTH_BYTES: Final = 48 * 1024 * 1024


class TaskFailed(StoreError):
    """A task could not write; nothing of the batch is in the table."""


class Workers(Protocol):
    """Runs the tasks of one batch."""

    @property
    def processes(self) -> int:
        """How many run side by side."""
        ...

    def run(self, tasks: Sequence[WriteTask]) -> Written:
        """All tasks, side by side.  Raises TaskFailed with the first reason."""
        ...


class LocalWorkers:
    """Processes of this machine, started when there is enough to do and kept.

    `on_start` with its arguments runs in each of them first.
    """

    def __init__(
        self, processes: int, on_start: Callable[..., object] | None = None, arguments: tuple[Any, ...] = ()
    ) -> None:
        self.processes = processes
        self._on_start = on_start
        self._arguments = arguments
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def run(self, tasks: Sequence[WriteTask]) -> Written:
        if self.processes == 1 or len(tasks) == 1 or sum(task.weight for task in tasks) < _WORTH_BYTES:
            return gathered([run_task(task) for task in tasks])
        try:
            return gathered(list(self._started().map(run_task, tasks)))
        except BrokenProcessPool as error:
            self._pool = None
            raise TaskFailed(f"a worker process ended: {error}") from error

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Threads of the packages that commit do not survive a fork.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.processes, mp_context=context, initializer=self._on_start, initargs=self._arguments
            )
        return self._pool


class SparkWorkers:
    """The executors of a Spark session, which must reach the store and the table under the same paths."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self.processes = max(1, spark.sparkContext.defaultParallelism)

    def run(self, tasks: Sequence[WriteTask]) -> Written:
        if not tasks:
            return Written()
        context = self._spark.sparkContext
        return gathered(context.parallelize(list(tasks), len(tasks)).map(run_task).collect())


def gathered(outcomes: Sequence[Written | Failed]) -> Written:
    """What all tasks wrote together.  Raises TaskFailed if one has failed; the files of the others stay without a
    commit; `TableJob` removes them."""
    total = Written()
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise TaskFailed(outcome.reason)
        total.add(outcome)
    return total
