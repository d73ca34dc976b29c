"""What pops, their acknowledgements and SQL-filtered pulls cost a whole broker, without a socket.

    python -m benchmarks.pops [--slices 40]

The workloads are those of `benchmarks.system.run --kinds`, with the engine in use (SPROCKET_ENGINE).  Microseconds of
CPU for each message, medians over slices: of the event loop's thread for the requests, from the bytes of a read to the
bytes of its responses, then for what the loop does between the slices (the timer wheel), and of the whole process.  The
last column is the load generator's own work.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.sends import Peer
from benchmarks.system.exchanges import Exchange, Pops, SqlPulls
from benchmarks.system.frames import PULL_BATCH, QUEUES, send_properties, value_property
from benchmarks.system.loop_exchange import following
from benchmarks.system.workload import Workload
from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from sprocket.engine.choice import ENGINE
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from store.config.store_config import StoreConfig
from store.record.record import PendingMessage

_TOPIC = "Orders"
_BROKER_NAME = "broker-a"
_MESSAGES = 60_000
_AT_ONCE = 500
_TURNS = {"pop and ack": 50, "sql pull": 4}
_PAUSE_S = 0.05


class Kept(Peer):
    """Keeps what the broker writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        self.written.append(bytes(data))


class Costs:
    """CPU of one slice."""

    def __init__(self) -> None:
        self.served_s = self.later_s = self.generator_s = self.process_s = 0.0
        self.messages = 0

    def of_message_us(self) -> tuple[float, ...]:
        seconds = self.served_s, self.later_s, self.process_s, self.generator_s
        return tuple(one / self.messages * 1e6 for one in seconds)


def exchange_of(kind: str) -> Exchange:
    """A new exchange: pops are of a new group, so that they find all messages."""
    workload = Workload(kind, 128, 64)
    if kind == "sql pull":
        last = _MESSAGES // QUEUES - PULL_BATCH
        return SqlPulls(_TOPIC, workload, [slot * last // workload.slots for slot in range(workload.slots)], last)
    return Pops(_TOPIC, workload, f"g{time.time_ns()}", _BROKER_NAME)


async def slice_of(broker: Broker, kind: str) -> Costs:
    costs, exchange, peer = Costs(), exchange_of(kind), Kept()
    channel = RemotingChannel(broker.routes, ChannelCounters())
    channel.connection_made(peer)
    data = exchange.begin()
    process_s = time.process_time()
    for _ in range(_TURNS[kind]):
        began = time.thread_time()
        channel.data_received(data)
        while not peer.written:  # noqa: ASYNC110 - turns of the loop, which the broker needs to answer
            await asyncio.sleep(0)
        served = time.thread_time()
        answers, peer.written = b"".join(peer.written), []
        data, _ = following(exchange, memoryview(answers), refill=True)
        costs.served_s += served - began
        costs.generator_s += time.thread_time() - served
    began = time.thread_time()
    await asyncio.sleep(_PAUSE_S)
    costs.later_s = time.thread_time() - began
    costs.process_s = time.process_time() - process_s - costs.generator_s
    costs.messages = exchange.messages
    channel.connection_lost(None)
    return costs


async def fill(broker: Broker) -> None:
    """Store the messages to pop and to pull; every tenth value matches the expression."""
    broker.topics.update([TopicConfig(_TOPIC, QUEUES, QUEUES)])
    saved = asyncio.get_running_loop().create_future()
    broker.topics.when_saved(saved.set_result)
    await saved
    for first in range(0, _MESSAGES, _AT_ONCE):
        numbers = range(first, first + _AT_ONCE)
        properties = [(send_properties(number) + value_property(number // QUEUES)).encode() for number in numbers]
        broker.store.append(
            [
                PendingMessage(_TOPIC, number % QUEUES, bytes(128), some, 0, 0, 0, 0, bytes(8))
                for number, some in zip(numbers, properties, strict=True)
            ]
        )
        await asyncio.sleep(0)


async def run(slices: int) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        store = StoreConfig(store_path_root_dir=Path(folder))
        # A generator without a socket cannot be slowed down, so nothing is shed.
        config = BrokerConfig(
            listen_port=0, namesrv_addr="", broker_name=_BROKER_NAME, broker_fast_failure_enable=False,
            enable_property_filter=True,
        )  # fmt: skip
        broker = Broker(config, store)
        await broker.start()
        await fill(broker)
        print(f"engine: {ENGINE.name}")
        print("| Workload | Requests, us | Afterwards, us | Process, us | Generator, us |\n|---|--:|--:|--:|--:|")
        for kind in _TURNS:
            # The first slice warms up.
            found = [(await slice_of(broker, kind)).of_message_us() for _ in range(slices + 1)][1:]
            columns = " | ".join(f"{median(one):.1f}" for one in zip(*found, strict=True))
            print(f"| {kind} | {columns} |")
        await broker.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=40)
    asyncio.run(run(parser.parse_args(arguments).slices))


if __name__ == "__main__":
    main()
