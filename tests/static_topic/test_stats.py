"""Figures of logical queues, from what brokers say of physical ones."""

from typing import Final

from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.static_topic.stats import logical_extents, logical_progress

LOGICAL: Final = MessageQueue("t", LOGICAL_BROKER, 0)
OLD: Final = MessageQueue("t", "broker-a", 0)
NEW: Final = MessageQueue("t", "broker-b", 3)


def details(new_begins: int = 10_000) -> list[TopicQueueMappingDetail]:
    items = [LogicQueueMappingItem(0, 0, "broker-a", 0), LogicQueueMappingItem(1, 3, "broker-b", new_begins)]
    # The former leader has an old detail, in which it still leads.
    before = TopicQueueMappingDetail("t", total_queues=1, bname="broker-a", epoch=1, hosted_queues={"0": items[:1]})
    after = TopicQueueMappingDetail("t", total_queues=1, bname="broker-b", epoch=2, hosted_queues={"0": items})
    return [before, after]


def test_a_moved_queue_extends_from_its_oldest_to_its_newest_part() -> None:
    physical = {OLD: TopicOffset(7, 40, 111), NEW: TopicOffset(0, 5, 222)}
    assert logical_extents("t", details(), physical) == {LOGICAL: TopicOffset(7, 10_005, 222)}


def test_while_the_offset_of_the_new_part_is_unknown_the_old_one_counts() -> None:
    physical = {OLD: TopicOffset(7, 40, 111), NEW: TopicOffset(0, 5, 222)}
    assert logical_extents("t", details(-1), physical) == {LOGICAL: TopicOffset(7, 40, 111)}


def test_a_queue_whose_broker_did_not_answer_is_left_out() -> None:
    assert logical_extents("t", details(), {NEW: TopicOffset(0, 5, 222)}) == {}
    assert logical_progress("t", details(), {}) == {}


def test_the_progress_of_a_group_is_in_logical_offsets() -> None:
    physical = {OLD: OffsetWrapper(40, 40, 40, 111), NEW: OffsetWrapper(5, 2, 3, 222)}
    assert logical_progress("t", details(), physical) == {LOGICAL: OffsetWrapper(10_005, 10_002, 10_003, 222)}


def test_a_group_that_has_not_reached_the_new_part_lags_behind_its_end() -> None:
    physical = {OLD: OffsetWrapper(40, 30, 35, 111), NEW: OffsetWrapper(5, -1, -1, 0)}
    assert logical_progress("t", details(), physical) == {LOGICAL: OffsetWrapper(10_005, 30, 35, 111)}
    physical[OLD].consumer_offset = -1
    assert logical_progress("t", details(), physical) == {}
