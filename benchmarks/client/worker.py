"""Process of one client: it runs the workloads that it is told on its standard input, and prints what each cost.

It is a script of its own, so that `benchmarks.client.run` can run it with the sources of another tree.  So it uses the
public interface alone; only the control builds frames.
"""

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.remoting.frames import encode_request

_WINDOW = 256
_FRAMES = 8192
_BODY = b"x" * 128
_AT_ONCE = 1024
_WARM_UP = 4000
_LENGTH = struct.Struct(">i")


class Frames(asyncio.Protocol):
    """The control: frames that were made before, as many outstanding as a client's window; responses are counted."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._count = self._sent = self._answered = 0
        self._rest = b""
        self._transport: Any = None
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def send(self, count: int, window: int) -> None:
        self._count, self._sent, self._answered = count, 0, 0
        self._done = asyncio.get_running_loop().create_future()
        self._send(window)
        await self._done

    def _send(self, count: int) -> None:
        count = min(count, self._count - self._sent)
        if count:
            begin = self._sent % _FRAMES
            self._transport.write(b"".join(self._frames[begin : begin + count]))
            self._sent += count

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at, end, answered = 0, len(data), 0
        while end - at >= 4:
            following = at + 4 + _LENGTH.unpack_from(data, at)[0]
            if following > end:
                break
            at = following
            answered += 1
        self._rest = data[at:]
        self._answered += answered
        self._send(answered)
        if self._answered == self._count and self._done is not None and not self._done.done():
            self._done.set_result(None)


def send_frames(topic: str) -> list[bytes]:
    fields = {"a": "G", "b": topic, "c": "TBW102", "d": "4", "f": "0", "g": str(int(time.time() * 1000)), "h": "0"}
    frames = []
    for number in range(_FRAMES):
        own = {"e": str(number % 4), "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02", "j": "0", "k": "false"}
        frames.append(encode_request(310, number, {**fields, **own, "m": "false"}, len(_BODY)) + _BODY)
    return frames + frames[:_WINDOW]


class Client:
    """One client of the name server, with the workloads as methods: each sends or consumes `count` messages."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._groups = 0

    async def open(self) -> None:
        self._producer = await Producer("G", self._namesrv).__aenter__()
        self._batching = await Producer("GB", self._namesrv, settings=SendSettings(auto_batch=True)).__aenter__()
        first = await self._producer.send(self._message())
        route = self._producer._instance.cached_route(self._topic)
        assert route is not None
        address = self._producer._instance.master_address(first.queue.broker_name)
        assert address is not None
        host, port = address.split(":")
        _, self._frames = await asyncio.get_running_loop().create_connection(
            lambda: Frames(send_frames(self._topic)), host, int(port)
        )

    async def close(self) -> None:
        await self._producer.close()
        await self._batching.close()

    def _message(self) -> Message:
        return Message(self._topic, _BODY)

    async def control(self, count: int) -> None:
        await self._frames.send(count, _WINDOW)

    async def control_single(self, count: int) -> None:
        await self._frames.send(count, 1)

    async def single(self, count: int) -> None:
        for _ in range(count):
            await self._producer.send(self._message())

    async def send_many(self, count: int) -> None:
        async for _ in self._producer.send_many((self._message() for _ in range(count)), window=_WINDOW):
            pass

    async def gather(self, count: int) -> None:
        for begin in range(0, count, _AT_ONCE):
            await asyncio.gather(*(self._producer.send(self._message()) for _ in range(min(_AT_ONCE, count - begin))))

    async def auto_batch(self, count: int) -> None:
        for begin in range(0, count, _AT_ONCE):
            await asyncio.gather(*(self._batching.send(self._message()) for _ in range(min(_AT_ONCE, count - begin))))

    async def send_many_batched(self, count: int) -> None:
        async for _ in self._batching.send_many((self._message() for _ in range(count)), window=_WINDOW):
            pass

    async def send_batch(self, count: int) -> None:
        for begin in range(0, count, 32):
            await self._producer.send_batch([self._message() for _ in range(min(32, count - begin))])

    def _group(self) -> str:
        self._groups += 1
        return f"C{self._groups}-{time.time_ns()}"

    async def consume(self, count: int) -> float:
        async with Consumer(self._group(), self._topic, self._namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            begun, left = 0.0, count + _WARM_UP
            async for message in consumer:
                await message.ack()
                left -= 1
                if left == count:
                    begun, self.wall_begun = time.process_time(), time.perf_counter()
                elif not left:
                    break
            return begun

    async def run(self, count: int) -> float:
        begun, left = 0.0, count + _WARM_UP
        async with Consumer(self._group(), self._topic, self._namesrv, consume_from=ConsumeFrom.FIRST) as consumer:

            async def handle(message: Any) -> None:
                nonlocal begun, left
                left -= 1
                if left == count:
                    begun, self.wall_begun = time.process_time(), time.perf_counter()
                elif not left:
                    self.cpu_end, self.wall_end = time.process_time(), time.perf_counter()
                    consumer.stop()

            await consumer.run(handle)
        return begun

    async def _simple(self, count: int, settle: Callable[[SimpleConsumer, list[Any]], Awaitable[object]]) -> float:
        async with SimpleConsumer(
            self._group(), self._topic, self._namesrv, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            begun, left = 0.0, count + 320
            while left > 0:
                received = await consumer.receive(32)
                await settle(consumer, received)
                if left > count >= left - len(received):
                    begun, self.wall_begun = time.process_time(), time.perf_counter()
                left -= len(received)
            self.cpu_end, self.wall_end = time.process_time(), time.perf_counter()
            return begun

    async def simple_ack(self, count: int) -> float:
        async def settle(_: SimpleConsumer, received: list[Any]) -> None:
            for message in received:
                await message.ack()

        return await self._simple(count, settle)

    async def simple_ack_all(self, count: int) -> float:
        return await self._simple(count, lambda consumer, received: consumer.ack_all(received))

    async def measured(self, name: str, count: int) -> dict[str, float]:
        self.wall_begun, self.cpu_end, self.wall_end = time.perf_counter(), 0.0, 0.0
        begun = time.process_time()
        begun = await getattr(self, name)(count) or begun
        cpu_end, wall_end = self.cpu_end or time.process_time(), self.wall_end or time.perf_counter()
        return {
            "cpu_us": (cpu_end - begun) / count * 1e6,
            "rate": count / (wall_end - self.wall_begun),
        }


async def lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


def canned_loop() -> asyncio.AbstractEventLoop:
    # Beside this script, whose directory is in the path: the tree may be of another commit.
    from canned_broker import CannedLoop  # type: ignore[import-not-found]

    CannedLoop.topic, CannedLoop.body = sys.argv[2], _BODY
    loop: asyncio.AbstractEventLoop = CannedLoop()
    return loop


async def main() -> None:
    client = Client(*sys.argv[1:3])
    await client.open()
    print("{}", flush=True)
    async for line in lines():
        name, count = line.split()
        print(json.dumps(await client.measured(name, int(count))), flush=True)
    await client.close()


if __name__ == "__main__":
    if "--realtime" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    if "--uvloop" in sys.argv:
        import uvloop

        uvloop.install()
    with asyncio.Runner(loop_factory=canned_loop if "--without-sockets" in sys.argv else None) as runner:
        runner.run(main())
