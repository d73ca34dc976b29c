"""A site with a broker that archives and one that serves the archive (readOnlyFrom), of which the first one goes."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker.server import Broker
from sprocket import Message, MessageQueue, Producer
from sprocket.common.errors import StoreError
from store.tier.open_archive import open_archive
from tests.combinations.site import Site
from tests.combinations.traffic import TOPIC, Traffic
from tests.waiting import until

COUNT: Final = 60
SOURCE, READER = "broker-a", "broker-b"
_SEGMENT_BYTES: Final = 16 * 1024


def keys(directory: Path) -> dict[str, dict[str, str]]:
    """The keys of the broker that writes an archive, and of the one that serves it."""
    archive = directory / "archive"
    return {
        SOURCE: {"tieredStoreFilePath": str(archive), "mappedFileSizeCommitLog": str(_SEGMENT_BYTES)},
        READER: {"readOnlyFrom": f"file://{archive}/DefaultCluster/{SOURCE}"},
    }


def body(number: int) -> str:
    return f"body-{number:03}-" + "x" * 400


async def drained(site: Site, directory: Path) -> tuple[Broker, list[str]]:
    """Stop the broker that wrote; return the reader, and the messages of its topic's only queue."""
    traffic = Traffic(site.written.client)
    await traffic.send("first", [SOURCE])
    queue = MessageQueue(TOPIC, SOURCE, 0)
    async with Producer("writers", client=site.written.client) as producer:
        for number in range(COUNT):
            await producer.send(Message(TOPIC, body(number).encode(), keys=f"k{number}"), queue=queue)
    source, reader = site.master(SOURCE), site.master(READER).broker
    end = source.broker.store.wrote_offset // _SEGMENT_BYTES * _SEGMENT_BYTES
    async with asyncio.timeout(60):
        while await _uploaded(directory) < end:
            await asyncio.sleep(0.05)
    await until(lambda: TOPIC in reader.topics and reader.store.max_offset(TOPIC, 0) > COUNT // 2)
    await source.stop()
    await until(lambda: reader.store.max_offset(TOPIC, 0) > COUNT // 2)
    return reader, ["first to broker-a", *map(body, range(COUNT))][: reader.store.max_offset(TOPIC, 0)]


async def _uploaded(directory: Path) -> int:
    with suppress(StoreError):
        return (await open_archive(f"file://{directory}/archive")).manifest.uploaded_end
    return 0
