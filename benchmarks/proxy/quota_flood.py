"""Times of one team's sends over gRPC to a proxy in local mode: alone, and beside another team that exceeds its quota.

    python -m benchmarks.proxy.quota_flood [--slices 10] [--slice 3] [--connections 4] [--outstanding 64]

Proxy and broker are one process.  The other team does not wait as it is told: each of its calls that is refused is
followed by the next one at once.  A control is a team that sends as much as the quota lets it.  The three come by
turns.  The servers have the first processor, clients the second, and the other team is nice.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from benchmarks.system.process import cpu_s
from benchmarks.tenants.__main__ import percentile
from sprocket.client.admin.admin_client import AdminClient
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.quota import Quota
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import OwnBroker, ProxyProcess, prepare
from tests.proxy.rig import GrpcClient

_RUN: Final = "quota"
_GOOD, _EVIL = (f"{_RUN}-{name}" for name in ("good", "evil"))
_PER_SECOND: Final = 500
_PHASES: Final = ("alone", "harmless beside", "flood beside")
_GOOD_PER_SECOND: Final = 100


async def _other(port: int, phase: str, connections: int, outstanding: int) -> None:
    """Be the other team until the standard input ends; print how many calls were served and refused."""
    clients = [GrpcClient(port, f"evil-{number}") for number in range(connections)]
    counts: defaultdict[int, int] = defaultdict(int)

    async def flood(client: GrpcClient) -> None:
        while True:
            counts[(await client.send(_EVIL, "x" * 1024)).status.code] += 1

    async def harmless(client: GrpcClient, pause_s: float) -> None:
        while True:
            counts[(await client.send(_EVIL, "x" * 1024)).status.code] += 1
            await asyncio.sleep(pause_s)

    await clients[0].send(_EVIL, "x")
    print(flush=True)
    pause_s = connections / (0.9 * _PER_SECOND)
    works = (
        [asyncio.create_task(harmless(client, pause_s)) for client in clients]
        if phase == _PHASES[1]
        else [asyncio.create_task(flood(client)) for client in clients for _ in range(outstanding)]
    )
    await asyncio.to_thread(sys.stdin.read)
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    print(counts[wire.OK], counts[wire.TOO_MANY_REQUESTS])


async def _good(port: int, seconds: float) -> list[float]:
    """Send at a steady pace; return the time of each send since it was due, ms."""
    client, loop, times_ms = GrpcClient(port, "good"), asyncio.get_running_loop(), list[float]()

    async def send(due: float) -> None:
        assert (await client.send(_GOOD, "x" * 1024)).status.code == wire.OK
        times_ms.append((loop.time() - due) * 1e3)

    await client.send(_GOOD, "x")
    began, sends = loop.time(), []
    for number in range(int(seconds * _GOOD_PER_SECOND)):
        due = began + number / _GOOD_PER_SECOND
        await asyncio.sleep(max(0.0, due - loop.time()))
        sends.append(asyncio.create_task(send(due)))
    await asyncio.gather(*sends)
    await client.close()
    return times_ms


def _measure(proxy: ProxyProcess, options: argparse.Namespace) -> None:
    times: defaultdict[str, list[float]] = defaultdict(list)
    used_s: defaultdict[str, float] = defaultdict(float)
    took_s: defaultdict[str, float] = defaultdict(float)
    others: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    command = ["nice", "-n", "19", sys.executable, "-m", "benchmarks.proxy.quota_flood", "--port", str(proxy.port)]
    command += ["--connections", str(options.connections), "--outstanding", str(options.outstanding), "--other"]
    for _ in range(options.slices):
        for phase in _PHASES:
            process = None
            if phase != _PHASES[0]:
                process = subprocess.Popen(
                    [*command, phase], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )  # fmt: skip
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(1)
            began_s, before_s = time.monotonic(), cpu_s(proxy.pid)
            times[phase] += asyncio.run(_good(proxy.port, options.slice))
            used_s[phase] += cpu_s(proxy.pid) - before_s
            took_s[phase] += time.monotonic() - began_s
            if process is not None:
                said, _ = process.communicate()
                for at, count in enumerate(map(int, said.split())):
                    others[phase][at] += count
    alone = percentile(times[_PHASES[0]], 0.99)
    print(f"{'':16} {'sends':>6} {'p50 ms':>7} {'p99 ms':>7} {'/alone':>7} {'CPU':>5} {'other: served, refused':>23}")
    for phase in _PHASES:
        p50, p99 = (percentile(times[phase], part) for part in (0.5, 0.99))
        counts = ", ".join(map(str, others[phase]))
        print(
            f"{phase:16} {len(times[phase]):6} {p50:7.2f} {p99:7.2f} {p99 / alone:7.2f} "
            f"{used_s[phase] / took_s[phase]:5.2f} {counts:>23}"
        )


async def _limit(broker: OwnBroker) -> None:
    async with AdminClient(broker.namesrv) as admin:
        await admin.set_quota(broker.address, Quota(f"topic:{_EVIL}", messages_in=_PER_SECOND))


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--slice", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--outstanding", type=int, default=64, help="calls of each connection of the flood")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--other", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.other is not None:
        asyncio.run(_other(options.port, options.other, options.connections, options.outstanding))
        return
    with tempfile.TemporaryDirectory() as name, Broker(Path(name, "broker")) as registered:
        broker = OwnBroker(registered.namesrv, Path(name, "own"))
        proxy = ProxyProcess(broker, Path(name, "proxy"), {"tlsServerMode": "disabled"}).start()
        try:
            for thread in Path(f"/proc/{proxy.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {0})
            os.sched_setaffinity(0, {1})
            prepare(broker, _RUN, ["good", "evil"])
            asyncio.run(_limit(broker))
            _measure(proxy, options)
        finally:
            proxy.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
