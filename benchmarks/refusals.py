"""Whether the refusals of access control tell by their time what an attacker wants to know.

    python -m benchmarks.refusals [--rounds 200]

A client sends what brokers of both generations refuse, for each reason in turns, one request after the other.  The
table has the median time of a refusal and of the broker's answer to a send that it stores.
"""

import argparse
import random
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.system import engines
from benchmarks.system.frames import FIRST_OPAQUE, sends
from benchmarks.system.process import leave_on_sigterm
from sprocket.remoting.credentials import Credentials
from tests.compat import wire

_TOPIC: Final = "Orders"
_BODY_BYTES: Final = 1024
_BURST: Final = 32


def requests(account: Credentials) -> Iterator[tuple[str, bytes]]:
    """Yield a send that is stored, then those that are refused, by their reason."""
    fields, body = sends(_TOPIC, _BODY_BYTES, 1)[0]
    for reason, signed in (
        ("stored", account.signed(fields, body)),
        ("unsigned", fields),
        ("unknown account", Credentials("Unknown123", account.secret_key).signed(fields, body)),
        ("wrong key", Credentials(account.access_key, "secret-of-nobody").signed(fields, body)),
    ):
        yield reason, wire.request(wire.SEND_MESSAGE_V2, FIRST_OPAQUE, signed, body)


def medians_us(address: str, account: Credentials, rounds: int) -> dict[str, float]:
    """Return us of each request of a burst, by its reason."""
    host, port = address.rsplit(":", 1)
    frames, times = dict(requests(account)), dict[str, list[float]]()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for _ in range(rounds):
            for reason, frame in sorted(frames.items(), key=lambda _: random.random()):
                began = time.perf_counter()
                connection.sendall(frame * _BURST)
                for _ in range(_BURST):
                    wire.read_exactly(connection, int.from_bytes(wire.read_exactly(connection, 4), "big"))
                times.setdefault(reason, []).append((time.perf_counter() - began) / _BURST * 1e6)
    return {reason: median(taken) for reason, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    for engine in ("acl1", "acl2"):
        with tempfile.TemporaryDirectory() as folder, engines.started(engine, Path(folder), sync_flush=False) as one:
            assert one.access.account is not None
            for reason, taken in medians_us(one.address, one.access.account, rounds).items():
                print(f"{engine} {reason:16} {taken:7.1f} us")


if __name__ == "__main__":
    leave_on_sigterm()
    main()
