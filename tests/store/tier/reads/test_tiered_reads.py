"""Messages that only the object store has are read as if the broker's own store had them."""

import asyncio

import pytest

from broker.filter.sql_filter import SqlFilter
from broker.filter.subscription_filter import tag_filter
from store.config.tier_read_config import TieredStorageLevel
from store.message_store import MessageStore
from store.queue.get_result import Boundary, GetStatus
from store.queue.logic_queue import QueueType
from store.queue.queue_reader import MessageFilter
from store.record.record import Record, decode
from store.tier.manifest import Manifest
from store.tier.object_store import Damaged, Unavailable
from store.tier.reads import tiered_reads
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.tiered_reads import TieredReads
from tests.store.reading import read_queue, records_of
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import SlowStore, answer, archive, memory_objects, tiered, without_segments

COUNT = 1200


@pytest.fixture(autouse=True)
def shape(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    stores.queue_types["Batches"] = QueueType.BATCH
    monkeypatch.setattr(tiered_reads, "_PAUSE_S", 0.01)


def filled(stores: Stores) -> MessageStore:
    store = stores.open()
    for number in range(COUNT):
        stores.clock.advance(1.0)
        topic = ("Orders", "Returns")[number % 2]
        body = b"body %d " % number * 5
        properties = b"KEYS\x01k%d\x02color\x01%s\x02" % (number, (b"red", b"blue")[number // 2 % 2])
        store.append([message(topic, number // 2 % 2, body, tag=f"t{number % 7}", properties=properties)])
    return store


class Rig:
    """A store without its oldest segments, the archive of all closed ones, and what the queues held."""

    def __init__(self, store: MessageStore, objects: SlowStore, manifest: Manifest, reads: TieredReads) -> None:
        self.store, self.objects, self.manifest, self.reads = store, objects, manifest, reads
        self.before: dict[tuple[str, int], list[Record]] = {}

    async def queue(self, topic: str, queue_id: int, matches: MessageFilter | None = None) -> list[Record]:
        """Read a queue from its first message on, as a consumer does, from both places."""
        offset, found = self.reads.min_offset(topic, queue_id), []
        while offset < self.store.max_offset(topic, queue_id):
            if self.reads.serves(topic, queue_id, offset):
                result = await answer(self.reads, TierRead("group", topic, queue_id, offset, 32, 1 << 20, matches))
            else:
                result = self.store.get(topic, queue_id, offset, 32, 1 << 20, matches)
            assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), result
            assert result.next_offset > offset
            records = records_of(result.slices)
            assert len(records) == result.message_count
            found += records
            offset = result.next_offset
        return found


async def rig(stores: Stores, *, dropped: int = 4, lists_queues: bool = True) -> Rig:
    store = filled(stores)
    before = {(topic, n): read_queue(store, topic, n) for topic in ("Orders", "Returns") for n in (0, 1)}
    objects = SlowStore(memory_objects())
    manifest = await archive(store, objects, lists_queues=lists_queues)
    assert len(manifest.segments) > dropped
    store = without_segments(stores, store, dropped)
    made = Rig(store, objects, manifest, await tiered(stores, store, objects, manifest))
    made.before = before
    return made


def bodies(records: list[Record]) -> list[bytes]:
    return [bytes(record.body) for record in records]


@pytest.mark.parametrize("lists_queues", [True, False])
async def test_a_queue_is_read_from_its_first_message_on_from_both_places(stores: Stores, lists_queues: bool) -> None:
    made = await rig(stores, lists_queues=lists_queues)
    for (topic, queue_id), records in made.before.items():
        assert made.store.min_offset(topic, queue_id) > 0
        assert made.reads.min_offset(topic, queue_id) == 0
        found = await made.queue(topic, queue_id)
        assert [record.queue_offset for record in found] == list(range(len(records)))
        assert bodies(found) == bodies(records)


async def test_tags_and_sql_choose_among_archived_messages(stores: Stores) -> None:
    made = await rig(stores)
    wanted = tag_filter("t0 || t4")
    expected = [record for record in made.before["Orders", 0] if tags_of(record) in ("t0", "t4")]
    assert bodies(await made.queue("Orders", 0, wanted)) == bodies(expected)
    sql = SqlFilter("color = 'blue'").record_filter()
    every = made.before["Returns", 1]
    expected = [record for record in every if b"color\x01blue" in bytes(record.properties)]
    assert bodies(await made.queue("Returns", 1, sql)) == bodies(expected)


def tags_of(record: Record) -> str:
    return bytes(record.properties).split(b"TAGS\x01")[1].split(b"\x02")[0].decode()


async def test_what_was_read_once_is_not_loaded_again(stores: Stores) -> None:
    made = await rig(stores)
    await made.queue("Orders", 0)
    loads = len(made.objects.reads)
    await made.queue("Orders", 0)
    assert len(made.objects.reads) == loads


async def test_a_level_says_which_reads_go_to_the_object_store(stores: Stores) -> None:
    made = await rig(stores)
    low = made.store.min_offset("Orders", 0)

    def served(level: TieredStorageLevel) -> tuple[bool, bool]:
        stores.fields["tiered_storage_level"] = level
        return made.reads.serves("Orders", 0, low - 1), made.reads.serves("Orders", 0, low)

    assert served(TieredStorageLevel.DISABLE) == (False, False)
    assert served(TieredStorageLevel.NOT_IN_DISK) == (True, False)
    assert served(TieredStorageLevel.NOT_IN_MEM) == (True, False)
    stores.fields["access_message_in_memory_max_ratio"] = 0
    made.store.configure(stores.config)
    assert served(TieredStorageLevel.NOT_IN_MEM) == (True, True)
    assert served(TieredStorageLevel.FORCE) == (True, True)
    last = made.store.max_offset("Orders", 0) - 1
    assert not made.reads.serves("Orders", 0, last), "the open segment is not archived"
    assert not made.reads.serves("Unknown", 0, 0)


async def test_a_failing_store_means_try_again_for_who_reads_from_it(stores: Stores) -> None:
    made = await rig(stores)
    made.objects.fault = lambda key: Unavailable("503 Slow Down")
    result = await answer(made.reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))
    assert (result.status, result.next_offset, result.min_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 3, 0)
    made.objects.fault = lambda key: None
    result = await answer(made.reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))
    assert result.status is GetStatus.FOUND
    assert made.reads.failed_reads == 1


async def test_a_store_that_does_not_answer_means_try_again_after_the_timeout(stores: Stores) -> None:
    stores.fields["tiered_store_read_timeout"] = 100
    made = await rig(stores)
    made.objects.gate.clear()
    result = await answer(made.reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))
    assert result.status is GetStatus.MESSAGE_WAS_REMOVING
    made.objects.gate.set()
    await asyncio.sleep(0)


async def test_damage_in_the_archive_is_refused_by_name(stores: Stores) -> None:
    made = await rig(stores)
    made.objects.fault = lambda key: Damaged(f"{key}: not what was written there")
    with pytest.raises(Damaged, match="segments/0-0-test-0"):
        await answer(made.reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))


async def test_before_the_manifest_is_known_no_group_is_moved_past_what_the_archive_may_have(stores: Stores) -> None:
    made = await rig(stores)
    reads = TieredReads(lambda: stores.config, made.store, stores.clock, ArchiveView(made.objects))
    low = made.store.min_offset("Orders", 0)
    assert (reads.serves("Orders", 0, low - 1), reads.serves("Orders", 0, low)) == (True, False)
    result = await answer(reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 3)
    assert reads.min_offset("Orders", 0) == 0
    for query in (
        reads.record_at(0), reads.records_of_key("Orders", "k1", 0, 1 << 60, low, 1),
        reads.offset_by_time("Orders", 0, 1, Boundary.LOWER), reads.earliest_store_time("Orders", 0),
    ):  # fmt: skip
        with pytest.raises(Unavailable, match="was not read yet"):
            await query
    assert reads.has("Orders", 0)
    ready = asyncio.Event()
    assert reads.read_now(TierRead("group", "Orders", 0, 3, 32, 1 << 20, None), ready.set) is None
    await reads.adopt(made.manifest)
    await ready.wait()
    assert (await answer(reads, TierRead("group", "Orders", 0, 3, 32, 1 << 20, None))).status is GetStatus.FOUND


async def test_a_queue_that_has_lost_nothing_waits_for_no_manifest(stores: Stores) -> None:
    store = filled(stores)
    reads = TieredReads(lambda: stores.config, store, stores.clock, ArchiveView(memory_objects()))
    assert not reads.has("Orders", 0)
    assert await reads.offset_by_time("Orders", 0, 1, Boundary.LOWER) == 0
    assert await reads.earliest_store_time("Orders", 0) == store.earliest_store_time("Orders", 0) > 0
    assert await reads.records_of_key("Orders", "k1", 0, 1 << 60, store.first_physical_offset, 1) == []


async def test_a_pop_gets_what_is_loaded_and_is_told_when_more_is(stores: Stores) -> None:
    made = await rig(stores)
    ready = asyncio.Event()
    read = TierRead("group", "Orders", 0, 3, 32, 1 << 20, None)
    assert made.reads.read_now(read, ready.set) is None
    assert made.reads.read_now(read, ready.set) is None
    await ready.wait()
    result = made.reads.read_now(read, ready.set)
    assert result is not None
    assert [record.queue_offset for record in records_of(result.slices)] == list(range(3, 3 + result.message_count))


async def test_a_record_is_found_by_its_physical_offset(stores: Stores) -> None:
    made = await rig(stores)
    for record in made.before["Orders", 1][::40]:
        if record.physical_offset < made.store.first_physical_offset:
            found = await made.reads.record_at(record.physical_offset)
            assert found is not None
            again = decode(found)
            assert isinstance(again, Record)
            assert again.body == record.body
    assert await made.reads.record_at(1) is None
    assert await made.reads.record_at(1 << 40) is None


async def test_records_are_found_by_their_key_within_a_time(stores: Stores) -> None:
    made = await rig(stores)
    record = made.before["Orders", 1][10]
    key = bytes(record.properties).split(b"KEYS\x01")[1].split(b"\x02")[0].decode()
    before, now = made.store.first_physical_offset, stores.clock.wall_ms()
    found = await made.reads.records_of_key("Orders", key, 0, now, before, 10)
    assert len(found) == 1
    decoded = decode(found[0])
    assert isinstance(decoded, Record)
    assert decoded.body == record.body
    assert await made.reads.records_of_key("Orders", key, 0, record.store_timestamp - 1, before, 10) == []
    assert await made.reads.records_of_key("Orders", key, 0, now, record.physical_offset, 10) == []
    assert await made.reads.records_of_key("Returns", key, 0, now, before, 10) == []


async def test_a_time_is_found_in_both_places(stores: Stores) -> None:
    made = await rig(stores)
    for (topic, queue_id), records in made.before.items():
        times = [record.store_timestamp for record in records]
        for number in range(0, len(records), 23):
            for time in (times[number] - 1, times[number], times[number] + 1):
                lower = await made.reads.offset_by_time(topic, queue_id, time, Boundary.LOWER)
                upper = await made.reads.offset_by_time(topic, queue_id, time, Boundary.UPPER)
                later = next((n for n, one in enumerate(times) if one >= time), len(records))
                earlier = max((n for n, one in enumerate(times) if one <= time), default=0)
                assert (lower, upper) == (later, earlier), (topic, queue_id, number, time - times[number])
        assert await made.reads.earliest_store_time(topic, queue_id) == times[0]


async def test_messages_whose_time_in_the_archive_has_ended_are_gone(stores: Stores) -> None:
    made = await rig(stores)
    second = made.manifest.segments[1]
    stores.clock.advance((second.last_store_ms + made.manifest.default_reserved_ms - stores.clock.wall_ms()) / 1000)
    low = made.reads.min_offset("Orders", 0)
    assert 0 < low < made.store.min_offset("Orders", 0)
    result = await answer(made.reads, TierRead("group", "Orders", 0, 0, 32, 1 << 20, None))
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)


async def test_a_clock_that_jumps_moves_nobody_past_archived_messages(stores: Stores) -> None:
    made = await rig(stores)
    stores.clock.step_wall(1000 * made.manifest.default_reserved_ms)
    assert made.reads.min_offset("Orders", 0) == 0
    result = await answer(made.reads, TierRead("group", "Orders", 0, 0, 32, 1 << 20, None))
    assert result.status is GetStatus.FOUND


async def test_a_broker_that_starts_with_a_clock_ahead_moves_nobody_for_an_hour(stores: Stores) -> None:
    made = await rig(stores)
    stores.clock.step_wall(1000 * made.manifest.default_reserved_ms)
    for _ in range(2):  # a restart begins another hour
        made.reads = await tiered(stores, made.store, made.objects, made.manifest)
        assert made.reads.min_offset("Orders", 0) == 0
        stores.clock.advance(3599)
        assert made.reads.min_offset("Orders", 0) == 0
    stores.clock.advance(1)
    assert made.reads.min_offset("Orders", 0) == made.store.min_offset("Orders", 0)


async def test_a_hole_in_the_archive_is_passed(stores: Stores) -> None:
    made = await rig(stores)
    third = made.manifest.segments[2]
    made.reads = await tiered(stores, made.store, made.objects, made.manifest.without([third.key], 2))
    found = await made.queue("Orders", 0)
    kept = [one for one in made.before["Orders", 0] if not third.start <= one.physical_offset < third.end]
    assert bodies(found) == bodies(kept)


async def test_a_group_reads_while_another_waits_for_the_store(stores: Stores) -> None:
    made = await rig(stores)
    await answer(made.reads, TierRead("fast", "Orders", 0, 0, 32, 1 << 20, None))
    made.objects.gate.clear()
    slow = asyncio.ensure_future(answer(made.reads, TierRead("slow", "Returns", 1, 100, 32, 1 << 20, None)))
    await asyncio.sleep(0)
    result = await answer(made.reads, TierRead("fast", "Orders", 0, 0, 32, 1 << 20, None))
    assert result.status is GetStatus.FOUND
    assert not slow.done()
    made.objects.gate.set()
    assert (await slow).status is GetStatus.FOUND
