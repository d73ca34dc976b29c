"""Micro benchmarks of the broker's path of a message, from the bytes of a read to the bytes of the answer.

No socket: a transport that keeps nothing.  Each round is a turn of the loop, which `test_turn` measures alone.  A round
of sends handles 64 messages, a round of pulls one request.
Run with `pytest benchmarks --benchmark-only`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sprocket.remoting.channel import ChannelCounters, RemotingChannel
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.routes import RouteTable
from tests.broker.hot_path import HotPath, hot_path, properties

BOTH = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ], ids=["json", "rocketmq"])


class Sink(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, 40000), "sockname": ("127.0.0.1", 10911)})

    def write(self, data: object) -> None: ...

    def writelines(self, list_of_data: object) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...


class Path64:
    """The hot path, driven from outside its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: HotPath) -> None:
        self.loop = loop
        self.path = path
        self.channel = RemotingChannel.__new__(RemotingChannel)

    def connect(self) -> None:
        table = RouteTable([*self.path.send_processor.routes(), *self.path.pull_processor.routes()])

        async def make() -> RemotingChannel:
            return RemotingChannel(table, ChannelCounters())

        self.channel = self.loop.run_until_complete(make())
        self.channel.connection_made(Sink())

    def turn(self, content: bytes) -> None:
        """One read, in a turn of the loop.  What the read leaves to the end of its turn runs first in the next one."""
        self.loop.call_soon(self.channel.data_received, content)
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def sends(self, count: int, body_bytes: int, serialization: int) -> bytes:
        """A read of `count` sends to four queues."""
        headers = [
            self.path.send_header(queue_id=n % 4, properties=properties(TAGS="TagA", KEYS="k")) for n in range(4)
        ]
        frames = [
            encode_request(310, n, headers[n % 4], body_bytes, serialization=serialization) + bytes(body_bytes)
            for n in range(count)
        ]
        return b"".join(frames)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path64]:
    """A broker's hot path on a store of real size."""
    loop = asyncio.new_event_loop()
    stack = AsyncExitStack()
    sizes = {"mapped_file_size_commit_log": 1 << 30, "mapped_file_size_consume_queue": 6_000_000}
    driven = Path64(loop, loop.run_until_complete(stack.enter_async_context(hot_path(tmp_path, store=sizes))))
    driven.connect()
    yield driven
    loop.run_until_complete(stack.aclose())
    loop.close()


@BOTH
@pytest.mark.parametrize("body_bytes", [128, 1024])
def test_send_64(benchmark: BenchmarkFixture, path: Path64, body_bytes: int, serialization: int) -> None:
    content = path.sends(64, body_bytes, serialization)
    benchmark(path.turn, content)
    assert path.path.store.max_offset("Orders", 0) >= 16


def test_turn(benchmark: BenchmarkFixture, path: Path64) -> None:
    def nothing() -> None:
        path.loop.call_soon(len, b"")
        path.loop.call_soon(path.loop.stop)
        path.loop.run_forever()

    benchmark(nothing)


@BOTH
def test_send_1(benchmark: BenchmarkFixture, path: Path64, serialization: int) -> None:
    benchmark(path.turn, path.sends(1, 128, serialization))


@BOTH
def test_pull_32(benchmark: BenchmarkFixture, path: Path64, serialization: int) -> None:
    for _ in range(64):
        # One queue alone: its messages are neighbours in the log.
        path.turn(path.sends(1, 128, JSON))
    header = path.path.pull_header(max_msg_nums=32)
    request = encode_request(11, 1, header, serialization=serialization)
    benchmark(path.turn, request)
    assert path.path.flow.out_messages >= 32


def test_pull_32_by_tag(benchmark: BenchmarkFixture, path: Path64) -> None:
    path.turn(path.sends(256, 128, JSON))
    request = encode_request(11, 1, path.path.pull_header(max_msg_nums=32, subscription="TagA || TagB"))
    benchmark(path.turn, request)
    assert path.path.flow.out_messages >= 32


def test_pull_that_is_held(benchmark: BenchmarkFixture, path: Path64) -> None:
    request = encode_request(11, 1, path.path.pull_header(sys_flag=6))

    def hold_and_drop() -> None:
        path.turn(request)
        path.path.held.drop_channel(path.channel.id)

    benchmark(hold_and_drop)
