"""What the first message of a topic costs: the send that creates the topic waits until the topic is in its file.

    python -m benchmarks.first_sends [--topics 1000] [--rounds 3] [--flush ASYNC_FLUSH|SYNC_FLUSH] [--folder FOLDER]

Each round has a new name server and a new broker, and three measurements that take turns every `_SLICE` operations:
first sends one after the other, sends to a topic that exists, and the bare system calls that replace a file of the
same bytes in the same file system (write, fsync, rename, fsync of the directory; once with the fsyncs, once without).
Then as many first sends go to another new broker at once.
"""

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.system.process import cpu_s, machine
from tests.compat import wire
from tests.compat.cluster import SprocketCluster

_SLICE: Final = 50
_BODY: Final = b"f" * 128


class Connection:
    """A connection to the broker that sends and waits."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def send(self, *topics: str) -> None:
        """Send a message to each topic at once, and wait for all responses.  Raises SystemExit for a refusal."""
        self._socket.sendall(b"".join(self._frame(topic) for topic in topics))
        for _ in topics:
            size = int.from_bytes(wire.read_exactly(self._socket, 4), "big")
            answer = wire.parse(wire.read_exactly(self._socket, size))
            if answer.code:
                raise SystemExit(f"a send was refused: {answer.code} {answer.remark}")

    def _frame(self, topic: str) -> bytes:
        self._number += 1
        fields = {
            "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
            "h": "0", "i": f"UNIQ_KEY\x017F0000010B2A18B4AAC3{self._number:012X}\x02", "j": "0", "k": "false",
            "l": "16", "m": "false",
        }  # fmt: skip
        return wire.request(wire.SEND_MESSAGE_V2, self._number, fields, _BODY)


class Replacements:
    """The bare system calls that replace a file durably."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._name, self._temporary = os.fspath(folder / "t.json"), os.fspath(folder / "t.json.tmp")
        self._directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def replace(self, content: bytes, *, syncs: bool) -> None:
        """Replace the file by `content`."""
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, content)
        if syncs:
            os.fsync(descriptor)
        os.close(descriptor)
        os.rename(self._temporary, self._name)  # noqa: PTH104 - the bare call is what is measured
        if syncs:
            os.fsync(self._directory)


def timed(seconds: list[float], operation: Callable[[], None]) -> None:
    """Append the time of `operation` to `seconds`."""
    began = time.perf_counter()
    operation()
    seconds.append(time.perf_counter() - began)


def one_by_one(folder: Path, count: int, flush: str) -> dict[str, list[float]]:
    """Return the seconds of each operation by its kind."""
    found: dict[str, list[float]] = {
        "first send": [], "send to a topic that exists": [], "bare replacement": [], "the same without fsync": [],
    }  # fmt: skip
    with SprocketCluster(folder / "cluster", properties={"flushDiskType": flush}) as cluster:
        broker = cluster.brokers[0]
        table = next((folder / "cluster").rglob("config/topics.json"), None)
        sender, bare = Connection(broker.address), Replacements(folder / "bare")
        sender.send("Existing")
        table = table or next((folder / "cluster").rglob("config/topics.json"))
        used_s = cpu_s(broker.pid)
        for first in range(0, count, _SLICE):
            numbers = range(first, min(first + _SLICE, count))
            began_s = cpu_s(broker.pid)
            for number in numbers:
                timed(found["first send"], lambda name=f"First{number}": sender.send(name))  # type: ignore[misc]
            used_s += cpu_s(broker.pid) - began_s
            content = table.read_bytes()
            for _ in numbers:
                timed(found["send to a topic that exists"], lambda: sender.send("Existing"))
            for kind, syncs in (("bare replacement", True), ("the same without fsync", False)):
                for _ in numbers:
                    timed(found[kind], lambda: bare.replace(content, syncs=syncs))  # noqa: B023
    return found


def at_once(folder: Path, count: int, flush: str) -> float:
    """Return the seconds until all first sends of one write are answered."""
    with SprocketCluster(folder / "cluster", properties={"flushDiskType": flush}) as cluster:
        sender = Connection(cluster.brokers[0].address)
        sender.send("Existing")
        began = time.perf_counter()
        sender.send(*(f"First{number}" for number in range(count)))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    print(machine())
    totals: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            for kind, seconds in one_by_one(Path(name), given.topics, given.flush).items():
                totals.setdefault(kind, []).append(sum(seconds))
                ms = sorted(second * 1000 for second in seconds)
                print(
                    f"{kind:28s} sum {sum(seconds):6.3f} s"
                    f"  p50 {ms[len(ms) // 2]:6.3f} ms  p99 {ms[-len(ms) // 100]:6.3f} ms"
                )
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            totals.setdefault("all at once", []).append(at_once(Path(name), given.topics, given.flush))
    for kind, seconds in totals.items():
        print(f"{kind:28s} median {statistics.median(seconds):6.3f} s of {given.topics}")


if __name__ == "__main__":
    main()
