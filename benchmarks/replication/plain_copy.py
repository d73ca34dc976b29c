"""The control of catch-up: one process sends a file over a loopback socket, another one writes what comes.

python -m benchmarks.replication.plain_copy FILE BYTES TARGET
"""

import os
import socket
import sys
import time
from pathlib import Path

_AT_ONCE = 1 << 20


def copy(source: Path, size_bytes: int, target: Path) -> tuple[float, float, float]:
    """Seconds by the clock, and of CPU of the sender and of the receiver."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        os._exit(_send(source, size_bytes, listener.getsockname()[1]))
    connection, _ = listener.accept()
    cpu = time.process_time()
    buffer = memoryview(bytearray(_AT_ONCE))
    done, started = 0, time.perf_counter()
    with connection, target.open("wb", buffering=0) as file:
        while count := connection.recv_into(buffer):
            file.write(buffer[:count])
            done += count
    seconds, own = time.perf_counter() - started, time.process_time() - cpu
    _, status, used = os.wait4(child, 0)
    listener.close()
    target.unlink()
    if status or done != size_bytes:
        raise RuntimeError(f"{done} of {size_bytes} bytes came, status {status}")
    return seconds, used.ru_utime + used.ru_stime, own


def _send(source: Path, size_bytes: int, port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection, source.open("rb") as file:
        at = 0
        while at < size_bytes:
            at += os.sendfile(connection.fileno(), file.fileno(), at, size_bytes - at)
    return 0


if __name__ == "__main__":
    print(copy(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
