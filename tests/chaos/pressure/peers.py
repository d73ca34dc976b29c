"""Slow and idle peers at a broker, a good producer beside them: `python -m tests.chaos.pressure.peers [--idle N]`.

Prints how long single sends take alone and beside each kind of peer, when who is slow is closed, and what an idle
connection costs.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

import uvloop

from sprocket.common import limits
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from tests.chaos.pressure.test_descriptor_limit import open_descriptors
from tests.chaos.pressure.test_hostile_peers import (
    BODY,
    anonymous_bytes,
    half_frame,
    healthy,
    send_header,
    slow_reader,
)
from tests.compat.cluster import SprocketCluster

MIB = 1 << 20
PROPERTIES = {"mappedFileSizeCommitLog": str(256 * MIB)}
_DRIP_S = 1.0
# Above the deadline and the pace at which it is looked for.
_CLOSED_WITHIN_S = limits.FRAME_DEADLINE_S + 15


async def send_times(address: str, seconds: float) -> list[float]:
    """How long sends of 1,000 bytes take, one after the other, ms, sorted."""
    client = RemotingClient()
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        await client.invoke(address, RequestCode.SEND_MESSAGE_V2, send_header(len(times)), BODY[:1000], timeout_s=20)
        times.append((time.monotonic() - begin) * 1000)
        await asyncio.sleep(0.002)
    await client.close()
    return sorted(times)


def shown(name: str, times: list[float]) -> None:
    """Print the distribution."""
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"{name}: {len(times)} sends, p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {times[-1]:.2f} ms", flush=True)


async def drip(writers: list[asyncio.StreamWriter], dice: random.Random) -> None:
    """One byte now and then on each connection, as long as it is open."""
    while True:
        for writer in writers:
            if not writer.transport.is_closing():
                writer.write(dice.randbytes(1))
        await asyncio.sleep(_DRIP_S)


async def slow(address: str, pid: int, count: int) -> None:
    """Connections that send a frame byte by byte, half frames, and peers that never read."""
    host, port = address.split(":")
    before = anonymous_bytes(pid)
    begin = time.monotonic()
    writers = [await half_frame(host, int(port)) for _ in range(count)]
    readers = [await slow_reader(host, int(port)) for _ in range(count // 20)]
    task = asyncio.create_task(drip(writers, random.Random(1)))
    shown(f"beside {count} slow senders and {len(readers)} that do not read", await send_times(address, 20))
    print(f"memory: {(anonymous_bytes(pid) - before) / MIB:.1f} MiB more", flush=True)
    while open_descriptors(pid) > 40 and time.monotonic() < begin + 2 * _CLOSED_WITHIN_S:
        await asyncio.sleep(0.1)
    print(f"all of them closed {time.monotonic() - begin:.1f} s after the first came", flush=True)
    task.cancel()
    for writer in writers + readers:
        writer.transport.abort()


async def idle(address: str, pid: int, count: int) -> None:
    """Connections that have said something once and are silent."""
    host, port = address.split(":")
    before, descriptors = anonymous_bytes(pid), open_descriptors(pid)
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x00\x00\x00\x08")
        writers.append(writer)
    await asyncio.sleep(1)
    each = (anonymous_bytes(pid) - before) / count
    print(f"{count} connections: {each / 1000:.1f} kB each, {open_descriptors(pid)} descriptors", flush=True)
    shown(f"beside {count} that are idle", await send_times(address, 8))
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(3)
    print(f"after they left: {open_descriptors(pid)} descriptors, {descriptors} before", flush=True)


async def main(slow_count: int, idle_count: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        SprocketCluster(Path(folder), properties=PROPERTIES) as cluster,
    ):
        broker = cluster.brokers[0]
        await healthy(broker.address, 100)
        shown("alone", await send_times(broker.address, 8))
        if idle_count:
            await idle(broker.address, broker.pid, idle_count)
        if slow_count:
            await slow(broker.address, broker.pid, slow_count)
        broker.check()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.pressure.peers", description=__doc__)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=10_000)
    given = parser.parse_args()
    uvloop.run(main(given.slow, given.idle))
