"""How fast a link copies over a long way, beside the same link over the same proxy without delay.

    python -m benchmarks.replication.distance [--round-trip-ms 80] [--rounds 3] [--shapes 100x1,100x16,1000x4,65536x4]

A shape is bytes of a body x queues.  Two brokers of this machine are two clusters; one of them is behind a proxy that
delays, with the window of a usual TCP connection.  `sprocket replicate run` copies a topic that is there already, with
its defaults, each time from its first message on, as a link of clusters with new names.  A rate is taken from the first
copy that the target has to the last.  Rounds alternate between no delay and the delay, ratios are taken round by round,
medians are shown.  Goal: half of the rate without delay, whether the replicator is beside the target or the source.
"""

import argparse
import asyncio
import contextlib
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sprocket
from sprocket import Message
from sprocket.common.processes.child_process import ChildProcess, bound
from sprocket.testing import Broker
from tests.chaos.replication.fault_proxy import FaultProxy
from tests.compat import wire

# What Linux lets a connection's buffers grow to (net.ipv4.tcp_rmem).
WINDOW_BYTES = 6 * 1024 * 1024
FAR = "127.0.0.2"
PLACES = {"target": "source", "source": "target"}  # where the replicator is -> what is far from it
_LIMIT_S = 120.0
_LOG_BYTES = 256 << 20


@contextlib.contextmanager
def far_broker() -> Iterator[tuple[Broker, FaultProxy]]:
    """A broker whose clients reach it by a proxy."""
    with Broker(properties={"brokerIP1": FAR}) as broker:
        host, _, port = broker.address.rpartition(":")
        with FaultProxy((host, int(port)), host=FAR, port=int(port), window_bytes=WINDOW_BYTES) as proxy:
            yield broker, proxy


def ends(broker: Broker, topic: str, queues: int) -> int:
    """Return the number of messages that a topic had so far."""
    found = 0
    for queue_id in range(queues):
        answer = wire.invoke(broker.address, wire.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        found += int(answer.fields["offset"]) if answer.code == 0 else 0
    return found


async def fill(broker: Broker, topic: str, queues: int, body_bytes: int, total: int) -> None:
    """Send `total` messages, to all queues alike."""
    broker.create_topic(topic, queues)
    body = (b"%020d" % 0 * (body_bytes // 20 + 1))[:body_bytes]
    batch = max(1, min(200, (1 << 20) // (body_bytes + 200)))
    async with sprocket.connect(broker.namesrv) as mq:
        producer = mq.producer()
        places = await producer.queues(topic)

        async def load(number: int) -> None:
            left = total // queues
            while left > 0:
                count = min(batch, left)
                await producer.send_batch([Message(topic, body) for _ in range(count)], queue=places[number])
                left -= count

        await asyncio.gather(*(load(number) for number in range(queues)))


class Rig:
    """A near and a far cluster, and replicators between them."""

    def __init__(self, near: Broker, far: Broker, proxy: FaultProxy, folder: Path) -> None:
        self._near, self._far, self._proxy, self._folder = near, far, proxy, folder
        self._number = 0

    def rate(self, topic: str, queues: int, total: int, place: str, delay_s: float) -> float:
        """Return the messages that are copied in a second."""
        self._number += 1
        source, target = (self._far, self._near) if PLACES[place] == "source" else (self._near, self._far)
        path = self._folder / f"link-{self._number}.toml"
        path.write_text(
            f'[clusters.a{self._number}]\nnamesrv = "{source.namesrv}"\n'
            f'[clusters.b{self._number}]\nnamesrv = "{target.namesrv}"\n'
            f'[[links]]\nsource = "a{self._number}"\ntarget = "b{self._number}"\n'
            f'topics = ["{topic}"]\nforward = false\n'
        )
        self._proxy.delay(delay_s)
        begin = ends(target, topic, queues)
        run = ChildProcess(
            "replicator", bound("sprocket_cli", "replicate", "run", "--config", str(path)), self._folder
        )  # fmt: skip
        run.launch()
        try:
            return self._measured(run, target, topic, queues, begin, total)
        finally:
            run.end(signal.SIGTERM)
            self._proxy.delay(0.0)

    @staticmethod
    def _measured(run: ChildProcess, target: Broker, topic: str, queues: int, begin: int, total: int) -> float:
        deadline, first, began = time.monotonic() + _LIMIT_S, 0, 0.0
        while time.monotonic() < deadline and run.exit_status is None:
            here = ends(target, topic, queues) - begin
            if here and not first:
                first, began = here, time.monotonic()
            if here >= total:
                return (here - first) / (time.monotonic() - began)
            time.sleep(0.02)
        here = ends(target, topic, queues) - begin
        raise TimeoutError(f"{topic}: only {here} of {total} messages came: {run.tail()}")


def measure(rig: Rig, topic: str, queues: int, total: int, place: str, args: argparse.Namespace) -> None:
    """Print a row."""
    delay_s = args.round_trip_ms / 2000
    rounds = [(rig.rate(topic, queues, total, place, 0.0), rig.rate(topic, queues, total, place, delay_s))
              for _ in range(args.rounds)]  # fmt: skip
    here, there = (statistics.median(column) for column in zip(*rounds, strict=True))
    share = statistics.median(far / near for near, far in rounds)
    print(f"| {topic} | {place} | {here:,.0f} | {there:,.0f} | {share:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trip-ms", type=float, default=80.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default="100x1,100x16,1000x4,65536x4")
    parser.add_argument("--places", default="target,source", help="what the replicator is beside")
    parser.add_argument("--mb", type=float, default=0.0, help="bytes of bodies for a shape; 0: by their size")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, far_broker() as (far, proxy), Broker() as near:
        rig = Rig(near, far, proxy, Path(folder))
        print(f"| bytes x queues | replicator at the | messages/s | at {args.round_trip_ms:g} ms | share |")
        print("|---|---|--:|--:|--:|")
        for shape in args.shapes.split(","):
            body_bytes, queues = map(int, shape.split("x"))
            total = int(args.mb * 1e6 / body_bytes) if args.mb else min(100_000, _LOG_BYTES // body_bytes)
            total -= total % queues
            for broker in (near, far):
                asyncio.run(fill(broker, shape, queues, body_bytes, total))
            for place in args.places.split(","):
                measure(rig, shape, queues, total, place, args)


if __name__ == "__main__":
    main()
