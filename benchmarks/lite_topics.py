"""What very many lite topics cost a broker: memory, files, its start, and the way of a message to its subscriber.

    python -m benchmarks.lite_topics [--topics 100000] [--folder FOLDER]

A name server and a broker are started.  Each lite topic gets a message; then clients with 1,000 lite topics each
receive and acknowledge all of them.  The broker is restarted.  Latencies are those of one message at a time, from its
send to its arrival in the subscriber's held pop, while the broker is otherwise idle.  A probe asks the broker for an
offset every few milliseconds, so its slowest answer shows the longest turn of the broker's event loop.
"""

import argparse
import itertools
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.system.process import cpu_s, leave_on_sigterm, machine, memory
from sprocket.remoting.codes import RequestCode
from tests.compat import wire
from tests.compat.cluster import Server, SprocketCluster

PARENT: Final = "Sessions"
GROUP: Final = "Agents"
_AT_ONCE: Final = 200
_OF_CLIENT: Final = 1000
_MESSAGES: Final = 200
_POLLING_TIMEOUT: Final = 210
LIGHT_PROPERTIES: Final = {
    "enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "10000000",
    "maxLiteSubscriptionCount": "10000000", "liteTtlCheckInterval": "2000", "liteEventCheckInterval": "1000",
}  # fmt: skip


class Connection:
    """A connection that sends requests, and waits for their responses in any order."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)

    def send(self, requests: Sequence[tuple[int, dict[str, str], bytes]]) -> None:
        """Write all requests at once."""
        frames = [wire.request(code, next(self._numbers), fields, body) for code, fields, body in requests]
        self._socket.sendall(b"".join(frames))

    def receive(self) -> wire.Response:
        """Return the next response."""
        size = int.from_bytes(wire.read_exactly(self._socket, 4), "big")
        return wire.parse(wire.read_exactly(self._socket, size))

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> wire.Response:
        """Send one request and return its response.  Raises SystemExit for a refusal."""
        self.send([(code, fields, body)])
        return well(self.receive())

    def ask_any(self, request: tuple[int, dict[str, str], bytes]) -> wire.Response:
        """Send one request and return its response, also a refusal."""
        self.send([request])
        return self.receive()

    def close(self) -> None:
        self._socket.close()


def well(response: wire.Response) -> wire.Response:
    if response.code:
        raise SystemExit(f"a request was refused: {response.code} {response.remark}")
    return response


def lite(number: int) -> str:
    """The name of a lite topic, as long as a UUID without hyphens."""
    return f"session-{number:024d}"


def message(number: int, body: bytes = b"m") -> tuple[int, dict[str, str], bytes]:
    fields = {
        "a": "bench", "b": PARENT, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
        "h": "0", "i": f"__LITE_TOPIC\x01{lite(number)}\x02", "j": "0", "k": "false", "l": "16", "m": "false",
    }  # fmt: skip
    return wire.SEND_MESSAGE_V2, fields, body


def prepare(connection: Connection, minutes: int) -> None:
    """Create the parent topic and the group."""
    attributes = f"+message.type=LITE,+lite.topic.expiration={minutes}"
    topic = {
        "topic": PARENT, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": attributes,
    }  # fmt: skip
    connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    prepare_group(connection, GROUP)


def prepare_group(connection: Connection, name: str) -> None:
    """Create a group of the parent's lite topics."""
    group = {"groupName": name, "attributes": {"+lite.bind.topic": PARENT}}
    connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())


def in_batches(connection: Connection, requests: Iterator[tuple[int, dict[str, str], bytes]]) -> None:
    while batch := list(itertools.islice(requests, _AT_ONCE)):
        connection.send(batch)
        for _ in batch:
            well(connection.receive())


def subscribe(connection: Connection, client: str, numbers: Sequence[int], group: str = GROUP) -> None:
    names = [lite(number) for number in numbers]
    change = {
        "action": "COMPLETE_ADD", "clientId": client, "group": group, "topic": PARENT, "liteTopicSet": names,
        "version": 1,
    }  # fmt: skip
    body = json.dumps({"subscriptionSet": [change]}).encode()
    connection.ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)


def pop(client: str, poll_ms: int, group: str = GROUP) -> tuple[int, dict[str, str], bytes]:
    fields = {
        "clientId": client, "consumerGroup": group, "topic": PARENT, "maxMsgNum": "32", "invisibleTime": "60000",
        "pollTime": str(poll_ms), "bornTime": str(int(time.time() * 1000)),
    }  # fmt: skip
    return RequestCode.POP_LITE_MESSAGE, fields, b""


def acknowledgements(response: wire.Response, group: str = GROUP) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Acknowledge all messages of a pop."""
    popped, at, body = response.fields, 0, response.body
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        texts = body[at : at + size].split(b"__LITE_TOPIC\x01", 1)[1].split(b"\x02", 1)[0].decode()
        offset = body[at : at + size].split(b"INNER_MULTI_QUEUE_OFFSET\x01", 1)[1].split(b"\x02", 1)[0].decode()
        at += size
        handle = f"0 {popped['popTime']} {popped['invisibleTime']} {popped['reviveQid']} 0 broker-a 0 {offset}"
        fields = {
            "consumerGroup": group, "topic": PARENT, "queueId": "0", "extraInfo": handle, "offset": offset,
            "liteTopic": texts,
        }  # fmt: skip
        yield RequestCode.ACK_MESSAGE, fields, b""


def consume(connection: Connection, topics: int) -> None:
    """Subscribe, receive and acknowledge everything."""
    received = 0
    for number, first in enumerate(range(0, topics, _OF_CLIENT)):
        client = f"client-{number}"
        subscribe(connection, client, range(first, min(first + _OF_CLIENT, topics)))
        while True:
            connection.send([pop(client, 0)])
            response = connection.receive()
            if response.code == _POLLING_TIMEOUT:
                break
            acks = list(acknowledgements(well(response)))
            received += len(acks)
            in_batches(connection, iter(acks))
    if received != topics:
        raise SystemExit(f"{received} messages were received, {topics} were sent")


def latency_ms(address: str, topics: int) -> list[float]:
    """Milliseconds of one message after the other to a held pop."""
    reader, writer, found = Connection(address), Connection(address), list[float]()
    step = max(1, topics // _MESSAGES)
    numbers = list(range(0, topics, step))[:_MESSAGES]
    subscribe(reader, "reader", numbers)
    for number in numbers:
        reader.send([pop("reader", 10_000)])
        time.sleep(0.005)  # the pop is held by then
        began = time.perf_counter()
        writer.send([message(number, b"new")])
        answer = well(reader.receive())
        found.append((time.perf_counter() - began) * 1000)
        well(writer.receive())
        in_batches(reader, acknowledgements(answer))
    return found


@contextmanager
def probe(address: str, what: str) -> Iterator[None]:
    """Print the slowest answers to small requests during a phase."""
    ended, times = threading.Event(), list[float]()

    def ask() -> None:
        connection = Connection(address)
        while not ended.wait(0.002):
            began = time.perf_counter()
            connection.ask(wire.GET_MAX_OFFSET, {"topic": PARENT, "queueId": "0"})
            times.append((time.perf_counter() - began) * 1000)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        times.sort()
        print(
            f"{what}: slowest answer to a probe {times[-1]:.1f} ms, p99 {times[-len(times) // 100]:.1f} ms,"
            f" p50 {times[len(times) // 2]:.2f} ms of {len(times)}"
        )


def files(folder: Path) -> tuple[int, int]:
    """Return the numbers of files and directories, and the allocated bytes, of ConsumeQueues."""
    count = size_bytes = 0
    for directory, names, others in os.walk(folder):
        count += len(names) + len(others)
        for name in names + others:
            size_bytes += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118 - many files
    return count, size_bytes


def each(pid: int, before: int, topics: int) -> str:
    return f"{(memory(pid).anonymous_bytes - before) / topics:,.0f} bytes of memory per lite topic"


def restart(broker: Server) -> str:
    """Stop the broker and start it; return the seconds of the start, until it answers, and those of its processor."""
    broker.stop()
    began = time.perf_counter()
    broker.start()
    while True:
        broker.check()
        try:
            Connection(broker.address).ask(wire.GET_MAX_OFFSET, {"topic": PARENT, "queueId": "0"})
        except OSError:
            time.sleep(0.01)
        else:
            used_s = cpu_s(broker.pid)
            return f"{time.perf_counter() - began:.2f} s, {used_s:.2f} s of processor time"


def show_lag(address: str) -> None:
    began = time.perf_counter()
    Connection(address).ask(RequestCode.GET_LITE_GROUP_INFO, {"group": GROUP, "topK": "10"})
    print(f"largest lags of a group: {(time.perf_counter() - began) * 1000:.1f} ms")


def run(folder: Path, topics: int, wait_s: float) -> None:
    with SprocketCluster(folder / "cluster", properties=LIGHT_PROPERTIES) as cluster:
        broker = cluster.brokers[0]
        connection = Connection(broker.address)
        prepare(connection, -1)
        in_batches(connection, (message(topics + number) for number in range(1000)))
        print(f"start with {0:,} lite topics: {restart(broker)}")
        connection = Connection(broker.address)
        in_batches(connection, (message(topics + number) for number in range(1000)))
        empty = memory(broker.pid).anonymous_bytes
        began = time.perf_counter()
        with probe(broker.address, "while lite topics are created"):
            in_batches(connection, map(message, range(topics)))
        print(f"sent to {topics:,} new lite topics in {time.perf_counter() - began:.1f} s")
        print("after the sends:", each(broker.pid, empty, topics))
        count, size_bytes = files(folder / "cluster" / "broker-a" / "store" / "consumequeue")
        print(f"disk: {count / topics:.2f} files and folders, {size_bytes / topics:,.0f} bytes per lite topic")
        phases: list[tuple[str, Callable[[], object]]] = [
            ("idle", lambda: time.sleep(wait_s)),
            ("largest lags of a group", lambda: show_lag(broker.address)),
            ("all received and acknowledged", lambda: consume(connection, topics)),
            ("idle after that", lambda: time.sleep(wait_s)),
        ]
        for what, work in phases:
            with probe(broker.address, what):
                work()
        print("all subscribed, received and acknowledged:", each(broker.pid, empty, topics))
        for _ in range(3):
            print(f"start with {topics:,} lite topics: {restart(broker)}")
        with probe(broker.address, "after the start"):
            time.sleep(wait_s)
        print("after the start:", each(broker.pid, empty, topics))
        times = latency_ms(broker.address, topics)
        print(f"a message to its subscriber: median {statistics.median(times):.2f} ms, slowest {max(times):.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--wait", type=float, default=10.0, help="seconds of each idle phase")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        run(Path(name), given.topics, given.wait)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
