"""Python for Spark's workers that imports the installed PySpark, not the one in Spark's archive.

Spark puts its ``python/lib/pyspark.zip`` into PYTHONPATH (Spark 4.3, `PythonUtils.sparkPythonPath`), ahead of
everything or, for the process that looks up data sources, after a jar.  Python compiles modules of an archive again in
every process, which takes 0.9 to 1.2 s of processor time in each worker and each reader of a stream.  Spark waits only
10 s for the reader to connect (`PythonWorkerFactory.createSimpleWorker`), so on a busy machine a stream fails with
"Python worker failed to connect back".  The installed PySpark is the same one and is already compiled.  Besides, the
reader of a stream connects before it imports PySpark
(`spark.runtime.stream_worker`).  The daemon that forks workers is `spark.runtime.worker_daemon`.
"""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from spark.runtime import stream_worker, worker_daemon

_VARIABLE: Final = "PYSPARK_PYTHON"
_ARCHIVES: Final = ("pyspark.zip", "py4j-*-src.zip")
# For any shell: `set -f` lets no part of the path stand for files.
_KEEP_ALL_BUT: Final = """set -f
IFS=:
kept=
for part in $PYTHONPATH; do case $part in {}) ;; *) kept="$kept${{kept:+:}}$part" ;; esac; done
PYTHONPATH=$kept
unset IFS
set +f"""

# Removed when this process ends: until then Spark may start workers.
_directories: list["tempfile.TemporaryDirectory[str]"] = []


@contextmanager
def installed_pyspark(master: str | None) -> Iterator[None]:
    """While a session of `master` is started, PYSPARK_PYTHON is such a Python; the session keeps it.

    Only for workers of this machine, and not where PYSPARK_PYTHON or SPARK_HOME say otherwise.
    """
    before = os.environ.get(_VARIABLE)
    is_own = before in (None, sys.executable) and "SPARK_HOME" not in os.environ
    launcher = _launcher() if is_own and (master or "").startswith("local") else None
    if launcher is None:
        yield
        return
    os.environ[_VARIABLE] = str(launcher)
    try:
        yield
    finally:
        # Not for other programs that this process starts: the file ends with it.
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _launcher() -> Path | None:
    """A program that takes Spark's archives off PYTHONPATH and becomes this Python; None where none can be run."""
    library = Path(_find_spark_home()) / "python" / "lib"
    archives = [str(found) for pattern in _ARCHIVES for found in sorted(library.glob(pattern))]
    if os.name != "posix" or not archives:
        return None
    directory = tempfile.TemporaryDirectory(prefix="sprocket-spark-")
    path = Path(directory.name) / "python"
    without = _KEEP_ALL_BUT.format("|".join(map(shlex.quote, archives)))
    python = shlex.quote(sys.executable)
    connected = f'[ "$*" = "-m {stream_worker.MODULE}" ] && exec {python} {shlex.quote(stream_worker.__file__)}'
    own_daemon = f"exec {python} {shlex.quote(worker_daemon.__file__)}"
    forking = f'[ "$1 $2" = "-m {worker_daemon.MODULE}" ] && shift 2 && {own_daemon} "$@"'
    lines = ["#!/bin/sh", without, "export PYTHONPATH", connected, forking, f'exec {python} "$@"\n']
    path.write_text("\n".join(lines))
    path.chmod(0o700)
    if not os.access(path, os.X_OK):  # a file system without programs
        directory.cleanup()
        return None
    _directories.append(directory)
    return path
