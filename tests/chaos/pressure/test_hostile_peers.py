"""Hostile peers at a real broker process: others are unharmed, and its memory stays flat."""

import asyncio
import random
import struct
from pathlib import Path

import pytest

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from tests.compat.cluster import SprocketCluster
from tests.send_headers import send_header

TOPIC = "Hostile"
BODY = b"x" * 100_000
MIB = 1 << 20
PROPERTIES = {"mappedFileSizeCommitLog": str(64 * MIB)}
# Java's broker holds gigabytes; here a few thousand hostile connections may cost no more than this.
GROWTH_LIMIT = 48 * MIB


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is no file's: pages of mapped segments do not count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def pull_frame(opaque: int) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0b100,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    return encode_request(RequestCode.PULL_MESSAGE, opaque, header)


async def garbage(host: str, port: int, dice: random.Random) -> None:
    """Bytes that are no protocol, or lengths that would be gigabytes; the broker hangs up."""
    reader, writer = await asyncio.open_connection(host, port)
    lengths = (0, -1, 2**31 - 1, -(2**31), 17 * MIB)
    first = struct.pack(">i", dice.choice(lengths)) if dice.random() < 0.5 else b"GET /"
    writer.write(first + dice.randbytes(dice.randrange(2000)))
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def half_frame(host: str, port: int) -> asyncio.StreamWriter:
    """The front of a frame that claims 15 MiB, and nothing after it."""
    _, writer = await asyncio.open_connection(host, port)
    writer.write(struct.pack(">iI", 15 * MIB, 100) + b'{"code":310')
    return writer


async def slow_reader(host: str, port: int) -> asyncio.StreamWriter:
    """Asks for a gigabyte of messages and reads none."""
    _, writer = await asyncio.open_connection(host, port, limit=1024)
    writer.transport.pause_reading()
    writer.write(b"".join(pull_frame(opaque) for opaque in range(5000)))
    return writer


async def healthy(address: str, sends: int) -> None:
    client = RemotingClient()
    for number in range(sends):
        response = await client.invoke(
            address, RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, born_timestamp=number), BODY, timeout_s=60
        )
        assert response.code == ResponseCode.SUCCESS, response.remark
    await client.close()


@pytest.mark.timeout(180)
async def test_hostile_peers(tmp_path: Path) -> None:
    dice = random.Random(5)
    with SprocketCluster(tmp_path, properties=PROPERTIES) as cluster:
        broker = cluster.brokers[0]
        host, port = broker.address.split(":")
        await healthy(broker.address, 100)
        before = anonymous_bytes(broker.pid)
        held = [await half_frame(host, int(port)) for _ in range(200)]
        held += [await slow_reader(host, int(port)) for _ in range(20)]
        attacks = [garbage(host, int(port), dice) for _ in range(300)]
        await asyncio.gather(healthy(broker.address, 200), *attacks)
        broker.check()
        grown = anonymous_bytes(broker.pid) - before
        for writer in held:
            writer.transport.abort()
        await healthy(broker.address, 20)
    assert grown < GROWTH_LIMIT, f"{grown / MIB:.1f} MiB"
