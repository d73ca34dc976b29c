"""The archive's writer: nothing is lost or doubled by a kill at any request, a store that fails, or a second master."""

import asyncio
import contextlib
import random

import pytest

from store.message_store import MessageStore
from store.tier.archive_writer import ArchiveWriter, Fenced, OtherLog
from store.tier.manifest import NAME
from store.tier.object_store import Damaged, Full, ObjectStoreError, Refused, Unavailable, Version
from store.tier.segment_writer import Kept
from tests.store.rig import Stores, message
from tests.store.tier.archive_rig import (
    HOUR_MS,
    FakeSource,
    check_archive,
    manifest_in,
    upload_all,
    writer_of,
)
from tests.store.tier.fake_store import FakeBucket, FakeStore, Killed

FILE_BYTES = 16 * 1024


@pytest.fixture
def source(stores: Stores) -> FakeSource:
    return FakeSource(filled(stores))


def filled(stores: Stores, count: int = 300, first: int = 0) -> MessageStore:
    store = stores.open()
    for number in range(first, first + count):
        stores.clock.advance(1)
        store.append([message(("Orders", "Secrets")[number % 2], number % 3, b"body %d " % number * 20)])
    return store


def store_of(bucket: FakeBucket, seed: int = 1, *, faults: float = 0.0, dies_at: int | None = None) -> FakeStore:
    return FakeStore(bucket, random.Random(seed), faults=faults, dies_at=dies_at)


async def test_all_closed_files_go_and_nothing_after_the_confirm_offset(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    source.safe_offset = 3 * FILE_BYTES + 5
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    manifest = check_archive(bucket, source)
    assert manifest is not None
    assert [entry.start for entry in manifest.segments] == [0, FILE_BYTES, 2 * FILE_BYTES]
    assert manifest == writer.manifest
    source.safe_offset = source.end_offset
    await upload_all(writer)
    assert (manifest_in(bucket) or manifest).uploaded_end == source.end_offset - source.end_offset % FILE_BYTES


async def test_a_part_of_the_open_file_is_uploaded_in_time_and_the_rest_follows(
    stores: Stores, source: FakeSource
) -> None:
    bucket = FakeBucket()
    source.safe_offset = FILE_BYTES + 5_000
    source.set_rules(rolling_interval_ms=HOUR_MS)
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    stores.clock.advance(2 * 3600)
    # After a restart too, whose hour without deletions delays no upload.
    writer = writer_of(store_of(bucket), source, stores.clock, incarnation="two")
    await writer.claim()
    await upload_all(writer)
    manifest = check_archive(bucket, source)
    assert manifest is not None
    assert FILE_BYTES < manifest.uploaded_end <= FILE_BYTES + 5_000
    source.safe_offset = 2 * FILE_BYTES
    await upload_all(writer)
    assert [entry.end for entry in (check_archive(bucket, source) or manifest).segments][-1] == 2 * FILE_BYTES


async def run_until_killed(writer: ArchiveWriter, known: list[int] | None = None) -> None:
    """Work as the broker does, again after each error; `known` gets the ends that the broker knew to be safe."""
    claimed = False
    for _ in range(200):
        with contextlib.suppress(ObjectStoreError):
            if not claimed:
                await writer.claim()
                claimed = True
            again = await writer.step(60.0)
            await writer.save_tables()
            if not again:
                return
        if claimed and known is not None:
            known.append(writer.manifest.uploaded_end)


async def test_a_kill_at_each_request_leaves_a_true_manifest_and_the_next_start_goes_on(
    stores: Stores, source: FakeSource
) -> None:
    source.safe_offset = 3 * FILE_BYTES
    dies_at, killed = 0, True
    while killed:
        dies_at += 1
        bucket = FakeBucket()
        killed = False
        try:
            await run_until_killed(writer_of(store_of(bucket, dies_at=dies_at), source, stores.clock))
        except Killed:
            killed = True
        check_archive(bucket, source)
        await run_until_killed(writer_of(store_of(bucket), source, stores.clock, incarnation="two"))
        manifest = check_archive(bucket, source)
        assert manifest is not None
        assert [entry.start for entry in manifest.segments] == [0, FILE_BYTES, 2 * FILE_BYTES]
    assert dies_at > 30


@pytest.mark.parametrize("seed", range(20))
async def test_a_store_that_fails_delays_repeats_and_lies_delays_the_archive_and_harms_nothing(
    stores: Stores, source: FakeSource, seed: int
) -> None:
    bucket, random_ = FakeBucket(), random.Random(seed)
    safe = 0
    for life in range(6):
        source.safe_offset = min(source.end_offset, (life + 1) * FILE_BYTES + random_.randrange(FILE_BYTES))
        store = FakeStore(bucket, random_, faults=0.25, dies_at=random_.randrange(10, 200))
        writer = writer_of(store, source, stores.clock, incarnation=f"life{life}")
        known: list[int] = []
        with contextlib.suppress(Killed):
            await run_until_killed(writer, known)
        manifest = check_archive(bucket, source)
        safe = max([safe, *known])
        # What a broker knew to be safe, so that it may have dropped it, is in the archive.
        assert (manifest.uploaded_end if manifest is not None else 0) >= safe
    while bucket.late:
        bucket.deliver()
    assert (check_archive(bucket, source) or pytest.fail("no manifest")).uploaded_end >= safe


@pytest.mark.parametrize("seed", range(20))
async def test_of_two_masters_that_both_believe_one_writes_and_the_other_stops(
    stores: Stores, source: FakeSource, seed: int
) -> None:
    bucket = FakeBucket()
    ended: list[str] = []

    async def live(name: str, epoch: int) -> None:
        random_ = random.Random(f"{seed} {name}")
        for _ in range(random_.randrange(30)):
            await asyncio.sleep(0)
        writer = writer_of(FakeStore(bucket, random_, faults=0.1), source, stores.clock, epoch=epoch, incarnation=name)
        try:
            await run_until_killed(writer)
        except Fenced:
            ended.append(name)

    epochs = (3, 4) if seed % 2 else (0, 0)
    await asyncio.gather(live("one", epochs[0]), live("two", epochs[1]))
    manifest = check_archive(bucket, source)
    assert manifest is not None
    assert manifest.writer.incarnation not in ended
    assert manifest.uploaded_end == source.end_offset - source.end_offset % FILE_BYTES
    if seed % 2:
        assert "two" not in ended


async def test_a_master_of_an_older_epoch_claims_nothing(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    await writer_of(store_of(bucket), source, stores.clock, epoch=5, incarnation="new").claim()
    with pytest.raises(Fenced, match="epoch 5"):
        await writer_of(store_of(bucket), source, stores.clock, epoch=4, incarnation="old").claim()


async def test_a_topic_that_is_not_archived_leaves_nothing_in_the_bucket(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    source.archived = Kept(frozenset({"Orders"}))
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    manifest = manifest_in(bucket)
    assert manifest is not None
    assert all(entry.topics == ["Orders"] and entry.dropped for entry in manifest.segments)


class _Careless(FakeStore):
    """A store that ignores some of the conditions of a put."""

    ignores_new: bool

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        if (expected is None) == self.ignores_new:
            await self.put(key, content)
            return Version(str(self.bucket.versions))
        return await super().put_if(key, content, expected)


@pytest.mark.parametrize("ignores_new", [True, False])
async def test_a_store_that_ignores_conditions_is_refused_before_the_first_write_of_a_manifest(
    stores: Stores, source: FakeSource, ignores_new: bool
) -> None:
    store = _Careless(FakeBucket(), random.Random(1))
    store.ignores_new = ignores_new
    with pytest.raises(Refused, match="ignores conditions"):
        await writer_of(store, source, stores.clock).claim()
    assert manifest_in(store.bucket) is None


class _Guarded(FakeStore):
    """A store whose credentials may not write some keys, nor delete unless `may_delete`."""

    read_only: tuple[str, ...] = ()
    may_delete = False

    def __init__(self, bucket: FakeBucket, random_: random.Random) -> None:
        super().__init__(bucket, random_)
        self.refused: list[tuple[bytes, Version | None]] = []

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        if key in self.read_only:
            self.refused.append((content, expected))
            raise Refused(f"{key}: 403 Forbidden")
        return await super().put_if(key, content, expected)

    async def delete(self, key: str) -> None:
        if not self.may_delete:
            raise Refused(f"{key}: 403 Forbidden")
        await super().delete(key)


async def test_a_claim_needs_no_right_to_delete_and_leaves_one_object(stores: Stores, source: FakeSource) -> None:
    store = _Guarded(FakeBucket(), random.Random(1))
    for incarnation in ("a", "b"):
        await writer_of(store, source, stores.clock, incarnation=incarnation).claim()
    assert set(store.bucket.objects) == {NAME, "conditions"}


async def test_a_store_that_lets_only_some_keys_be_written_is_not_checked(
    stores: Stores, source: FakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    store = _Guarded(FakeBucket(), random.Random(1))
    store.read_only = ("conditions",)
    await writer_of(store, source, stores.clock).claim()
    assert set(store.bucket.objects) == {NAME}
    assert "archive_conditions_not_checked" in caplog.text


async def test_what_expires_goes_from_the_manifest_first(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    named = (manifest_in(bucket) or pytest.fail("no manifest")).keys
    for _ in range(80):
        stores.clock.advance(3600)
        await upload_all(writer)
    manifest = manifest_in(bucket)
    assert manifest is not None
    assert manifest.segments == []
    assert manifest.uploaded_end == source.end_offset - source.end_offset % FILE_BYTES
    assert named.isdisjoint(bucket.objects)
    assert set(bucket.objects) == {NAME, "conditions"}


async def test_a_clock_that_jumps_deletes_nothing_for_an_hour(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    stores.clock.step_wall(1000 * HOUR_MS)
    stores.clock.advance(120)
    await upload_all(writer)
    assert (check_archive(bucket, source) or pytest.fail("no manifest")).segments


async def test_a_new_master_whose_clock_is_ahead_deletes_nothing_for_an_hour(
    stores: Stores, source: FakeSource
) -> None:
    bucket = FakeBucket()
    first = writer_of(store_of(bucket), source, stores.clock)
    await first.claim()
    await upload_all(first)
    stores.clock.step_wall(1000 * HOUR_MS)
    for incarnation in ("two", "three"):  # a restart begins another hour
        second = writer_of(store_of(bucket), source, stores.clock, incarnation=incarnation)
        await second.claim()
        await second.save_tables()
        stores.clock.advance(61)
    for _ in range(29):
        await upload_all(second)
        assert (check_archive(bucket, source) or pytest.fail("no manifest")).segments
        stores.clock.advance(119)
    stores.clock.advance(100)
    await upload_all(second)
    assert (manifest_in(bucket) or pytest.fail("no manifest")).segments == []


async def test_a_bucket_without_room_stops_the_archive_until_there_is_room(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    bucket.is_full = True
    with pytest.raises(Full):
        await writer.step(60.0)
    bucket.is_full = False
    await upload_all(writer)
    check_archive(bucket, source)


async def test_an_object_that_is_not_what_was_written_is_not_named(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()

    class Lying(FakeStore):
        async def arrive(self, key: str, content: bytes, expected: object, *, is_conditional: bool):  # type: ignore[no-untyped-def]
            return await super().arrive(
                key, content if key == NAME else content[:-1] + b"x", expected, is_conditional=is_conditional  # type: ignore[arg-type]
            )  # fmt: skip

    writer = writer_of(Lying(bucket, random.Random(1)), source, stores.clock)
    await writer.claim()
    with pytest.raises(ObjectStoreError, match="read back"):
        await writer.step(60.0)
    assert (manifest_in(bucket) or pytest.fail("no manifest")).segments == []


@pytest.fixture
async def waiting(stores: Stores, source: FakeSource) -> tuple[ArchiveWriter, _Guarded]:
    """A writer that has uploaded a segment, and could not write the manifest so far."""
    store = _Guarded(FakeBucket(), random.Random(1))
    writer = writer_of(store, source, stores.clock)
    await writer.claim()
    store.read_only = (NAME,)
    for _ in range(5):
        with pytest.raises(Refused):
            await writer.step(60.0)
    store.read_only, store.may_delete = (), True
    return writer, store


def segments_in(bucket: FakeBucket) -> list[str]:
    return [key for key in bucket.objects if key.startswith("segments/")]


async def test_a_segment_is_uploaded_once_while_the_manifest_cannot_be_written(
    source: FakeSource, waiting: tuple[ArchiveWriter, _Guarded]
) -> None:
    writer, store = waiting
    (key,) = segments_in(store.bucket)
    await upload_all(writer)
    assert (check_archive(store.bucket, source) or pytest.fail("no manifest")).segments[0].key == key


async def test_what_a_rule_no_longer_lets_out_does_not_stay_in_the_bucket(
    source: FakeSource, waiting: tuple[ArchiveWriter, _Guarded]
) -> None:
    writer, store = waiting
    source.archived = Kept(frozenset({"Orders"}))
    await upload_all(writer)
    manifest = manifest_in(store.bucket) or pytest.fail("no manifest")
    assert all(entry.topics == ["Orders"] for entry in manifest.segments)
    assert set(segments_in(store.bucket)) == {entry.key for entry in manifest.segments}


@pytest.mark.parametrize("left", [None, b"other bytes"])
async def test_a_segment_that_somebody_deleted_or_replaced_meanwhile_is_uploaded_again(
    source: FakeSource, waiting: tuple[ArchiveWriter, _Guarded], left: bytes | None
) -> None:
    writer, store = waiting
    (key,) = segments_in(store.bucket)
    await store.delete(key)
    if left is not None:
        await store.put(key, left)
    await upload_all(writer)
    manifest = check_archive(store.bucket, source) or pytest.fail("no manifest")
    assert manifest.segments
    assert key not in store.bucket.objects


async def test_a_segment_that_a_late_manifest_names_after_all_stays(
    source: FakeSource, waiting: tuple[ArchiveWriter, _Guarded]
) -> None:
    writer, store = waiting
    (key,) = segments_in(store.bucket)
    source.archived = Kept(frozenset({"Orders"}))
    store.bucket.write(NAME, *store.refused[-1], is_conditional=True)
    with pytest.raises(Unavailable, match="came late"):
        await writer.step(60.0)
    await upload_all(writer)
    manifest = manifest_in(store.bucket) or pytest.fail("no manifest")
    assert key in manifest.keys
    assert set(segments_in(store.bucket)) == {entry.key for entry in manifest.segments}


async def test_an_archive_whose_manifest_is_gone_is_not_begun_again(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    await upload_all(writer)
    manifest = bucket.objects.pop(NAME)
    source.small_files["config/topics.json"] = b'{"new":1}'
    with pytest.raises(Damaged, match="was there, and is not any more: bring the manifest back"):
        await writer.save_tables()
    later = writer_of(store_of(bucket), source, stores.clock, incarnation="two")
    with pytest.raises(Damaged, match=r"manifest: is not there, but segments/.* is: bring the manifest back"):
        await later.claim()
    bucket.objects[NAME] = manifest
    await later.claim()
    assert later.manifest.uploaded_end == source.end_offset - source.end_offset % FILE_BYTES


async def test_tables_are_uploaded_when_they_change_and_the_old_ones_go(stores: Stores, source: FakeSource) -> None:
    bucket = FakeBucket()
    writer = writer_of(store_of(bucket), source, stores.clock)
    await writer.claim()
    assert await writer.save_tables()
    assert not await writer.save_tables()
    source.small_files["config/consumerOffset.json"] = b'{"offsetTable":{}}'
    assert await writer.save_tables()
    manifest = check_archive(bucket, source)
    assert manifest is not None
    assert manifest.tables is not None
    assert [key for key in bucket.objects if key.startswith("tables/")] == [manifest.tables.key]


# Another log


async def archived(stores: Stores, bucket: FakeBucket) -> FakeSource:
    source = FakeSource(filled(stores))
    writer = writer_of(store_of(bucket), source, stores.clock, epoch=1)
    await writer.claim()
    await upload_all(writer)
    return source


async def test_a_new_master_whose_log_is_shorter_goes_on_from_where_both_are_equal(stores: Stores) -> None:
    bucket = FakeBucket()
    source = await archived(stores, bucket)
    source.end_offset = source.safe_offset = 2 * FILE_BYTES + 100
    writer = writer_of(store_of(bucket), source, stores.clock, epoch=2, incarnation="two")
    await writer.claim()
    manifest = check_archive(bucket, source)
    assert manifest is not None
    assert manifest.uploaded_end == 2 * FILE_BYTES
    assert manifest.superseded
    assert all(entry.key in bucket.objects for entry in manifest.superseded)


async def test_an_empty_broker_does_not_touch_the_archive_of_the_one_before(stores: Stores) -> None:
    bucket = FakeBucket()
    source = await archived(stores, bucket)
    before = dict(bucket.objects)
    source.end_offset = source.safe_offset = 0
    with pytest.raises(OtherLog, match="restore the store"):
        await writer_of(store_of(bucket), source, stores.clock, epoch=2, incarnation="two").claim()
    assert bucket.objects == before


async def test_a_broker_with_another_log_does_not_touch_the_archive(
    stores: Stores, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bucket = FakeBucket()
    await archived(stores, bucket)
    before = dict(bucket.objects)
    others = Stores(tmp_path_factory.mktemp("other"))
    try:
        other = FakeSource(filled(others, first=7))
        with pytest.raises(OtherLog, match="no part that is equal"):
            await writer_of(store_of(bucket), other, stores.clock, epoch=2, incarnation="two").claim()
    finally:
        others.close_all()
    assert bucket.objects == before


async def test_a_log_that_begins_after_the_archive_leaves_a_gap(stores: Stores) -> None:
    bucket = FakeBucket()
    source = await archived(stores, bucket)
    source.safe_offset = source.end_offset
    writer = writer_of(store_of(bucket), source, stores.clock, epoch=2, incarnation="two")
    source.min_offset = source.end_offset - source.end_offset % FILE_BYTES
    await writer.claim()
    assert (manifest_in(bucket) or pytest.fail("no manifest")).uploaded_end == source.min_offset
