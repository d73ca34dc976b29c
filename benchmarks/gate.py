"""What the gate of a port costs, and whether its refusals tell by their time what an attacker wants to know.

Run as ``python -m benchmarks.gate``.  Sends of 1 KiB go from the bytes of a read to the bytes of the answer, without a
socket, through an open port and through gates of both generations, in turns of the same run; then requests that are
refused, for each reason.  Times are of the processor, as medians.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    Subject,
    User,
    UserStatus,
)
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate import Policy as GatePolicy
from acl.gate_settings import GateSettings
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from sprocket.common.clock import SystemClock
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.routes import RouteTable
from tests.broker.hot_path import HotPath, hot_path, properties

WRITER: Final = Credentials("SomeWriter", "secret-of-writer")
_ACCOUNTS: Final = b"accounts: [{accessKey: SomeWriter, secretKey: secret-of-writer, topicPerms: [Orders=PUB]}]"
_BODY: Final = bytes(1024)
_AT_ONCE: Final = 32
_TURNS: Final = 200
_SIZES: Final = {"mapped_file_size_commit_log": 1 << 30, "mapped_file_size_consume_queue": 6_000_000}


class Sink(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 40000), "sockname": ("10.0.0.1", 10911)})

    def write(self, data: object) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...


def accounts() -> GatePolicy:
    """ACL 1.0."""
    return PlainPolicy({"plain_acl.yml": parse("plain_acl.yml", _ACCOUNTS)})


def users() -> GatePolicy:
    """ACL 2.0."""
    tables = AuthTables()
    tables.create_user(User(WRITER.access_key, WRITER.secret_key))
    tables.create_user(User("DisabledUser", WRITER.secret_key, user_status=UserStatus.DISABLE))
    orders = Resource(ResourceType.TOPIC, "Orders", ResourcePattern.LITERAL)
    entry = PolicyEntry(orders, (Action.PUB,), Environment(), Decision.ALLOW)
    tables.update_acl(Acl(Subject(WRITER.access_key), (Policy(PolicyType.CUSTOM, (entry,)),)))
    settings = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    return AuthPolicy(settings, tables, required)


def port(path: HotPath, policy: GatePolicy | None) -> RemotingChannel:
    """A connection to the hot path, behind a gate if there is a policy."""
    table = RouteTable([*path.send_processor.routes(), *path.pull_processor.routes()])
    if policy is not None:
        settings = GateSettings(auth_failures_per_second=0, audit_lines_per_second=1)
        table = Gate([policy], settings, SystemClock(), cluster="c").stand_before(table)
    channel = RemotingChannel(table, ChannelCounters())
    channel.connection_made(Sink())
    return channel


def sends(fields: dict[str, str], serialization: int) -> bytes:
    """One read of sends."""
    prefixes = (encode_request(310, n, fields, len(_BODY), serialization=serialization) for n in range(_AT_ONCE))
    return b"".join(prefix + _BODY for prefix in prefixes)


def medians_us(channels: dict[str, tuple[RemotingChannel, bytes]]) -> dict[str, float]:
    """Microseconds of each request, one turn of each after the other."""
    times: dict[str, list[float]] = {name: [] for name in channels}
    for _ in range(_TURNS):
        for name, (channel, content) in channels.items():
            start = time.process_time()
            channel.data_received(content)
            times[name].append((time.process_time() - start) / _AT_ONCE * 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def refusals(fields: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Requests that are refused, by their reason."""
    wrong = Credentials(WRITER.access_key, "secret-of-nobody")
    yield "unsigned", fields
    yield "unknown account", Credentials("Unknown123", WRITER.secret_key).signed(fields, _BODY)
    yield "wrong key", wrong.signed(fields, _BODY)
    yield "disabled", Credentials("DisabledUser", WRITER.secret_key).signed(fields, _BODY)
    yield "no permission", WRITER.signed({**fields, "b": "Others"}, _BODY)


async def main() -> None:
    """Print a table."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = await stack.enter_async_context(hot_path(Path(folder), store=_SIZES))
        fields = to_ext_fields(path.send_header(queue_id=1, properties=properties(TAGS="TagA", KEYS="k")))
        for serialization, name in ((JSON, "JSON"), (ROCKETMQ, "ROCKETMQ")):
            signed = sends(WRITER.signed(fields, _BODY), serialization)
            found = medians_us(
                {
                    "open": (port(path, None), sends(fields, serialization)),
                    "ACL 1.0": (port(path, accounts()), signed),
                    "ACL 2.0": (port(path, users()), signed),
                }
            )
            for kind, taken in found.items():
                print(f"{name:9} {kind:8} {taken:7.1f} us a send, {1e6 / taken:9,.0f} sends/s")
        for kind, policy in (("ACL 1.0", accounts()), ("ACL 2.0", users())):
            asked = {why: (port(path, policy), sends(forged, JSON)) for why, forged in refusals(fields)}
            for why, taken in medians_us(asked).items():
                print(f"{kind} {why:16} {taken:7.1f} us a refusal")


if __name__ == "__main__":
    asyncio.run(main())
