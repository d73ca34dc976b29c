"""What a send costs a whole broker, from the bytes of a read to the bytes of its responses, without a socket.

    python -m benchmarks.sends [--rounds 15]

Three paths get the same reads.  In a process with SPROCKET_ENGINE=python: single requests.  In a process of the
compiled engine: compiled decoders before single requests, and the compiled path.  Microseconds of CPU of the event
loop's thread for each message, medians over slices of about 500 messages, the paths of a process in turns; the log is
written.  With several connections, each has a read in every turn of the loop: the compiled path makes one append of
them.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.gate import Sink
from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from sprocket.engine.choice import ENGINE
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.message.properties import encode
from sprocket.remoting.routes import RouteTable
from store.config.store_config import StoreConfig
from tests.send_headers import send_header


class Reads(NamedTuple):
    """The reads of one turn of the loop: one of each connection."""

    messages: int  # of each read
    body_bytes: int = 128
    serialization: int = JSON
    value: str = ""  # of a further property
    connections: int = 1


WORKLOADS = {
    "1 in a read": Reads(1),
    "1 in a read, 8 connections": Reads(1, connections=8),
    "8 in a read": Reads(8),
    "8 in a read, 8 connections": Reads(8, connections=8),
    "64 in a read": Reads(64),
    "64 in a read, 8 connections": Reads(64, connections=8),
    "256 in a read": Reads(256),
    "64 in a read, 1 KiB": Reads(64, 1024),
    "64 in a read, ROCKETMQ": Reads(64, serialization=ROCKETMQ),
    'a value that holds "DEL"': Reads(64, value="TO DELIVER"),
}
_SLICE_MESSAGES = 500
_TOPIC = "Orders"


class Peer(Sink):
    """Takes everything at once."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def read_of(reads: Reads) -> bytes:
    frames, value, body_bytes = [], reads.value, reads.body_bytes
    for number in range(reads.messages):
        properties = {"UNIQ_KEY": f"0A000001000000000000000000{number:06X}", "WAIT": "true", "TAGS": "TagA"}
        header = send_header(
            _TOPIC, queue_id=number % 4, properties=encode(properties | ({"k": value} if value else {}))
        )
        prefix = encode_request(310, 1000 + number, header, body_bytes, serialization=reads.serialization)
        frames.append(prefix + bytes(body_bytes))
    return b"".join(frames)


def channel_of(table: RouteTable) -> RemotingChannel:
    channel = RemotingChannel(table, ChannelCounters())
    channel.connection_made(Peer())
    return channel


async def times(rounds: int) -> dict[str, dict[str, float]]:
    """Medians by path and workload, us for each message, of this process's engine."""
    with tempfile.TemporaryDirectory() as folder:
        store = StoreConfig(store_path_root_dir=Path(folder))
        # A generator without a socket cannot be slowed down, so nothing is shed.
        broker = Broker(BrokerConfig(listen_port=0, namesrv_addr="", broker_fast_failure_enable=False), store)
        await broker.start()
        broker.topics.update([TopicConfig(_TOPIC, 4, 4)])
        saved = asyncio.get_running_loop().create_future()
        broker.topics.when_saved(saved.set_result)
        await saved
        table = broker.routes
        plain = RouteTable([replace(route, usual=None) for route in table.routes], latency=table.latency)
        paths = {"decoders": plain, "compiled": table} if ENGINE.name == "native" else {"python": table}
        most = max(how.connections for how in WORKLOADS.values())
        channels = {name: [channel_of(path) for _ in range(most)] for name, path in paths.items()}
        found: dict[str, dict[str, list[float]]] = {name: {work: [] for work in WORKLOADS} for name in paths}
        contents = {work: read_of(how) for work, how in WORKLOADS.items()}
        for _ in range(rounds + 1):
            for work, how in WORKLOADS.items():
                messages = how.messages * how.connections
                turns, content = max(1, _SLICE_MESSAGES // messages), contents[work]
                for name in paths:
                    reading = channels[name][: how.connections]
                    began = time.thread_time()
                    for _ in range(turns):
                        for channel in reading:
                            channel.data_received(content)
                        await asyncio.sleep(0)  # the end of the turn
                    found[name][work].append((time.thread_time() - began) / turns / messages * 1e6)
                    await asyncio.sleep(0.01)
        await broker.stop()
    # The first round warms up.
    return {name: {work: median(taken[1:]) for work, taken in of.items()} for name, of in found.items()}


def measured(engine: str, rounds: int) -> dict[str, dict[str, float]]:
    """The medians of a process with this engine."""
    command = [sys.executable, "-m", "benchmarks.sends", "--rounds", str(rounds), "--engine", engine]
    environment = {**os.environ, "SPROCKET_ENGINE": engine}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--engine", help="print the medians of this process as JSON")
    options = parser.parse_args(arguments)
    if options.engine:
        print(json.dumps(asyncio.run(times(options.rounds))))
        return
    found = measured("python", options.rounds) | measured("native", options.rounds)
    names = ("python", "decoders", "compiled")
    print("| Reads | Python, us | Compiled decoders, us | Compiled path, us |\n|---|--:|--:|--:|")
    for work in WORKLOADS:
        print(f"| {work} | {' | '.join(f'{found[name][work]:.1f}' for name in names)} |")


if __name__ == "__main__":
    main()
