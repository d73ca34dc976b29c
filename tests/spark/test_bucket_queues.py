"""Archives read by queue offset: batches with startingOffsets and endingOffsets, and streams, without Spark's JVM."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.queues.data_loss import MessagesLost
from spark.rows.row_batches import spark_schema
from sprocket.common.errors import ConfigError
from store.tier.manifest import NAME, Manifest, encode
from store.tier.remote_store import RemoteStore
from tests.spark.test_bucket import Archived, archived
from tests.spark.test_bucket import in_thread as rows_of_query
from tests.spark.test_stream import Stream
from tests.store.rig import Stores

Place = tuple[str, int, int]


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    stores = Stores(tmp_path / "store")
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    return stores


@pytest.fixture
def keys_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the objects that ranged reads ask for."""
    read: list[str] = []
    inner = RemoteStore.get_range

    async def counted(self: RemoteStore, key: str, start: int, end: int) -> bytes:
        read.append(key)
        return await inner(self, key, start, end)

    monkeypatch.setattr(RemoteStore, "get_range", counted)
    return read


def batch(url: str, **options: str) -> list[dict[str, Any]]:
    given = read_options({"path": url, "columns": "topic,queueId,queueOffset,physicalOffset,body"} | options)
    reader = QueueBatchReader(given, spark_schema(given.columns))
    return [row for task in reader.partitions() for found in reader.read(task) for row in found.to_pylist()]


async def batch_of(url: str, **options: str) -> list[tuple[int, int, bytes]]:
    """Read as Spark does, where no event loop runs."""
    rows = await asyncio.to_thread(lambda: batch(url, **options))
    return sorted((row["queueId"], row["queueOffset"], row["body"]) for row in rows)


async def shown(made: Archived, manifest: Manifest) -> None:
    """Replace the manifest."""
    version = (await made.objects.head(NAME)).version
    await made.objects.put_if(NAME, encode(manifest), version)


def places(topic: str, rows: list[tuple[int, int, bytes]]) -> list[Place]:
    return sorted((topic, queue_id, offset) for queue_id, offset, _ in rows)


async def test_a_batch_has_the_messages_from_its_starting_to_its_ending_offsets(
    stores: Stores, tmp_path: Path, keys_read: list[str]
) -> None:
    made, end = await archived(stores, tmp_path)
    expected = made.expected("Orders", end)
    assert await batch_of(made.url, subscribe="Orders", startingOffsets="earliest") == expected
    every = set(keys_read)
    keys_read.clear()
    found = await batch_of(
        made.url, subscribe="Orders", startingOffsets='{"Orders": {"0": 40, "1": -1}}',
        endingOffsets='{"Orders": {"0": 60, "1": -1}}',
    )  # fmt: skip
    assert found == [row for row in expected if row[0] == 0 and 40 <= row[1] < 60]
    # By the manifest: only objects with messages in between are read.
    assert 0 < len(set(keys_read)) <= 2 < len(every)
    one = await batch_of(made.url, assign='{"Rare": [1]}', startingOffsets="earliest")
    assert one == [row for row in made.expected("Rare", end) if row[0] == 1]


async def test_topics_and_times_leave_out_objects_by_the_manifest(
    stores: Stores, tmp_path: Path, keys_read: list[str]
) -> None:
    made, _ = await archived(stores, tmp_path)
    rows, _ = await rows_of_query(made.url, ("topic", "storeTimestamp"))
    every = set(keys_read)
    keys_read.clear()
    rare, _ = await rows_of_query(made.url, ("topic", "storeTimestamp"), subscribe="Rare")
    assert len(rare) == sum(row["topic"] == "Rare" for row in rows)
    assert len(set(keys_read)) <= len(rare) < len(every)
    keys_read.clear()
    times = sorted(row["storeTimestamp"] for row in rows)
    options = {"startingTimestamp": times[-20].isoformat(), "maxClockStepBack": "0"}
    late, _ = await rows_of_query(made.url, ("topic", "storeTimestamp"), **options)
    assert len(late) == 20
    assert 0 < len(set(keys_read)) <= 2 < len(every)


async def test_a_stream_goes_on_with_what_was_archived_since(stores: Stores, tmp_path: Path) -> None:
    made, end = await archived(stores, tmp_path)
    whole = await asyncio.to_thread(lambda: rows_for(made.url))
    half = msgspec.structs.replace(whole, segments=whole.segments[:2], uploaded_end=whole.segments[1].end)
    await shown(made, half)
    stream = Stream(made.url, subscribe="Orders", columns="topic,queueId,queueOffset,physicalOffset")
    first = await asyncio.to_thread(stream.drain)
    assert sorted(first) == places("Orders", made.expected("Orders", half.uploaded_end))
    assert not await asyncio.to_thread(stream.batch)
    await shown(made, msgspec.structs.replace(whole, number=whole.number + 2))
    stream.restart()  # from its checkpoint
    assert sorted(await asyncio.to_thread(stream.drain)) == places("Orders", made.expected("Orders", end))


def rows_for(url: str) -> Manifest:
    from spark.bucket.plan import manifests
    from spark.options.bucket_options import BucketSettings

    ((_, manifest),) = manifests(BucketSettings((url,)))
    return manifest


async def test_a_stream_begins_at_a_time(stores: Stores, tmp_path: Path) -> None:
    made, _ = await archived(stores, tmp_path)
    rows, _ = await rows_of_query(made.url, ("topic", "queueId", "queueOffset", "storeTimestamp"))
    begin = sorted(row["storeTimestamp"] for row in rows)[len(rows) // 2]
    stream = Stream(
        made.url, startingOffsets="", startingTimestamp=begin.isoformat(),
        columns="topic,queueId,queueOffset,physicalOffset",
    )  # fmt: skip
    expected = {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows if row["storeTimestamp"] >= begin}
    assert set(await asyncio.to_thread(stream.drain)) == expected


async def test_what_the_archive_has_lost_is_told(stores: Stores, tmp_path: Path) -> None:
    made, end = await archived(stores, tmp_path)
    whole = await asyncio.to_thread(lambda: rows_for(made.url))
    gone = whole.segments[2]
    await shown(made, whole.without([gone.key], 1))
    with pytest.raises(MessagesLost, match="not archived"):
        await batch_of(made.url, subscribe="Orders", startingOffsets="earliest")
    left = await batch_of(made.url, subscribe="Orders", startingOffsets="earliest", failOnDataLoss="false")
    before = set(made.expected("Orders", gone.start)) | (
        set(made.expected("Orders", end)) - set(made.expected("Orders", gone.end))
    )
    assert set(left) == before


async def test_two_archives_of_one_broker_name_are_refused(stores: Stores, tmp_path: Path) -> None:
    made, _ = await archived(stores, tmp_path)
    with pytest.raises(ConfigError, match="read them by two queries"):
        await batch_of(f"{made.url},{made.url}", startingOffsets="earliest")
