"""Offers a broker five times what it can serve: `python -m tests.chaos.pressure.overload --seconds N`; prints figures.

First what it serves with a bounded number of sends outstanding (its capacity), then five times that by processes of
their own that wait for nothing, then what a producer of good will sees right after it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from tests.chaos.pressure.load_generator import TOPIC, Figures, Plan
from tests.chaos.pressure.test_hostile_peers import anonymous_bytes, send_header
from tests.compat.cluster import SprocketCluster

MIB = 1 << 20
CONNECTIONS = 16  # of each process
PROPERTIES = {"mappedFileSizeCommitLog": str(256 * MIB), "brokerFastFailureEnable": "true"}


@dataclass
class Outcome:
    """What all processes of one load saw together."""

    seconds: float
    figures: list[Figures]
    memory_bytes: list[int]
    admin_ms: list[float]  # how long an operator's requests took beside it

    @property
    def codes(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for one in self.figures:
            total.update(one.answered)
        return total

    @property
    def offered(self) -> int:
        return sum(one.offered for one in self.figures)

    @property
    def acknowledged(self) -> list[int]:
        return [number for one in self.figures for number in one.acknowledged]

    def times(self, refused: bool) -> list[float]:
        """Sorted ms of a sample of answers."""
        return sorted(ms for one in self.figures for ms in (one.refused_ms if refused else one.acknowledged_ms))

    def text(self) -> str:
        """One line of figures."""
        parts = [f"offered={self.offered} ({self.offered / self.seconds:.0f}/s) answers={dict(self.codes)}"]
        for name, refused in (("SUCCESS", False), ("SYSTEM_BUSY", True)):
            times = self.times(refused)
            if times:
                parts.append(
                    f"{name} p50={times[len(times) // 2]} p99={times[len(times) * 99 // 100]} max={times[-1]} ms"
                )
        shares = sorted(count for one in self.figures for count in one.acknowledged_of)
        parts.append(f"SUCCESS of a connection {shares[0]} to {shares[-1]}")
        admin = sorted(self.admin_ms)
        parts.append(f"admin p50={admin[len(admin) // 2]:.0f} max={admin[-1]:.0f} ms")
        memory = [f"{one / MIB:.0f}" for one in self.memory_bytes]
        return " ".join([*parts, f"memory MiB: {' '.join(memory[:: max(1, len(memory) // 10)])}"])


async def look(address: str, pid: int, seconds: float) -> tuple[list[int], list[float]]:
    """Memory of a broker, bytes, and how long it takes an operator to be served, ms, both some twenty times."""
    client, memory, times = RemotingClient(), [], []
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        memory.append(anonymous_bytes(pid))
        asked = time.monotonic()
        await client.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=60)
        times.append((time.monotonic() - asked) * 1000)
        await asyncio.sleep(seconds / 20)
    await client.close()
    return memory, times


def offer(address: str, pid: int, plans: Sequence[dict[str, float]], seconds: float) -> Outcome:
    """Run one process for each plan, and look at the broker's memory meanwhile."""
    host, port = address.split(":")
    processes = []
    for number, values in enumerate(plans):
        plan = Plan(host, int(port), CONNECTIONS, seconds, first_number=number * 100_000_000)
        for name, value in values.items():
            setattr(plan, name, value)
        command = [sys.executable, "-m", "tests.chaos.pressure.load_generator", msgspec.json.encode(plan).decode()]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    memory, admin = asyncio.run(look(address, pid, seconds))
    outputs = [process.communicate()[0] for process in processes]
    assert not any(process.returncode for process in processes), [process.returncode for process in processes]
    memory.append(anonymous_bytes(pid))
    return Outcome(seconds, [msgspec.json.decode(output, type=Figures) for output in outputs], memory, admin)


async def send_times(address: str, count: int) -> list[float]:
    """How long single sends take, ms."""
    client, times = RemotingClient(), []
    for number in range(count):
        header = send_header(number)
        header.topic = TOPIC
        begin = time.monotonic()
        await client.invoke(address, RequestCode.SEND_MESSAGE_V2, header, b"x" * 1000, timeout_s=10)
        times.append((time.monotonic() - begin) * 1000)
    await client.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.pressure.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--times", type=float, default=5, help="the capacity")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], help="key=value of the broker's configuration")
    given = parser.parse_args()
    properties = PROPERTIES | dict(word.split("=", 1) for word in given.set)
    with tempfile.TemporaryDirectory() as folder, SprocketCluster(Path(folder), properties=properties) as cluster:
        broker = cluster.brokers[0]
        asyncio.run(send_times(broker.address, 50))
        measured = offer(broker.address, broker.pid, [{"connections": 4}], 5)
        capacity = measured.codes["0"] / 5
        print("capacity:", measured.text(), flush=True)
        before = sorted(asyncio.run(send_times(broker.address, 300)))
        pace = {"per_second": capacity * given.times / given.processes}
        print(
            "overload:", offer(broker.address, broker.pid, [pace] * given.processes, given.seconds).text(), flush=True
        )
        after = sorted(asyncio.run(send_times(broker.address, 300)))
        broker.check()
        figures = {"p50": len(before) // 2, "p99": len(before) * 99 // 100}
        shown = {name: [round(before[at], 2), round(after[at], 2)] for name, at in figures.items()}
        print("single sends before and right after, ms:", json.dumps(shown))


if __name__ == "__main__":
    main()
