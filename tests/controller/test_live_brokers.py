"""The table of heartbeats alone: its bounds, what counts as alive, and which groups have lost their master."""

from dataclasses import replace

import pytest

from controller.live_brokers import DEFAULT_TIMEOUT_MS, Heartbeat, LiveBrokers
from controller.state.group import Group, Replica
from sprocket.common import limits

GROUP = Group(
    cluster="c",
    name="a",
    replicas=(Replica(1, "h:1", "x"), Replica(2, "h:2", "x")),
    master_id=1,
    master_epoch=1,
    sync_state_set=(1, 2),
)
BEAT = Heartbeat("c", "a", 2, "h:2", 7, 1_000, 3, 50, 40, 1)


def test_a_broker_is_alive_for_the_time_that_it_announced() -> None:
    live = LiveBrokers(0)
    assert live.beat(BEAT, 100) == ""
    assert live.live_ids(GROUP, 1_100) == (2,)
    assert live.live_ids(GROUP, 1_101) == ()
    assert [one.broker_id for one in live.live(GROUP, 1_000)] == [2]
    assert live.expire(1_100) == []
    assert live.expire(1_101) == [BEAT]
    assert len(live) == 0


def test_the_last_heartbeat_counts_also_with_a_lower_offset() -> None:
    live = LiveBrokers(0)
    live.beat(BEAT, 0)
    live.beat(replace(BEAT, max_offset=10), 1)
    (candidate,) = live.live(GROUP, 1)
    assert (candidate.epoch, candidate.max_offset, candidate.priority) == (3, 10, 1)


def test_a_master_of_which_nothing_was_heard_may_live_for_a_time() -> None:
    live = LiveBrokers(5_000)
    live.beat(BEAT, 5_000)
    until_ms = 5_000 + DEFAULT_TIMEOUT_MS
    live.beat(BEAT, until_ms)
    assert [one.broker_id for one in live.candidates(GROUP, until_ms)] == [2, 1]
    assert live.headless(iter([GROUP]), until_ms) == []
    assert [one.broker_id for one in live.candidates(GROUP, until_ms + 1)] == [2]
    assert live.headless(iter([GROUP]), until_ms + 1) == [GROUP]
    # Of a master that was heard and went, nobody waits.
    live = LiveBrokers(5_000)
    live.beat(BEAT, 5_000)
    live.beat(replace(BEAT, broker_id=1, address="h:1", channel_id=8), 5_000)
    live.close_channel(8)
    assert live.headless(iter([GROUP]), 5_000) == [GROUP]


def test_a_group_without_a_living_member_or_without_a_master_is_left_alone() -> None:
    live = LiveBrokers(0)
    late_ms = DEFAULT_TIMEOUT_MS + 1
    assert live.headless(iter([GROUP]), late_ms) == []
    live.beat(BEAT, late_ms)
    leaderless = Group(cluster="c", name="a", replicas=GROUP.replicas)
    assert live.headless(iter([leaderless]), late_ms) == []


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LIVE_BROKERS", 1)
    live = LiveBrokers(0)
    assert live.beat(BEAT, 0) == ""
    assert live.beat(replace(BEAT, broker_id=3), 0) == "1 brokers send heartbeats, the limit"
    assert live.beat(replace(BEAT, max_offset=60), 1) == ""
