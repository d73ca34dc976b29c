"""What metrics cost a send: counting, and the latencies that an exporter adds.

    python -m benchmarks.metrics_cost [--rounds 41]

One broker gets the same sends over TCP, in turns of a few hundred messages: without counting, counting, and counting
with latencies, as with `metricsExporterType`.  A ratio is that of two neighbouring turns, in CPU time of the event
loop's thread with its system calls; the client has a thread of its own.  The table has medians.  The control is
a second connection without counting: its ratio shows the noise.  Without counting, an empty function stands for each
call of `MessageFlow`; the time of such calls is added to the cost.
"""

import argparse
import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.sends import Reads, read_of
from broker.config.broker_config import BrokerConfig
from broker.metrics.message_flow import MessageFlow
from broker.server import Broker
from sprocket.metrics.settings import ExporterType
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.listener_settings import ConnectionSettings
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from store.config.store_config import StoreConfig

WORKLOADS: Final = {
    "1 in a read": Reads(1),
    "8 in a read": Reads(8),
    "64 in a read": Reads(64),
    "64 in a read, 1 KiB": Reads(64, 1024),
}
_TOPIC: Final = "Orders"
_SLICE_MESSAGES: Final = 2000
_EMPTY_CALLS: Final = 20_000


class Way:
    """A connection to a server; `counts`: the broker counts messages meanwhile."""

    def __init__(self, server: RemotingServer, *, counts: bool) -> None:
        self.counts = counts
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def exchange(self, content: bytes, messages: int, times: int) -> None:
        """Send a read and take its responses, `times` times."""
        for _ in range(times):
            self._socket.sendall(content)
            for _ in range(messages):
                self._file.read(int.from_bytes(self._file.read(4), "big"))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Cost(NamedTuple):
    """One workload: us for each message without counting, and medians of ratios to that."""

    plain_us: float
    control: float
    counting: float
    exporting: float


class Counting:
    """The switch of a broker's counters of messages."""

    def __init__(self, flow: MessageFlow) -> None:
        self._flow = flow

    def switch(self, on: bool) -> None:
        """Count messages that are stored, or do not."""
        for name in ("stored", "stored_plain"):
            if on:
                self._flow.__dict__.pop(name, None)
            else:
                self._flow.__dict__[name] = _nothing


def _nothing(*_: object, **__: object) -> None:
    """Count nothing."""


def empty_call_us() -> float:
    """Return the time of a call that counts nothing."""
    call: Callable[..., None] = _nothing
    began = time.thread_time()
    for _ in range(_EMPTY_CALLS):
        call(_TOPIC, 1, 100, ())
    return (time.thread_time() - began) / _EMPTY_CALLS * 1e6


async def measure(rounds: int) -> Mapping[str, Cost]:
    """Return the costs by workload."""
    with tempfile.TemporaryDirectory() as folder:
        # A generator without a socket cannot be slowed down, so nothing is shed.
        config = BrokerConfig(
            listen_port=0, namesrv_addr="", broker_fast_failure_enable=False,
            metrics_exporter_type=ExporterType.PROM, metrics_prom_exporter_port=0,
        )  # fmt: skip
        broker = Broker(config, StoreConfig(store_path_root_dir=Path(folder)))
        await broker.start()
        broker.topics.update([TopicConfig(_TOPIC, 4, 4)])
        saved = asyncio.get_running_loop().create_future()
        broker.topics.when_saved(saved.set_result)
        await saved
        table = broker.routes
        assert table.latency is not None, "the broker measures no latencies"
        unmeasured = RouteTable(
            table.routes, overload=table.overload, guard=table.guard, refusals=table.refusals, latency=None
        )
        servers = [RemotingServer(one, ConnectionSettings("127.0.0.1")) for one in (unmeasured, table)]
        for server in servers:
            await server.start()
        ways = {
            "plain": Way(servers[0], counts=False),
            "control": Way(servers[0], counts=False),
            "counting": Way(servers[0], counts=True),
            "exporting": Way(servers[1], counts=True),
        }
        counting = Counting(broker.flow)
        found = {work: await _cost(ways, reads, counting, rounds) for work, reads in WORKLOADS.items()}
        for way in ways.values():
            way.close()
        for server in servers:
            await server.stop()
        await broker.stop()
    return found


async def _cost(ways: Mapping[str, Way], reads: Reads, counting: Counting, rounds: int) -> Cost:
    content = read_of(reads)
    turns = max(1, _SLICE_MESSAGES // reads.messages)

    async def turn(way: Way) -> float:
        counting.switch(way.counts)
        began = time.thread_time()
        await asyncio.to_thread(way.exchange, content, reads.messages, turns)
        return (time.thread_time() - began) / turns / reads.messages * 1e6

    plain: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in ways if name != "plain"}
    empty_us = empty_call_us() / reads.messages
    for number in range(rounds + 1):
        for name, taken in ratios.items():
            # Each goes first every other time.
            pair = (name, "plain") if number % 2 else ("plain", name)
            times = {one: await turn(ways[one]) for one in pair}
            if number:  # the first round warms up
                added = empty_us if ways[name].counts else 0.0
                plain.append(times["plain"])
                taken.append((times[name] + added) / times["plain"])
    return Cost(median(plain), *(median(ratios[name]) for name in ("control", "counting", "exporting")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args(arguments)
    print("| Reads | Without counting, us | Control | Counting | With an exporter |")
    print("|---|--:|--:|--:|--:|")
    for work, cost in asyncio.run(measure(options.rounds)).items():
        shares = " | ".join(f"{(ratio - 1) * 100:+.1f} %" for ratio in cost[1:])
        print(f"| {work} | {cost.plain_us:.2f} | {shares} |")


if __name__ == "__main__":
    main()
