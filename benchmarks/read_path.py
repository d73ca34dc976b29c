"""CPU of pulls, of access control and of the client's decoder, without sockets, by the engine in use.

    SPROCKET_ENGINE=native python -m benchmarks.read_path
    SPROCKET_ENGINE=python python -m benchmarks.read_path

Each row is us of this thread for one request, or one record: the least and the median over short slices.  Slices of the
same requests with and without access control take turns, so their ratio holds on a busy machine.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.broker.hot_path import HotPath, hot_path, properties  # isort: skip - `acl` needs the broker's packages first

from acl.auth.model import User, UserType
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthContent, AuthTables
from acl.gate import Gate, Policy
from acl.gate_settings import GateSettings
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from benchmarks.test_send_pull import Sink
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.clock import SystemClock
from sprocket.engine.choice import ENGINE, native
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.channel import ChannelCounters, RemotingChannel
from sprocket.remoting.credentials import ACCESS_KEY, Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.routes import RouteTable

_SLICES = 25
_REQUESTS = 20
_READ = 64
_PULLS = 8
_BODY = bytes(128)
_ACCOUNT = Credentials("SomeWriter", "secret-of-writer")
_FILE = b"""
accounts:
  - {accessKey: SomeWriter, secretKey: secret-of-writer, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}
"""
_SIZES = {"mapped_file_size_commit_log": 1 << 28, "mapped_file_size_consume_queue": 6_000_000}


def policies() -> dict[str, Policy]:
    """Return the two kinds of access control; both allow everything to the account."""
    tables = AuthTables()
    user = User(_ACCOUNT.access_key, _ACCOUNT.secret_key, UserType.SUPER)
    tables.take(AuthContent({user.username: user}))
    settings = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    return {"ACL 1.0": PlainPolicy({"f": parse("f", _FILE)}), "ACL 2.0": AuthPolicy(settings, tables, required)}


def slices_us(works: Sequence[Callable[[], object]], settle: Callable[[], None] = lambda: None) -> list[list[float]]:
    """Return us for each call of each work, slice by slice; the works take turns.

    The first call of a slice is not measured, and `settle` ends what it has put off: sends of another connection than
    the last one wait for the end of the turn.
    """
    times: list[list[float]] = [[] for _ in works]
    gc.disable()
    for _ in range(_SLICES):
        for number, work in enumerate(works):
            work()
            settle()
            began = time.thread_time_ns()
            for _ in range(_REQUESTS):
                work()
            times[number].append((time.thread_time_ns() - began) / _REQUESTS / 1000)
    gc.enable()
    return times


def signed_bytes(header: Header, body: bytes) -> bytes:
    """Return what a signature of a request is made of."""
    fields = {**to_ext_fields(header), ACCESS_KEY: _ACCOUNT.access_key}
    return "".join(fields[name] for name in sorted(fields)).encode() + body


def frame(code: int, header: Header, body: bytes, serialization: int, *, signed: bool) -> bytes:
    fields = to_ext_fields(header)
    if signed:
        fields = _ACCOUNT.signed(fields, body)
    return encode_request(code, 1, fields, len(body), serialization=serialization) + body


class Bench:
    """A broker's hot path with a connection for each kind of access control."""

    def __init__(self, path: HotPath) -> None:
        self._path = path
        table = RouteTable([*path.send_processor.routes(), *path.pull_processor.routes()])
        self._signing = policies().keys()
        gates = {name: Gate([policy], GateSettings(), SystemClock()) for name, policy in policies().items()}
        # The second serves the same reads without the compiled paths from header to response.
        requests = RouteTable([replace(route, usual=None) for route in table.routes])
        tables = {"none": table, "as requests": requests}
        tables |= {name: gate.stand_before(table) for name, gate in gates.items()}
        self._channels = {name: self._channel(of) for name, of in tables.items()}
        self._settle = table.settle

    def _channel(self, table: RouteTable) -> RemotingChannel:
        channel = RemotingChannel(table, ChannelCounters())
        channel.connection_made(Sink())
        return channel

    async def run(self) -> None:
        sends = [self._path.send_header(queue_id=n % 4, properties=properties(TAGS="TagA", KEYS="k")) for n in range(4)]
        pull = self._path.pull_header(max_msg_nums=32)
        tagged = self._path.pull_header(max_msg_nums=32, subscription="TagA || TagB")
        for serialization, name in ((JSON, "JSON"), (ROCKETMQ, "ROCKETMQ")):
            reads = [
                b"".join(frame(310, sends[n % 4], _BODY, serialization, signed=signed) for n in range(_READ))
                for signed in (False, True)
            ]
            sent, pulled = signed_bytes(sends[0], _BODY), signed_bytes(pull, b"")
            await self._row(f"send, {_READ} in a read, {name}", *reads, _READ, sent)
            ones = [frame(310, sends[0], _BODY, serialization, signed=signed) for signed in (False, True)]
            await self._row(f"send, 1 in a read, {name}", *ones, 1, sent)
            pulls = [frame(11, pull, b"", serialization, signed=signed) for signed in (False, True)]
            await self._row(f"pull of 32, scattered, {name}", *pulls, 1, pulled)
            await self._row(f"the same, {_PULLS} in a read, {name}", *(one * _PULLS for one in pulls), _PULLS, pulled)
            by_tag = [frame(11, tagged, b"", serialization, signed=signed) for signed in (False, True)]
            await self._row(f"pull of 32 by tag, {name}", *by_tag, 1, signed_bytes(tagged, b""))
        self._decoding()

    async def _row(self, name: str, plain: bytes, signed: bytes, requests: int, content: bytes) -> None:
        works: list[Callable[[], object]] = [
            lambda channel=channel, read=signed if kind in self._signing else plain: channel.data_received(read)
            for kind, channel in self._channels.items()
        ]
        signatures = native("remoting.signatures")
        if signatures is not None:
            # What access control costs at least: the signature of each request, without anything else.
            sign = signatures.SigningKey(_ACCOUNT.access_key, _ACCOUNT.secret_key).signature
            works.append(lambda: [sign(content) for _ in range(requests)])
        works[0]()
        await asyncio.sleep(0)
        times = slices_us(works, self._settle)
        print(f"{name}: least {min(times[0]) / requests:.2f}, median {median(times[0]) / requests:.2f} us", end="")
        for kind, of in zip(list(self._channels)[1:], times[1:], strict=False):
            ratio = median(guarded / free for guarded, free in zip(of, times[0], strict=True))
            print(f"; {kind} {min(of) / requests:.2f} us, {ratio:.2f} times", end="")
        if signatures is not None:
            ratio = median(1 + alone / free for alone, free in zip(times[-1], times[0], strict=True))
            print(f"; signature alone {min(times[-1]) / requests:.2f} us, at least {ratio:.2f} times", end="")
        print()

    def _decoding(self) -> None:
        found = self._path.store.get("Orders", 0, 0, 32, 1 << 20)
        data, queue = b"".join(found.slices), MessageQueue("Orders", "broker-a", 0)
        (times,) = slices_us([lambda: decode_records(data, queue)])
        count = found.message_count
        print(f"client, a pulled record decoded: least {min(times) / count:.3f}, median {median(times) / count:.3f} us")


def main() -> None:
    print(f"engine: {ENGINE.name}")
    asyncio.run(_run())


async def _run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with hot_path(Path(folder), store=_SIZES) as path:
            await Bench(path).run()


if __name__ == "__main__":
    main()
