"""What the master does next: which part of the log it uploads, and what it deletes."""

from store.tier.manifest import Manifest, empty
from store.tier.segment_writer import LogPart
from store.tier.upload_plan import ArchiveRules, Delete, LogView, Rest, SetReserves, Step, Upload, next_step
from tests.store.tier.test_manifest import HOUR_MS, SEGMENT, entry

RULES = ArchiveRules(72 * HOUR_MS, {}, 24 * HOUR_MS, 100, deletes=True)


def archive(end: int) -> Manifest:
    found = empty("c", "b", SEGMENT, 72 * HOUR_MS)
    for start in range(0, end, SEGMENT):
        found = found.with_segment(entry(start, min(start + SEGMENT, end)), 0)
    return found


def plan(
    manifest: Manifest, *, safe: int, log_min: int = 0, rules: ArchiveRules = RULES, first_ms: int = -1,
    now_ms: int = 2000, may_delete: bool = True,
) -> Step:  # fmt: skip
    view = LogView(log_min, safe + 500, safe, SEGMENT)
    times = {"first_store_ms": first_ms, "wall_ms": now_ms, "now_ms": now_ms}
    return next_step(manifest, view, rules, **times, may_delete=may_delete)


def test_a_file_goes_when_all_of_it_is_confirmed() -> None:
    assert plan(archive(0), safe=SEGMENT - 1) == Rest()
    assert plan(archive(0), safe=SEGMENT) == Upload(LogPart(0, SEGMENT, SEGMENT))
    assert plan(archive(SEGMENT), safe=3 * SEGMENT) == Upload(LogPart(SEGMENT, 2 * SEGMENT, 2 * SEGMENT))


def test_what_the_log_no_longer_has_is_skipped() -> None:
    assert plan(archive(SEGMENT), safe=9 * SEGMENT, log_min=4 * SEGMENT) == Upload(LogPart(4096, 5120, 5120))


def test_a_part_of_the_open_file_goes_when_its_first_message_is_old_and_it_is_large_enough() -> None:
    day_ms = 24 * HOUR_MS
    assert plan(archive(0), safe=300, first_ms=0, now_ms=day_ms - 1) == Rest()
    assert plan(archive(0), safe=99, first_ms=0, now_ms=day_ms) == Rest()
    assert plan(archive(0), safe=300, first_ms=0, now_ms=day_ms) == Upload(LogPart(0, 300, SEGMENT))
    never = ArchiveRules(72 * HOUR_MS, {}, 0, 100, deletes=True)
    assert plan(archive(0), safe=300, first_ms=0, now_ms=9 * day_ms, rules=never) == Rest()


def test_the_next_part_begins_in_the_middle_of_the_file() -> None:
    assert plan(archive(300), safe=SEGMENT) == Upload(LogPart(300, SEGMENT, SEGMENT))


def test_changed_times_are_written_before_anything_is_deleted_by_them() -> None:
    rules = ArchiveRules(HOUR_MS, {"Orders": 5 * HOUR_MS}, 0, 100, deletes=True)
    assert plan(archive(SEGMENT), safe=SEGMENT, rules=rules, now_ms=1000 * HOUR_MS) == SetReserves()


def test_what_expired_is_deleted_when_the_interval_has_passed() -> None:
    old, keys = archive(2 * SEGMENT), [entry(start, start + 1).key for start in (0, SEGMENT)]
    late_ms = 1000 + 72 * HOUR_MS
    assert plan(old, safe=2 * SEGMENT, now_ms=late_ms - 1) == Rest()
    assert plan(old, safe=2 * SEGMENT, now_ms=late_ms) == Delete(keys)
    assert plan(old, safe=2 * SEGMENT, now_ms=late_ms, may_delete=False) == Rest()
    keeping = ArchiveRules(72 * HOUR_MS, {}, 0, 100, deletes=False)
    assert plan(old, safe=2 * SEGMENT, now_ms=late_ms, rules=keeping) == Rest()


def test_what_was_superseded_expires_as_well() -> None:
    assert plan(archive(2 * SEGMENT).cut(SEGMENT, 0), safe=SEGMENT, now_ms=1000 * HOUR_MS) == Delete(
        [entry(start, start + 1).key for start in (0, SEGMENT)]
    )
