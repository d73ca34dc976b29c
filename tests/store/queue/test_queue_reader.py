"""Reading a queue: every status of RocketMQ's getMessage, its limits, and tag filters."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.remoting.codec.java_hash import java_hash_code
from store.message_store import GetResult, GetStatus, MessageStore
from store.queue.queue_reader import TagsFilter
from tests.store.reading import records_of
from tests.store.rig import Stores, message
from tests.tiers import examples

BIG = 1 << 30


def tagged(*names: str) -> TagsFilter:
    wanted = np.array([java_hash_code(name) for name in names])

    def matches(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.isin(codes, wanted)

    return matches


def offsets(result: GetResult) -> list[int]:
    return [record.queue_offset for record in records_of(result.slices)]


def test_statuses_outside_the_queue(stores: Stores) -> None:
    store = stores.open()

    def ask(queue_id: int, offset: int) -> tuple[GetStatus, int, int, int]:
        result = store.get("Orders", queue_id, offset, 32, BIG)
        assert (result.slices, result.message_count, result.size_bytes) == ([], 0, 0)
        return result.status, result.next_offset, result.min_offset, result.max_offset

    assert ask(0, 5) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    store.append([message(queue_id=0) for _ in range(3)])
    assert ask(0, 3) == (GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)
    assert ask(0, 4) == (GetStatus.OFFSET_OVERFLOW_BADLY, 3, 0, 3)
    assert ask(0, -1) == (GetStatus.OFFSET_TOO_SMALL, 0, 0, 3)


def test_neighbours_in_the_log_are_one_slice(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    large = b"x" * 4096
    store.append([message(queue_id=0, body=large) for _ in range(20)])
    store.append([message(queue_id=k % 2, body=large) for k in range(8)])
    result = store.get("Orders", 0, 0, 32, BIG)
    assert offsets(result) == list(range(24))
    # The twenty and the first of the mixed batch touch; the others stand alone.
    assert len(result.slices) == 4
    assert offsets(store.get("Orders", 0, 18, 6, BIG)) == list(range(18, 24))
    assert len(store.get("Orders", 0, 18, 3, BIG).slices) == 1


@pytest.mark.parametrize("spread", [1, 3])
def test_limits_of_count_and_bytes(stores: Stores, spread: int) -> None:
    stores.fields |= {"mapped_file_size_commit_log": 1 << 20, "max_transfer_count_on_message_in_memory": 40}
    store = stores.open()
    for _ in range(60):
        sizes = [size for _, _, size in store.append([message(queue_id=k, body=b"x" * 100) for k in range(spread)])]
    size = sizes[0]
    for wanted, given_bytes, count in [
        (1, BIG, 1), (7, BIG, 7), (40, BIG, 40), (50, BIG, 40), (0, BIG, 1), (32, 3 * size, 3), (32, 3 * size - 1, 2),
        (32, size, 1), (32, 1, 1), (32, 0, 1), (32, -5, 1),
    ]:  # fmt: skip
        result = store.get("Orders", 0, 5, wanted, given_bytes)
        assert (result.status, result.message_count, result.next_offset) == (GetStatus.FOUND, count, 5 + count)
        assert offsets(result) == list(range(5, 5 + count))
    everything = store.get("Orders", 0, 55, 32, BIG)
    assert offsets(everything) == list(range(55, 60))


def test_transfer_bytes_are_limited_whatever_is_asked(stores: Stores) -> None:
    stores.fields |= {"mapped_file_size_commit_log": 1 << 20, "max_transfer_bytes_on_message_in_memory": 2000}
    store = stores.open()
    store.append([message(body=b"x" * 500) for _ in range(10)] + [message(body=b"x" * 5000)])
    assert store.get("Orders", 0, 0, 32, BIG).message_count == 3
    # A single message that is larger than the limit still comes.
    assert store.get("Orders", 0, 10, 32, BIG).message_count == 1


def test_a_reader_far_behind_gets_less_and_is_sent_to_the_slave(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.message_store.physical_memory_bytes", lambda: 20_000)
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    store.append([message(body=b"x" * 100) for _ in range(200)])
    far, near = store.get("Orders", 0, 0, 32, BIG), store.get("Orders", 0, 180, 32, BIG)
    assert (far.message_count, far.suggest_slave) == (8, True)
    assert (near.message_count, near.suggest_slave) == (20, False)


def test_a_read_ends_with_its_consume_queue_file_and_crosses_segments(stores: Stores) -> None:
    store = stores.open()
    store.append([message(body=b"%d" % k * 50) for k in range(130)])
    seen: list[int] = []
    offset = 40
    counts = []
    while (result := store.get("Orders", 0, offset, 32, BIG)).status is GetStatus.FOUND:
        seen += offsets(result)
        counts.append(result.message_count)
        offset = result.next_offset
    assert seen == list(range(40, 130))
    assert counts[0] == 10


def test_filter_by_tag(stores: Stores) -> None:
    stores.fields["mapped_file_size_consume_queue"] = 20 * 10_000
    store = stores.open()
    for start in range(0, 2000, 100):
        store.append([message(tag="rare" if k % 500 == 499 else "ab"[k % 2]) for k in range(start, start + 100)])
    found = store.get("Orders", 0, 0, 5, BIG, tagged("b"))
    assert offsets(found) == [1, 3, 5, 7, 9]
    assert 10 <= found.next_offset <= 11
    # One pull looks through 16000 bytes of ConsumeQueue, 800 entries.
    rare = store.get("Orders", 0, 0, 32, BIG, tagged("rare"))
    assert (offsets(rare), rare.next_offset) == ([499], 800)
    none = store.get("Orders", 0, 0, 32, BIG, tagged("absent"))
    assert (none.status, none.next_offset, none.slices) == (GetStatus.NO_MATCHED_MESSAGE, 800, [])
    last = store.get("Orders", 0, 1600, 32, BIG, tagged("rare"))
    assert (offsets(last), last.next_offset) == ([1999], 2000)


def walk(store: MessageStore, max_messages: int, max_bytes: int, matches: TagsFilter) -> list[int]:
    offset, seen = 0, []
    while offset < store.max_offset("Orders", 0):
        result = store.get("Orders", 0, offset, max_messages, max_bytes, matches)
        assert (result.status is GetStatus.FOUND) == bool(result.message_count)
        assert result.next_offset > offset
        found = offsets(result)
        assert all(offset <= k < result.next_offset for k in found)
        seen += found
        offset = result.next_offset
    return seen


@settings(max_examples=examples(25), deadline=None)
@given(
    tags=st.lists(st.sampled_from("abc"), min_size=1, max_size=200),
    max_messages=st.integers(1, 40),
    max_bytes=st.integers(0, 3000),
    wanted=st.sets(st.sampled_from("abc")),
)
def test_a_filtered_walk_gives_each_match_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, tags: list[str], max_messages: int, max_bytes: int, wanted: set[str]
) -> None:
    stores = Stores(tmp_path_factory.mktemp("walk"))
    try:
        store = stores.open()
        store.append([message(tag=tag, body=b"x" * (k % 90)) for k, tag in enumerate(tags)])
        expected = [k for k, tag in enumerate(tags) if tag in wanted]
        assert walk(store, max_messages, max_bytes, tagged(*wanted)) == expected
    finally:
        stores.close_all()


def test_what_the_log_no_longer_holds_is_stepped_over(stores: Stores) -> None:
    store = stores.open()
    store.append([message(body=b"%d" % k * 50) for k in range(100)])
    # Entries that point nowhere, as in a queue whose log was cut by hand.
    path = stores.queue_files()[0]
    with path.open("r+b") as file:
        file.write((1 << 40).to_bytes(8, "big") + (200).to_bytes(4, "big"))
        file.seek(20)
        file.write((0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big"))
    result = store.get("Orders", 0, 0, 2, BIG)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
    result = store.get("Orders", 0, 1, 4, BIG)
    assert (result.status, offsets(result)) == (GetStatus.FOUND, [2, 3, 4])


def test_slices_outlive_the_store(stores: Stores) -> None:
    store = stores.open()
    store.append([message(body=b"kept")])
    result = store.get("Orders", 0, 0, 1, BIG)
    stores.close(store)
    assert bytes(records_of(result.slices)[0].body) == b"kept"
    with pytest.raises(TypeError):
        result.slices[0][0] = 1
