"""Blanks anywhere in a queue do not lead a search astray."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from store.disk.disk import RealDisk
from store.message_store import Boundary
from store.queue.blank_entries import first_unit, next_entry
from store.queue.consume_queue import BLANK_SIZE, ENTRY, ConsumeQueue, TopicQueue
from tests.store.insides import commit_log_of
from tests.store.rig import Stores, message

# A few entries per file, so that runs of blanks cross files.
_FILE_BYTES = 20 * 7


def queue_of(root: Path, places: list[int | None]) -> ConsumeQueue:
    """A queue with an entry at each of `places`, None for a blank."""
    queue = TopicQueue(RealDisk(), root, "Orders", 0, _FILE_BYTES)
    for offset, place in enumerate(places):
        queue.put(offset, 0 if place is None else place, BLANK_SIZE if place is None else 100, 0, 0, 1)
    return queue


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=40), st.integers(0, 10))
def test_the_first_entry_that_holds_is_found_between_blanks(steps: list[int | None], limit: int) -> None:
    place, places = 0, list[int | None]()
    for step in steps:
        place += step or 0
        places.append(None if step is None else place)
    least = place * limit // 10
    with tempfile.TemporaryDirectory() as name:
        queue = queue_of(Path(name), places)
        expected = next((unit for unit, at in enumerate(places) if at is not None and at >= least), len(places))
        assert first_unit(queue, 0, len(places), lambda entry: entry[0] >= least) == expected
        for unit in range(len(places)):
            found = next_entry(queue, unit, len(places))
            later = next((each for each in range(unit, len(places)) if places[each] is not None), None)
            assert (None if found is None else found[0]) == later
        queue.close()


def test_blanks_of_repair_hide_no_message_from_times_retention_and_recovery(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 4096
    start = stores.clock.wall_ms()
    store = stores.open()
    for number in range(200):
        stores.clock.step_wall(start + number - stores.clock.wall_ms())
        store.append([message()])
    stores.close(store)
    # Where bisections of 200 entries ask first, among others.
    for blank in (25, 50, 99, 100, 101, 150, 175):
        path = stores.queue_files()[blank // 50]
        with path.open("r+b") as file:
            file.seek(blank % 50 * ENTRY.size)
            file.write(ENTRY.pack(0, BLANK_SIZE, 0))
    for path in stores.segments()[:1]:
        path.unlink()
    store = stores.open()
    first = store.min_offset("Orders", 0)
    entry = store.entry("Orders", 0, first)
    assert entry is not None
    assert 0 < first < 50, "the messages of one segment are gone, no more"
    assert entry[0] == commit_log_of(store).min_offset
    for number in range(first, 200):
        lower = store.offset_by_time("Orders", 0, start + number, Boundary.LOWER)
        # A blank has no time: the answer is the message, or a blank that lies right before it.
        assert lower == number or all(blank in (25, 50, 99, 100, 101, 150, 175) for blank in range(lower, number))
        assert lower <= number
