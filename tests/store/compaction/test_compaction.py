"""A compacted topic keeps the last message of each key, and nothing that consumers rely on changes."""

import logging
from typing import Any

import numpy as np
import pytest

from sprocket.common.errors import CorruptRecord, StoreError
from store.compaction.manifest import LOG_SUFFIX, MANIFEST
from store.message_store import Boundary, GetStatus
from tests.clock import ManualClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import STORE_ROOT, SimStore, small_config
from tests.store.compaction.compacting import TOPIC, apply, compact, fill_segment, price, read
from tests.store.rig import message

DIRECTORY = STORE_ROOT / "compacted" / TOPIC / "0"
_DAY_S = 24 * 3600.0


def opened(disk: SimDisk | None = None, clock: ManualClock | None = None, **fields: Any) -> SimStore:
    values = {"segment_bytes": 8192, "disk_space_warning_level_ratio": 100} | fields
    sim = SimStore(disk or SimDisk(), small_config(sync_flush=False, **values), clock or ManualClock())
    sim.open()
    sim.store.compaction.set_topics([TOPIC])
    return sim


def killed(sim: SimStore) -> SimStore:
    """The store, opened again after a SIGKILL."""
    sim.disk.kill()
    return opened(sim.disk, sim.clock)


def offsets(sim: SimStore) -> list[tuple[int, bytes]]:
    return [(record.queue_offset, bytes(record.body)) for record in read(sim.store)]


def test_the_last_message_of_each_key_stays_with_its_offset() -> None:
    sim = opened()
    sim.store.append([price("a", b"1"), price("b", b"2"), price("a", b"3"), price("c", b"4")])
    fill_segment(sim.store)
    big = b"5" * 1000
    sim.store.append([price("b", big)])
    assert compact(sim) == 1
    assert offsets(sim) == [(1, b"2"), (2, b"3"), (3, b"4"), (4, big)]
    assert (sim.store.min_offset(TOPIC, 0), sim.store.max_offset(TOPIC, 0)) == (0, 5)
    fill_segment(sim.store)
    assert compact(sim) == 1
    assert offsets(sim) == [(2, b"3"), (3, b"4"), (4, big)]


def test_only_closed_segments_are_compacted() -> None:
    sim = opened()
    sim.store.append([price("a", b"1"), price("a", b"2")])
    sim.flush()
    assert compact(sim) == 0
    assert offsets(sim) == [(0, b"1"), (1, b"2")]


def test_a_read_at_the_end_of_what_was_deleted_continues_at_the_newest_offset() -> None:
    sim = opened(compaction_delete_retention=0)
    sim.store.append([price("a", b"1"), price("a", b"")])
    fill_segment(sim.store)
    sim.clock.advance(1.0)
    compact(sim)
    result = sim.store.get(TOPIC, 0, 0, 32, 1 << 20)
    assert (result.status, result.next_offset, result.max_offset) == (GetStatus.NO_MATCHED_MESSAGE, 2, 2)
    assert sim.store.get(TOPIC, 0, 2, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE


def test_a_deletion_is_kept_for_readers_that_are_behind_and_then_removed() -> None:
    sim = opened(compaction_delete_retention=3_600_000)
    sim.store.append([price("a", b"1"), price("b", b"2"), price("a", b"")])
    fill_segment(sim.store)
    compact(sim)
    assert offsets(sim) == [(1, b"2"), (2, b"")]
    sim.clock.advance(3601.0)
    sim.store.append([price("c", b"x" * 2000)])
    fill_segment(sim.store)
    compact(sim)
    assert [offset for offset, _ in offsets(sim)] == [1, 3]


def test_messages_without_a_key_and_blanks_are_dropped() -> None:
    sim = opened()
    sim.store.append([price("", b"1"), price(" ", b"2"), price("a", b"3")])
    fill_segment(sim.store)
    compact(sim)
    assert offsets(sim) == [(2, b"3")]


def test_retention_keeps_a_segment_until_it_is_compacted_even_on_a_full_disk() -> None:
    sim = opened(clean_resource_interval=1000, file_reserved_time=1)
    sim.store.append([price("a", b"1")])
    for _ in range(3):
        fill_segment(sim.store)
    sim.disk.used = 0.99
    sim.clock.advance(_DAY_S)
    for _ in range(5):
        sim.clock.advance(5.0)
        sim.step("store-clean")
        sim.step("store-flush-queues")  # else its entries would hold the segment
    assert sim.store.earliest_store_time("Other", 0) >= 0
    assert sim.store.min_offset("Other", 0) == 0
    compact(sim)
    for _ in range(5):
        sim.clock.advance(5.0)
        sim.step("store-clean")
    assert sim.store.min_offset("Other", 0) > 0
    assert offsets(sim) == [(0, b"1")]
    assert sim.store.expired_removal(lambda topic: False).run() == 0


def test_a_store_that_starts_again_reads_the_same_and_appends_after_it() -> None:
    sim = opened()
    sim.store.append([price("a", b"1"), price("a", b"2")])
    fill_segment(sim.store)
    compact(sim)
    sim.store.shutdown()
    again = opened(sim.disk, sim.clock)
    assert offsets(again) == [(1, b"2")]
    assert [one[0] for one in again.store.append([price("b", b"3")])] == [2]


def test_a_queue_whose_files_are_lost_continues_after_what_was_compacted() -> None:
    sim = opened(clean_resource_interval=1000, file_reserved_time=1)
    sim.store.append([price("a", b"1"), price("a", b"2")])
    for _ in range(3):
        fill_segment(sim.store)
    compact(sim)
    sim.clock.advance(_DAY_S)
    sim.store.cleaner.clean_now()
    for _ in range(5):
        sim.clock.advance(5.0)
        sim.step("store-clean")
    sim.store.shutdown()
    sim.disk.remove_tree(STORE_ROOT / "consumequeue" / TOPIC)
    again = opened(sim.disk, sim.clock)
    assert again.store.max_offset(TOPIC, 0) == 2
    assert offsets(again) == [(1, b"2")]
    assert [one[0] for one in again.store.append([price("b", b"3")])] == [2]
    assert offsets(again) == [(1, b"2"), (2, b"3")]


def test_filters_choose_among_what_is_kept() -> None:
    sim = opened()
    sim.store.append([price("a", b"1", tag="x"), price("b", b"2", tag="y"), price("c", b"3", tag="x")])
    fill_segment(sim.store)
    compact(sim)
    code = ord("x")
    found = sim.store.get(TOPIC, 0, 0, 32, 1 << 20, lambda codes: codes == np.int64(code))
    assert (found.message_count, found.next_offset) == (2, 3)
    one = sim.store.get(TOPIC, 0, 0, 1, 1 << 20, lambda codes: codes == np.int64(code))
    assert (one.message_count, one.next_offset) == (1, 1)


def test_offsets_of_times_are_found_in_what_is_kept() -> None:
    sim = opened()
    start_ms = sim.clock.wall_ms()
    for key in "aba":
        sim.store.append([price(key, b"1")])
        sim.clock.advance(1.0)
    fill_segment(sim.store)
    compact(sim)
    assert sim.store.offset_by_time(TOPIC, 0, start_ms) == 1
    assert sim.store.offset_by_time(TOPIC, 0, start_ms + 2000, Boundary.UPPER) == 2
    assert sim.store.earliest_store_time(TOPIC, 0) == start_ms + 1000


def test_a_damaged_record_is_not_served_and_not_compacted_further(caplog: pytest.LogCaptureFixture) -> None:
    sim = opened()
    sim.store.append([price("a", b"1"), price("b", b"2")])
    fill_segment(sim.store)
    compact(sim)
    path = next(path for path in sim.disk.files() if path.parent == DIRECTORY and path.name.endswith(LOG_SUFFIX))
    sim.disk.damage(path, lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:])
    again = killed(sim)
    with pytest.raises(CorruptRecord, match="damaged, and not served"):
        again.store.get(TOPIC, 0, 0, 32, 1 << 20)
    again.store.append([price("a", b"x" * 2000)])
    fill_segment(again.store)
    with caplog.at_level(logging.ERROR):
        assert compact(again) == 0
    assert again.store.compaction.failed == 1
    assert "event=compaction_failed" in caplog.text


@pytest.mark.parametrize("name", [MANIFEST, LOG_SUFFIX])
def test_a_damaged_or_missing_file_refuses_the_start_and_says_what_to_do(name: str) -> None:
    sim = opened()
    sim.store.append([price("a", b"1")])
    fill_segment(sim.store)
    compact(sim)
    path = next(path for path in sim.disk.files() if path.parent == DIRECTORY and path.name.endswith(name))
    sim.disk.damage(path, lambda content: content[:20])
    with pytest.raises(StoreError, match="from a backup or from another member"):
        killed(sim)


def test_more_keys_than_the_map_holds_take_several_passes() -> None:
    sim = opened(max_offset_map_size=4096)
    sim.store.append([price(f"k{number % 50}", b"%d" % number) for number in range(100)])
    fill_segment(sim.store)
    assert compact(sim) > 3
    expected = {b"k%d" % number: b"%d" % (number + 50) for number in range(50)}
    assert apply({}, read(sim.store)) == expected


def test_a_topic_that_is_deleted_and_created_again_starts_empty_also_after_a_crash() -> None:
    sim = opened()
    sim.store.append([price("a", b"1")])
    fill_segment(sim.store)
    compact(sim)
    sim.store.delete_topic(TOPIC)
    # The process dies before the thread has removed the files.
    again = killed(sim)
    assert again.store.append([price("b", b"2")])[0][0] == 0
    assert offsets(again) == [(0, b"2")]
    assert not any(path.is_relative_to(DIRECTORY) for path in again.disk.files())


def test_without_compaction_the_topic_is_read_as_any_other() -> None:
    sim = opened(enable_compaction=False)
    sim.store.append([price("a", b"1"), price("a", b"2"), message(TOPIC)])
    fill_segment(sim.store)
    assert compact(sim) == 0
    assert sim.store.get(TOPIC, 0, 0, 32, 1 << 20).message_count == 3
