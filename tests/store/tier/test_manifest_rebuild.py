"""A manifest that is gone is made of the objects as it was, or not at all."""

import contextlib
import random
from collections.abc import Iterator

import msgspec
import pytest

from sprocket.common.errors import StoreError
from store.tier.archive_check import ArchiveCheck
from store.tier.archive_writer import OtherLog
from store.tier.manifest import NAME, Manifest
from store.tier.manifest_rebuild import ManifestRebuild, group_in, is_gone
from store.tier.object_store import Conflict, ObjectStoreError
from store.tier.segment_writer import Kept
from tests.store.rig import Stores
from tests.store.tier.archive_rig import GROUP, HOUR_MS, FakeSource, check_archive, manifest_in, upload_all, writer_of
from tests.store.tier.fake_store import FakeBucket, FakeStore
from tests.store.tier.test_archive_writer import FILE_BYTES, filled

NOW_MS = 1_800_000_000_000


@pytest.fixture
def source(stores: Stores) -> FakeSource:
    return FakeSource(filled(stores))


@pytest.fixture
def other(stores: Stores) -> Iterator[FakeSource]:
    """Another log."""
    others = Stores(stores.root / "other")
    yield FakeSource(filled(others, 200, first=1000))
    others.close_all()


def client(bucket: FakeBucket) -> FakeStore:
    return FakeStore(bucket, random.Random(1))


async def uploaded(stores: Stores, source: FakeSource, bucket: FakeBucket, **fields: object) -> Manifest:
    """Upload everything and the tables, and return the manifest."""
    writer = writer_of(client(bucket), source, stores.clock, **fields)  # type: ignore[arg-type]
    await writer.claim()
    await upload_all(writer)
    await writer.save_tables()
    return writer.manifest


async def rebuilt(bucket: FakeBucket, segment_bytes: int | None = None) -> tuple[Manifest, list[str]]:
    del bucket.objects[NAME]
    assert await is_gone(client(bucket))
    rebuild = ManifestRebuild(client(bucket), GROUP, segment_bytes)
    manifest = await rebuild.run(NOW_MS)
    assert manifest_in(bucket) == manifest
    assert not await is_gone(client(bucket))
    return manifest, rebuild.missing


def same(one: Manifest, other: Manifest) -> bool:
    """Whether two manifests say the same of the log."""
    first, second = (
        [msgspec.structs.replace(entry, created_ms=0) for entry in manifest.segments] for manifest in (one, other)
    )
    return (first, one.uploaded_end, one.segment_bytes) == (second, other.uploaded_end, other.segment_bytes)


async def test_it_says_the_same_of_the_log_and_a_master_goes_on_with_it(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    before = await uploaded(stores, source, bucket)
    assert len(before.segments) > 3
    manifest, missing = await rebuilt(bucket)
    assert same(manifest, before)
    assert (manifest.cluster, manifest.broker) == GROUP
    assert manifest.tables is not None
    assert before.tables is not None
    assert (manifest.tables.key, manifest.tables.sha256) == (before.tables.key, before.tables.sha256)
    assert missing[0].startswith(f"whatever came after offset {before.uploaded_end}")
    check = ArchiveCheck(client(bucket), manifest, quick=False)
    await check.run()
    assert check.findings.is_fine
    assert not check.unnamed
    after = await uploaded(stores, source, bucket, incarnation="two")
    assert (after.default_reserved_ms, after.segments) == (before.default_reserved_ms, manifest.segments)
    check_archive(bucket, source)


async def test_parts_of_an_open_file_and_a_gap_are_as_they_were(stores: Stores, source: FakeSource) -> None:
    bucket, end = FakeBucket(), 2 * FILE_BYTES + 5_000
    source.safe_offset = end
    source.set_rules(rolling_interval_ms=HOUR_MS)
    stores.clock.advance(2 * 3600)
    before = await uploaded(stores, source, bucket)
    assert before.uploaded_end % FILE_BYTES
    lost = before.segments[1]
    del bucket.objects[lost.key]
    manifest, missing = await rebuilt(bucket)
    assert same(manifest, before.without([lost.key], 0))
    assert f"the log from offset {lost.start} to {lost.end}" in missing


async def test_of_a_damaged_segment_and_of_one_cut_short_the_reason_is_said(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    before = await uploaded(stores, source, bucket)
    flipped, short = before.segments[0].key, before.segments[2].key
    content = bytearray(bucket.objects[flipped][0])
    content[100] ^= 1
    bucket.objects[flipped] = bytes(content), 1
    bucket.objects[short] = bucket.objects[short][0][:-5], 1
    manifest, missing = await rebuilt(bucket)
    assert same(manifest, before.without([flipped, short], 0))
    assert [line.split(":")[0] for line in missing[:2]] == [flipped, short]
    assert f"the log before offset {FILE_BYTES}: it had expired, or its objects are gone" in missing


async def test_an_upload_that_did_not_end_and_the_same_log_twice_are_no_doubt(
    stores: Stores, source: FakeSource
) -> None:
    bucket = FakeBucket()
    source.safe_offset = FILE_BYTES + 5_000
    source.set_rules(rolling_interval_ms=HOUR_MS)
    stores.clock.advance(2 * 3600)
    early = await uploaded(stores, source, bucket)
    part = early.segments[-1]
    content = bucket.objects[part.key][0]
    bucket.objects.clear()
    source.safe_offset = 3 * FILE_BYTES
    before = await uploaded(stores, source, bucket, incarnation="two")
    bucket.objects[part.key] = content, 1
    bucket.objects["segments/00000000000000000000-0-one-9"] = bucket.objects[before.segments[0].key]
    manifest, _ = await rebuilt(bucket)
    assert [entry.end for entry in manifest.segments] == [entry.end for entry in before.segments]
    assert check_archive(bucket, source) is not None


async def test_what_a_later_master_wrote_counts(stores: Stores, source: FakeSource, other: FakeSource) -> None:
    bucket = FakeBucket()
    before = await uploaded(stores, source, bucket, epoch=2)
    elsewhere = FakeBucket()
    old = await uploaded(stores, other, elsewhere, epoch=1, incarnation="old")
    for entry in old.segments[:2]:
        bucket.objects[entry.key] = elsewhere.objects[entry.key]
    manifest, _ = await rebuilt(bucket)
    assert same(manifest, before)
    assert [entry.key for entry in manifest.superseded] == [entry.key for entry in old.segments[:2]]
    assert manifest.writer.epoch == 2


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_later_master_has_cut_what_is_behind_its_segments(
    stores: Stores, source: FakeSource, is_damaged: bool
) -> None:
    bucket = FakeBucket()
    first, second, *behind = (await uploaded(stores, source, bucket, epoch=1)).segments
    content, number = bucket.objects[second.key]
    later = f"segments/{second.start:020}-2-later-1"
    bucket.objects[later] = content[:-5] if is_damaged else content, number
    manifest, _ = await rebuilt(bucket)
    assert [entry.key for entry in manifest.segments] == [first.key, *([] if is_damaged else [later])]
    assert [entry.key for entry in manifest.superseded] == [entry.key for entry in (second, *behind)]


async def test_two_different_logs_of_one_epoch_are_refused(
    stores: Stores, source: FakeSource, other: FakeSource
) -> None:
    bucket, elsewhere = FakeBucket(), FakeBucket()
    await uploaded(stores, source, bucket)
    old = await uploaded(stores, other, elsewhere, incarnation="old")
    bucket.objects[old.segments[1].key] = elsewhere.objects[old.segments[1].key]
    with pytest.raises(StoreError, match=f"different messages at the offset {FILE_BYTES}"):
        await rebuilt(bucket)
    assert NAME not in bucket.objects


async def test_the_size_of_files_is_asked_for_if_it_is_not_clear(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    before = await uploaded(stores, source, bucket)
    for entry in before.segments:
        if entry.start != 3 * FILE_BYTES:
            del bucket.objects[entry.key]
    with pytest.raises(StoreError, match="name it with --segment-bytes"):
        await rebuilt(bucket)
    bucket.objects[NAME] = b"", 1
    with pytest.raises(StoreError, match="name it with --segment-bytes"):
        await rebuilt(bucket, FILE_BYTES * 3)
    bucket.objects[NAME] = b"", 1
    manifest, _ = await rebuilt(bucket, FILE_BYTES)
    assert manifest.segment_bytes == FILE_BYTES


async def test_messages_that_were_left_out_are_counted_and_their_log_is_no_masters(
    stores: Stores, source: FakeSource
) -> None:
    bucket = FakeBucket()
    source.archived = Kept(frozenset({"Orders"}))
    before = await uploaded(stores, source, bucket)
    manifest, missing = await rebuilt(bucket)
    assert [(one.records, one.dropped, one.topics, one.queues, one.sha256) for one in manifest.segments] == [
        (one.records, one.dropped, one.topics, one.queues, one.sha256) for one in before.segments
    ]
    assert any("kind=OtherLog" in line for line in missing)
    with pytest.raises(OtherLog):
        await uploaded(stores, source, bucket, incarnation="two")


async def test_a_manifest_that_comes_back_meanwhile_is_not_replaced(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    await uploaded(stores, source, bucket)
    there = bucket.objects[NAME]
    with pytest.raises(Conflict):
        await ManifestRebuild(client(bucket), GROUP).run(NOW_MS)
    assert bucket.objects[NAME] == there


async def test_a_store_that_fails_gets_no_manifest_or_the_one_that_was_there(
    stores: Stores, source: FakeSource
) -> None:
    bucket, done = FakeBucket(), 0
    before = await uploaded(stores, source, bucket)
    for seed in range(200):
        bucket.objects.pop(NAME, None)
        bucket.late.clear()
        store = FakeStore(bucket, random.Random(seed), faults=0.02)
        with contextlib.suppress(ObjectStoreError):
            await ManifestRebuild(store, GROUP).run(NOW_MS)
        manifest = manifest_in(bucket)
        if manifest is not None:
            done += 1
            assert same(manifest, before)
    assert 0 < done < 200


@pytest.mark.parametrize(
    ("url", "group"),
    [
        ("s3://bucket/a/Default%20One/broker-a", ("Default One", "broker-a")),
        ("az://account/container/Other/b", ("Other", "b")),
        ("file:///mnt/DefaultCluster/broker-a/", GROUP),
    ],
)
def test_a_folder_says_whose_it_is(url: str, group: tuple[str, str]) -> None:
    assert group_in(url) == group
    with pytest.raises(StoreError, match="ends with cluster/broker"):
        group_in("az://account/container/b")
