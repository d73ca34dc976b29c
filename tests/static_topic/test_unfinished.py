"""Changes that stopped between any two brokers: what brokers have is enough to finish them."""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.topic.topic_queue_mappings import check_detail, merged
from sprocket.remoting.bodies.topic_queue_mapping import UNDECIDED
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.logical_queues import all_queues, checked_extent, detail_of
from sprocket.static_topic.plan import TopicRemappingDetailWrapper, complete, creation_plan, drain_plan, remapping_plan
from sprocket.static_topic.unfinished import finishing_plan, is_unfinished, trimming_plan
from tests.static_topic.test_plan import BROKERS, TOPIC, Configs

SENT: Final = 77  # messages in each physical queue


def store(configs: Configs, plan: TopicRemappingDetailWrapper, broker: str) -> None:
    """Let a broker store its part of a plan, as its handler does."""
    told = deepcopy(plan.broker_config_map[broker])
    detail = detail_of(broker, told)
    check_detail(detail, TOPIC, broker, told.write_queue_nums)
    old = configs[broker].mapping_detail if broker in configs else None
    configs[broker] = msgspec.structs.replace(told, mapping_detail=merged(old, detail, force=False))


def steps(plan: TopicRemappingDetailWrapper, *, exact: bool) -> Iterator[str]:
    """Yield the brokers in the order in which `StaticTopics.remap` tells them; decide the offsets on the way."""
    if not exact:
        yield from plan.broker_to_map_in
    yield from plan.broker_to_map_out
    for broker in (*plan.broker_to_map_in, *plan.broker_to_map_out):
        for items in detail_of("", plan.broker_config_map[broker]).hosted_queues.values():
            if items[-1].logic_offset == UNDECIDED:
                items[-1].logic_offset = items[-2].logical_open(SENT)
    yield from plan.broker_to_map_in
    yield from sorted(plan.broker_config_map.keys() - set(plan.broker_to_map_in))


def carry_out(configs: Configs, plan: TopicRemappingDetailWrapper, *, exact: bool, stop: int = 1_000) -> None:
    complete(plan, [BROKERS])
    for position, broker in enumerate(steps(plan, exact=exact)):
        if position == stop:
            return
        store(configs, plan, broker)


def made(count: int, *targets: str) -> Configs:
    configs: Configs = {}
    carry_out(configs, creation_plan(TOPIC, count, targets, {}, now_ms=1, random=lambda: 0), exact=False)
    return configs


def leaders(configs: Configs) -> dict[int, str]:
    return {number: queue.leader for number, queue in all_queues(configs).items()}


@given(st.data(), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_a_change_that_stopped_anywhere_is_finished_from_what_brokers_have(data: st.DataObject, seed: int) -> None:
    random = Random(seed)
    count, now_ms = random.randint(1, 9), 1
    configs = made(count, *random.sample(BROKERS, random.randint(1, 3)))
    for _ in range(random.randint(1, 6)):
        now_ms += random.randint(0, 3_000)
        old, exact = all_queues(configs), random.random() < 0.5
        led = sorted(set(leaders(configs).values()))
        match random.choice(["grow", "remap", "drain"]):
            case "grow":
                count += random.randint(1, 4)
                plan = creation_plan(TOPIC, count, BROKERS, configs, now_ms=now_ms, random=lambda: 0)
            case "remap":
                targets = random.sample(BROKERS, random.randint(1, 4))
                plan = remapping_plan(TOPIC, targets, configs, now_ms=now_ms)
            case _:
                leaving = random.choice(led)
                plan = drain_plan(TOPIC, leaving, [n for n in BROKERS if n != leaving], configs, now_ms=now_ms)
        before = deepcopy(configs)
        carry_out(configs, plan, exact=exact, stop=data.draw(st.integers(0, 9)))
        for _ in range(3):
            if not is_unfinished(TOPIC, configs):
                break
            now_ms += 1
            finish = finishing_plan(TOPIC, configs, now_ms=now_ms, random=lambda: random.getrandbits(9))
            carry_out(configs, finish, exact=random.random() < 0.5, stop=random.choice([*range(6), 1_000]))
        if is_unfinished(TOPIC, configs):
            finish = finishing_plan(TOPIC, configs, now_ms=now_ms + 1, random=lambda: 0)
            carry_out(configs, finish, exact=exact)
        assert not is_unfinished(TOPIC, configs)
        count = checked_extent(TOPIC, configs).total_queues
        now = all_queues(configs)
        assert sorted(now) == list(range(count)) and count >= len(old)
        for number, queue in old.items():  # what was readable is, at the same offsets
            assert list(now[number].items[: len(queue.items)]) == list(queue.items)
            assert len(now[number].items) - len(queue.items) in (0, 1)
        assert before.keys() <= configs.keys()


def test_a_drain_moves_only_the_queues_of_that_broker_to_the_least_loaded() -> None:
    configs = made(9, "broker-a", "broker-b", "broker-c")
    before = leaders(configs)
    plan = drain_plan(TOPIC, "broker-b", ["broker-a", "broker-d"], configs, now_ms=2)
    carry_out(configs, plan, exact=True)
    after = leaders(configs)
    assert Counter(after.values()) == {"broker-a": 3, "broker-c": 3, "broker-d": 3}
    assert all(after[number] == leader for number, leader in before.items() if leader != "broker-b")
    moved = [queue for number, queue in all_queues(configs).items() if before[number] == "broker-b"]
    assert [queue.items[-1].logic_offset for queue in moved] == [SENT] * 3


def test_a_drained_broker_cannot_take_its_own_queues() -> None:
    configs = made(2, "broker-a", "broker-b")
    with pytest.raises(MappingError, match="broker broker-b cannot take the queues that leave it"):
        drain_plan(TOPIC, "broker-b", ["broker-b"], configs, now_ms=2)
    with pytest.raises(MappingError, match="no target broker is given"):
        drain_plan(TOPIC, "broker-b", [], configs, now_ms=2)


def test_a_broker_that_leads_nothing_is_trimmed_from_every_list() -> None:
    configs = made(4, "broker-a", "broker-b")
    with pytest.raises(MappingError, match="broker broker-b leads logical queue"):
        trimming_plan(TOPIC, "broker-b", configs, now_ms=2)
    carry_out(configs, drain_plan(TOPIC, "broker-b", ["broker-c"], configs, now_ms=2), exact=True)
    carry_out(configs, trimming_plan(TOPIC, "broker-b", configs, now_ms=9), exact=True)
    without = {name: config for name, config in configs.items() if name != "broker-b"}
    assert not is_unfinished(TOPIC, without)
    assert all(item.bname != "broker-b" for queue in all_queues(without).values() for item in queue.items)
    # Queues can move on without the broker that has left.
    remapping_plan(TOPIC, ["broker-a"], without, now_ms=20)


def test_a_broker_that_comes_back_with_an_old_mapping_is_told_the_newest() -> None:
    configs = made(2, "broker-a", "broker-b")
    old: Any = deepcopy(configs["broker-b"])
    carry_out(configs, drain_plan(TOPIC, "broker-b", ["broker-a"], configs, now_ms=2), exact=False)
    configs["broker-b"] = old  # it was restored from a backup
    assert is_unfinished(TOPIC, configs)
    carry_out(configs, finishing_plan(TOPIC, configs, now_ms=9, random=lambda: 0), exact=False)
    assert set(leaders(configs).values()) == {"broker-a"}


def test_a_queue_that_no_broker_leads_is_an_error_and_not_a_new_queue() -> None:
    configs = made(4, "broker-a", "broker-b")
    del configs["broker-b"]
    with pytest.raises(MappingError, match=r"no broker leads the logical queue \d of 4: start the broker that has it"):
        finishing_plan(TOPIC, configs, now_ms=2, random=lambda: 0)


def test_two_leaders_of_one_queue_are_an_error() -> None:
    configs = made(1, "broker-a")
    other = deepcopy(configs)
    carry_out(configs, drain_plan(TOPIC, "broker-a", ["broker-b"], configs, now_ms=2), exact=False)
    carry_out(other, drain_plan(TOPIC, "broker-a", ["broker-c"], other, now_ms=2), exact=False)
    with pytest.raises(MappingError, match="logical queue 0 has two leaders: brokers broker-b and broker-c"):
        finishing_plan(TOPIC, configs | {"broker-c": other["broker-c"]}, now_ms=9, random=lambda: 0)
