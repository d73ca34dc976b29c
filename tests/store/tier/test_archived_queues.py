"""Compacted queues in the archive: what is uploaded of them, and when what is there stays."""

import hashlib
import random
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from store.compaction.manifest import DIRECTORY, Manifest, Part, part_name, write_manifest
from store.disk.disk import RealDisk
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.tier.archive_writer import ArchiveWriter
from tests.store.rig import Stores, message
from tests.store.tier.archive_rig import FakeSource, manifest_in, upload_all, writer_of
from tests.store.tier.fake_store import FakeBucket, FakeStore, Killed


def part(first: int, end: int, log_end: int = 100) -> Part:
    return Part(part_name(first, end), first, end, 1, 3, log_end)


def put(root: Path, queue_id: int, *parts: Part) -> Path:
    """Make a compacted queue on the disk; what is in its records does not matter here."""
    directory = root / DIRECTORY / "Prices" / str(queue_id)
    directory.mkdir(parents=True, exist_ok=True)
    for one in parts:
        log, units = one.file_names
        (directory / log).write_bytes(b"log")
        (directory / units).write_bytes(bytes(BATCH_CONSUME_QUEUE_UNIT_BYTES))
    write_manifest(RealDisk(), directory, Manifest(parts))
    return directory


@pytest.fixture
def source(stores: Stores, tmp_path: Path) -> FakeSource:
    store = stores.open()
    for _ in range(60):
        store.append([message("Prices", 0, b"x" * 1000)])
    found = FakeSource(store)
    found.compacted_root = tmp_path / "one"
    found.set_rules(compacted=frozenset(("Prices",)))
    return found


async def claimed(stores: Stores, source: FakeSource, bucket: FakeBucket, epoch: int = 1) -> ArchiveWriter:
    store = FakeStore(bucket, random.Random(1))
    writer = writer_of(store, source, stores.clock, epoch=epoch, incarnation=f"m{epoch}")
    await writer.claim()
    await upload_all(writer)
    return writer


async def save(writer: ArchiveWriter) -> dict[int, list[int]]:
    """Do all uploads, and return the first offsets of the parts that are archived of each queue."""
    for _ in range(10):
        if not await writer.save_compacted():
            found: dict[int, list[int]] = {}
            for entry in writer.manifest.compacted:
                found.setdefault(entry.queue_id, []).append(entry.part.first_offset)
            return found
    pytest.fail("the uploads have no end")


@pytest.mark.parametrize("parts", [(), (part(5, 20),)])
async def test_a_master_that_lacks_the_begin_of_a_queue_leaves_what_is_archived(
    stores: Stores, source: FakeSource, tmp_path: Path, parts: tuple[Part, ...]
) -> None:
    bucket = FakeBucket()
    put(tmp_path / "one", 0, part(0, 10))
    writer = await claimed(stores, source, bucket)
    assert await save(writer) == {0: [0]}
    before = {key for key in bucket.objects if key.startswith("compacted")}
    # It was a slave that began with an empty store, and its master had removed the log of these messages.
    source.compacted_root = tmp_path / "two"
    if parts:
        put(tmp_path / "two", 0, *parts)
    second = await claimed(stores, source, bucket, epoch=2)
    assert await save(second) == {0: [0]}
    assert {key for key in bucket.objects if key.startswith("compacted")} == before


async def test_a_kill_at_each_request_leaves_queues_whose_objects_are_there(
    stores: Stores, source: FakeSource, tmp_path: Path
) -> None:
    dies_at, killed = 0, True
    while killed:
        dies_at, killed, bucket = dies_at + 1, False, FakeBucket()
        put(tmp_path / "one", 0, part(0, 10))
        assert await save(await claimed(stores, source, bucket)) == {0: [0]}
        # Compacted again: the old part goes, and two new ones come.
        put(tmp_path / "one", 0, part(0, 20), part(20, 30))
        writer = writer_of(FakeStore(bucket, random.Random(1), dies_at=dies_at), source, stores.clock, epoch=2)
        try:
            await writer.claim()
            await save(writer)
        except Killed:
            killed = True
        manifest = manifest_in(bucket)
        assert manifest is not None
        for entry in manifest.compacted:
            assert hashlib.sha256(bucket.objects[entry.key][0]).hexdigest() == entry.sha256
        assert [entry.part for entry in manifest.compacted] in ([part(0, 10)], [part(0, 20), part(20, 30)])
        assert await save(await claimed(stores, source, bucket, epoch=3)) == {0: [0, 20]}
    assert dies_at > 20


async def test_a_queue_of_a_deleted_topic_goes(stores: Stores, source: FakeSource, tmp_path: Path) -> None:
    put(tmp_path / "one", 0, part(0, 10))
    writer = await claimed(stores, source, FakeBucket())
    assert await save(writer) == {0: [0]}
    source.set_rules(compacted=frozenset())
    source.compacted_root = tmp_path / "none"
    assert await save(writer) == {}


async def test_a_queue_whose_files_are_gone_waits_for_the_next_time_and_holds_up_no_other(
    stores: Stores, source: FakeSource, tmp_path: Path
) -> None:
    directory = put(tmp_path / "one", 0, part(0, 10))
    put(tmp_path / "one", 1, part(0, 10))
    (directory / part(0, 10).file_names[1]).unlink()
    writer = await claimed(stores, source, FakeBucket())
    assert await save(writer) == {1: [0]}


async def test_a_file_that_cannot_be_opened_is_an_error_of_the_store(
    stores: Stores, source: FakeSource, tmp_path: Path
) -> None:
    directory = put(tmp_path / "one", 0, part(0, 10))
    name = part(0, 10).file_names[1]
    (directory / name).unlink()
    (directory / name).mkdir()
    writer = await claimed(stores, source, FakeBucket())
    with pytest.raises(StoreError, match="Is a directory"):
        await writer.save_compacted()
