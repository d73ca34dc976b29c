"""Workers for the tasks of a table: this process, processes of this machine, or executors of a Spark session."""

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

# Smaller work is done in this process, because a transfer takes longer.
_WORTH_BYTES: Final = 48 * 1024 * 1024


class TaskFailed(StoreError):
    """A task could not write; the batch was not committed."""


class Workers(Protocol):
    """Workers that run the tasks of one batch."""

    @property
    def processes(self) -> int:
        """Number of tasks that run in parallel."""

    def run(self, tasks: Sequence[WriteTask]) -> Written:
        """Run all tasks in parallel.  Raises TaskFailed with the first reason."""


class LocalWorkers:
    """Processes of this machine, started when there is enough work and then kept.

    `on_start` runs in each of them first, with its arguments.
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
            # No fork: the packages for commits have threads, which do not survive it.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.processes, mp_context=context, initializer=self._on_start, initargs=self._arguments
            )
        return self._pool


class SparkWorkers:
    """Executors of a Spark session; the store and the table must have the same paths there."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self.processes = max(1, spark.sparkContext.defaultParallelism)

    def run(self, tasks: Sequence[WriteTask]) -> Written:
        if not tasks:
            return Written()
        context = self._spark.sparkContext
        return gathered(context.parallelize(list(tasks), len(tasks)).map(run_task).collect())


def gathered(outcomes: Sequence[Written | Failed]) -> Written:
    """Return the sum of what all tasks wrote.

    Raises TaskFailed if one failed; the files of the others stay without a commit, and `TableJob` removes them.
    """
    total = Written()
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise TaskFailed(outcome.reason)
        total.add(outcome)
    return total
