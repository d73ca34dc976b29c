"""Items of a logical queue: valid lists, allowed changes, and the item of an offset."""

import pytest

from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem
from sprocket.static_topic.item_checks import MappingError, check_items, check_kept, find_item, next_item


def item(gen: int, logic_offset: int, *, bname: str = "a", queue_id: int = 0, end: int = -1) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen, queue_id, bname, logic_offset, end_offset=end)


OLD = item(0, 0, bname="a")
MIDDLE = item(1, 10_000, bname="b")
NEW = item(2, -1, bname="c")
ITEMS = [OLD, MIDDLE, NEW]


def test_a_list_with_rising_generations_and_offsets_is_valid() -> None:
    check_items([])
    check_items(ITEMS)
    check_items([item(0, 0, end=9_999), item(3, 10_000)])


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([item(-1, 0)], "must not be negative"),
        ([item(0, 0, queue_id=-1)], "must not be negative"),
        ([LogicQueueMappingItem(0, 0, "a", 0, start_offset=-1)], "must not be negative"),
        ([LogicQueueMappingItem(0, 0, "a", 0, start_offset=5, end_offset=4)], "below the startOffset"),
        ([item(0, -1), item(1, 5)], "only the last item"),
        ([item(0, -1), item(1, -1)], "only the last item"),
        ([item(1, 0), item(1, 5)], "gen must rise"),
        ([item(0, 5), item(1, 5)], "logicOffset must rise"),
        ([item(0, 0, end=10), item(1, 10)], "the next begins at 10"),
    ],
)
def test_a_list_that_breaks_a_rule_is_refused_with_the_reason(items: list[LogicQueueMappingItem], reason: str) -> None:
    with pytest.raises(MappingError, match=reason):
        check_items(items)


def test_a_new_list_may_add_items_and_miss_old_ones() -> None:
    check_kept([], [OLD], epoch_equal=True)
    check_kept([OLD], [OLD, MIDDLE], epoch_equal=False)
    check_kept([OLD, MIDDLE], [MIDDLE, NEW], epoch_equal=False)
    check_kept([OLD], [MIDDLE], epoch_equal=False)
    check_kept(ITEMS, [MIDDLE, NEW], epoch_equal=True)


def test_a_logic_offset_is_set_once() -> None:
    check_kept([OLD, item(1, -1)], [OLD, item(1, 20_000)], epoch_equal=True)
    with pytest.raises(MappingError, match="set once"):
        check_kept([OLD, item(1, 20_000)], [OLD, item(1, 30_000)], epoch_equal=True)
    with pytest.raises(MappingError, match="set once"):
        check_kept([OLD, item(1, 20_000)], [OLD, item(1, -1)], epoch_equal=False)


@pytest.mark.parametrize(
    "changed", [item(0, 0, bname="b"), item(0, 0, queue_id=1), LogicQueueMappingItem(0, 0, "a", 0, start_offset=1)]
)
def test_an_item_stays_where_it_is(changed: LogicQueueMappingItem) -> None:
    with pytest.raises(MappingError, match="cannot change"):
        check_kept([OLD], [changed], epoch_equal=False)


def test_an_equal_epoch_keeps_the_leader() -> None:
    check_kept([OLD, MIDDLE], [OLD, MIDDLE], epoch_equal=True)
    with pytest.raises(MappingError, match="leader"):
        check_kept([OLD], [OLD, MIDDLE], epoch_equal=True)
    with pytest.raises(MappingError, match="empty"):
        check_kept([OLD], [], epoch_equal=False)


@pytest.mark.parametrize(("logical", "found"), [(0, OLD), (9_999, OLD), (10_000, MIDDLE), (99_999, MIDDLE), (-5, OLD)])
def test_the_item_of_an_offset_is_the_last_that_begins_at_or_below_it(
    logical: int, found: LogicQueueMappingItem
) -> None:
    assert find_item(ITEMS, logical) is found


def test_an_item_without_an_offset_counts_only_if_asked_for() -> None:
    assert find_item(ITEMS, 5, decided=False) is NEW
    assert find_item([NEW], 5) is None
    assert find_item([], 5) is None


def test_an_offset_below_all_items_is_that_of_the_oldest() -> None:
    assert find_item([MIDDLE, NEW], 3) is MIDDLE


def test_the_next_item_is_known_by_its_generation() -> None:
    assert next_item(ITEMS, OLD) is MIDDLE
    assert next_item(ITEMS, MIDDLE) is None
    assert next_item(ITEMS, MIDDLE, decided=False) is NEW
    assert next_item(ITEMS, NEW, decided=False) is None
    assert next_item([OLD], OLD) is None
    assert next_item([], OLD) is None
