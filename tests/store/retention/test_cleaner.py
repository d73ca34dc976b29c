"""Cleaning the log and what follows it, in a real store on a real directory."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed
from sprocket.common.figures import values
from store.queue.get_result import GetStatus
from store.retention.leases import Leases
from tests.store.insides import commit_log_of, group_commit_of
from tests.store.reading import bodies
from tests.store.retention.cleaning import BODY, PER_SEGMENT, SEGMENT_BYTES, CleanedStore, first_size
from tests.store.rig import message

ALL_HOURS = ";".join(map(str, range(24)))


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[CleanedStore]:
    opened = CleanedStore(tmp_path / "store")
    yield opened
    opened.close()


# When and how much


def test_nothing_goes_at_another_hour(cleaned: CleanedStore) -> None:
    cleaned.fill(4, hours_each=100)
    cleaned.configure(delete_when=f"{(cleaned.hour() + 12) % 24}")
    cleaned.clean(rounds=3)
    assert cleaned.segments() == [0, 1, 2, 3]


def test_expired_segments_go_at_the_hour(cleaned: CleanedStore) -> None:
    cleaned.fill(8, hours_each=20)
    cleaned.configure(delete_when=str(cleaned.hour()))
    # 160 hours have passed: segment k ends where segment k + 1 begins, at 20 * (k + 1).
    cleaned.clean()
    assert cleaned.segments() == [4, 5, 6, 7]
    assert values(cleaned.store.figures())["commitLogMinOffset"] == str(4 * SEGMENT_BYTES)
    removed = [name for name in cleaned.disk.removed if name.startswith("commitlog")]
    assert removed == [f"commitlog/{k * SEGMENT_BYTES:020}" for k in range(4)]


def test_the_last_segment_stays_however_old(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    cleaned.clock.advance(1000 * 3600)
    cleaned.configure(delete_when=ALL_HOURS)
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [2]
    assert bodies(cleaned.store) == [BODY] * PER_SEGMENT


def test_a_round_removes_no_more_than_its_batch(cleaned: CleanedStore) -> None:
    cleaned.fill(8, hours_each=100)
    cleaned.configure(delete_when=ALL_HOURS, delete_file_batch_max=2)
    cleaned.clean()
    assert cleaned.segments() == [2, 3, 4, 5, 6, 7]
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [6, 7]


def test_files_go_one_by_one_with_the_configured_time_between(cleaned: CleanedStore) -> None:
    cleaned.fill(6, hours_each=100)
    cleaned.configure(delete_when=ALL_HOURS, delete_commit_log_files_interval=500)
    cleaned.clean()
    assert cleaned.segments() == [1, 2, 3, 4, 5]
    for _ in range(3):
        cleaned.clock.advance(0.25)
        cleaned.clean(rounds=0)
        cleaned.workers["store-clean"].take_turn()
        cleaned.run_notified()
    # Detached at once, removed after half a second.
    assert cleaned.segments() == [2, 3, 4, 5]
    assert values(cleaned.store.figures())["commitLogMinOffset"] == str(3 * SEGMENT_BYTES)


def test_space_removes_what_is_expired_and_no_more(cleaned: CleanedStore) -> None:
    cleaned.fill(8, hours_each=20)
    cleaned.disk.log_used = 0.80
    cleaned.clean()
    assert cleaned.segments() == [4, 5, 6, 7]


def test_a_nearly_full_disk_removes_the_youngest_until_it_is_not(cleaned: CleanedStore) -> None:
    cleaned.fill(8)
    cleaned.disk.log_used = 0.88
    remove = cleaned.disk.remove

    def removing(path: Path) -> None:
        remove(path)
        if path.parent.name == "commitlog":
            cleaned.disk.log_used = round(cleaned.disk.log_used - 0.01, 2)

    cleaned.disk.remove = removing  # type: ignore[method-assign]
    cleaned.clean(turns=40)
    # 88, 87 and 86 % are above 85 %.
    assert cleaned.segments() == [3, 4, 5, 6, 7]


def test_compaction_is_not_hurried_while_only_the_archive_holds_a_file(
    cleaned: CleanedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried: list[bool] = []
    monkeypatch.setattr(cleaned.store.compaction, "hurry", lambda: hurried.append(True))
    cleaned.fill(8, hours_each=20)
    cleaned.store.cleaner.keep_until_archived(0)
    cleaned.disk.log_used = 0.80
    cleaned.clean()
    assert cleaned.segments() == list(range(8))
    assert not hurried


@pytest.mark.parametrize("kills", [1, 2])
def test_no_segment_goes_before_its_queue_entries_are_on_the_disk(cleaned: CleanedStore, kills: int) -> None:
    cleaned.fill(2, topic="Quiet")
    for topic, segments in (("Quiet", 2), ("Orders", 3)):
        for _ in range(segments * PER_SEGMENT):
            cleaned.store.append([message(topic=topic, body=BODY)])
    cleaned.workers["store-flush"].take_turn()  # the log alone
    cleaned.run_notified()
    for _ in range(kills):
        cleaned.disk.log_used = 0.88
        cleaned.clean(rounds=2)
        assert cleaned.segments() == [1, 2, 3, 4, 5, 6]
        cleaned.disk.log_used = 0.5
        cleaned.reopen(crash=True)
    # With segments up to 3 gone, the queue would go on at 6: its offsets up to 12 would be given a second time.
    assert cleaned.range("Quiet") == (3, 12)
    cleaned.flush()
    cleaned.disk.log_used = 0.88
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [6]
    cleaned.reopen(crash=True)
    assert cleaned.range("Quiet") == (12, 12)


def test_asked_to_clean_now(cleaned: CleanedStore) -> None:
    cleaned.fill(8, hours_each=20)
    cleaned.store.cleaner.clean_now()
    cleaned.clean()
    assert cleaned.segments() == [4, 5, 6, 7]


def test_the_file_s_own_time_means_nothing(cleaned: CleanedStore) -> None:
    # A restored directory: all files are of today, but their content is old.
    cleaned.fill(4, hours_each=100)
    cleaned.reopen()
    for path in (cleaned.root / "commitlog").iterdir():
        path.touch()
    cleaned.configure(delete_when=ALL_HOURS)
    cleaned.clean()
    assert cleaned.segments() == [3]


def test_an_early_expiry_by_a_jumping_clock_does_not_happen(cleaned: CleanedStore) -> None:
    cleaned.fill(4)
    cleaned.configure(delete_when=ALL_HOURS)
    cleaned.clean()
    cleaned.clock.step_wall(1000 * 3_600_000)
    cleaned.clean(rounds=5)
    assert cleaned.segments() == [0, 1, 2, 3]


def test_what_no_sync_covers_stays(cleaned: CleanedStore) -> None:
    cleaned.fill(2)
    for _ in range(2 * PER_SEGMENT):
        cleaned.store.append([message(body=BODY)])
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    # The last message on the disk is the last of segment 1, so segment 1 has no successor on the disk.
    assert cleaned.segments() == [1, 2, 3]
    cleaned.flush()
    cleaned.clean()
    assert cleaned.segments() == [3]


# Readers


def test_slices_outlive_their_segment(cleaned: CleanedStore) -> None:
    cleaned.fill(4)
    result = cleaned.store.get("Orders", 0, 0, 32, 1 << 20)
    before = [bytes(piece) for piece in result.slices]
    cleaned.disk.log_used = 0.86
    cleaned.configure(destroy_maped_file_interval_forcibly=0)
    cleaned.clean()
    assert cleaned.segments() == [3]
    assert [bytes(piece) for piece in result.slices] == before
    assert first_size(result.slices[0]) > 0


def test_more_is_not_removed_for_space_that_readers_still_hold(cleaned: CleanedStore) -> None:
    cleaned.fill(5)
    result = cleaned.store.get("Orders", 0, 0, 1, 1 << 20)
    assert result.slices
    cleaned.disk.log_used = 0.86
    cleaned.clean(rounds=3)
    assert cleaned.segments() == [1, 2, 3, 4]
    del result
    gc.collect()
    cleaned.clean()
    assert cleaned.segments() == [4]


def test_a_reader_that_never_ends_holds_space_for_a_while_only(cleaned: CleanedStore) -> None:
    cleaned.fill(5)
    result = cleaned.store.get("Orders", 0, 0, 1, 1 << 20)
    cleaned.disk.log_used = 0.86
    cleaned.clean(rounds=12)
    assert cleaned.segments() == [1, 2, 3, 4]
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [4]
    assert first_size(result.slices[0]) == len(result.slices[0])


def test_consumers_below_the_minimum_are_told_where_it_is(cleaned: CleanedStore) -> None:
    cleaned.fill(4)
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    result = cleaned.store.get("Orders", 0, 2, 32, 1 << 20)
    assert result.status is GetStatus.OFFSET_TOO_SMALL
    assert (result.next_offset, result.min_offset) == (3 * PER_SEGMENT, 3 * PER_SEGMENT)
    assert cleaned.store.record_at(0) is None
    assert cleaned.store.entry("Orders", 0, 3 * PER_SEGMENT - 1) is None


# Queues and other followers


def test_queues_follow_the_log_and_keep_their_last_file(cleaned: CleanedStore) -> None:
    cleaned.fill(2, topic="Old")
    cleaned.fill(4, topic="Orders")
    assert cleaned.queue_files("Old") == [0, 4]
    assert cleaned.queue_files("Orders") == [0, 4, 8]
    cleaned.disk.log_used = 0.86
    cleaned.clean(turns=30)
    assert cleaned.segments() == [5]
    assert cleaned.range("Old") == (6, 6)
    assert cleaned.range("Orders") == (9, 12)
    assert cleaned.queue_files("Old") == [4]
    assert cleaned.queue_files("Orders") == [8]


@pytest.mark.parametrize("crash", [False, True])
def test_an_empty_queue_still_knows_its_end_after_a_restart(cleaned: CleanedStore, crash: bool) -> None:
    cleaned.fill(1, topic="Old")
    cleaned.store.append([message(topic="Full", body=b"x") for _ in range(4)])
    cleaned.fill(3)
    cleaned.disk.log_used = 0.86
    cleaned.clean(turns=30)
    assert (cleaned.range("Old"), cleaned.range("Full")) == ((3, 3), (4, 4))
    # RocketMQ would know it from the last file alone.
    assert (cleaned.queue_files("Old"), cleaned.queue_files("Full")) == ([0], [0])
    cleaned.reopen(crash=crash)
    # One queue with room in its last file, and one whose last file is full.
    assert (cleaned.range("Old"), cleaned.range("Full")) == ((3, 3), (4, 4))
    assert cleaned.store.append([message(topic="Old", body=b"next")])[0][0] == 3
    assert bodies(cleaned.store, "Old") == [b"next"]


def test_many_queues_are_trimmed_over_several_turns(cleaned: CleanedStore) -> None:
    for queue_id in range(150):
        cleaned.store.append([message(topic="Wide", queue_id=queue_id, body=b"x")])
    segments = len(cleaned.segments())
    cleaned.fill(3)
    cleaned.disk.log_used = 0.86
    cleaned.clock.advance(10)
    clean = cleaned.workers["store-clean"].take_turn
    while cleaned.segments()[0] < segments:
        cleaned.clock.advance(1)
        clean()
        # One turn of the owner at a time: at most 64 queues between two sends.
        while cleaned.notified:
            moved = sum(cleaned.range("Wide", queue_id)[0] for queue_id in range(150))
            cleaned.notified.pop(0)()
            assert sum(cleaned.range("Wide", queue_id)[0] for queue_id in range(150)) - moved <= 64
    assert {cleaned.range("Wide", queue_id) for queue_id in range(150)} == {(1, 1)}


def test_listeners_are_told_where_the_log_begins(cleaned: CleanedStore) -> None:
    heard: list[int] = []
    cleaned.store.cleaner.on_trim.append(heard.append)
    cleaned.fill(4)
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    assert heard == [SEGMENT_BYTES, 2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES]


def test_queues_whose_messages_are_all_gone_can_be_removed(cleaned: CleanedStore) -> None:
    cleaned.fill(1, topic="Old")
    cleaned.fill(1, topic="Kept")
    cleaned.fill(2)
    assert cleaned.store.expired_removal(lambda topic: False).run() == 0
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    assert cleaned.store.expired_removal(lambda topic: topic == "Kept").run() == 1
    assert cleaned.store.queues() == [("Kept", 0), ("Orders", 0)]
    assert not (cleaned.root / "consumequeue" / "Old").exists()


def test_a_topic_created_again_does_not_lose_its_new_files_to_an_old_removal(cleaned: CleanedStore) -> None:
    cleaned.configure(delete_consume_queue_files_interval=3_600_000)
    cleaned.fill(5)
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    # The second and the third removal wait for their time.
    assert (cleaned.range(), cleaned.queue_files()) == ((12, 15), [4, 8, 12])
    cleaned.disk.log_used = 0.5
    cleaned.store.delete_topic("Orders")
    cleaned.fill(2)
    cleaned.clock.advance(7200)
    cleaned.clean(rounds=2)
    assert cleaned.queue_files() == [0, 4]
    assert bodies(cleaned.store) == [BODY] * 2 * PER_SEGMENT


# Crashes and failures


@pytest.mark.parametrize("turns", range(1, 12))
def test_a_crash_between_any_two_steps_leaves_a_store_that_opens(cleaned: CleanedStore, turns: int) -> None:
    cleaned.fill(5)
    cleaned.disk.log_used = 0.86
    cleaned.clock.advance(10)
    worker = cleaned.workers["store-clean"]
    for turn in range(turns):
        worker.take_turn()
        if turn < turns - 1:
            cleaned.run_notified()
    cleaned.reopen(crash=True)
    low, high = cleaned.range()
    assert high == 5 * PER_SEGMENT
    assert low == cleaned.segments()[0] * PER_SEGMENT
    assert len(bodies(cleaned.store)) == high - low
    cleaned.clean(turns=30)
    assert cleaned.segments() == [4]


def test_a_file_that_cannot_be_removed_is_tried_again_before_the_next(cleaned: CleanedStore) -> None:
    cleaned.fill(5)
    cleaned.disk.log_used = 0.86
    cleaned.disk.remove_fails = True
    cleaned.clean(rounds=5)
    # The log begins after it, but the next one waits: a gap would prevent the next start.
    assert cleaned.segments() == [0, 1, 2, 3, 4]
    assert values(cleaned.store.figures())["commitLogMinOffset"] == str(SEGMENT_BYTES)
    cleaned.disk.remove_fails = False
    cleaned.clean()
    assert cleaned.segments() == [0, 1, 2, 3, 4]
    cleaned.clean(rounds=10)
    assert cleaned.segments() == [4]


def test_what_cannot_be_read_is_tried_again(cleaned: CleanedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned.fill(4, hours_each=100)
    cleaned.configure(delete_when=ALL_HOURS)

    def unreadable(*_: object) -> int:
        raise DiskFailed("read: Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(commit_log_of(cleaned.store), "segment_time", unreadable)
        cleaned.clean()
    assert cleaned.segments() == [0, 1, 2, 3]
    with monkeypatch.context() as broken:
        broken.setattr("store.retention.queue_trim.first_kept", unreadable)
        cleaned.configure(delete_file_batch_max=1)
        cleaned.clean()
    assert (cleaned.segments(), cleaned.range()) == ([1, 2, 3], (0, 12))
    # Readers step over what was removed.
    assert cleaned.store.get("Orders", 0, 0, 32, 1 << 20).next_offset == 4
    cleaned.clean(rounds=2)
    assert (cleaned.segments(), cleaned.range()) == ([3], (9, 12))


def test_a_detached_segment_is_removed_before_a_clean_stop(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    cleaned.disk.log_used = 0.86
    cleaned.clock.advance(10)
    cleaned.workers["store-clean"].take_turn()
    cleaned.run_notified()
    assert cleaned.segments() == [0, 1, 2]
    cleaned.reopen()
    assert cleaned.segments() == [1, 2]


def test_a_segment_that_a_flush_has_in_hand_is_closed_after_it(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    cleaned.disk.log_used = 0.86
    cleaned.clock.advance(10)
    clean = cleaned.workers["store-clean"].take_turn
    clean()
    cleaned.run_notified()
    with group_commit_of(cleaned.store).busy:
        turn = threading.Thread(target=clean)
        turn.start()
        turn.join(0.05)
        assert turn.is_alive()
        assert cleaned.segments() == [0, 1, 2]
    turn.join()
    assert cleaned.segments() == [1, 2]


def test_an_owner_that_does_not_hear_is_asked_again(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    cleaned.disk.log_used = 0.86
    cleaned.clock.advance(5)
    cleaned.workers["store-clean"].take_turn()
    cleaned.notified.clear()
    cleaned.clean(rounds=1, turns=1)
    assert cleaned.segments() == [0, 1, 2]
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [2]


def test_after_a_failure_of_the_disk_nothing_is_removed(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    cleaned.store.confirmation.fail(DiskFailed("sync"))
    cleaned.disk.log_used = 0.86
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [0, 1, 2]


# Leases


def test_a_lease_holds_segments_until_it_ends(cleaned: CleanedStore) -> None:
    cleaned.fill(5, hours_each=100)
    cleaned.configure(delete_when=ALL_HOURS)
    leases = Leases(cleaned.root, clock=cleaned.clock)
    leases.acquire("backup", "nightly", 2 * SEGMENT_BYTES + 17, 3_600_000)
    cleaned.clean(rounds=3)
    assert cleaned.segments() == [2, 3, 4]
    leases.renew("backup", "nightly", 3_600_000, 3 * SEGMENT_BYTES)
    cleaned.clean()
    assert cleaned.segments() == [3, 4]
    cleaned.clock.advance(3_600)
    cleaned.clean()
    assert cleaned.segments() == [4]


def test_a_lease_is_seen_between_two_files(cleaned: CleanedStore) -> None:
    cleaned.fill(5, hours_each=100)
    cleaned.configure(delete_when=ALL_HOURS)
    leases = Leases(cleaned.root, clock=cleaned.clock)
    remove = cleaned.disk.remove

    def removing(path: Path) -> None:
        remove(path)
        leases.acquire("backup", "nightly", 0, 3_600_000)

    cleaned.disk.remove = removing  # type: ignore[method-assign]
    cleaned.clean(rounds=2)
    assert cleaned.segments() == [1, 2, 3, 4]


def test_a_nearly_full_disk_wins_over_a_lease(cleaned: CleanedStore) -> None:
    cleaned.fill(4, hours_each=100)
    Leases(cleaned.root, clock=cleaned.clock).acquire("backup", "nightly", 0, 3_600_000)
    cleaned.disk.log_used = 0.85
    cleaned.clean()
    assert cleaned.segments() == [0, 1, 2, 3]
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    assert cleaned.segments() == [3]


def test_the_longest_lease_is_configured(cleaned: CleanedStore) -> None:
    cleaned.fill(4, hours_each=100)
    Leases(cleaned.root, clock=cleaned.clock).acquire("backup", "nightly", 0, 3_600_000)
    cleaned.configure(delete_when=ALL_HOURS, max_lease_time=3_000_000)
    cleaned.clean()
    assert cleaned.segments() == [3]
