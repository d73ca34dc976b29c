"""A damaged record is never served: what was in the log when the store started is compared with its CRC."""

import logging
import struct

import numpy as np
import pytest

from sprocket.common.errors import CorruptRecord
from sprocket.common.figures import values
from store.message_store import MessageStore, TagsFilter
from store.queue.consume_queue import BLANK_SIZE, ENTRY, UNIT
from store.queue.get_result import GetResult, GetStatus
from tests.store.reading import read_queue, records_of
from tests.store.rig import Stores, message

BIG = 1 << 20


@pytest.fixture(params=[True, False], ids=["crc", "plain"])
def old(stores: Stores, request: pytest.FixtureRequest) -> MessageStore:
    """A store that was started with twenty messages in a queue, ten of them with the tag b."""
    stores.fields["enabled_append_prop_crc"] = request.param
    store = stores.open()
    for number in range(20):
        store.append([message(body=b"message %d" % number, tag="ab"[number % 2]), message("Other", number % 3)])
    return stores.reopen(store)


def flip(stores: Stores, store: MessageStore, queue_offset: int, needle: bytes = b"message") -> int:
    """Damage the body of a message of Orders on the disk, under the running store; return its physical offset."""
    entry = store.entry("Orders", 0, queue_offset)
    assert entry is not None
    size = store.config.mapped_file_size_commit_log
    with stores.segments()[entry[0] // size].open("r+b") as file:
        file.seek(entry[0] % size)
        content = file.read(entry[1])
        at = content.index(needle)
        file.seek(entry[0] % size + at)
        file.write(bytes((content[at] ^ 4,)))
    return entry[0]


def write_entry(stores: Stores, queue_offset: int, *fields: int) -> None:
    """Put a ConsumeQueue entry of Orders on the disk, under the running store."""
    entries_per_file = 50
    with stores.queue_files()[queue_offset // entries_per_file].open("r+b") as file:
        file.seek(queue_offset % entries_per_file * UNIT)
        file.write(ENTRY.pack(*fields))


def offsets_of(result: GetResult) -> list[int]:
    return [record.queue_offset for record in records_of(result.slices)]


def test_what_is_before_a_damaged_record_is_served(stores: Stores, old: MessageStore) -> None:
    flip(stores, old, 7)
    result = old.get("Orders", 0, 2, 32, BIG)
    assert (result.status, offsets_of(result), result.next_offset) == (GetStatus.FOUND, [2, 3, 4, 5, 6], 7)
    # Behind it everything is served too.
    assert offsets_of(old.get("Orders", 0, 8, 32, BIG)) == list(range(8, 20))


def test_a_damaged_record_is_refused_by_name(
    stores: Stores, old: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    physical_offset = flip(stores, old, 7)
    with caplog.at_level(logging.ERROR, "store.queue.cold_reads"):
        for _ in range(3):
            with pytest.raises(CorruptRecord) as caught:
                old.get("Orders", 0, 7, 32, BIG)
    assert caught.value.offset == physical_offset
    text = str(caught.value)
    for part in (f"physical offset {physical_offset}", "topic Orders, queue 0, queue offset 7", "CRC",
                 str(stores.segments()[0].parent), "sprocket store check", "sprocket store repair"):  # fmt: skip
        assert part in text
    # Written of once, counted each time.
    assert len(caplog.records) == 1
    info = values(old.figures())
    assert (info["damagedRecords"], info["damagedReads"]) == ("1", "3")


def test_a_read_by_tag_stops_at_a_damaged_record_that_it_wants(stores: Stores, old: MessageStore) -> None:
    flip(stores, old, 7)
    wanted = message(tag="b").tags_code
    result = old.get("Orders", 0, 0, 32, BIG, lambda codes: codes == np.int64(wanted))
    assert (offsets_of(result), result.next_offset) == ([1, 3, 5], 7)
    with pytest.raises(CorruptRecord):
        old.get("Orders", 0, 6, 32, BIG, lambda codes: codes == np.int64(wanted))
    # A record that it does not want is not looked at.
    result = old.get("Orders", 0, 0, 32, BIG, lambda codes: codes != np.int64(wanted))
    assert offsets_of(result) == list(range(0, 20, 2))


def test_what_was_appended_since_the_start_is_not_looked_at(stores: Stores, old: MessageStore) -> None:
    old.append([message(body=b"message 20")])
    flip(stores, old, 20)
    assert offsets_of_raw(old.get("Orders", 0, 20, 32, BIG)) == [20]


def offsets_of_raw(result: GetResult) -> list[int]:
    """Queue offset of the single record of each slice, whatever else is in it."""
    return [struct.unpack_from(">q", piece, 20)[0] for piece in result.slices]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_single_record_is_checked_too(stores: Stores, old: MessageStore, by_id: bool) -> None:
    entry = old.entry("Orders", 0, 7)
    assert entry is not None
    size = None if by_id else entry[1]
    assert old.record_at(entry[0], size) is not None
    flip(stores, old, 7)
    with pytest.raises(CorruptRecord, match="sprocket store repair"):
        old.record_at(entry[0], size)


def test_a_place_that_somebody_invented_is_no_damage(old: MessageStore) -> None:
    for physical_offset in (1, 50, 91, old.wrote_offset - 8):
        assert old.record_at(physical_offset) is None
    assert values(old.figures())["damagedReads"] == "0"


@pytest.mark.parametrize("change", ["size", "offset", "other record"])
def test_a_damaged_entry_of_the_queue_serves_nothing(stores: Stores, old: MessageStore, change: str) -> None:
    entry, other = old.entry("Orders", 0, 7), old.entry("Orders", 0, 8)
    assert entry is not None and other is not None
    fields = {
        "size": (entry[0], entry[1] ^ 1, entry[2]),
        "offset": (entry[0] ^ 2, entry[1], entry[2]),
        "other record": other,
    }
    write_entry(stores, 7, *fields[change])
    with pytest.raises(CorruptRecord, match="queue offset 7"):
        old.get("Orders", 0, 7, 32, BIG)
    assert offsets_of(old.get("Orders", 0, 6, 32, BIG)) == [6]


def test_readers_pass_a_blank_that_repair_has_put_in(stores: Stores, old: MessageStore) -> None:
    for blank in (0, 7, 8, 19):
        write_entry(stores, blank, 0, BLANK_SIZE, 0)
    found: list[int] = []
    offset = 0
    while offset < 20:
        result = old.get("Orders", 0, offset, 4, BIG)
        assert result.next_offset > offset
        if result.status is GetStatus.FOUND:
            found += offsets_of(result)
        else:
            assert result.status is GetStatus.NO_MATCHED_MESSAGE
        offset = result.next_offset
    assert (found, offset) == ([1, 2, 3, 4, 5, 6, *range(9, 19)], 20)
    result = old.get("Orders", 0, 7, 2, BIG)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 9)
    # With a filter, whether or not it lets the blank's tags code through.
    for wanted in (message(tag="b").tags_code, 0):
        result = old.get("Orders", 0, 7, 1, BIG, lambda codes, wanted=wanted: codes == np.int64(wanted))  # type: ignore[misc]
        assert offsets_of(result) == ([9] if wanted else [])
        assert result.next_offset > 7


def test_an_undamaged_store_is_served_whole(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 4096
    store = stores.open()
    for number in range(100):
        stores.fields["enabled_append_prop_crc"] = number % 20 < 10
        if number % 10 == 0:
            store = stores.reopen(store)
        host = bytes(range(16)) + b"\0\0\x15\x38" if number % 3 else b"\x0a\x01\x02\x03\0\0\x15\x38"
        store.append([message("T" * 130, body=b"x" * (number * 7), born_host=host), message()])
    store = stores.reopen(store, crash=True)
    assert len(read_queue(store)) == len(read_queue(store, "T" * 130)) == 100
    assert values(store.figures())["damagedReads"] == "0"


@pytest.mark.parametrize("matches", [None, lambda codes: np.ones(len(codes), np.bool_)], ids=["all", "filtered"])
@pytest.mark.parametrize("first", [2, 5])
def test_an_entry_that_points_into_newer_records_is_not_followed(
    stores: Stores, old: MessageStore, matches: TagsFilter | None, first: int
) -> None:
    start = old.wrote_offset
    for number in range(40):
        old.append([message("Other", 0, b"new %d" % number)])
    entry = old.entry("Orders", 0, 5)
    assert entry is not None
    write_entry(stores, 5, start + 700, entry[1], entry[2])
    if first < 5:
        assert offsets_of(old.get("Orders", 0, first, 32, BIG, matches)) == [2, 3, 4]
    else:
        with pytest.raises(CorruptRecord):
            old.get("Orders", 0, first, 32, BIG, matches)


@pytest.mark.parametrize("physical_offset", [1 << 40, -5, -(1 << 62)])
def test_an_entry_that_points_nowhere_is_damage_and_not_a_message_that_expired(
    stores: Stores, old: MessageStore, physical_offset: int
) -> None:
    entry = old.entry("Orders", 0, 5)
    assert entry is not None
    write_entry(stores, 5, physical_offset, *entry[1:])
    assert offsets_of(old.get("Orders", 0, 0, 32, BIG)) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecord, match="entry names physical offset"):
        old.get("Orders", 0, 5, 32, BIG)
    assert offsets_of(old.get("Orders", 0, 6, 32, BIG)) == list(range(6, 20))


def test_an_entry_before_the_logs_begin_is_damage_where_older_messages_are_there(stores: Stores) -> None:
    store = stores.open()
    for number in range(60):
        store.append([message(body=b"%d" % number + b"x" * 800)])
    stores.close(store)
    stores.segments()[0].unlink()
    store = stores.open()
    first = store.min_offset("Orders", 0)
    assert 0 < first < 50
    entry = store.entry("Orders", 0, first + 5)
    assert entry is not None
    write_entry(stores, first + 5, 0, *entry[1:])
    assert offsets_of(store.get("Orders", 0, first, 32, BIG)) == list(range(first, first + 5))
    with pytest.raises(CorruptRecord):
        store.get("Orders", 0, first + 5, 32, BIG)
    # The last one too, at the next start: it does not mean that all before it have expired.
    stores.close(store)
    last_file = stores.queue_files()[-1]
    with last_file.open("r+b") as file:
        file.seek((60 - 1) % 50 * UNIT)
        file.write(ENTRY.pack(0, *entry[1:]))
    store = stores.open()
    assert store.recovery is not None
    assert store.recovery.rebuilt
    assert (store.min_offset("Orders", 0), store.max_offset("Orders", 0)) == (first, 60)
    assert [record.queue_offset for record in read_queue(store)] == list(range(first, 60))
