"""More sends than a broker process serves: some are refused with the cause, none that it acknowledged is missing."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sprocket.client.message import MessageQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from tests.chaos.pressure.load_generator import TOPIC, Figures, Plan
from tests.chaos.pressure.test_hostile_peers import MIB, anonymous_bytes, send_header
from tests.compat.cluster import SprocketCluster

# A broker that may let nothing wait is overloaded by any load, on any machine.
PROPERTIES = {
    "mappedFileSizeCommitLog": str(64 * MIB),
    "waitTimeMillsInSendQueue": "2",
    "brokerFastFailureEnable": "true",
}
GROWTH_LIMIT = 48 * MIB


def load(address: str, seconds: float) -> Figures:
    host, port = address.split(":")
    plan = Plan(host, int(port), connections=8, seconds=seconds, window=1000, body_bytes=200)
    command = [sys.executable, "-m", "tests.chaos.pressure.load_generator", msgspec.json.encode(plan).decode()]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=90, check=True)
    return msgspec.convert(json.loads(done.stdout), Figures)


async def stored_numbers(address: str) -> set[int]:
    """The numbers of all messages that the broker gives out."""
    client, offset = RemotingClient(), 0
    found: set[int] = set()
    while True:
        header = PullMessageRequestHeader(
            consumer_group="g", topic=TOPIC, queue_id=0, queue_offset=offset, max_msg_nums=1000, sys_flag=0b100,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, max_msg_bytes=4 << 20,
        )  # fmt: skip
        response = await client.invoke(address, RequestCode.PULL_MESSAGE, header, timeout_s=10)
        if response.code != ResponseCode.SUCCESS:
            await client.close()
            return found
        messages = decode_records(response.body, MessageQueue(TOPIC, "broker-a", 0))
        found |= {int(message.body) for message in messages}
        offset = messages[-1].queue_offset + 1


@pytest.mark.timeout(180)
async def test_overload(tmp_path: Path) -> None:
    with SprocketCluster(tmp_path, properties=PROPERTIES) as cluster:
        broker = cluster.brokers[0]
        before = anonymous_bytes(broker.pid)
        figures = await asyncio.to_thread(load, broker.address, 3.0)
        broker.check()
        assert figures.answered.keys() <= {"0", "2"}, figures.answered
        assert figures.answered["2"] > 0 < figures.answered["0"]
        assert figures.answered["0"] + figures.answered["2"] == figures.offered
        assert anonymous_bytes(broker.pid) - before < GROWTH_LIMIT
        # What it refused is not there, what it acknowledged is.
        assert await stored_numbers(broker.address) == set(figures.acknowledged)
        # And it is over: a producer of good will is served.
        client = RemotingClient()
        response = await client.invoke(broker.address, RequestCode.SEND_MESSAGE_V2, send_header(0), b"x", timeout_s=10)
        assert response.code == ResponseCode.SUCCESS
        await client.close()
        assert "event=overload state=refusing" in broker.output.read_text()
