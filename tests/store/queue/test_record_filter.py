"""Reads that choose records by their properties: what comes, and where the next read begins."""

import pytest

from sprocket.remoting.message.properties import find_last
from store.message_store import GetResult, GetStatus, MessageStore
from store.queue import record_filter
from store.queue.record_filter import RecordFilter, properties_of
from tests.store.reading import records_of
from tests.store.rig import Stores, message

BIG = 1 << 30


def wants(*names: bytes) -> RecordFilter:
    return RecordFilter(lambda properties: any(b"TAGS\x01" + name in properties for name in names))


def offsets(result: GetResult) -> list[int]:
    return [record.queue_offset for record in records_of(result.slices)]


def fill(stores: Stores, names: list[bytes]) -> MessageStore:
    stores.fields |= {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    store = stores.open()
    for start in range(0, len(names), 100):
        store.append(
            [message(queue_id=0, properties=b"TAGS\x01" + name + b"\x02") for name in names[start : start + 100]]
        )
    return store


def test_only_wanted_records_come_and_the_offset_moves_on(stores: Stores) -> None:
    store = fill(stores, [b"odd" if number % 2 else b"even" for number in range(20)])
    result = store.get("Orders", 0, 0, 3, BIG, wants(b"odd"))
    assert (offsets(result), result.next_offset) == ([1, 3, 5], 6)
    result = store.get("Orders", 0, 6, 32, BIG, wants(b"odd"))
    assert (offsets(result), result.next_offset) == ([7, 9, 11, 13, 15, 17, 19], 20)


def test_a_read_without_a_match_ends_at_maxfiltermessagesize(stores: Stores) -> None:
    store = fill(stores, [b"x"] * 900 + [b"y"])
    none = store.get("Orders", 0, 0, 32, BIG, wants(b"y"))
    assert (none.status, none.next_offset, none.slices) == (GetStatus.NO_MATCHED_MESSAGE, 800, [])
    found = store.get("Orders", 0, 800, 32, BIG, wants(b"y"))
    assert (offsets(found), found.next_offset) == ([900], 901)


def test_the_costlier_the_fewer_records_of_one_read(stores: Stores) -> None:
    store = fill(stores, [b"x"] * 300)
    costly = RecordFilter(lambda properties: False, operations=40)
    assert store.get("Orders", 0, 0, 32, BIG, costly).next_offset == 100
    assert RecordFilter(lambda properties: True, operations=10**9).max_records == 1


def test_bytes_of_an_answer_are_bounded(stores: Stores) -> None:
    store = fill(stores, [b"x", b"y"] * 10)
    everything = store.get("Orders", 0, 0, 32, BIG, wants(b"y"))
    size = everything.size_bytes // everything.message_count
    some = store.get("Orders", 0, 0, 32, 3 * size, wants(b"y"))
    assert (offsets(some), some.next_offset) == ([1, 3, 5], 7)


def test_whether_one_of_those_that_came_is_wanted(stores: Stores) -> None:
    store = fill(stores, [b"x"] * 5 + [b"y"])
    assert store.has_wanted("Orders", 0, 0, 6, wants(b"y"))
    assert not store.has_wanted("Orders", 0, 0, 5, wants(b"y"))
    assert not store.has_wanted("Orders", 9, 0, 5, wants(b"y"))
    few = RecordFilter(lambda properties: False, record_filter._MAX_OPERATIONS)
    assert store.has_wanted("Orders", 0, 0, 5, few), "too many to look at here: the read will tell"


@pytest.mark.parametrize("is_v6", [False, True])
def test_properties_of_a_record(stores: Stores, is_v6: bool) -> None:
    store = stores.open()
    more = {"born_host": bytes(20)} if is_v6 else {}
    store.append([message(queue_id=0, body=b"B" * 77, properties=b"a\x011\x02", **more)])
    record = records_of(store.get("Orders", 0, 0, 1, BIG).slices)[0]
    whole = store.get("Orders", 0, 0, 1, BIG).slices[0]
    assert properties_of(whole) == bytes(record.properties)
    assert b"a\x011\x02" in bytes(record.properties)
    for length in (0, 20, 86, len(whole) - 1):
        assert properties_of(whole[:length]) is None
    damaged = bytearray(whole)
    damaged[84 + 12 * is_v6] = 0xFF
    assert properties_of(memoryview(damaged)) is None
    assert RecordFilter(lambda properties: False)(memoryview(damaged)), "who reads it finds the damage"


VALUES = (
    b"a\x011\x02", b"x\x01y\x02a\x011\x02", b"x\x01y\x02a\x011", b"xa\x011\x02", b"x\x01ba\x011\x02", b"x\x01y\x02",
    b"x\x01y\x02a\x011\x02a\x01\x02", b"x\x01y\x02a\x012\x02a\x011\x02z\x010\x02", b"x\x01y\x02a\x013\x02", b"x\x01a",
)  # fmt: skip


@pytest.mark.parametrize("wanted", [(b"1",), (None,), (b"2", b"3"), (b"1", None)])
def test_a_look_at_one_property_gives_the_same_verdicts(stores: Stores, wanted: tuple[bytes | None, ...]) -> None:
    stores.fields |= {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 20_000}
    store = stores.open()
    for _ in range(60):
        store.append([message(queue_id=0, properties=properties) for properties in VALUES])

    def matches(properties: bytes) -> bool:
        return find_last(properties, b"a\x01") in wanted

    plain, named = RecordFilter(matches), RecordFilter(matches, 1, [b"a\x01"])
    offset = 0
    while offset < 600:
        expected = store.get("Orders", 0, offset, 32, BIG, plain)
        actual = store.get("Orders", 0, offset, 32, BIG, named)
        assert (offsets(actual), actual.next_offset) == (offsets(expected), expected.next_offset)
        offset = actual.next_offset
