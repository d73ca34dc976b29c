"""The compiled search for wanted records chooses what the Python code chooses, whatever is known before."""

import random

import pytest

from sprocket.remoting.message.properties import find_last
from store.message_store import MessageStore
from store.queue import kept_values
from store.queue.get_result import GetResult, GetStatus
from store.queue.record_filter import RecordFilter
from tests.fuzz.store_targets import whole_record
from tests.fuzz.twins.filter_targets import BASE, ENTRY, compiled, filter_twins
from tests.store.insides import commit_log_of
from tests.store.reading import records_of
from tests.store.rig import Stores, message
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")

BIG = 1 << 30
LONG = b"longer than a key"
VALUES = (b"1", b"2", b"3", LONG, b"", b"\xc3\xbc")


class Asked:
    """A filter on some properties, and how often it was asked about a record."""

    def __init__(self, names: tuple[bytes, ...], *wanted: tuple[bytes | None, ...]) -> None:
        self.names, self.wanted, self.asked = names, wanted, 0

    def matches(self, properties: bytes) -> bool:
        self.asked += 1
        return tuple(find_last(properties, name) for name in self.names) in self.wanted

    def compiled(self) -> RecordFilter:
        made = RecordFilter(self.matches, 1, self.names)
        if made.chooser is None and compiled is not None:
            made.chooser = compiled.ValueChooser(self.names, made)
        return made

    def plain(self) -> RecordFilter:
        return RecordFilter(self.matches)


def seen(result: GetResult) -> tuple[GetStatus, int, bool, list[int], int]:
    offsets = [record.queue_offset for record in records_of(result.slices)]
    return result.status, result.next_offset, result.suggest_slave, offsets, result.size_bytes


def append(store: MessageStore, values: list[bytes], queue_id: int = 0) -> None:
    store.append([message("Orders", queue_id, properties=b"k\x01%03d\x02a\x01%b\x02" % (7, one)) for one in values])


@pytest.mark.parametrize("seed", seeds(100, quick=3))
def test_any_records_and_any_entries(seed: int) -> None:
    filter_twins(random.Random(seed).randbytes(seed % 41))


@pytest.mark.skipif(kept_values.engine is None, reason="this process runs pure Python")
@pytest.mark.parametrize("blocks", [1, 3, 512])
def test_reads_between_appends_agree_with_a_look_at_each_record(
    stores: Stores, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_values, "_MAX_BLOCKS", blocks)
    # Files of the queue end within a block, and segments do.
    stores.fields |= {"mapped_file_size_commit_log": 1 << 17, "mapped_file_size_consume_queue": 20 * 700}
    store = stores.open()
    choose = random.Random(blocks)
    filters = [
        Asked((b"a\x01",), (b"1",), (LONG,)), Asked((b"a\x01", b"k\x01"), (None, b"007"), (b"2", b"007")),
        Asked((b"z\x01",), (None,)), Asked((b"z\x01",), (b"x",)),
    ]  # fmt: skip
    kept = [one.compiled() for one in filters]
    for _ in range(40):
        for queue_id in (0, 1):
            append(store, choose.choices(VALUES, k=choose.randrange(1, 90)), queue_id)
            for number in choose.sample(range(len(filters)), 2):
                offset, limit = choose.randrange(store.max_offset("Orders", queue_id)), choose.choice([1, 5, 32])
                max_bytes = choose.choice((BIG, BIG, 700))
                arguments = "Orders", queue_id, offset, limit, max_bytes
                plain = filters[number].plain()
                assert seen(store.get(*arguments, kept[number])) == seen(store.get(*arguments, plain))
                end = store.max_offset("Orders", queue_id)
                assert store.has_wanted("Orders", queue_id, offset, end, kept[number]) == store.has_wanted(
                    "Orders", queue_id, offset, end, plain
                )


@pytest.mark.skipif(kept_values.engine is None, reason="this process runs pure Python")
def test_each_new_value_is_decided_once(stores: Stores) -> None:
    store = stores.open()
    for _ in range(5):
        append(store, [b"%d" % (number % 10) for number in range(20)])
    asked = Asked((b"a\x01",), (b"3",))
    filters = asked.compiled()
    for _ in range(3):
        offset = 0
        while offset < 100:
            offset = store.get("Orders", 0, offset, 32, BIG, filters).next_offset
    assert asked.asked == 10


def test_more_values_than_are_kept_are_decided_again() -> None:
    decided: list[int] = []

    def decide(record: memoryview) -> bool:
        decided.append(record[-2])
        return record[-2] % 2 == 0

    assert compiled is not None
    chooser = compiled.ValueChooser((b"a\x01",), decide)

    def choose(number: int) -> bool:
        record = whole_record(b"", b"a\x01%04d\x02" % number)
        entry, block = ENTRY.pack(BASE, len(record), 0), compiled.ValueBlock(1)
        numbers, searched = chooser.choose(entry, memoryview(record), BASE, BASE + len(record), 1, block, 0)
        assert searched == 1
        return bool(numbers)

    for number in range(5000):
        assert choose(number) == choose(number) == (number % 2 == 0)
    assert len(decided) == 5000
    assert choose(4998) and choose(0)
    assert len(decided) == 5001, "the first values are forgotten, the last ones are not"


@pytest.mark.skipif(kept_values.engine is None, reason="this process runs pure Python")
def test_a_topic_that_was_created_again_has_values_of_its_own(stores: Stores) -> None:
    store = stores.open()
    append(store, [b"1"] * 20)
    kept = Asked((b"a\x01",), (b"1",)).compiled()
    assert store.get("Orders", 0, 0, 32, BIG, kept).message_count == 20
    store.delete_topic("Orders")
    append(store, [b"1", b"2"] * 10)
    result = store.get("Orders", 0, 0, 32, BIG, kept)
    assert seen(result)[3] == list(range(0, 20, 2))


@pytest.mark.skipif(kept_values.engine is None, reason="this process runs pure Python")
def test_records_that_are_gone_are_not_answered_from_what_was_known(stores: Stores) -> None:
    store = stores.open()
    for _ in range(20):
        append(store, [b"1", b"2"] * 10)
    asked = Asked((b"a\x01",), (b"1",))
    kept = asked.compiled()
    assert store.get("Orders", 0, 0, 32, BIG, kept).message_count == 25  # of one file
    commit_log_of(store).drop_oldest()
    result = store.get("Orders", 0, 0, 4, BIG, kept)
    assert seen(result) == seen(store.get("Orders", 0, 0, 4, BIG, asked.plain()))
    assert result.status is GetStatus.MESSAGE_WAS_REMOVING
