"""Messages that only S3 has (moto's server), read by RocketMQ's Java client and by ours; S3 refuses for a time."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket import ConsumeFrom, Consumer
from store.tier.open_archive import open_archive
from store.tier.remote_store import Access
from tests.broker.group_rig import Cluster, cluster
from tests.compat.java_client import mqadmin
from tests.s3_server import make_bucket, s3_server
from tests.store.tier.http_fault_proxy import HttpFaultProxy
from tests.waiting import until

TOPIC = "Orders"
SEGMENT_BYTES = 16 * 1024
COUNT = 120


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of a server that speaks S3, with a bucket."""
    with s3_server() as endpoint:
        make_bucket(endpoint)
        yield endpoint


async def drained(group: Cluster, fields: dict[str, Any], endpoint: str) -> Broker:
    """Return a broker whose first messages are in S3 alone: it stopped, its segments went, and it started again."""
    broker = await group.start("broker-a", store=fields)
    client = group.client(broker)
    for number in range(COUNT):
        await client.send(b"body %d;" % number * 60, topic=TOPIC, KEYS=f"k{number}")
    whole = broker.store.wrote_offset // SEGMENT_BYTES * SEGMENT_BYTES
    access = Access(endpoint=endpoint, access_key="key", secret_key="secret", region="us-east-1")
    uploaded = 0
    async with asyncio.timeout(60):
        while uploaded < whole:
            await asyncio.sleep(0.1)
            try:
                uploaded = (await open_archive("s3://bucket", access)).manifest.uploaded_end
            except Exception:
                continue
    await group.stop("broker-a")
    for path in sorted((group.root / "broker-a-0" / "store" / "commitlog").iterdir())[:3]:
        path.unlink()
    broker = await group.start("broker-a", store=fields)
    assert broker.store.min_offset(TOPIC, 0) > 10
    return broker


async def refuse_for_a_time(proxy: HttpFaultProxy) -> None:
    """Let S3 refuse until the broker has asked for some blocks in vain."""
    proxy.always = "refuse"
    await until(lambda: proxy.met["refuse"] > 5)
    proxy.always = ""


async def test_java_and_python_consumers_read_from_the_first_message_on(s3: str, tmp_path: Path, java: None) -> None:
    async with HttpFaultProxy(s3, 1) as proxy:
        await read_by_both(proxy, s3, tmp_path)


async def read_by_both(proxy: HttpFaultProxy, s3: str, tmp_path: Path) -> None:
    fields = {
        "mapped_file_size_commit_log": SEGMENT_BYTES, "flush_interval_commit_log": 5, "object_store_bucket": "bucket",
        "object_store_endpoint": proxy.address, "object_store_access_key": "key", "object_store_secret_key": "secret",
    }  # fmt: skip
    expected = [f"body {number};" for number in range(COUNT)]
    async with cluster(tmp_path) as group:
        broker = await drained(group, fields, s3)
        name_server = f"127.0.0.1:{group.name_server.port}"
        await until(lambda: bool(group.members("broker-a")))
        await until(lambda: broker.store.min_offset(TOPIC, 0) > 10)
        healed = asyncio.ensure_future(refuse_for_a_time(proxy))
        result = await asyncio.to_thread(
            mqadmin, tmp_path / "home", "consumeMessage", "-n", name_server, "-t", TOPIC, "-b", "broker-a", "-i", "0",
            "-o", "0", "-c", str(COUNT),
        )  # fmt: skip
        found = re.findall(r"BODY: (body \d+;)", result.stdout)
        assert found == expected, result.stdout[-2000:] + result.stderr[-2000:]
        await healed
        got: list[str] = []
        async with Consumer("readers", [TOPIC], name_server, consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                got.append(message.body.decode()[: message.body.index(b";") + 1])
                if len(got) >= COUNT:
                    break
        assert sorted(got) == sorted(expected)
