"""How late messages with a time of their own come, and what they cost plain sends meanwhile.

    python -m benchmarks.timer [--pending 100000] [--seconds 60] [--slice 0.5] [--engine sprocket|apache]

Two brokers stand side by side.  One gets `--pending` messages whose times are spread evenly over `--seconds`; the other
gets none and is the control.  Plain sends (128 bytes, 64 outstanding) go to both in turns, in short slices, before the
first message is due and while they come due.  How much slower sends are is the median of the ratios of neighbouring
slices while messages come due, over the same median from before.  A message's error is its store time in its real
topic less the time that it asked for.
"""

import argparse
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.system.generator import run
from benchmarks.system.process import cpu_s, machine, memory
from benchmarks.system.workload import Workload
from sprocket.remoting.message.properties import find
from store.record.record import Record, decode
from tests.compat import wire
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster

TIMED, PLAIN, PROBE = "BenchTimed", "BenchPlain", "BenchProbe"
_QUEUES = 4
_WINDOW = 256
_BODY = b"t" * 128
_SENDS = Workload("send", 128, 64)
_PROBE_MESSAGES = 2_000
_PROBE_MS = 2_000
_BEFORE_S = 15.0
_KINDS: dict[str, type[Cluster]] = {"sprocket": SprocketCluster, "apache": ApacheCluster}
# What the longest delay of a message may add to its time: a slot, and a broker that is behind.
_LATE_S = 15.0


def fill(address: str, count: int, first_ms: int, spread_ms: int, topic: str) -> None:
    """Send `count` messages whose times are spread from `first_ms` on."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for start in range(0, count, _WINDOW):
            numbers = range(start, min(start + _WINDOW, count))
            connection.sendall(
                b"".join(_frame(topic, number, first_ms + number * spread_ms // count) for number in numbers)
            )
            for _ in numbers:
                size = int.from_bytes(wire.read_exactly(connection, 4), "big")
                answer = wire.parse(wire.read_exactly(connection, size))
                if answer.code:
                    raise SystemExit(f"a timed message was refused: {answer.code} {answer.remark}")


def _frame(topic: str, number: int, deliver_ms: int) -> bytes:
    fields = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(number % _QUEUES), "f": "0",
        "g": str(deliver_ms), "h": "0", "j": "0", "k": "false", "l": "16", "m": "false",
        "i": f"UNIQ_KEY\x017F0000010B2A18B4AAC3{number:012X}\x02TIMER_DELIVER_MS\x01{deliver_ms}\x02",
    }  # fmt: skip
    return wire.request(wire.SEND_MESSAGE_V2, number + 1, fields, _BODY)


def errors_ms(address: str) -> list[int]:
    """Store time less wanted time of every delivered message."""
    errors = []
    for queue in range(_QUEUES):
        for record in _records(address, queue):
            wanted = find(bytes(record.properties), b"TIMER_DELIVER_MS\x01")
            errors.append(record.store_timestamp - int(wanted or 0))
    return errors


def _records(address: str, queue: int) -> Iterator[Record]:
    offset = 0
    while True:
        fields = {
            "consumerGroup": "bench", "topic": TIMED, "queueId": str(queue), "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1000",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        answer = wire.invoke(address, wire.PULL_MESSAGE, fields)
        if answer.code:
            return
        view, at = memoryview(answer.body), 0
        while at < len(view):
            size = int.from_bytes(view[at : at + 4], "big")
            record = decode(view[at : at + size], check_crc=False)
            at += size
            if isinstance(record, Record):
                yield record
        offset = int(answer.fields["nextBeginOffset"])


def ratios(timed: str, control: str, until_s: float, slice_s: float) -> list[float]:
    """Sends/s of one broker over those of the other, slice by slice; which goes first changes."""
    found: list[float] = []
    while time.time() < until_s:
        pair = (timed, control) if len(found) % 2 else (control, timed)
        rates = {address: run(address, PLAIN, _SENDS, slice_s).rate for address in pair}
        found.append(rates[timed] / rates[control])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--slice", type=float, default=0.5)
    parser.add_argument("--engine", choices=_KINDS, default="sprocket")
    given = parser.parse_args()
    kind = _KINDS[given.engine]
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with kind(root / "timed") as timed, kind(root / "control") as control:
            measure(timed, control, given.pending, given.seconds, given.slice)


def measure(timed: Cluster, control: Cluster, pending: int, seconds: int, slice_s: float) -> None:
    address, other = timed.brokers[0].address, control.brokers[0].address
    for each in (address, other):
        wire.create_topic(each, PLAIN, _QUEUES)
        run(each, PLAIN, _SENDS, 3.0)
    for topic in (TIMED, PROBE):
        wire.create_topic(address, topic, _QUEUES)
    # Time to send them, as a probe says, and for slices before the first is due.
    started = time.perf_counter()
    fill(address, _PROBE_MESSAGES, time.time_ns() // 1_000_000, _PROBE_MS, PROBE)
    probe_s = time.perf_counter() - started
    first_s = time.time() + 1.5 * probe_s * pending / _PROBE_MESSAGES + _BEFORE_S
    started = time.perf_counter()
    fill(address, pending, round(first_s * 1000), seconds * 1000, TIMED)
    fill_s = time.perf_counter() - started
    if time.time() > first_s - _BEFORE_S / 2:
        raise SystemExit(f"sending took {fill_s:.0f} s, longer than the probe said; try again")
    print(f"{pending} messages sent in {fill_s:.1f} s, {pending / fill_s:,.0f}/s one window of {_WINDOW} at a time")
    before = ratios(address, other, first_s, slice_s)
    cpu_before = cpu_s(timed.brokers[0].pid)
    during = ratios(address, other, first_s + seconds, slice_s)
    print(f"cpu of the broker while they came due: {cpu_s(timed.brokers[0].pid) - cpu_before:.1f} s")
    time.sleep(_LATE_S)
    print(f"anonymous memory: {memory(timed.brokers[0].pid).anonymous_bytes >> 20} MiB, control: "
          f"{memory(control.brokers[0].pid).anonymous_bytes >> 20} MiB")  # fmt: skip
    found = sorted(errors_ms(address))
    if len(found) != pending:
        raise SystemExit(f"{len(found)} messages came, sent were {pending}")
    drop = 1 - statistics.median(during) / statistics.median(before)
    print(f"error: least {found[0]} ms, p50 {found[pending // 2]} ms, p99 {found[pending * 99 // 100]} ms, "
          f"p99.9 {found[pending * 999 // 1000]} ms, most {found[-1]} ms")  # fmt: skip
    print(f"plain sends: {drop:.1%} slower; {len(before)} pairs of slices before, {len(during)} meanwhile")


if __name__ == "__main__":
    main()
