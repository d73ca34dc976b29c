"""Spark's daemon of Python workers, without a stack trace when Spark closes the connection of a worker.

A query that has what it needs (``show``, ``first``, ``limit``) closes the connections of workers that still write.
Over a Unix socket (spark.python.unix.domain.socket.enabled) the next write fails, and the daemon of PySpark 4.3 prints
a traceback of BrokenPipeError for each worker (`pyspark/daemon.py`).  The worker has to end then; that is no error.
`spark.runtime.worker_python` starts this file in the place of `MODULE`.  It imports nothing of the project.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

MODULE: Final = "pyspark.daemon"
_HUNG_UP: Final = 1


def until_spark_hangs_up(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap `worker`: return an exit status when Spark closes the connection."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            # From Python 3.13 on, a file that still has data for the connection tells about it again when it is freed.
            sys.unraisablehook = _report_unless_hung_up
            return _HUNG_UP

    return run


def _report_unless_hung_up(unraisable: "sys.UnraisableHookArgs") -> None:
    if not isinstance(unraisable.exc_value, BrokenPipeError):
        sys.__unraisablehook__(unraisable)


def main() -> None:
    sys.path[0] = os.getcwd()  # noqa: PTH109  # as `python -m` has it, not the directory of this file
    from pyspark import daemon

    daemon.worker = until_spark_hangs_up(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
