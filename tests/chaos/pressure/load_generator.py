"""A process that sends more than a broker can serve: `python -m tests.chaos.pressure.load_generator PLAN`, a JSON text.

It writes requests at a fixed rate, or with a bounded number outstanding, whatever the responses are.  It prints one
line of JSON: what it offered, and the code and time of each response.  Bodies are numbered, so that a test can look for
the acknowledged ones in the broker.  It must cost far less than the server.  So it makes many frames at a time from
one, in which only digits change, and it reads only code and opaque of a response.
"""

import asyncio
import os
import re
import sys
import time
from array import array
from collections import Counter
from typing import Final

import msgspec
import numpy as np
import uvloop

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from tests.send_headers import send_header

TOPIC: Final = "Overload"
# Of an answer, which has its code before its opaque and nothing else of these names.
_CODE: Final = re.compile(rb'"code":(\d+)')
_OPAQUE_KEY: Final = b'"opaque":'
_OPAQUE: Final = re.compile(_OPAQUE_KEY + rb"(\d+)[,}]")
_FIRST_OPAQUE: Final = 1_000_000_000  # opaques of requests are as wide as it, so that all frames are of one length
_DIGITS: Final = 10
_TICK_S: Final = 0.01
# What a connection may have unsent: more is not offered to it, for its sender would have waited itself.
_MOST_UNSENT_BYTES: Final = 64 << 10


class Plan(msgspec.Struct):
    """What one process does."""

    host: str
    port: int
    connections: int
    seconds: float
    per_second: float = 0.0  # requests; 0 for as many as the window takes
    window: int = 64  # outstanding for each connection, if no pace is given
    body_bytes: int = 1000
    first_number: int = 0


class Figures(msgspec.Struct):
    """What came of it; times in ms."""

    offered: int = 0
    answered: dict[str, int] = {}
    acknowledged_ms: list[float] = []  # a sample of the times of SUCCESS
    refused_ms: list[float] = []  # and of SYSTEM_BUSY
    acknowledged: list[int] = []  # numbers of messages
    acknowledged_of: list[int] = []  # how many of each connection


class Connection(asyncio.Protocol):
    """One connection, whose answers are counted."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.transport: asyncio.Transport | None = None
        self.outstanding = 0
        self.acknowledged = 0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's transports do not derive from it

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        opaques = _OPAQUE.findall(data)
        end = data.rindex(_OPAQUE_KEY + opaques[-1]) + len(_OPAQUE_KEY) if opaques else 0
        codes = _CODE.findall(data, 0, end)
        self._rest = data[end:]
        self.outstanding -= len(opaques)
        self.acknowledged += self.load.answered(codes, opaques)
        if not self.load.plan.per_second:
            self.load.send(self, self.load.plan.window - self.outstanding)

    @property
    def is_full(self) -> bool:
        return self.transport is None or self.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES


class Load:
    """The load of one process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.figures = Figures()
        self.codes: Counter[int] = Counter()
        self.is_over = False
        self._sent_at = array("d")  # s, of each request
        header = send_header(TOPIC, properties="TAGS\x01a\x02UNIQ_KEY\x01k\x02")
        frame = encode_request(RequestCode.SEND_MESSAGE_V2, _FIRST_OPAQUE, header, plan.body_bytes)
        self._opaque_at = frame.index(b"%d" % _FIRST_OPAQUE)
        self._body_at = len(frame)
        self._frame = np.frombuffer(frame + b" " * plan.body_bytes, dtype=np.uint8)

    def send(self, connection: Connection, count: int) -> None:
        """Write `count` requests at once."""
        if count <= 0 or self.is_over or connection.transport is None:
            return
        frames = np.tile(self._frame, (count, 1))
        first = self.plan.first_number + len(self._sent_at)
        numbers = np.arange(first, first + count)
        for place in range(_DIGITS):
            digits = numbers // 10 ** (_DIGITS - 1 - place) % 10 + ord("0")
            frames[:, self._body_at + place] = digits
            frames[:, self._opaque_at + place] = digits
        frames[:, self._opaque_at] = ord("1")
        self._sent_at.extend([time.monotonic()] * count)
        self.figures.offered += count
        connection.outstanding += count
        connection.transport.write(frames.tobytes())

    def answered(self, codes: list[bytes], opaques: list[bytes]) -> int:
        """Some answers; how many of them were SUCCESS."""
        now, figures, before = time.monotonic(), self.figures, len(self.figures.acknowledged)
        for code, text in zip(codes, opaques, strict=True):
            number = int(text) - _FIRST_OPAQUE
            if code == b"0":
                figures.acknowledged.append(number)
            if number % 16 == 0:
                took_ms = (now - self._sent_at[number - self.plan.first_number]) * 1000
                (figures.refused_ms if code == b"2" else figures.acknowledged_ms).append(round(took_ms, 1))
        self.codes.update(map(int, codes))
        return len(figures.acknowledged) - before

    async def run(self) -> Figures:
        """Offer the load, wait for what is under way, and say what came of it."""
        loop, plan = asyncio.get_running_loop(), self.plan
        made = [loop.create_connection(lambda: Connection(self), plan.host, plan.port) for _ in range(plan.connections)]
        connections = [connection for _, connection in await asyncio.gather(*made)]
        begin = time.monotonic()
        if not plan.per_second:
            for connection in connections:
                self.send(connection, plan.window)
        await self._pace(connections, begin)
        self.is_over = True
        limit = time.monotonic() + 20
        while any(connection.outstanding for connection in connections) and time.monotonic() < limit:
            await asyncio.sleep(_TICK_S)
        self.codes[-1] = sum(connection.outstanding for connection in connections)
        self.figures.acknowledged_of = [connection.acknowledged for connection in connections]
        self.figures.answered = {str(code): count for code, count in self.codes.items() if count}
        return self.figures

    async def _pace(self, connections: list[Connection], begin: float) -> None:
        plan, offered = self.plan, 0
        while (elapsed := time.monotonic() - begin) < plan.seconds:
            due = int(elapsed * plan.per_second) - offered
            offered += due
            for index, connection in enumerate(connections):
                if plan.per_second and not connection.is_full:
                    self.send(connection, (due + index) // len(connections))
            await asyncio.sleep(_TICK_S)


if __name__ == "__main__":
    result = uvloop.run(Load(msgspec.json.decode(sys.argv[1], type=Plan)).run())
    text = msgspec.json.encode(result)
    os.set_blocking(sys.stdout.fileno(), True)
    while text:
        text = text[os.write(sys.stdout.fileno(), text) :]
