"""A process that has everything of a broker and a name server imported and forks one per order.

A broker starts in a twentieth of the time that way, so a suite can kill a hundred.  What runs in the fork is
`mqbroker`'s own entry point, or `mqnamesrv`'s, in a process of its own; a real kernel kills it.  Orders come on the
socket that is this process's stdin: JSON with the arguments, together with the descriptors for the server's stdout and
stderr.
"""

import ctypes
import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

_ORDER_BYTES = 65536
_PR_SET_PDEATHSIG = 1


def serve(orders: socket.socket) -> None:
    """Answer orders until the other side hangs up: a program with a pid, `reap` with the exit status of that one."""
    while True:
        content, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 2)
        if not content:
            return
        order: dict[str, Any] = json.loads(content)
        if order["do"] == "reap":
            answer = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
        else:
            answer = _fork(order, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        orders.send(str(answer).encode())


def _fork(order: dict[str, Any], descriptors: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for target, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
            os.dup2(descriptor, target)
        os.environ.update(order["environment"])
        os.chdir(order["directory"])
        faulthandler.enable()  # a SIGBUS says where
        status = _run(order["do"], order["arguments"])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _run(program: str, arguments: list[str]) -> int:
    from sprocket_cli.server import mqbroker, mqnamesrv

    entry = {"mqbroker": mqbroker.main, "mqnamesrv": mqnamesrv.main}[program]
    try:
        entry(arguments, prog_name=program)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Import all that a broker imports, then serve."""
    import uvloop  # noqa: F401 - for the forks

    import broker.server  # noqa: F401
    import namesrv.server  # noqa: F401
    import sprocket_cli.server.mqbroker
    import sprocket_cli.server.mqnamesrv
    import sprocket_cli.server.server_config
    import sprocket_cli.server.server_process  # noqa: F401

    gc.freeze()  # a collection in a fork would copy every page of what is imported
    with socket.socket(fileno=os.dup(0)) as orders:
        orders.send(b"ready")
        serve(orders)


if __name__ == "__main__":
    main()
