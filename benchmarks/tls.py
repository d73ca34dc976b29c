"""What TLS costs: sends/s with and without it, to one broker, on one port, in turns.

    python -m benchmarks.tls [--rounds 7] [--slice 1.0] [--body 128] [--outstanding 64]

The broker is permissive and shows a certificate on the curve P-256; the client speaks TLS 1.3 (AES-256-GCM) or nothing.
It is one connection with as many sends outstanding as said, whose frames are made before the clock runs.  A round is a
slice of each, the first of them in turns; the ratio is the median of the rounds' ratios.  Processor time is the
broker's, and that of the whole machine by which sends/s are bounded where client and broker share it.
"""

import argparse
import socket
import ssl
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.system.frames import FIRST_OPAQUE, QUEUES, send_frames
from benchmarks.system.process import cpu_s, machine
from sprocket.remoting.framing import JSON
from tests.compat import wire
from tests.compat.cluster import SprocketCluster

_TOPIC = "BenchTls"
_WARM_S = 2.0
_READ_BYTES = 1 << 18


@dataclass(frozen=True)
class Slice:
    """Some time of one kind."""

    messages: int
    seconds: float
    broker_s: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def broker_us(self) -> float:
        return self.broker_s / self.messages * 1e6


class Sender:
    """One connection with sends outstanding all the time."""

    def __init__(self, address: str, frames: list[bytes], *, with_tls: bool) -> None:
        host, port = address.rsplit(":", 1)
        plain = socket.create_connection((host, int(port)), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = _secured(plain) if with_tls else plain
        self._frames = frames

    def run(self, seconds: float) -> int:
        """How many were answered."""
        frames, slots = self._frames, len(self._frames)
        answered, at, rest = 0, 0, b""
        self._socket.sendall(b"".join(frames))
        sent = slots
        deadline = time.perf_counter() + seconds
        is_over = False
        while answered < sent:
            rest += self._socket.recv(_READ_BYTES)
            count, at = 0, 0
            while len(rest) - at >= 4 and len(rest) - at - 4 >= (size := int.from_bytes(rest[at : at + 4], "big")):
                at += 4 + size
                count += 1
            if b'"code":0' not in rest[:at] and count:
                raise SystemExit(f"a send was refused: {rest[:at]!r}")
            rest = rest[at:]
            first = answered % slots
            answered += count
            is_over = is_over or time.perf_counter() > deadline
            if count and not is_over:
                again = frames[first : first + count]
                self._socket.sendall(b"".join(again + frames[: count - len(again)]))
                sent += count
        return answered

    def close(self) -> None:
        self._socket.close()


def _secured(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def measure(sender: Sender, pid: int, seconds: float) -> Slice:
    before, began = cpu_s(pid), time.perf_counter()
    count = sender.run(seconds)
    return Slice(count, time.perf_counter() - began, cpu_s(pid) - before)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.0)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--outstanding", type=int, default=64)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder, SprocketCluster(Path(folder) / "cluster") as cluster:
        broker = cluster.brokers[0]
        wire.create_topic(broker.address, _TOPIC, QUEUES)
        frames = send_frames(_TOPIC, given.body, given.outstanding, JSON)
        senders = {
            kind: Sender(
                broker.address, [frames[FIRST_OPAQUE + slot] for slot in range(given.outstanding)], with_tls=tls
            )
            for kind, tls in (("plain", False), ("TLS", True))
        }
        slices: dict[str, list[Slice]] = {kind: [] for kind in senders}
        for sender in senders.values():
            sender.run(_WARM_S)
        for number in range(given.rounds):
            for kind in sorted(senders, reverse=bool(number % 2)):
                slices[kind].append(measure(senders[kind], broker.pid, given.slice))
        for sender in senders.values():
            sender.close()
    report(slices, given.body, given.outstanding)


def report(slices: dict[str, list[Slice]], body: int, outstanding: int) -> None:
    print(f"{body} B, {outstanding} outstanding, medians of {len(slices['TLS'])} slices")
    for kind, measured in slices.items():
        rate = statistics.median(one.rate for one in measured)
        broker_us = statistics.median(one.broker_us for one in measured)
        print(f"{kind:>6}: {rate:9,.0f} sends/s, broker {broker_us:5.1f} us each")
    pairs = list(zip(slices["TLS"], slices["plain"], strict=True))
    for what, ratio in (
        ("sends/s", statistics.median(tls.rate / plain.rate for tls, plain in pairs)),
        ("sends per processor second of the broker", statistics.median(p.broker_us / t.broker_us for t, p in pairs)),
    ):
        print(f"TLS over plain, {what}: {ratio:.2f}")


if __name__ == "__main__":
    main()
