"""Values that were found once: the same answers as a look at each record, however the store changes in between."""

import random

import pytest

from sprocket.remoting.message.properties import find_last
from store.message_store import MessageStore
from store.queue import kept_values
from store.queue.get_result import GetResult, GetStatus
from store.queue.record_filter import RecordFilter, ValueVerdicts
from store.scan.distinct_names import Integers, Words
from store.scan.value_scan import ValueScan
from tests.store.insides import commit_log_of
from tests.store.reading import records_of
from tests.store.rig import Stores, message

BIG = 1 << 30


class CountedScan(ValueScan):
    """Counts the records whose properties it is given."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name)
        self.records = 0

    def keys(self, data: memoryview, starts: Integers, ends: Integers) -> Words:
        self.records += len(starts)
        return super().keys(data, starts, ends)


def wants(name: bytes, *values: bytes | None) -> tuple[RecordFilter, RecordFilter, CountedScan]:
    """A filter that decides by kept values, one that looks at each record, and the scan of the first."""

    def matches(properties: bytes) -> bool:
        return find_last(properties, name) in values

    by_value = ValueVerdicts(name)
    by_value.scan = CountedScan(name)
    return RecordFilter(matches, 1, by_value), RecordFilter(matches), by_value.scan


def seen(result: GetResult) -> tuple[GetStatus, int, list[int]]:
    return result.status, result.next_offset, [record.queue_offset for record in records_of(result.slices)]


def append(store: MessageStore, values: list[bytes], queue_id: int = 0, topic: str = "Orders") -> None:
    store.append([message(topic, queue_id, properties=b"k\x01%032d\x02a\x01%b\x02" % (7, one)) for one in values])


@pytest.mark.parametrize("blocks", [1, 3, 512])
def test_reads_between_appends_agree_with_a_look_at_each_record(
    stores: Stores, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_values, "_MAX_BLOCKS", blocks)
    # Files of the queue end within a block, and segments do.
    stores.fields |= {"mapped_file_size_commit_log": 1 << 17, "mapped_file_size_consume_queue": 20 * 700}
    store = stores.open()
    choose = random.Random(blocks)
    filters = [wants(b"a\x01", b"1", b"longer than a word"), wants(b"a\x01", None, b"2"), wants(b"k\x01", b"x")]
    for _ in range(40):
        for queue_id in (0, 1):
            values = choose.choices([b"1", b"2", b"3", b"longer than a word", b""], k=choose.randrange(1, 90))
            append(store, values, queue_id)
            for kept, plain, _ in choose.sample(filters, 2):
                offset, limit = choose.randrange(store.max_offset("Orders", queue_id)), choose.choice([1, 5, 32])
                actual = store.get("Orders", queue_id, offset, limit, BIG, kept)
                assert seen(actual) == seen(store.get("Orders", queue_id, offset, limit, BIG, plain))
                end = store.max_offset("Orders", queue_id)
                assert store.has_wanted("Orders", queue_id, offset, end, kept) == store.has_wanted(
                    "Orders", queue_id, offset, end, plain
                )


def test_another_filter_on_the_property_looks_at_no_record_again(stores: Stores) -> None:
    stores.fields |= {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    store = stores.open()
    for _ in range(10):
        append(store, [b"%d" % (number % 10) for number in range(60)])
    for number in range(10):
        kept, plain, scan = wants(b"a\x01", b"%d" % number)
        offset = found = 0
        while offset < 600:
            result = store.get("Orders", 0, offset, 32, BIG, kept)
            assert seen(result) == seen(store.get("Orders", 0, offset, 32, BIG, plain))
            offset, found = result.next_offset, found + result.message_count
        assert found == 60
        assert scan.records == (0 if number else 600)
    append(store, [b"1"])
    kept, _, scan = wants(b"a\x01", b"1")
    assert seen(store.get("Orders", 0, 599, 32, BIG, kept)) == (GetStatus.FOUND, 601, [600])
    assert scan.records == 1, "only what came is looked at"


def test_a_topic_that_was_created_again_has_values_of_its_own(stores: Stores) -> None:
    store = stores.open()
    append(store, [b"1"] * 20)
    kept, _, _ = wants(b"a\x01", b"1")
    assert store.get("Orders", 0, 0, 32, BIG, kept).message_count == 20
    store.delete_topic("Orders")
    append(store, [b"1", b"2"] * 10)
    assert seen(store.get("Orders", 0, 0, 32, BIG, kept)) == (GetStatus.FOUND, 20, list(range(0, 20, 2)))


def test_records_that_are_gone_are_not_answered_from_what_was_known(stores: Stores) -> None:
    store = stores.open()
    for _ in range(20):
        append(store, [b"1", b"2"] * 10)
    kept, plain, _ = wants(b"a\x01", b"1")
    assert store.get("Orders", 0, 0, 32, BIG, kept).message_count == 25  # of one file
    commit_log_of(store).drop_oldest()
    result = store.get("Orders", 0, 0, 4, BIG, kept)
    assert seen(result) == seen(store.get("Orders", 0, 0, 4, BIG, plain))
    assert result.status is GetStatus.MESSAGE_WAS_REMOVING
