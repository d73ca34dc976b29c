"""Plans for static topics: whatever is asked in whatever order, the mapping stays valid and few queues move."""

from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.remoting.bodies.topic_queue_mapping import UNDECIDED, TopicConfigAndQueueMapping
from sprocket.static_topic.item_checks import MappingError, check_kept
from sprocket.static_topic.logical_queues import all_queues, checked_extent, detail_of
from sprocket.static_topic.plan import (
    TopicRemappingDetailWrapper,
    block_seq_round_up,
    check_plan,
    complete,
    creation_plan,
    remapping_plan,
)
from sprocket.static_topic.plan_file import plan_bytes, read_plan

TOPIC: Final = "orders"
BROKERS: Final = ("broker-a", "broker-b", "broker-c", "broker-d")
Configs = dict[str, TopicConfigAndQueueMapping]

_targets = st.sets(st.sampled_from(BROKERS), min_size=1).map(sorted)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), _targets, st.integers(1, 9)),
        st.tuples(st.just("remap"), _targets, st.integers(0, 50_000)),
        st.tuples(st.just("clean"), _targets, st.integers(0, 9)),
    ),
    min_size=1,
    max_size=12,
)


def create(count: int, targets: list[str], configs: Configs, now_ms: int = 1, seed: int = 0) -> Any:
    numbers = Random(seed)
    return creation_plan(TOPIC, count, targets, configs, now_ms=now_ms, random=lambda: numbers.getrandbits(32))


def decided(plan: TopicRemappingDetailWrapper, sent: int) -> Configs:
    """Return what brokers store when the plan is done, and the old leaders had `sent` messages each.

    As with RocketMQ, only new leaders learn the offsets.
    """
    for broker in plan.broker_to_map_in:
        for items in detail_of("", plan.broker_config_map[broker]).hosted_queues.values():
            if items[-1].logic_offset == UNDECIDED:
                items[-1].logic_offset = block_seq_round_up(items[-2].logical_open(sent))
    return plan.broker_config_map


def clean(configs: Configs, number: int) -> None:
    """Remove the oldest item of a queue at its leader, as a broker does when it has no messages."""
    queue = all_queues(configs).get(number)
    if queue is not None and len(queue.items) > 1:
        del detail_of("", configs[queue.leader]).items(number)[0]


def leaders(configs: Configs) -> dict[int, str]:
    return {number: queue.leader for number, queue in all_queues(configs).items()}


@given(_steps, st.integers(0, 2**32), st.integers(0, 5_000))
@settings(max_examples=150, deadline=None)
def test_any_sequence_of_plans_keeps_the_mapping_valid(steps: list[Any], seed: int, step_ms: int) -> None:
    configs: Configs = {}
    epoch, count, now_ms = 0, 0, 1_000
    for kind, targets, number in steps:
        now_ms += step_ms
        before = deepcopy(configs)
        old = leaders(configs) if configs else {}
        if kind == "grow":
            hosting = {name for name, config in configs.items() if detail_of(name, config).hosted_queues}
            plan = create(count + number, sorted(hosting.union(targets)), configs, now_ms, seed)
            count += number
        elif not configs:
            continue
        elif kind == "clean":
            clean(configs, number)
            continue
        else:
            plan = remapping_plan(TOPIC, targets, configs, now_ms=now_ms)
        assert configs == before  # a plan changes nothing
        for broker, config in configs.items():
            for each, items in detail_of(broker, config).hosted_queues.items():
                check_kept(items, detail_of(broker, plan.broker_config_map[broker]).items(int(each)), epoch_equal=False)
        _check_undecided(plan)
        complete(plan, [BROKERS])
        check_plan(TOPIC, plan)
        assert read_plan(plan_bytes(plan)) == plan
        new = leaders(plan.broker_config_map)
        assert sorted(new) == list(range(count))
        if kind == "grow":
            assert all(new[each] == broker for each, broker in old.items())
        else:
            _check_moves(old, new, targets, plan)
        configs = decided(plan, number)
        assert set(configs) == set(BROKERS)
        extent = checked_extent(TOPIC, configs)
        assert extent.epoch == plan.epoch >= max(epoch + 1000, now_ms) and extent.total_queues == count
        epoch = extent.epoch


def _check_undecided(plan: TopicRemappingDetailWrapper) -> None:
    """Only queues that this plan moves have an item without an offset."""
    leading = all_queues(plan.broker_config_map)
    for broker, config in plan.broker_config_map.items():
        for number, items in detail_of(broker, config).hosted_queues.items():
            if items[-1].logic_offset == UNDECIDED:
                assert items == leading[int(number)].items and items[-1].bname in plan.broker_to_map_in
                assert broker in (items[-1].bname, items[-2].bname)


def _check_moves(old: dict[int, str], new: dict[int, str], targets: list[str], plan: Any) -> None:
    shares = Counter(new.values())
    assert set(shares) <= set(targets)
    assert max(shares.values()) - min(shares[broker] for broker in targets) <= 1
    before = Counter(old.values())
    moved = [number for number in old if old[number] != new[number]]
    # The fewest moves: each target keeps what it has, up to its share; the brokers with most get the larger shares.
    low, larger = divmod(len(old), len(targets))
    kept = sorted((before[broker] for broker in targets), reverse=True)
    assert len(moved) == len(old) - sum(min(have, low + (place < larger)) for place, have in enumerate(kept))
    assert set(plan.broker_to_map_in) == {new[number] for number in moved}
    assert set(plan.broker_to_map_out) == {old[number] for number in moved}
    assert not set(plan.broker_to_map_in).intersection(plan.broker_to_map_out)


def test_a_new_topic_is_spread_evenly_and_its_queues_begin_at_zero() -> None:
    plan = create(7, ["broker-a", "broker-b", "broker-c"], {}, now_ms=1_700)
    assert plan.type == "CREATE_OR_UPDATE" and plan.epoch == 2_700
    assert sorted(Counter(leaders(plan.broker_config_map).values()).values()) == [2, 2, 3]
    for broker, config in plan.broker_config_map.items():
        items = [item for (item,) in detail_of(broker, config).hosted_queues.values()]
        assert config.write_queue_nums == config.read_queue_nums == len(items)
        assert {(item.bname, item.gen, item.logic_offset) for item in items} == {(broker, 0, 0)}
        assert [item.queue_id for item in items] == list(range(len(items)))


def test_new_queues_go_to_the_brokers_with_the_fewest() -> None:
    configs = create(6, ["broker-a"], {}).broker_config_map
    grown = create(9, ["broker-a", "broker-b", "broker-c"], configs)
    assert Counter(leaders(grown.broker_config_map).values())["broker-a"] == 6


def test_moved_queues_have_no_offset_until_the_old_leader_is_asked() -> None:
    plan = remapping_plan(TOPIC, ["broker-b"], create(2, ["broker-a"], {}).broker_config_map, now_ms=5_000)
    assert plan.broker_to_map_in == ["broker-b"] and plan.broker_to_map_out == ["broker-a"]
    for number in (0, 1):
        items = [detail_of("", config).items(number) for config in plan.broker_config_map.values()]
        assert items[0] == items[1]
        old, new = items[0]
        assert (old.bname, old.logic_offset, new.bname, new.gen, new.logic_offset) == ("broker-a", 0, "broker-b", 1, -1)


def test_equal_shares_move_nothing() -> None:
    configs = create(4, ["broker-a", "broker-b"], {}).broker_config_map
    plan = remapping_plan(TOPIC, ["broker-a", "broker-b"], configs, now_ms=1)
    assert leaders(plan.broker_config_map) == leaders(configs)
    assert plan.broker_to_map_in == plan.broker_to_map_out == []


@pytest.mark.parametrize(
    ("offset", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (9_999, 20_000), (10_000, 20_000)]
)
def test_a_new_leader_begins_with_a_block_of_its_own(offset: int, begin: int) -> None:
    assert block_seq_round_up(offset) == begin


def test_the_number_of_queues_only_grows() -> None:
    configs = create(4, ["broker-a"], {}).broker_config_map
    for count in (4, 3):
        with pytest.raises(MappingError, match="can only grow"):
            create(count, ["broker-a"], configs)
    with pytest.raises(MappingError, match="allowed are 1 to 65535"):
        create(0, ["broker-a"], {})


def test_a_broker_with_queues_must_stay_a_target_when_queues_are_added() -> None:
    configs = create(2, ["broker-a"], {}).broker_config_map
    with pytest.raises(MappingError, match="broker broker-a has queues of the topic"):
        create(4, ["broker-b"], configs)
    with pytest.raises(MappingError, match="no target broker"):
        remapping_plan(TOPIC, [], configs, now_ms=1)


def test_a_stopped_remapping_must_be_finished_before_another_change() -> None:
    plan = remapping_plan(TOPIC, ["broker-b"], create(2, ["broker-a"], {}).broker_config_map, now_ms=5_000)
    for change in (
        lambda: create(3, ["broker-a", "broker-b"], plan.broker_config_map),
        lambda: remapping_plan(TOPIC, ["broker-a"], plan.broker_config_map, now_ms=6_000),
    ):
        with pytest.raises(MappingError, match=r"repeat it with -mf and its file orders-5000\.after"):
            change()


def _spoilt(broker: str, **values: Any) -> Configs:
    configs: Configs = deepcopy(create(4, ["broker-a", "broker-b"], {}).broker_config_map)
    for name, value in values.items():
        part = (
            configs[broker] if name in TopicConfigAndQueueMapping.__struct_fields__ else detail_of("", configs[broker])
        )
        setattr(part, name, value)
    return configs


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"mapping_detail": None}, "is not static on broker broker-b"),
        ({"bname": "broker-x"}, "names broker broker-x"),
        ({"dirty": True}, "is dirty"),
        ({"topic": "other"}, "is of topic other"),
        ({"topic_name": "other"}, "is of topic other"),
        ({"scope": "elsewhere"}, "scope differs"),
        ({"epoch": 7}, "epoch differs: .* repeat it with -mf"),
        ({"total_queues": 7}, "totalQueues differs"),
        ({"read_queue_nums": 1}, "reads fewer queues"),
        ({"write_queue_nums": 1}, "no queue 1"),
        ({"hosted_queues": {}}, "no broker leads the logical queue"),
        ({"hosted_queues": {"x": []}}, "no valid items"),
        ({"hosted_queues": {"9" * 5000: []}}, "no valid items"),
    ],
)
def test_brokers_that_do_not_fit_together_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(MappingError, match=text):
        create(8, ["broker-a", "broker-b"], _spoilt("broker-b", **values))


def test_a_physical_queue_serves_one_logical_queue() -> None:
    configs: Configs = create(2, ["broker-a"], {}).broker_config_map
    detail_of("", configs["broker-a"]).hosted_queues["1"][0].queue_id = 0
    with pytest.raises(MappingError, match="share queue 0 of broker broker-a"):
        create(3, ["broker-a"], configs)


def test_two_leaders_of_a_queue_are_refused() -> None:
    configs = _spoilt("broker-a")
    hosted = detail_of("", configs["broker-b"]).hosted_queues
    number = next(iter(detail_of("", configs["broker-a"]).hosted_queues))
    hosted[number] = [deepcopy(next(iter(hosted.values()))[0])]
    hosted[number][0].queue_id = 2
    configs["broker-b"].write_queue_nums = configs["broker-b"].read_queue_nums = 3
    with pytest.raises(MappingError, match="has two leaders"):
        create(8, ["broker-a", "broker-b"], configs)


def test_a_plan_must_be_for_its_topic_and_say_what_listed_brokers_store() -> None:
    plan = remapping_plan(TOPIC, ["broker-b"], create(2, ["broker-a"], {}).broker_config_map, now_ms=5_000)
    with pytest.raises(MappingError, match="is for topic orders, not for other"):
        check_plan("other", plan)
    plan.broker_to_map_in = ["broker-x"]
    with pytest.raises(MappingError, match="moves queues of broker broker-x"):
        check_plan(TOPIC, plan)
    plan.broker_to_map_in = ["broker-a"]
    with pytest.raises(MappingError, match="gets and gives queues"):
        check_plan(TOPIC, plan)
    plan.epoch += 1
    with pytest.raises(MappingError, match="the epoch of the plan"):
        check_plan(TOPIC, plan)
