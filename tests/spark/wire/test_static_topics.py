"""A static topic whose queue has moved: over the wire, its physical queues have the rows of the store directories."""

import asyncio
from pathlib import Path
from typing import Any

from spark.options.source_options import read_options
from tests.broker.rig import TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.spark.test_stream import Stream
from tests.spark.wire.test_wire import ALL_COLUMNS, read


async def rows(**options: str) -> list[dict[str, Any]]:
    asked = read_options({"subscribe": TOPIC, "columns": ALL_COLUMNS, **options})
    found = await asyncio.to_thread(read, asked)
    return sorted(found, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))


async def filled(two: Site) -> None:
    """Three messages of logical queue 0 are in queue 0 of broker a, two in queue 1 of broker b."""
    await two.created()
    for text in (b"0", b"1", b"2"):
        await two.clients[A].send(text)
    await two.remapped(10_000)
    for text in (b"new", b"newer"):
        await two.clients[B].send(text)


async def test_rows_are_those_of_the_files(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await filled(two)
        found = await rows(namesrvAddr=two.name_server)
        places = [(row["brokerName"], row["queueId"], row["queueOffset"], row["body"]) for row in found]
        assert places == [
            (A, 0, 0, b"0"), (A, 0, 1, b"1"), (A, 0, 2, b"2"), (B, 1, 0, b"new"), (B, 1, 1, b"newer"),
        ]  # fmt: skip
        stores = ",".join(f"{name}={two.brokers[name].config.store.store_path_root_dir}" for name in (A, B))
        assert found == await rows(path=stores, startingOffsets="earliest")
        begin = str(found[3]["storeTimestamp"].timestamp() * 1000 // 1)[:-2]
        late = await rows(namesrvAddr=two.name_server, startingTimestamp=begin)
        assert late == [row for row in found if row["storeTimestamp"] >= found[3]["storeTimestamp"]]


async def test_a_stream_goes_on_over_a_move(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.clients[A].send(b"0")
        stream = await asyncio.to_thread(lambda: Stream("", namesrvAddr=two.name_server, subscribe=TOPIC))
        await asyncio.to_thread(stream.drain)
        await two.remapped(10_000)
        await two.clients[B].send(b"1")
        await asyncio.to_thread(stream.drain)
        assert [row["body"] for row in stream.rows] == [b"0", b"1"]
