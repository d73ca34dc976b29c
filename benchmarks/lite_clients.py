"""Whether clients of lite topics that behave badly slow the others: latencies alone, and beside four other clients.

    python -m benchmarks.lite_clients [--clients 1000] [--messages 1000] [--rounds 3]

A name server and a broker are started.  Each client has a connection and a lite topic of its own.  A message is sent to
one client after the other while its pop is held; its latency is the time until it arrives.  Rounds of three kinds take
turns.  In the first there is nobody else.  In the second there are four more clients that behave well, and in the third
they behave badly.  Three are in other groups than the measured ones.  Each subscribes all lite topics: one never pops,
one pops and never acknowledges, and one asks as fast as it can and reads no answer.  The fourth is in the group of the
measured clients: it subscribes their lite topics and never pops.  Those that behave well ask as often: what both kinds
cost is the processor time of these requests, and the difference is what bad behaviour costs.
"""

import argparse
import contextlib
import socket
import statistics
import tempfile
import threading
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
_POPS: Final = 5_000
_KINDS: Final = ("", " beside four that behave well", " beside four that behave badly")


class Neighbours:
    """Four more clients, from their subscription to `close`.  If they are bad, one reads none of its answers."""

    def __init__(self, address: str, numbers: Sequence[int], *, is_bad: bool) -> None:
        self._is_bad = is_bad
        self._taker = Connection(address)
        for group in (GROUP, _SILENT, _HOARDING, _DEAF):
            # In the group of the others, a client that behaves well has a lite topic of its own.
            own = range(len(numbers), len(numbers) + 1) if group == GROUP and not is_bad else numbers
            subscribe(self._taker, f"other-{group}", own, group)
        self._asker = _ask_fast(address, "1" if is_bad else "60000")
        self._reader = threading.Thread(target=_read_all, args=(self._asker,))
        if not is_bad:
            self._reader.start()

    def take(self) -> None:
        """Take messages; bad clients never acknowledge them."""
        answer = self._taker.ask_any(pop(f"other-{_HOARDING}", 0, _HOARDING))
        if not self._is_bad and not answer.code:
            in_batches(self._taker, acknowledgements(answer, _HOARDING))

    def close(self) -> None:
        """End all their connections."""
        self._taker.close()
        with contextlib.suppress(OSError):
            self._asker.shutdown(socket.SHUT_RDWR)
        if not self._is_bad:
            self._reader.join()
        self._asker.close()


def _ask_fast(address: str, invisible_ms: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.setblocking(False)
    code, fields, body = pop(f"other-{_DEAF}", 0, _DEAF)
    fields["invisibleTime"] = invisible_ms
    frames = b"".join(wire.request(code, number, fields, body) for number in range(_POPS))
    with contextlib.suppress(BlockingIOError):
        while frames:
            frames = frames[connection.send(frames) :]
    return connection


def _read_all(connection: socket.socket) -> None:
    connection.setblocking(True)
    with contextlib.suppress(OSError):
        while connection.recv(1 << 20):
            pass


def latencies_ms(
    readers: Sequence[Connection], writer: Connection, count: int, others: Neighbours | None
) -> Iterator[float]:  # fmt: skip
    """Yield the milliseconds from the send of a message to its arrival, for one client after the other."""
    for at in range(count):
        number = at % len(readers)
        reader = readers[number]
        reader.send([pop(f"good-{number}", 10_000)])
        if others is not None:
            others.take()
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
        found: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        list(latencies_ms(readers, writer, clients, None))  # everything exists by then
        for number in range(rounds):
            for at in range(len(_KINDS)):
                kind = _KINDS[(number + at) % len(_KINDS)]
                is_alone, is_bad = kind == _KINDS[0], kind == _KINDS[-1]
                others = None if is_alone else Neighbours(address, range(clients), is_bad=is_bad)
                found[kind] += latencies_ms(readers, writer, messages, others)
                if others is not None:
                    others.close()
        for kind, times in found.items():
            print(f"{clients} clients{kind}: {_says(times)}")


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
