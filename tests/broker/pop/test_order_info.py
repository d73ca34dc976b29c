"""Ordered pops: what blocks a queue, what is committed, what the file contains."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.live_config import LiveConfig
from broker.pop.order_info import ILLEGAL, NOTHING_TO_COMMIT, ConsumerOrderInfo, OrderInfo, OrderInfoTable
from broker.pop.order_locks import OrderLocks, QueueKey
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topics import TopicTable
from sprocket.common.errors import DiskFailed
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.pop_extra_info import join_entries, parse_order_counts
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import GROUP, TOPIC, broker_config, store_config
from tests.clock import ManualClock

GOLDEN = Path(__file__).parents[1] / "data" / "consumerOrderInfo.json"
NOW = 1_700_000_000_000


class Rig:
    """The table with a topic of 4 queues and a group, the clock in the test's hand."""

    def __init__(self, root: Path, wall_ms: int = NOW) -> None:
        self.clock = ManualClock(wall_ms)
        self.timers = ManualTimers(self.clock)
        config = LiveConfig(broker_config(), store_config(root))
        self.topics = TopicTable(config, ConfigFile(root / "topics.json"), self.clock)
        self.topics.update([TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=4)])
        self.groups = SubscriptionGroups(config, ConfigFile(root / "groups.json"), self.clock)
        self.groups.update([SubscriptionGroupConfig(GROUP)])
        self.freed: list[QueueKey] = []
        self.file = ConfigFile(root / "consumerOrderInfo.json")
        locks = OrderLocks(config, self.clock, self.timers.call_later, self.freed.append)
        self.order = ConsumerOrderInfo(self.file, self.topics, self.groups, self.clock, locks)

    def pop(
        self,
        *offsets: int,
        attempt: str | None = None,
        queue_id: int = 0,
        invisible_ms: int = 3_000,
        topic: str = TOPIC,
        group: str = GROUP,
    ) -> dict[str, int]:
        """Hand out; what the answer's orderCountInfo says."""
        entries: list[str] = []
        now = self.clock.wall_ms()
        self.order.update(attempt, topic, group, queue_id, now, invisible_ms, offsets, entries)
        return parse_order_counts(join_entries(entries))

    def blocks(self, attempt: str | None = None, queue_id: int = 0) -> bool:
        return self.order.blocks(attempt, TOPIC, GROUP, queue_id, 3_000)

    def ack(self, offset: int, pop_time: int = NOW, queue_id: int = 0) -> int:
        return self.order.commit_and_next(TOPIC, GROUP, queue_id, offset, pop_time)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_an_unacknowledged_message_blocks_until_its_time_is_over(rig: Rig) -> None:
    assert not rig.blocks()
    rig.pop(1)
    assert rig.blocks()
    assert not rig.blocks(queue_id=1)
    rig.clock.advance(2.999)
    assert rig.blocks()
    rig.clock.advance(0.001)
    assert not rig.blocks()


def test_an_acknowledged_message_blocks_no_more(rig: Rig) -> None:
    rig.pop(1)
    assert rig.ack(1, pop_time=NOW - 10) == NOTHING_TO_COMMIT, "of a pop before"
    assert rig.blocks()
    assert rig.ack(1) == 2
    assert not rig.blocks()


def test_offset_to_commit_is_the_first_open_one(rig: Rig) -> None:
    rig.pop(4, 5, 9)
    assert rig.ack(5) == 4
    assert rig.ack(4) == 9
    assert rig.ack(9) == 10
    assert rig.ack(9) == 10, "twice is once"


def test_offset_that_was_not_delivered_is_illegal(rig: Rig) -> None:
    rig.pop(4, 6)
    assert rig.ack(5) == ILLEGAL


def test_without_a_pop_an_acknowledgement_commits_what_it_says(rig: Rig) -> None:
    assert rig.ack(7) == 8
    rig.pop(1, queue_id=1)
    assert rig.ack(7) == 8


def test_the_same_attempt_gets_through(rig: Rig) -> None:
    rig.pop(1, 2, attempt="one")
    assert rig.blocks(None)
    assert rig.blocks("two")
    assert not rig.blocks("one")
    assert rig.pop(1, 2, attempt="one") == {"0@0": 0}, "and is not counted"
    assert rig.pop(1, 2, attempt="two") == {"0@0": 1, "0@qo0%1": 1, "0@qo0%2": 1}


def test_deliveries_are_counted_by_message(rig: Rig) -> None:
    assert rig.pop(1, 2, 3) == {"0@0": 0}
    assert rig.pop(1, 2, 3) == {"0@0": 1, "0@qo0%1": 1, "0@qo0%2": 1, "0@qo0%3": 1}
    assert rig.pop(2, 3) == {"0@0": 2, "0@qo0%2": 2, "0@qo0%3": 2}
    assert rig.pop(3, 4) == {"0@0": 0, "0@qo0%3": 3}
    assert rig.pop(5, 6) == {"0@0": 0}


def test_least_count_stands_for_the_queue(rig: Rig) -> None:
    rig.pop(1)
    rig.pop(1, 2)
    assert rig.pop(1, 2) == {"0@0": 1, "0@qo0%1": 2, "0@qo0%2": 1}


def test_queues_are_counted_apart(rig: Rig) -> None:
    rig.pop(0)
    rig.pop(0, queue_id=1)
    assert rig.pop(0) == {"0@0": 1, "0@qo0%0": 1}
    assert rig.pop(0, 1, queue_id=1) == {"0@1": 0, "0@qo1%0": 1}


@pytest.mark.parametrize(("topic", "kind"), [("%RETRY%CG_Orders", "1"), ("%RETRY%CG+Orders", "2")])
def test_counts_name_the_kind_of_topic(rig: Rig, topic: str, kind: str) -> None:
    rig.pop(7, topic=topic)
    assert rig.pop(7, topic=topic) == {f"{kind}@0": 1, f"{kind}@qo0%7": 1}


def test_visible_time_of_one_message_takes_the_place_of_the_pops(rig: Rig) -> None:
    rig.pop(1, 2, 3, invisible_ms=1)
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 2, NOW, NOW + 3_000)
    assert (rig.ack(1), rig.ack(3)) == (2, 2)
    rig.clock.advance(2.999)
    assert rig.blocks()
    rig.clock.advance(0.001)
    assert not rig.blocks()
    assert rig.ack(2) == 4


def test_visible_time_may_come_earlier(rig: Rig) -> None:
    rig.pop(1)
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 1, NOW, NOW + 100)
    rig.clock.advance(0.1)
    assert not rig.blocks()


def test_visible_time_of_another_pop_changes_nothing(rig: Rig) -> None:
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 1, NOW, NOW)
    rig.pop(1)
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 1, NOW - 1, NOW)
    assert rig.blocks()


def test_cleared_block_is_gone(rig: Rig) -> None:
    rig.order.clear_block(TOPIC, GROUP, 0)
    rig.pop(1)
    rig.order.clear_block(TOPIC, GROUP, 0)
    assert not rig.blocks()
    assert rig.pop(1) == {"0@0": 0}


# Waiting pops are woken


def test_held_pops_wake_at_the_end_of_a_pop(rig: Rig) -> None:
    rig.pop(1)
    rig.timers.advance(2.9)
    assert rig.freed == []
    rig.timers.advance(0.2)
    assert rig.freed == [QueueKey(TOPIC, GROUP, 0)]


def test_held_pops_wake_at_the_last_acknowledgement(rig: Rig) -> None:
    rig.pop(1)
    rig.ack(1)
    rig.timers.advance(0.1)
    assert rig.freed == [QueueKey(TOPIC, GROUP, 0)]


@pytest.mark.parametrize(("visible_ms", "before_s"), [(5_000, 4.9), (1_000, 0.9)])
def test_held_pops_wake_at_the_visible_time(rig: Rig, visible_ms: int, before_s: float) -> None:
    rig.pop(1)
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 1, NOW, NOW + visible_ms)
    rig.timers.advance(before_s)
    assert rig.freed == []
    rig.timers.advance(0.2)
    assert len(rig.freed) == 1


def test_held_pops_wake_after_a_restart(rig: Rig, tmp_path: Path) -> None:
    rig.pop(1)
    rig.order.persist()
    again = Rig(tmp_path, NOW + 1_000)
    again.order.load()
    assert again.blocks()
    again.timers.advance(1.9)
    assert again.freed == []
    again.timers.advance(0.2)
    assert again.freed == [QueueKey(TOPIC, GROUP, 0)]


# The file


def test_file_is_what_rocketmq_writes(rig: Rig) -> None:
    """The golden file is what RocketMQ 5.3.3 wrote after these calls."""
    rig.pop(7, 8, 10, attempt="att-1", invisible_ms=30_000)
    rig.clock.advance(1)
    rig.pop(4, queue_id=3, invisible_ms=60_000)
    rig.clock.advance(29)
    rig.pop(8, 10, 11, attempt="att-2", invisible_ms=30_000)
    rig.ack(8, NOW + 30_000)
    rig.order.update_next_visible_time(TOPIC, GROUP, 0, 10, NOW + 30_000, NOW + 90_000)
    for queue in rig.order._table["Orders@CG"].values():
        queue.last_consumed = NOW + 2_000
    rig.order.persist()
    assert rig.file.path.read_bytes() == GOLDEN.read_bytes()


def test_file_of_rocketmq_is_written_back_byte_for_byte() -> None:
    assert pretty(loads(GOLDEN.read_bytes(), OrderInfoTable)) == GOLDEN.read_bytes()


def test_file_of_an_old_version_has_no_invisible_time(rig: Rig) -> None:
    table = OrderInfoTable({"Orders@CG": {0: OrderInfo(NOW, None, [2, 1, 2], last_consumed=NOW)}})
    rig.file.write(pretty(table))
    rig.order.load()
    assert rig.blocks(), "that of the pop that asks"
    assert rig.pop(3, 4, 5) == {"0@0": 0, "0@qo0%3": 1, "0@qo0%4": 1}


def test_unchanged_table_is_not_written_again(rig: Rig) -> None:
    assert not rig.order.is_unsaved
    rig.pop(1)
    assert rig.order.is_unsaved
    rig.order.persist()
    assert not rig.order.is_unsaved


def test_table_that_could_not_be_written_is_written_again(rig: Rig) -> None:
    rig.pop(1)
    rig.file.path.mkdir()
    with pytest.raises(DiskFailed):
        rig.order.persist()
    rig.file.path.rmdir()
    rig.order.persist_changes()
    assert loads(rig.file.path.read_bytes(), OrderInfoTable).table.keys() == {"Orders@CG"}


def test_what_is_gone_is_cleaned(rig: Rig) -> None:
    rig.pop(1, topic="Gone")
    rig.pop(1, group="Gone")
    rig.pop(1, queue_id=4)
    rig.pop(1, queue_id=3)
    rig.order.clean()
    rig.order.persist()
    content = loads(rig.file.path.read_bytes(), OrderInfoTable)
    assert {key: list(queues) for key, queues in content.table.items()} == {"Orders@CG": [3]}


def test_what_nobody_pops_for_a_day_is_cleaned(rig: Rig) -> None:
    rig.pop(1)
    rig.clock.advance(24 * 3600)
    rig.order.clean()
    assert rig.order._table["Orders@CG"]
    rig.clock.advance(0.001)
    rig.order.clean()
    assert rig.order._table == {"Orders@CG": {}}
    rig.order.clean()
    assert rig.order._table == {}


# Any order


@given(st.sets(st.integers(0, 60), min_size=1, max_size=32).map(sorted), st.randoms(use_true_random=False))
def test_acknowledged_in_any_order_the_end_is_after_the_last(offsets: list[int], chance: object) -> None:
    info = OrderInfo(NOW, 1_000, [offsets[0], *(offset - offsets[0] for offset in offsets[1:])])
    assert info.offsets() == offsets
    still_open = set(offsets)
    shuffled = list(offsets)
    chance.shuffle(shuffled)  # type: ignore[attr-defined] # random.Random as hypothesis gives it
    for offset in shuffled:
        assert info.blocks(None, 0, NOW)
        info.acknowledged |= 1 << offsets.index(offset)
        still_open.discard(offset)
        assert info.next_offset() == (min(still_open) if still_open else offsets[-1] + 1)
    assert not info.blocks(None, 0, NOW)
    assert info.free_at(NOW) == NOW
