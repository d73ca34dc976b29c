"""Archives read by Spark's source, without a broker and without Spark's JVM."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.bucket.plan import BucketPart, plan
from spark.bucket.reader import read_rows
from spark.options.source_options import SourceOptions, read_options
from spark.rows.filters import RowFilter
from sprocket.common.errors import ConfigError
from store.message_store import MessageStore
from store.tier.manifest import NAME, encode, folder_of
from store.tier.object_store import Damaged
from store.tier.remote_store import RemoteStore, open_store
from tests.broker.archive.test_archive_service import served
from tests.broker.archive.test_archived_tables import STORE, close_file, prices
from tests.broker.archive.test_archived_tables import archived as archived_as
from tests.broker.rig import TOPIC
from tests.store.reading import read_queue
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import archive

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "tags", "body")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    stores = Stores(tmp_path / "store")
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    return stores


class Archived:
    """A store, its archive in a directory, and what its rows are."""

    def __init__(self, store: MessageStore, url: str, objects: RemoteStore) -> None:
        self.store, self.url, self.objects = store, url, objects

    def expected(self, topic: str, before: int) -> list[tuple[int, int, bytes]]:
        return sorted(
            (queue_id, record.queue_offset, bytes(record.body))
            for queue_id in range(2)
            for record in read_queue(self.store, topic, queue_id)
            if record.physical_offset < before
        )


async def archived(stores: Stores, tmp_path: Path, *, drops: str = "") -> tuple[Archived, int]:
    store = stores.open()
    for number in range(900):
        stores.clock.advance(1.0)
        topic = "Rare" if number % 300 == 7 else ("Orders", "Secrets")[number % 2]
        store.append([message(topic, number % 4 // 2, b"body %d " % number * 5, tag=f"t{number % 3}")])
    root = f"file://{tmp_path}/bucket"
    objects = open_store(f"{root}/{folder_of('DefaultCluster', 'broker-a')}")
    manifest = await archive(store, objects, lambda topic: topic != drops)
    far = 100 * 365 * 24 * 3_600_000
    manifest = manifest.with_reserves(far, {}, 1)
    await objects.put_if(NAME, encode(manifest), None)
    return Archived(store, root, objects), manifest.uploaded_end


def rows_of(url: str, columns: Sequence[str] = COLUMNS, **options: str) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a query, and how many segments it reads."""
    given: SourceOptions = read_options({"path": url, "minPartitions": "3"} | options)
    assert given.bucket is not None
    rows = RowFilter(given.topics, given.topic_pattern, given.times)
    found: list[dict[str, Any]] = []
    parts = plan(given.bucket, rows, given.min_partitions, given.max_clock_step_back_ms)
    for part in parts:
        for arrays, _ in read_rows(part, columns, rows, given.decoding(part.broker_name)):
            found += pa.RecordBatch.from_arrays(arrays, names=list(columns)).to_pylist()
    return found, len({part.segment.key for part in parts if isinstance(part, BucketPart)})


def keys(rows: list[dict[str, Any]]) -> list[tuple[int, int, bytes]]:
    return sorted((row["queueId"], row["queueOffset"], row["body"]) for row in rows)


async def in_thread(*args: Any, **options: str) -> tuple[list[dict[str, Any]], int]:
    """Read as Spark does, where no event loop runs."""
    import asyncio

    return await asyncio.to_thread(lambda: rows_of(*args, **options))


async def test_every_archived_message_is_a_row_with_its_own_offsets(stores: Stores, tmp_path: Path) -> None:
    made, end = await archived(stores, tmp_path)
    found, segments = await in_thread(made.url)
    assert segments > 3
    for topic in ("Orders", "Secrets", "Rare"):
        assert keys([row for row in found if row["topic"] == topic]) == made.expected(topic, end)
    assert len({row["physicalOffset"] for row in found}) == len(found)


async def test_the_folder_of_a_group_is_an_archive_too(stores: Stores, tmp_path: Path) -> None:
    made, end = await archived(stores, tmp_path)
    found, _ = await in_thread(f"{made.url}/DefaultCluster/broker-a", subscribe="Orders")
    assert keys(found) == made.expected("Orders", end)


async def test_a_topic_with_few_messages_reads_few_blocks(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, end = await archived(stores, tmp_path)
    read: list[int] = []
    inner = RemoteStore.get_range

    async def counted(self: RemoteStore, key: str, start: int, end: int) -> bytes:
        read.append(end - start)
        return await inner(self, key, start, end)

    monkeypatch.setattr(RemoteStore, "get_range", counted)
    found, segments = await in_thread(made.url, subscribe="Rare")
    assert keys(found) == made.expected("Rare", end)
    few, total = sum(read), segments
    read.clear()
    _, segments = await in_thread(made.url)
    assert total < segments
    assert few < sum(read) / 3


async def test_a_time_prunes_segments_by_the_manifest(stores: Stores, tmp_path: Path) -> None:
    made, _ = await archived(stores, tmp_path)
    first, _ = await in_thread(made.url, ("topic", "storeTimestamp"))
    times = sorted(row["storeTimestamp"] for row in first)
    begin, past = times[len(times) // 2], times[len(times) // 2 + 20]
    found, segments = await in_thread(
        made.url, ("topic", "storeTimestamp"), startingTimestamp=begin.isoformat(), endingTimestamp=past.isoformat(),
        maxClockStepBack="0",
    )  # fmt: skip
    assert sorted(row["storeTimestamp"] for row in found) == [time for time in times if begin <= time < past]
    assert segments <= 2


async def test_messages_that_are_not_archived_are_no_rows(stores: Stores, tmp_path: Path) -> None:
    made, end = await archived(stores, tmp_path, drops="Secrets")
    found, _ = await in_thread(made.url)
    assert {row["topic"] for row in found} == {"Orders", "Rare"}
    assert keys([row for row in found if row["topic"] == "Orders"]) == made.expected("Orders", end)
    uncommitted, _ = await in_thread(made.url, isolationLevel="read_uncommitted")
    assert len(uncommitted) == len(found)


async def test_what_cannot_be_read_is_refused_by_name(stores: Stores, tmp_path: Path) -> None:
    made, _ = await archived(stores, tmp_path)
    with pytest.raises(ConfigError, match=r"no archive has the topic 'Order'.*Orders"):
        await in_thread(made.url, subscribe="Order")
    with pytest.raises(ConfigError, match="archives and store directories"):
        read_options({"path": f"{made.url},{tmp_path}/store"})
    with pytest.raises(ConfigError, match="'objectStoreEndpoint' is for archives"):
        read_options({"path": f"{tmp_path}/store", "objectStoreEndpoint": "http://127.0.0.1:1"})
    infos = [info async for info in made.objects.list("segments")]
    content = bytearray((await made.objects.get(infos[0].key, 1 << 30)).content)
    content[100] ^= 1
    await made.objects.put(infos[0].key, bytes(content))
    with pytest.raises(Damaged):
        await in_thread(made.url)


async def test_a_table_is_read_also_when_the_segments_have_no_log_of_it(tmp_path: Path) -> None:
    async with served(tmp_path, **STORE) as one:
        await prices(one)
        await archived_as(tmp_path, one, lambda manifest: manifest.compacted)
        await close_file(one)
        await archived_as(
            tmp_path, one, lambda manifest: all(TOPIC not in one.topics for one in manifest.segments), 600
        )
    rows, segments = await in_thread(f"file://{tmp_path}/bucket", ("keys", "body"), subscribe=TOPIC)
    assert {row["keys"]: row["body"] for row in rows if row["body"]} == {"a": b"3", "b": b"2"}
    assert segments == 0
