"""What the first message of a topic costs: the send that creates the topic waits until the topic is in its file.

    python -m benchmarks.first_sends [--topics 1000] [--rounds 3] [--flush ASYNC_FLUSH|SYNC_FLUSH] [--folder FOLDER]

Each round has a new name server and a new broker, and measurements that take turns every `_SLICE` operations: first
sends one after the other, sends to a topic that exists, and bare system calls in the same file system: those that
replace a file of the same bytes (write, fsync, rename, fsync of the directory; once with the fsyncs, once without),
and those that make the two directories and the file of a queue.  A first send needs all of that, so their sum is what
it cannot be faster than, unless some of it is done at the same time.  Then as many first sends go to another new
broker at once.
"""

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.system.process import cpu_s, leave_on_sigterm, machine
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


class BareCalls:
    """The bare system calls of a first send."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = os.fspath(folder)
        self._queues = 0
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

    def make_queue(self) -> None:
        """Make the directories and the file of a queue."""
        self._queues += 1
        topic = f"{self._folder}/{self._queues}"
        os.mkdir(topic)  # noqa: PTH102 - the bare call
        os.mkdir(f"{topic}/0")  # noqa: PTH102 - the bare call
        descriptor = os.open(f"{topic}/0/{0:020}", os.O_RDWR | os.O_CREAT)
        os.ftruncate(descriptor, 6_000_000)
        os.close(descriptor)


def timed(seconds: list[float], operation: Callable[[], None]) -> None:
    """Append the time of `operation` to `seconds`."""
    began = time.perf_counter()
    operation()
    seconds.append(time.perf_counter() - began)


def one_by_one(folder: Path, count: int, flush: str) -> dict[str, list[float]]:
    """Return the seconds of each operation by its kind."""
    found: dict[str, list[float]] = {}
    with SprocketCluster(folder / "cluster", properties={"flushDiskType": flush}) as cluster:
        broker = cluster.brokers[0]
        sender, bare = Connection(broker.address), BareCalls(folder / "bare")
        sender.send("Existing")
        table = next((folder / "cluster").rglob("config/topics.json"))
        for first in range(0, count, _SLICE):
            numbers = range(first, min(first + _SLICE, count))
            began_s = cpu_s(broker.pid)
            for number in numbers:
                timed(found.setdefault("first send", []), partial(sender.send, f"First{number}"))
            used_s = (cpu_s(broker.pid) - began_s) / len(numbers)
            found.setdefault("processor time of the broker", []).extend([used_s] * len(numbers))
            content = table.read_bytes()
            for kind, operation in (
                ("send to a topic that exists", partial(sender.send, "Existing")),
                ("bare replacement", partial(bare.replace, content, syncs=True)),
                ("the same without fsync", partial(bare.replace, content, syncs=False)),
                ("bare directories and file", bare.make_queue),
            ):
                for _ in numbers:
                    timed(found.setdefault(kind, []), operation)
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
    leave_on_sigterm()
    main()
