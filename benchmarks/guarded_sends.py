"""What access control costs behind a socket: processor time of a whole broker for each send, with and without it.

    python -m benchmarks.guarded_sends [--rounds 7] [--slice 1.0] [--body 128] [--outstanding 64]

Two brokers of ACL 2.0 and of no access control get slices of the same sends in turns, from one connection each, whose
frames are made before the clock runs.  The ratio is the median of the rounds' ratios.
"""

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.system.frames import FIRST_OPAQUE, sends
from benchmarks.system.process import machine
from benchmarks.tls import Sender, Slice, measure
from sprocket.remoting.credentials import Credentials
from tests.compat import wire
from tests.compat.cluster import LARGE_FILES, SprocketCluster

_TOPIC: Final = "BenchGuarded"
_WARM_S: Final = 2.0
_ACCOUNT: Final = Credentials("SomeWriter", "secret-of-writer")
_INNER: Final = {"accessKey": "inner", "secretKey": "secret-of-brokers"}
_GUARDED: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": _ACCOUNT.access_key, "password": _ACCOUNT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(_INNER),
}
_KINDS: Final[dict[str, dict[str, str]]] = {"none": {}, "ACL 2.0": _GUARDED}


def frames(body_bytes: int, outstanding: int, *, signed: bool) -> list[bytes]:
    """Return the sends of one connection."""
    return [
        wire.request(
            wire.SEND_MESSAGE_V2, FIRST_OPAQUE + slot, _ACCOUNT.signed(fields, body) if signed else fields, body
        )
        for slot, (fields, body) in enumerate(sends(_TOPIC, body_bytes, outstanding))
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.0)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--outstanding", type=int, default=64)
    given = parser.parse_args()
    print(machine())
    slices: dict[str, list[Slice]] = {kind: [] for kind in _KINDS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        senders: dict[str, tuple[Sender, int]] = {}
        for kind, properties in _KINDS.items():
            cluster = SprocketCluster(folder / kind.replace(" ", "-"), properties={**LARGE_FILES, **properties})
            broker = stack.enter_context(cluster).brokers[0]
            sent = frames(given.body, given.outstanding, signed=bool(properties))
            sender = Sender(broker.address, sent, with_tls=False)
            stack.callback(sender.close)
            sender.run(_WARM_S)
            senders[kind] = sender, broker.pid
        for number in range(given.rounds):
            for kind in sorted(senders, reverse=bool(number % 2)):
                slices[kind].append(measure(*senders[kind], given.slice))
    print(f"{given.body} B, {given.outstanding} outstanding, medians of {given.rounds} slices")
    for kind, measured in slices.items():
        rate = statistics.median(one.rate for one in measured)
        broker_us = statistics.median(one.broker_us for one in measured)
        print(f"{kind:>8}: {rate:9,.0f} sends/s, broker {broker_us:5.2f} us each")
    pairs = zip(slices["ACL 2.0"], slices["none"], strict=True)
    ratio = statistics.median(guarded.broker_us / free.broker_us for guarded, free in pairs)
    print(f"processor time of the broker with access control over that without: {ratio:.2f}")


if __name__ == "__main__":
    main()
