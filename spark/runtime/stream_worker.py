"""Process that polls for a stream's new messages: it connects to Spark before it imports PySpark.

Spark waits 10 s for this process to connect, and not at all for what it says next (Spark 4.3,
`PythonWorkerFactory.createSimpleWorker`).  To import PySpark takes ten times the processor time that Python takes to
start, so on a busy machine a query would fail with "Python worker failed to connect back".
`spark.runtime.worker_python` starts this file in the place of `MODULE`.  It imports nothing of the project and little
else.
"""

import contextlib
import os
import runpy
import socket
import sys
from typing import Final

MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"

# Where Spark listens: a socket in the file system (spark.python.unix.domain.socket.enabled).  Without it there is a
# port and a secret, and what is exchanged then has a limit of its own.
_ADDRESS: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"


def connect_early(address: str) -> None:
    """Connect to `address` now; the first socket of this process that connects there gets this connection."""
    connect = socket.socket.connect
    early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early.connect(address)

    def take_early(opened: socket.socket, wanted: object) -> None:
        if wanted != address:
            connect(opened, wanted)  # type: ignore[arg-type]  # whatever addresses are
            return
        del socket.socket.connect  # for this one connection only
        early.settimeout(opened.gettimeout())
        os.dup2(early.fileno(), opened.fileno(), inheritable=False)
        early.close()

    socket.socket.connect = take_early  # type: ignore[method-assign, assignment]  # PySpark makes the socket itself


def main() -> None:
    sys.path[0] = os.getcwd()  # noqa: PTH109  # as `python -m` has it, not the directory of this file
    address = os.environ.get(_ADDRESS)
    if address:
        with contextlib.suppress(OSError):  # PySpark says what is wrong
            connect_early(address)
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
