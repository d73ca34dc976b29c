"""What quotas cost a send: turns with four buckets for each send and without a quota, in one process by turns.

A turn has a read of each of `--connections`, with `--sends` each; with `--addresses` each connection has an address of
its own, and so two of its buckets.  No socket, as in `benchmarks.test_send_pull`; a real broker adds some 10 us of
system calls for each read, which `--system-us` counts in the part that is printed.
Run with `python -m benchmarks.quota_cost`.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.test_send_pull import Path64, Sink
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from sprocket.common.clock import SystemClock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.framing import ROCKETMQ
from tests.broker.hot_path import hot_path

_TURNS: Final = 2000
_LIMITS: Final = {"messages_in": 10**9, "bytes_in": 10**12}


class Peers:
    """Connections that all send in each turn."""

    def __init__(self, path: Path64, count: int, *, have_addresses: bool) -> None:
        self._loop = path.loop
        self._channels: list[RemotingChannel] = []
        for number in range(count):
            path.connect()
            if have_addresses:
                path.channel.connection_made(Sink(f"10.0.0.{number}"))
            self._channels.append(path.channel)

    def turn(self, content: bytes) -> None:
        """Read `content` on each connection, in a turn of the loop."""
        for channel in self._channels:
            self._loop.call_soon(channel.data_received, content)
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()


def main() -> None:
    """Print the median of a turn without quotas, with them, and the difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sends", type=int, default=1, help="sends of a read")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--addresses", action="store_true")
    parser.add_argument("--system-us", type=float, default=10.0)
    arguments = parser.parse_args()
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    with tempfile.TemporaryDirectory() as folder:
        paths: list[Path64] = []
        peers: list[Peers] = []
        for number in range(3):
            root = Path(folder, str(number))
            root.mkdir()
            sizes = {"mapped_file_size_commit_log": 1 << 30, "mapped_file_size_consume_queue": 6_000_000}
            path = Path64(loop, loop.run_until_complete(stack.enter_async_context(hot_path(root, store=sizes))))
            version = path.path.send_processor.planner.version
            table = QuotaTable(ConfigFile(root / "quotas.json"), SystemClock(), version)
            path.path.send_processor.planner.quotas = Quotas(table, SystemClock())
            if number == 2:
                for name in ("topic:Orders", "address:*"):
                    table.set(Quota(name, **_LIMITS))
            peers.append(Peers(path, arguments.connections, have_addresses=arguments.addresses))
            paths.append(path)
        content = paths[0].sends(arguments.sends, 128, ROCKETMQ)
        rounds: list[list[float]] = []
        turns = max(100, _TURNS // (arguments.sends * arguments.connections))
        for _ in range(arguments.rounds):
            rounds.append([])
            for one in peers:
                began = time.process_time()
                for _ in range(turns):
                    one.turn(content)
                rounds[-1].append((time.process_time() - began) / turns * 1e6)
        loop.run_until_complete(stack.aclose())
    loop.close()
    without, control, with_four = (statistics.median(one) for one in zip(*rounds, strict=True))
    added = statistics.median(one[2] - (one[0] + one[1]) / 2 for one in rounds)
    print(f"us of CPU a turn: without {without:.2f}, the same again {control:.2f}, four buckets {with_four:.2f}")
    whole = without + arguments.connections * arguments.system_us
    print(f"four buckets add {added:.2f} us, {added / whole:.2%} of a turn with {arguments.system_us:g} us a read more")


if __name__ == "__main__":
    main()
