"""Held pops: which message wakes which pop, in which order, and when."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from broker.config.live_config import LiveConfig
from broker.filter.subscription_filter import TagFilter
from broker.longpolling.held_pops import HeldPops, HoldResult
from sprocket.remoting.command import Request
from store.queue.record_filter import RecordFilter
from tests.broker.longpolling.test_held_pulls import Sevens
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock

GROUP = "G"
HELD, FULL, TIMEOUT, NOT_HELD = HoldResult.HELD, HoldResult.FULL, HoldResult.TIMEOUT, HoldResult.NOT_HELD


class Channel:
    def __init__(self, number: int) -> None:
        self.id = number


class Queues:
    """Tags codes of queues; a message's record is its tags code in one byte."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, int], list[int]] = {}
        self.reads = 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.codes.get((topic, queue_id), ()))

    def tags_codes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
        self.reads += 1
        return np.array(self.codes[topic, queue_id][first_offset:end_offset], np.int64)

    def has_wanted(self, topic: str, queue_id: int, first_offset: int, end_offset: int, wants: RecordFilter) -> bool:
        self.reads += 1
        records = (bytes([code]) for code in self.codes[topic, queue_id][first_offset:end_offset])
        return any(wants.matches(record) for record in records)


class Rig:
    """Held pops with everything around them moved by hand."""

    def __init__(self, *, wakes_each: bool = False, **changes: Any) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.queues = Queues()
        self.answered: list[int] = []
        self.may_hold: list[bool] = []
        self.answer_with: Callable[[Request[Any]], object] = lambda request: None
        config = LiveConfig(broker_config(**changes), store_config(Path()))
        self.overworked: set[int] = set()  # ids of channels that may not look now
        self.pops = HeldPops(
            config, self.queues, self.clock, self.timers.call_later, self.answer, self._looks, wakes_each=wakes_each
        )

    def _looks(self, channel: Channel, look: Callable[[], bool]) -> bool:
        return channel.id not in self.overworked and look()

    def answer(self, request: Request[Any], may_hold: bool) -> None:
        self.answered.append(request.opaque)
        self.may_hold.append(may_hold)
        self.answer_with(request)

    def hold(
        self,
        opaque: int,
        queue_id: int = -1,
        matches: TagFilter | RecordFilter | None = None,
        poll_time_ms: int = 15_000,
        born_ms_ago: int = 0,
        topic: str = "T",
        group: str = GROUP,
        channel: int = 1,
    ) -> HoldResult:
        request: Request[Any] = Request(code=200050, opaque=opaque)
        request.channel = Channel(channel)
        born = self.clock.wall_ms() - born_ms_ago
        return self.pops.hold(request, topic, group, queue_id, matches, poll_time_ms, born)

    def arrive(self, *codes: int, queue_id: int = 0, topic: str = "T") -> None:
        queue = self.queues.codes.setdefault((topic, queue_id), [])
        first = len(queue)
        queue += codes
        arrived: Any = SimpleNamespace(topic=topic, queue_id=queue_id)
        self.pops.arrived([(arrived, first, len(queue))])


def test_an_arrival_wakes_one_pop_of_the_queue_and_one_of_any_queue_in_each_group() -> None:
    rig = Rig()
    rig.hold(1, queue_id=0)
    rig.hold(2, queue_id=0)
    rig.hold(3, queue_id=1)
    rig.hold(4, queue_id=-1)
    rig.hold(5, queue_id=-1)
    rig.hold(6, queue_id=-1, group="H")
    rig.hold(7, queue_id=0, topic="U")
    rig.arrive(9, 9, 9)
    assert sorted(rig.answered) == [1, 4, 6]
    assert all(rig.may_hold)
    rig.arrive(9)
    assert sorted(rig.answered) == [1, 2, 4, 5, 6]
    assert len(rig.pops) == 2


def test_whose_time_is_up_first_is_woken_first() -> None:
    rig = Rig()
    rig.hold(1, poll_time_ms=9_000)
    rig.hold(2, poll_time_ms=5_000)
    rig.hold(3, poll_time_ms=9_000)
    for _ in range(3):
        rig.arrive(9)
    assert rig.answered == [2, 1, 3]


def test_notifications_are_woken_the_other_way_round_one_by_each_message() -> None:
    rig = Rig(wakes_each=True)
    rig.hold(1, poll_time_ms=9_000)
    rig.hold(2, poll_time_ms=5_000)
    rig.hold(3, poll_time_ms=9_000)
    rig.arrive(9)
    assert rig.answered == [3]
    rig.arrive(9, 9)
    assert rig.answered == [3, 1, 2]


def test_the_first_whose_filter_wants_it_is_woken() -> None:
    rig = Rig()
    rig.hold(1, matches=TagFilter([5]))
    rig.hold(2, matches=RecordFilter(lambda record: record == b"\x06"))
    rig.hold(3, matches=TagFilter([7, 6]))
    rig.arrive(8, 6)
    assert rig.answered == [2]
    rig.arrive(8, 8)
    assert rig.answered == [2]
    rig.arrive(7)
    assert rig.answered == [2, 3]


def test_a_filter_is_asked_once_however_many_pops_share_it() -> None:
    rig = Rig()
    matches = RecordFilter(lambda record: False)
    for opaque in range(100):
        rig.hold(opaque, matches=matches)
    rig.arrive(8)
    assert rig.queues.reads == 1


def test_sql_is_not_asked_for_who_has_used_up_its_share_but_for_the_next_one() -> None:
    rig = Rig()
    matches = RecordFilter(lambda record: True)
    rig.hold(1, matches=matches, channel=1)
    rig.hold(2, matches=matches, channel=2)
    rig.overworked = {1}
    rig.arrive(8)
    assert rig.answered == [2]
    rig.timers.advance(15)
    assert rig.answered == [2, 1]


def test_now_and_then_a_message_wakes_in_spite_of_the_filter_so_that_offsets_move() -> None:
    rig = Rig(pop_long_polling_force_notify_interval=10)
    for opaque in range(3):
        rig.hold(opaque, matches=TagFilter([5]))
    rig.arrive(*[8] * 9)
    assert rig.answered == []
    rig.arrive(8)
    assert rig.answered == [0]
    rig.arrive(*[8] * 9)
    assert rig.answered == [0]
    rig.arrive(8, 8, 8)
    assert rig.answered == [0, 1]


def test_the_interval_can_be_switched_off() -> None:
    rig = Rig(pop_long_polling_force_notify_interval=0)
    rig.hold(1, matches=TagFilter([5]))
    rig.arrive(*[8] * 2000)
    assert rig.answered == []


@pytest.mark.parametrize("retry_topic", ["%RETRY%G_T", "%RETRY%G+T"])
def test_redelivered_messages_wake_only_their_group(retry_topic: str) -> None:
    rig = Rig()
    rig.hold(1)
    rig.hold(2, group="H")
    rig.hold(3, topic="U")
    rig.arrive(9, topic=retry_topic)
    assert rig.answered == [1]


def test_redelivered_messages_wake_a_pop_of_any_queue() -> None:
    rig = Rig()
    rig.hold(1, queue_id=3)
    rig.hold(2, queue_id=2, poll_time_ms=5_000)
    rig.arrive(9, topic="%RETRY%G+T")
    assert rig.answered == [2]


def test_a_retry_topic_that_two_pairs_could_mean_wakes_both() -> None:
    rig = Rig()
    rig.hold(1, group="a", topic="b_c")
    rig.hold(2, group="a_b", topic="c")
    rig.arrive(9, topic="%RETRY%a_b_c")
    assert rig.answered == [1, 2]


def test_a_pop_of_a_retry_topic_itself_is_woken_by_it() -> None:
    rig = Rig()
    rig.hold(1, topic="%RETRY%G")
    rig.arrive(9, topic="%RETRY%G")
    assert rig.answered == [1]


def test_more_messages_than_one_pop_takes_wake_the_next_in_a_later_turn() -> None:
    rig = Rig()
    depths = []

    def take_one(request: Request[Any]) -> None:
        before = len(rig.answered)
        rig.pops.wake("T", GROUP, -1)
        depths.append(len(rig.answered) - before)

    rig.answer_with = take_one
    for opaque in range(1000):
        rig.hold(opaque)
    rig.arrive(9)
    assert rig.answered == [0]
    rig.timers.advance(0)
    assert rig.answered == list(range(1000))
    assert not any(depths)


def test_a_pop_that_wakes_others_and_is_held_again_does_not_block_the_loop() -> None:
    rig = Rig()
    rig.answer_with = lambda request: (rig.hold(request.opaque), rig.pops.wake("T", GROUP, -1))
    rig.hold(1)
    rig.arrive(9)
    assert rig.answered == [1]
    assert len(rig.pops) == 1


def test_a_wake_of_the_queue_does_not_ask_the_filter_and_says_whether_somebody_was_there() -> None:
    rig = Rig()
    rig.hold(1, queue_id=2, matches=TagFilter([5]))
    assert not rig.pops.wake("T", GROUP, 1)
    assert not rig.pops.wake("T", GROUP, -1)
    assert not rig.pops.wake("T", "H", 2)
    assert rig.pops.wake("T", GROUP, 2)
    assert rig.answered == [1]
    assert not rig.pops.wake("T", GROUP, 2)


def test_a_released_order_lock_wakes_a_pop_of_any_queue_before_one_of_its_own() -> None:
    rig = Rig()
    rig.hold(1, queue_id=2)
    rig.hold(2, queue_id=-1)
    rig.hold(3, queue_id=1)
    assert [rig.pops.lock_released("T", GROUP, 2) for _ in range(3)] == [True, True, False]
    assert rig.answered == [2, 1]


def test_a_pop_is_answered_shortly_before_its_time_is_up_and_may_not_be_held_again() -> None:
    rig = Rig()
    rig.hold(1, poll_time_ms=15_000)
    rig.hold(2, poll_time_ms=15_000, born_ms_ago=5_000)
    rig.timers.advance(9.9)
    assert rig.answered == []
    rig.timers.advance(0.1)
    assert rig.answered == [2]
    rig.timers.advance(5)
    assert rig.answered == [2, 1]
    assert rig.may_hold == [False, False]
    assert len(rig.pops) == 0


def test_steps_of_the_wall_clock_change_nothing_for_what_is_held() -> None:
    rig = Rig()
    rig.hold(1, poll_time_ms=10_000)
    rig.clock.step_wall(-3_600_000)
    rig.timers.advance(9)
    assert rig.answered == []
    rig.timers.advance(1)
    assert rig.answered == [1]


def test_a_client_whose_clock_is_ahead_waits_no_longer_than_it_asked_for() -> None:
    rig = Rig()
    assert rig.hold(1, poll_time_ms=10_000, born_ms_ago=-3_600_000) is HELD
    rig.timers.advance(10)
    assert rig.answered == [1]


def test_what_is_not_held() -> None:
    rig = Rig()
    assert rig.hold(1, poll_time_ms=0) is NOT_HELD
    assert rig.hold(1, poll_time_ms=-1) is NOT_HELD
    assert rig.hold(1, poll_time_ms=1_000, born_ms_ago=951) is TIMEOUT
    assert rig.hold(1, poll_time_ms=1_000, born_ms_ago=950) is HELD
    request: Request[Any] = Request(code=200050, opaque=2)
    request.channel = Channel(1)
    assert rig.pops.hold(request, "T", GROUP, 0, None, 1_000, 0) is HELD, "no time of birth: now"
    rig.pops.close()
    assert rig.hold(3) is NOT_HELD


def test_no_more_are_held_than_configured() -> None:
    rig = Rig(pop_polling_size=2)
    assert [rig.hold(opaque) for opaque in range(4)] == [HELD, HELD, HELD, FULL], "one more, as in RocketMQ"
    assert rig.hold(9, queue_id=0) is HELD
    rig = Rig(max_pop_polling_size=3)
    assert [rig.hold(opaque, queue_id=opaque) for opaque in range(4)] == [HELD, HELD, HELD, FULL]
    assert rig.hold(9, poll_time_ms=1_000, born_ms_ago=2_000) is FULL, "asked before the time"
    rig = Rig(pop_polling_map_size=2)
    assert [rig.hold(opaque, queue_id=opaque) for opaque in range(3)] == [HELD, HELD, FULL]
    assert rig.hold(9, queue_id=0) is HELD
    rig.arrive(9, queue_id=1)
    assert rig.hold(9, queue_id=5) is HELD


def test_pops_of_a_closed_connection_take_no_place_of_its_next_one() -> None:
    for rig in (Rig(pop_polling_size=2), Rig(max_pop_polling_size=3)):
        assert [rig.hold(opaque) for opaque in range(4)] == [HELD, HELD, HELD, FULL]
        rig.pops.drop_channel(1)
        assert (rig.pops.count("T", GROUP, -1), len(rig.pops)) == (0, 0)
        assert [rig.hold(opaque, channel=2) for opaque in range(3)] == [HELD, HELD, HELD]
        assert rig.pops.count("T", GROUP, -1) == 3
        rig.pops.drop_channel(2)
        assert FULL in [rig.hold(opaque, channel=3) for opaque in range(2)], (
            "those that are still to leave are limited, too"
        )
        rig.timers.advance(1)
        assert rig.hold(4, channel=3) is HELD and rig.answered == []


def test_how_many_are_held_is_told_by_queue() -> None:
    rig = Rig()
    for opaque in range(3):
        rig.hold(opaque)
    rig.hold(3, queue_id=1)
    counts = [rig.pops.count("T", GROUP, queue_id) for queue_id in (-1, 0, 1)]
    assert counts == [3, 0, 1]
    assert rig.pops.count("T", "H", -1) == 0


def test_all_held_pops_share_one_timer_and_nothing_is_left_behind() -> None:
    rig = Rig()
    for opaque in range(1000):
        rig.hold(opaque, topic=f"T{opaque % 50}", queue_id=opaque % 7, poll_time_ms=10_000 + opaque % 13 * 100)
    assert rig.timers.max_pending == 1
    rig.timers.advance(20)
    assert sorted(rig.answered) == list(range(1000))
    assert rig.timers.pending == []
    assert not rig.pops._groups
    assert not rig.pops._concerned
    assert not len(rig.pops)


def test_answered_pops_are_not_kept_until_their_time_would_be_up() -> None:
    rig = Rig()
    rig.hold(0, queue_id=1)
    alive = weakref.WeakSet[TagFilter]()
    for opaque in range(10_000):
        matches = Sevens()
        alive.add(matches)
        rig.hold(opaque, matches=matches)
        rig.arrive(7)
    assert len(rig.pops) == 1
    assert len(alive) < 3000


def test_who_is_gone_is_forgotten() -> None:
    rig = Rig()
    rig.hold(1, channel=1)
    rig.hold(2, channel=2)
    rig.hold(3, queue_id=0, channel=1)
    rig.pops.drop_channel(1)
    assert not rig.pops.wake("T", GROUP, 0), "its only pop is of the closed connection"
    rig.arrive(7)
    assert rig.answered == [2], "the closed connection is not forgotten yet, but gets no message"
    rig.timers.advance(60)
    assert rig.answered == [2]
    assert len(rig.pops) == 0
    assert not rig.pops._groups


def test_everything_is_woken_at_once_when_the_broker_stops() -> None:
    rig = Rig()
    for opaque in range(3):
        rig.hold(opaque, queue_id=opaque, channel=opaque)
    rig.answer_with = lambda request: rig.hold(9)
    rig.pops.close()
    assert rig.answered == [0, 1, 2]
    assert rig.may_hold == [False] * 3
    assert len(rig.pops) == 0
    assert rig.timers.pending == []


def test_a_pop_whose_connection_closes_at_the_end_keeps_nothing_alive() -> None:
    rig = Rig()
    request: Request[Any] = Request(code=200050)
    request.channel = SimpleNamespace(id=1, routes=rig)  # a connection knows what serves it
    matches = Sevens()
    alive = weakref.WeakSet[object]([rig, matches])
    assert rig.pops.hold(request, "T", GROUP, -1, matches, 15_000, 0) is HELD
    rig.pops.drop_channel(1)
    rig.pops.close()
    del rig, request, matches
    gc.collect()
    assert not alive
