"""A process that sends more than a broker can serve: `python -m tests.chaos.load_generator PLAN`, a JSON text.

It writes requests at a pace, or with a bounded number outstanding, whatever comes back, and prints one line of JSON:
what was offered, what was answered with which code and after how long.  Bodies are numbered, so that what was
acknowledged can be looked for in the broker.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from typing import Final

import msgspec
import uvloop

from remoting.codes import RequestCode
from remoting.frames import encode_request
from remoting.headers.send import SendMessageRequestHeaderV2

TOPIC: Final = "Overload"
_ANSWER: Final = re.compile(rb'"code":(\d+)[^}]*?(?:"extFields":\{[^}]*\})?[^}]*?"opaque":(\d+)[,}]')
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


class Connection(asyncio.Protocol):
    """One connection, whose answers are counted."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.transport: asyncio.Transport | None = None
        self.sent_at: dict[int, float] = {}
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's transports do not derive from it

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = 0
        now = time.monotonic()
        for match in _ANSWER.finditer(data):
            end = match.end()
            self.load.answered(int(match[1]), int(match[2]), (now - self.sent_at.pop(int(match[2]))) * 1000)
        self._rest = data[end:]
        if not self.load.plan.per_second:
            self.load.send(self, self.load.plan.window - len(self.sent_at))

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
        self._number = plan.first_number
        header = SendMessageRequestHeaderV2(
            producer_group="PG", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            sys_flag=0, born_timestamp=1_700_000_000_000, flag=0, properties="TAGS\x01a\x02UNIQ_KEY\x01k\x02",
        )  # fmt: skip
        # As wide as the numbers get, so that the lengths stay.
        frame = encode_request(RequestCode.SEND_MESSAGE_V2, 1_000_000_000, header, plan.body_bytes)
        self._head, self._tail = frame.split(b"1000000000")

    def send(self, connection: Connection, count: int) -> None:
        """Write `count` requests at once."""
        if count <= 0 or self.is_over or connection.transport is None:
            return
        now, pieces = time.monotonic(), []
        for number in range(self._number, self._number + count):
            opaque = 1_000_000_000 + number
            pieces += [self._head, b"%d" % opaque, self._tail, b"%-*d" % (self.plan.body_bytes, number)]
            connection.sent_at[opaque] = now
        self._number += count
        self.figures.offered += count
        connection.transport.write(b"".join(pieces))

    def answered(self, code: int, opaque: int, took_ms: float) -> None:
        """One answer."""
        self.codes[code] += 1
        if code == 0:
            self.figures.acknowledged.append(opaque - 1_000_000_000)
        times = self.figures.refused_ms if code == 2 else self.figures.acknowledged_ms
        if opaque % 16 == 0:
            times.append(round(took_ms, 1))

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
        while any(connection.sent_at for connection in connections) and time.monotonic() < limit:
            await asyncio.sleep(_TICK_S)
        self.codes[-1] = sum(len(connection.sent_at) for connection in connections)
        self.figures.answered = {str(code): count for code, count in self.codes.items() if count}
        return self.figures

    async def _pace(self, connections: list[Connection], begin: float) -> None:
        plan, offered = self.plan, 0.0
        while (elapsed := time.monotonic() - begin) < plan.seconds:
            due = elapsed * plan.per_second - offered
            offered += due
            for connection in connections:
                if plan.per_second and not connection.is_full:
                    self.send(connection, round(due / len(connections)))
            await asyncio.sleep(_TICK_S)


if __name__ == "__main__":
    result = uvloop.run(Load(msgspec.json.decode(sys.argv[1], type=Plan)).run())
    print(json.dumps(msgspec.to_builtins(result)))
