"""SIGKILL of a broker at random points under load with SYNC_FLUSH: nothing acknowledged is lost.

The suite runs a few rounds; the recorded total is run by hand: ``pytest -m slow tests/chaos``.
SIGKILL leaves the page cache, so this shows recovery and the order of acknowledgements, not a power cut.
"""

import asyncio
import random
import struct
from pathlib import Path

import pytest

from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from sprocket.common.errors import ClientError
from tests.chaos.queue_checker import QueueChecker
from tests.compat.cluster import SprocketCluster

TOPIC = "Chaos"
QUEUES = 4
OUTSTANDING = 32
# Small segments, so that kills also hit rolls.
PROPERTIES = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
    "defaultTopicQueueNums": str(QUEUES),
}


async def send_until_dead(address: str, checker: QueueChecker, first: int) -> int:
    """Keep sends outstanding until the broker is gone; the next free key number."""
    client = RemotingClient()
    numbers = iter(range(first, 2**31))
    last = first

    async def one_after_another() -> None:
        nonlocal last
        for number in numbers:
            last = max(last, number + 1)
            key = f"m{number}"
            checker.unknown.add(key)
            header = SendMessageRequestHeaderV2(
                producer_group="chaos",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=QUEUES,
                queue_id=number % QUEUES,
                sys_flag=0,
                born_timestamp=number,
                flag=0,
                properties=f"KEYS\x01{key}\x02",
            )
            body = key.encode().ljust(100 + number % 3000, b".")
            response = await client.invoke(address, RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=10)
            assert response.code == ResponseCode.SUCCESS, response.remark
            place = response.header(SendMessageResponseHeader)
            checker.on_acknowledged(key, place.queue_id, place.queue_offset)

    results = await asyncio.gather(*(one_after_another() for _ in range(OUTSTANDING)), return_exceptions=True)
    await client.close()
    for result in results:
        if not isinstance(result, ClientError):
            raise result if isinstance(result, BaseException) else AssertionError("the load ended by itself")
    return last


async def read_queues(address: str) -> dict[int, list[tuple[int, str]]]:
    client = RemotingClient()
    queues = {queue_id: await read_queue(client, address, queue_id) for queue_id in range(QUEUES)}
    await client.close()
    return queues


async def read_queue(client: RemotingClient, address: str, queue_id: int) -> list[tuple[int, str]]:
    header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue_id)
    response = await client.invoke(address, RequestCode.GET_MAX_OFFSET, header)
    end = response.header(GetMaxOffsetResponseHeader).offset
    messages: list[tuple[int, str]] = []
    offset = 0
    while offset < end:
        pull = PullMessageRequestHeader(
            consumer_group="chaos_check",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=0b100,  # the subscription is in the request
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        response = await client.invoke(address, RequestCode.PULL_MESSAGE, pull)
        assert response.code == ResponseCode.SUCCESS, (queue_id, offset, end, response)
        messages += records(response.body)
        offset = response.header(PullMessageResponseHeader).next_begin_offset
    return messages


def records(body: bytes) -> list[tuple[int, str]]:
    """(queue offset, key) of each record; the key is also the body's first word."""
    found = []
    position = 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        (queue_offset,) = struct.unpack_from(">q", body, position + 20)
        (body_bytes,) = struct.unpack_from(">i", body, position + 84)
        content = body[position + 88 : position + 88 + body_bytes]
        found.append((queue_offset, content.split(b".")[0].decode()))
        position += size
    return found


async def kill_rounds(directory: Path, rounds: int, seed: int) -> None:
    dice = random.Random(seed)
    checker = QueueChecker()
    number = 0
    with SprocketCluster(directory, properties=PROPERTIES) as cluster:
        broker = cluster.brokers[0]
        for _ in range(rounds):
            load = asyncio.ensure_future(send_until_dead(broker.address, checker, number))
            await asyncio.sleep(dice.uniform(0.02, 0.5))
            await asyncio.to_thread(broker.kill)
            number = await load
            broker.start()
            await asyncio.to_thread(cluster.await_registered, broker)
        queues = await read_queues(broker.address)
    assert checker.acknowledged, "no send was acknowledged: the test shows nothing"
    assert checker.check(queues) == []


@pytest.mark.timeout(240)
async def test_sigkill_under_load(tmp_path: Path) -> None:
    await kill_rounds(tmp_path, rounds=12, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
async def test_sigkill_under_load_soak(tmp_path: Path, seed: int) -> None:
    await kill_rounds(tmp_path, rounds=50, seed=seed)
