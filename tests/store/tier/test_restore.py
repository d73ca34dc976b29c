"""A broker that lost everything is made again from its archive, to the last message that was uploaded."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from sprocket.common.errors import StoreError
from store.compaction.manifest import Part, part_name
from store.message_store import MessageStore
from store.queue.consume_queue import BLANK_SIZE
from store.tier.compression import compress
from store.tier.manifest import NAME, CompactedEntry, Manifest, TablesEntry, empty, encode
from store.tier.object_store import Damaged, NotFound
from store.tier.remote_store import RemoteStore
from store.tier.restore import ArchiveRestore, Restored
from store.tier.tables_object import encode_tables
from tests.store.reading import read_queue, stored
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import archive, memory_objects


@pytest.fixture(autouse=True)
def shape(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024


def filled(stores: Stores) -> MessageStore:
    store = stores.open()
    for number in range(900):
        stores.clock.advance(1.0)
        store.append([message(("Orders", "Secrets")[number % 2], number % 3, b"body %d " % number * 5)])
    return store


async def restored(stores: Stores, objects: RemoteStore, manifest: Manifest, root: Path) -> tuple[Restored, Stores]:
    report = await ArchiveRestore(objects, manifest, root).run()
    again = Stores(root)
    again.fields = stores.fields
    again.clock = stores.clock
    return report, again


def texts(store: MessageStore, topic: str, before: int) -> list[tuple[int, bytes]]:
    return [
        (record.queue_offset, bytes(record.body))
        for queue_id in range(3)
        for record in read_queue(store, topic, queue_id)
        if record.physical_offset < before
    ]


def present(store: MessageStore, topic: str) -> list[tuple[int, bytes]]:
    """Return the messages of a topic whose queues have holes."""
    found = []
    for queue_id in range(3):
        for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
            entry = store.entry(topic, queue_id, offset)
            if entry is not None and entry[1] != BLANK_SIZE:
                found.append((offset, bytes(stored(store, topic, queue_id, offset).body)))
    return found


async def test_log_and_queues_are_as_they_were_up_to_the_last_upload(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects)
    report, again = await restored(stores, objects, manifest, tmp_path / "again")
    assert (report.log_start, report.log_end, report.gaps) == (0, manifest.uploaded_end, [])
    copy = again.open()
    assert copy.wrote_offset == manifest.uploaded_end
    for topic in ("Orders", "Secrets"):
        assert texts(copy, topic, 1 << 40) == texts(store, topic, manifest.uploaded_end)
    copy.append([message("Orders", 0, b"goes on")])
    again.close(copy)


async def test_what_is_not_archived_leaves_offsets_as_they_are(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects, lambda topic: topic != "Secrets")
    report, again = await restored(stores, objects, manifest, tmp_path / "again")
    assert report.dropped > 100
    assert any("fillers" in line for line in report.missing())
    copy = again.open()
    assert texts(copy, "Orders", 1 << 40) == texts(store, "Orders", manifest.uploaded_end)
    assert copy.max_offset("Secrets", 0) == 0
    again.close(copy)


async def test_a_segment_that_is_missing_in_the_middle_is_passed_and_named(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    whole = await archive(store, objects)
    gone = whole.segments[1]
    report, again = await restored(stores, objects, whole.without([gone.key], 2), tmp_path / "again")
    assert report.gaps == [(gone.start, gone.end)]
    assert f"the log from offset {gone.start} to {gone.end}" in report.missing()
    copy = again.open()
    records = [
        (record.queue_offset, bytes(record.body))
        for queue_id in range(3)
        for record in read_queue(store, "Orders", queue_id)
        if record.physical_offset < gone.start or gone.end <= record.physical_offset < whole.uploaded_end
    ]
    assert present(copy, "Orders") == records
    again.close(copy)


async def test_a_log_whose_beginning_expired_begins_later(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    whole = await archive(store, objects)
    gone = whole.segments[0]
    report, again = await restored(stores, objects, whole.without([gone.key], 2), tmp_path / "again")
    assert report.log_start == gone.end
    copy = again.open()
    assert copy.first_physical_offset == gone.end
    assert copy.min_offset("Orders", 0) == min(
        record.queue_offset for record in read_queue(store, "Orders", 0) if record.physical_offset >= gone.end
    )
    again.close(copy)


async def test_tables_are_put_where_they_were(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    content = encode_tables({"config/topics.json": b"{}", "config/consumerOffset.json": b'{"offsetTable":{}}'})
    tables = tables_entry("tables/00000000000000000001-0-test-1", content)
    await objects.put(tables.key, content)
    manifest = (await archive(store, objects)).with_tables(tables, 1)
    report, _ = await restored(stores, objects, manifest, tmp_path / "again")
    assert report.tables == ["config/consumerOffset.json", "config/topics.json"]
    assert (tmp_path / "again" / "config" / "topics.json").read_bytes() == b"{}"
    # An object that somebody put in its place could bring accounts of its own.
    await objects.put(tables.key, encode_tables({"config/users.json": b"{}"}))
    with pytest.raises(Damaged, match=r"tables/0.*is not what was uploaded there"):
        await restored(stores, objects, manifest, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def tables_entry(key: str, content: bytes) -> TablesEntry:
    return TablesEntry(key, len(content), hashlib.sha256(content).hexdigest(), 1, 1)


async def test_a_folder_with_files_is_refused_and_left_as_it_is(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects)
    target = tmp_path / "again"
    target.mkdir()
    (target / "mine").write_text("x")
    with pytest.raises(StoreError, match="is not empty"):
        await ArchiveRestore(objects, manifest, target).run()
    assert [path.name for path in target.iterdir()] == ["mine"]


async def test_damage_makes_no_store(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects)
    segment = manifest.segments[1]
    content = bytearray((await objects.get(segment.key, 1 << 30)).content)
    content[100] ^= 1
    await objects.put(segment.key, bytes(content))
    with pytest.raises(Damaged, match="is not what was written there"):
        await ArchiveRestore(objects, manifest, tmp_path / "again").run()
    assert not (tmp_path / "again").exists()


async def test_parts_of_one_file_are_put_together(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects, part_bytes=10_000)
    assert len({one.start // manifest.segment_bytes for one in manifest.segments}) < len(manifest.segments)
    report, again = await restored(stores, objects, manifest, tmp_path / "again")
    assert report.gaps == []
    copy = again.open()
    assert texts(copy, "Secrets", 1 << 40) == texts(store, "Secrets", manifest.uploaded_end)
    again.close(copy)
    second = msgspec.structs.replace(manifest, segments=[manifest.segments[0], *manifest.segments[2:]])
    report, again = await restored(stores, objects, second, tmp_path / "with-hole")
    copy = again.open()
    assert copy.wrote_offset == manifest.uploaded_end
    again.close(copy)


async def test_a_restore_begins_again_if_the_broker_replaces_what_it_reads(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects)
    content = encode_tables({"config/topics.json": b"{}"})
    new = tables_entry("tables/2-0-test-2", content)
    old = msgspec.structs.replace(new, key="tables/1-0-test-1")
    await objects.put(new.key, content)
    await objects.put_if(NAME, encode(manifest.with_tables(new, 1)), None)
    stale = msgspec.structs.replace(manifest, tables=old)
    report, _ = await restored(stores, objects, stale, tmp_path / "again")
    assert report.tables == ["config/topics.json"]
    await objects.delete(new.key)
    with pytest.raises(NotFound, match="tables/2"):
        await restored(stores, objects, stale, tmp_path / "once more")


async def test_an_object_of_a_compacted_queue_fills_no_disk(stores: Stores, tmp_path: Path) -> None:
    store, objects = filled(stores), memory_objects()
    manifest = await archive(store, objects)
    block = compress(bytes(1 << 20))
    content = (len(block).to_bytes(4) + block) * 100
    part = Part(part_name(0, 10), 0, 10, 1, 100, 100)
    entry = CompactedEntry(
        "Prices", 0, part, "compacted/0-0-test-1", len(content), hashlib.sha256(content).hexdigest()
    )  # fmt: skip
    await objects.put(entry.key, content)
    bad = msgspec.structs.replace(manifest, compacted=[entry])
    with pytest.raises(Damaged, match="not what was uploaded"):
        await restored(stores, objects, bad, tmp_path / "again")
    written = [
        path.stat().st_size for path in (tmp_path / "again.restoring" / "compacted").rglob("*") if path.is_file()
    ]
    assert sum(written) <= 1 << 20


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a\0b", "t" * 256])
def test_a_compacted_queue_whose_topic_is_no_name_of_a_directory_is_refused(topic: str) -> None:
    entry = CompactedEntry(topic, 0, Part(part_name(0, 1), 0, 1, 1, 1, 1), "compacted/0-0-test-1", 1, "0" * 64)
    manifest = empty("c", "b", 1024, 0)
    with pytest.raises(Damaged, match="no valid entry"):
        encode(msgspec.structs.replace(manifest, compacted=[entry]))
