"""Where pops go on, and what of that is committed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.core import BrokerCore
from broker.pop.order_info import ConsumerOrderInfo
from broker.pop.order_locks import OrderLocks
from broker.pop.pop_offsets import PopOffsets
from sprocket.common.files.config_file import ConfigFile
from tests.broker.loop_timer import ManualTimers
from tests.broker.pop.revive_rig import core_at
from tests.broker.rig import GROUP, TOPIC
from tests.clock import ManualClock

QUEUE = (TOPIC, GROUP, 0)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[BrokerCore]:
    clock = ManualClock()
    core = core_at(tmp_path, clock, ManualTimers(clock), {})
    yield core
    core.store.shutdown()


@pytest.fixture
def offsets(core: BrokerCore, tmp_path: Path) -> PopOffsets:
    locks = OrderLocks(core.config, core.clock, core.call_later, lambda key: None)
    file = ConfigFile(tmp_path / "consumerOrderInfo.json")
    return PopOffsets(core, ConsumerOrderInfo(file, core.topics, core.groups, core.clock, locks))


def committed(core: BrokerCore) -> int:
    return core.offsets.query(GROUP, TOPIC, 0)


def test_what_is_safe_is_committed_when_all_before_it_is(core: BrokerCore, offsets: PopOffsets) -> None:
    assert offsets.begin(*QUEUE, 0) == 0
    first, second, third = (offsets.take(*QUEUE, end) for end in (10, 20, 30))
    assert (offsets.begin(*QUEUE, 0), offsets.uncommitted(*QUEUE)) == (30, 3)
    offsets.safe(second)
    assert committed(core) == 0
    offsets.safe(first)
    assert (committed(core), offsets.latest(*QUEUE)) == (20, 30)
    offsets.safe(third)
    assert (committed(core), offsets.latest(*QUEUE), len(offsets)) == (30, -1, 0)


def test_a_known_offset_is_where_a_pop_would_begin(core: BrokerCore, offsets: PopOffsets) -> None:
    def known() -> list[int]:
        return offsets.all_known(TOPIC, GROUP, range(1))

    assert known() == [-1]
    offsets.begin(*QUEUE, 0)
    assert known() == [offsets.current(*QUEUE, 0)] == [0]
    taken = offsets.take(*QUEUE, 10)
    assert known() == [offsets.current(*QUEUE, 0)] == [10]
    offsets.safe(taken)
    assert known() == [offsets.current(*QUEUE, 0)] == [10]
    core.offsets.reset(GROUP, TOPIC, 0, 3)
    assert known() == [-1]


def test_known_offsets_of_several_queues(core: BrokerCore, offsets: PopOffsets) -> None:
    ids = range(4)
    core.offsets.commit(GROUP, TOPIC, 1, 5)
    core.offsets.commit(GROUP, TOPIC, 2, 7)
    assert offsets.all_known(TOPIC, GROUP, ids) == [-1, 5, 7, -1]
    offsets.take(TOPIC, GROUP, 2, 17)
    offsets.take(TOPIC, GROUP, 3, 9)
    offsets.take("Other", GROUP, 1, 30)
    assert offsets.all_known(TOPIC, GROUP, ids) == [-1, 5, 17, -1]
    assert offsets.all_known(TOPIC, GROUP, range(2, 3)) == [17]
    core.offsets.reset(GROUP, TOPIC, 0, 3)
    assert offsets.all_known(TOPIC, GROUP, ids) == [-1] * 4


def test_an_undone_pop_leaves_its_offset_to_the_next_one(core: BrokerCore, offsets: PopOffsets) -> None:
    first, second = offsets.take(*QUEUE, 10), offsets.take(*QUEUE, 20)
    offsets.undo(second)
    assert offsets.begin(*QUEUE, 0) == 10
    offsets.undo(first)
    assert (offsets.begin(*QUEUE, 0), len(offsets)) == (0, 0)


def test_an_undone_range_is_popped_again_though_a_later_pop_went_on(core: BrokerCore, offsets: PopOffsets) -> None:
    before, undone, behind = (offsets.take(*QUEUE, end) for end in (10, 20, 30))
    offsets.undo(undone)
    assert offsets.begin(*QUEUE, 0) == 10
    again = offsets.take(*QUEUE, 20)
    for taken in (before, behind, again):
        offsets.safe(taken)
    assert (committed(core), offsets.begin(*QUEUE, 0), len(offsets)) == (20, 20, 0)


def test_nothing_that_was_taken_outlives_a_new_place(core: BrokerCore, offsets: PopOffsets) -> None:
    taken = offsets.take(*QUEUE, 50)
    offsets.place(*QUEUE, 7)
    offsets.safe(taken)
    assert (committed(core), offsets.begin(*QUEUE, 0)) == (7, 7)


def test_a_reset_is_not_undone_by_what_was_taken_before(core: BrokerCore, offsets: PopOffsets) -> None:
    taken = offsets.take(*QUEUE, 50)
    core.offsets.reset(GROUP, TOPIC, 0, 5)
    offsets.safe(taken)
    assert offsets.begin(*QUEUE, 0) == 5


def test_what_is_passed_over_waits_for_what_was_taken_before(core: BrokerCore, offsets: PopOffsets) -> None:
    offsets.begin(*QUEUE, 0)
    taken = offsets.take(*QUEUE, 10)
    offsets.skip(*QUEUE, 40)
    assert (committed(core), offsets.latest(*QUEUE)) == (0, 40)
    offsets.skip(*QUEUE, 20)
    assert offsets.latest(*QUEUE) == 40
    offsets.safe(taken)
    assert committed(core) == 40


def test_an_offset_never_goes_back_by_a_pop(core: BrokerCore, offsets: PopOffsets) -> None:
    taken = offsets.take(*QUEUE, 10)
    core.offsets.assign(GROUP, TOPIC, 0, 100)
    offsets.safe(taken)
    assert committed(core) == 100


def test_queues_of_deleted_topics_are_forgotten(offsets: PopOffsets) -> None:
    offsets.take(*QUEUE, 10)
    offsets.take("Other", GROUP, 0, 10)
    offsets.forget_gone(lambda topic, group: topic == "Other")
    assert (offsets.latest(*QUEUE), offsets.latest("Other", GROUP, 0)) == (-1, 10)
