"""What a transaction and a delayed message cost a whole broker, without a socket.

    python -m benchmarks.kinds [--rounds 15] [--path usual|decoders]

A round of transactions is a read of 64 half messages, then reads as the load generator of `benchmarks.system` writes
them: for each response an END_TRANSACTION, which commits, and the next half message.  A round of delayed messages is 16
reads of 64, each due 1 s later, and all turns of the timer until they are in their topic.  Microseconds of CPU of the
event loop's thread for each message, from the bytes of a read to the stored record, medians of the rounds.
"""

import argparse
import asyncio
import gc
import json
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.gate import Sink
from benchmarks.system.frames import sends
from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from sprocket.engine.choice import ENGINE
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.routes import RouteTable
from store.config.store_config import StoreConfig
from tests.compat import wire

_TOPIC: Final = "Orders"
_QUEUES: Final = 4
_AT_ONCE: Final = 64
_BODY_BYTES: Final = 128
_TURNS: Final = 16
_DELAY_MS: Final = 1000
_END_TRANSACTION: Final = 37
_COMMIT: Final = "8"
_HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01bench-producer\x02"
_STORED: Final = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})".*?"queueOffset":"(\d+)"')


class Peer(Sink):
    """Takes everything at once, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def requests(properties: str, flag: str = "0") -> list[bytes]:
    """The requests of one read."""
    found = sends(_TOPIC, _BODY_BYTES, _AT_ONCE, properties)
    return [
        wire.request(wire.SEND_MESSAGE_V2, slot, fields | {"f": flag}, body)
        for slot, (fields, body) in enumerate(found)
    ]


def commit(physical_offset: int, queue_offset: bytes) -> bytes:
    """The request that commits a half message."""
    fields = {
        "topic": _TOPIC, "producerGroup": "bench-producer", "tranStateTableOffset": queue_offset.decode(),
        "commitLogOffset": str(physical_offset), "commitOrRollback": _COMMIT, "fromTransactionCheck": "false",
        "msgId": "7F0000010B2A18B4AAC2000000000000", "transactionId": "7F0000010B2A18B4AAC2000000000000",
    }  # fmt: skip
    return wire.request(_END_TRANSACTION, 1, fields, oneway=True)


class Bench:
    """A started broker, and a connection to it."""

    def __init__(self, broker: Broker, table: RouteTable) -> None:
        self._broker = broker
        self._peer = Peer()
        self._channel = RemotingChannel(table, ChannelCounters())
        self._channel.connection_made(self._peer)

    def _stored(self) -> int:
        return sum(self._broker.store.max_offset(_TOPIC, queue) for queue in range(_QUEUES))

    async def _read(self, content: bytes) -> float:
        """Serve one read; return its CPU, us."""
        began = time.thread_time()
        self._channel.data_received(content)
        await asyncio.sleep(0)
        return (time.thread_time() - began) * 1e6

    def _ends(self) -> list[bytes]:
        """The ends of the half messages that were stored since the last call."""
        found = _STORED.findall(b"".join(self._peer.written))
        self._peer.written.clear()
        if len(found) != _AT_ONCE:
            raise SystemExit(f"{len(found)} of {_AT_ONCE} half messages were stored")
        return [commit(int(physical, 16), queue_offset) for physical, queue_offset in found]

    async def transactions(self) -> dict[str, float]:
        """One round."""
        halves = requests(_HALF, "4")
        before, both, half = self._stored(), 0.0, await self._read(b"".join(halves))
        for _ in range(_TURNS):
            both += await self._read(b"".join(end + one for end, one in zip(self._ends(), halves, strict=True)))
        end = await self._read(b"".join(self._ends()))
        if self._stored() - before != _AT_ONCE * (_TURNS + 1):
            raise SystemExit("transactions are missing")
        return {
            "transaction: half messages alone": half / _AT_ONCE,
            "transaction: ends alone": end / _AT_ONCE,
            "transaction: both in each read": both / _AT_ONCE / _TURNS,
        }

    async def delayed(self) -> dict[str, float]:
        """One round."""
        content = b"".join(requests(f"TIMER_DELAY_MS\x01{_DELAY_MS}\x02"))
        before, sending, began = self._stored(), 0.0, time.thread_time()
        for _ in range(_TURNS):
            sending += await self._read(content)
        self._peer.written.clear()
        deadline = time.monotonic() + 30
        while self._stored() - before < _AT_ONCE * _TURNS:
            if time.monotonic() > deadline:
                raise SystemExit("delayed messages are missing")
            await asyncio.sleep(0.1)
        messages = _AT_ONCE * _TURNS
        whole = (time.thread_time() - began) * 1e6
        return {
            "delayed: sends": sending / messages,
            "delayed: the timer": (whole - sending) / messages,
            "delayed: whole": whole / messages,
        }


async def measure(rounds: int, path: str) -> dict[str, float]:
    """Medians by work, us for each message, of this process's engine."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = StoreConfig(store_path_root_dir=Path(folder))
        # A generator without a socket cannot be slowed down, so nothing is shed.
        broker = Broker(BrokerConfig(listen_port=0, namesrv_addr="", broker_fast_failure_enable=False), store)
        await broker.start()
        broker.topics.update([TopicConfig(_TOPIC, _QUEUES, _QUEUES)])
        saved = asyncio.get_running_loop().create_future()
        broker.topics.when_saved(saved.set_result)
        await saved
        table = broker.routes
        if path == "decoders":
            table = RouteTable([replace(route, usual=None) for route in table.routes], latency=table.latency)
        bench = Bench(broker, table)
        for number in range(rounds + 1):
            for work in (bench.transactions, bench.delayed):
                gc.collect()
                # The first round warms up.
                for name, taken in (await work()).items():
                    found.setdefault(name, []).extend([taken] if number else [])
        await broker.stop()
    return {name: median(taken) for name, taken in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--path", choices=("usual", "decoders"), default="usual", help="decoders: no fused path")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(options.rounds, options.path))
    if options.json:
        print(json.dumps(found))
        return
    print(f"| Work, engine {ENGINE.name} | us |")
    print("|---|--:|")
    for name, taken in found.items():
        print(f"| {name} | {taken:.1f} |")


if __name__ == "__main__":
    main()
