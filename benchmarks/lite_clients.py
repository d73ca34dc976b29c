"""Whether clients of lite topics that behave badly slow the others: latencies with and without them, in turns.

    python -m benchmarks.lite_clients [--clients 1000] [--messages 1000] [--rounds 3]

A name server and a broker are started.  Each client has a connection and a lite topic of its own.  A message is sent to
one client after the other while its pop is held; its latency is the time until it arrives.  In every second round there
are three more clients, in other groups than the measured ones.  Each subscribes all lite topics: one never pops, one
pops and never acknowledges, and one asks as fast as it can and reads no answer.  A fourth is in the group of the
measured clients: it subscribes their lite topics and never pops.
"""

import argparse
import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.lite_topics import (
    GROUP,
    LIGHT_PROPERTIES,
    Connection,
    acknowledgements,
    in_batches,
    message,
    pop,
    prepare,
    prepare_group,
    subscribe,
    well,
)
from benchmarks.system.process import leave_on_sigterm, machine
from tests.compat import wire
from tests.compat.cluster import SprocketCluster

_SILENT: Final = "NeverPops"
_HOARDING: Final = "NeverAcknowledges"
_DEAF: Final = "NeverReads"
_DEAF_POPS: Final = 5_000


class BadClients:
    """Clients that behave badly, from their subscription to `close`."""

    def __init__(self, address: str, numbers: Sequence[int]) -> None:
        self._hoarder = Connection(address)
        for group in (GROUP, _SILENT, _HOARDING, _DEAF):
            subscribe(self._hoarder, f"bad-{group}", numbers, group)
        self._deaf = _deaf(address)

    def hoard(self) -> None:
        """Take messages that are never acknowledged."""
        self._hoarder.ask_any(pop(f"bad-{_HOARDING}", 0, _HOARDING))

    def close(self) -> None:
        """End all their connections."""
        self._hoarder.close()
        self._deaf.close()


def _deaf(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.setblocking(False)
    code, fields, body = pop(f"bad-{_DEAF}", 0, _DEAF)
    frames = b"".join(wire.request(code, number, fields | {"invisibleTime": "1"}, body) for number in range(_DEAF_POPS))
    with contextlib.suppress(BlockingIOError):
        while frames:
            frames = frames[connection.send(frames) :]
    return connection


def latencies_ms(
    readers: Sequence[Connection], writer: Connection, count: int, bad: BadClients | None
) -> Iterator[float]:  # fmt: skip
    """Yield the milliseconds from the send of a message to its arrival, for one client after the other."""
    for at in range(count):
        number = at % len(readers)
        reader = readers[number]
        reader.send([pop(f"good-{number}", 10_000)])
        if bad is not None:
            bad.hoard()
        time.sleep(0.003)  # the pop is held by then
        began = time.perf_counter()
        writer.send([message(number, b"x" * 100)])
        answer = well(reader.receive())
        yield (time.perf_counter() - began) * 1000
        well(writer.receive())
        in_batches(reader, acknowledgements(answer))


def _says(times: list[float]) -> str:
    times = sorted(times)
    return f"median {statistics.median(times):.2f} ms, p99 {times[-max(1, len(times) // 100)]:.2f} ms"


def run(folder: Path, clients: int, messages: int, rounds: int) -> None:
    with SprocketCluster(folder / "cluster", properties=LIGHT_PROPERTIES) as cluster:
        address = cluster.brokers[0].address
        writer = Connection(address)
        prepare(writer, -1)
        for group in (_SILENT, _HOARDING, _DEAF):
            prepare_group(writer, group)
        readers = [Connection(address) for _ in range(clients)]
        for number, reader in enumerate(readers):
            subscribe(reader, f"good-{number}", [number])
        found: dict[bool, list[float]] = {False: [], True: []}
        list(latencies_ms(readers, writer, clients, None))  # everything exists by then
        for number in range(rounds):
            for is_bad in (False, True) if number % 2 == 0 else (True, False):
                bad = BadClients(address, range(clients)) if is_bad else None
                found[is_bad] += latencies_ms(readers, writer, messages, bad)
                if bad is not None:
                    bad.close()
        print(f"{clients} clients: {_says(found[False])}")
        print(f"{clients} clients beside four that behave badly: {_says(found[True])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=1000, help="of a round")
    parser.add_argument("--rounds", type=int, default=3, help="with and without bad clients")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        run(Path(name), given.clients, given.messages, given.rounds)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
