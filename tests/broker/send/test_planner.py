"""No change is missed: whatever happens between two sends, a kept plan is the one that would be made now."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.send.planner import SendKey, SendPlan, Why
from broker.topic.attributes import QUEUE_TYPE
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.bodies.topic import SHARDING_QUEUES, DataVersion, TopicConfig, TopicConfigTable
from tests.broker.hot_path import HotPath, hot_path
from tests.broker.plan.changes import mapping, plans_seen
from tests.tiers import seeds

TOPICS = (
    "Orders",
    "Bills",
    "%RETRY%CG",
    "%LMQ%a",
    "Batches",
    "Keyed",
    "SELF_TEST_TOPIC",
    "a.b",
    "shop%Orders",
    "Grows",
)
CONFIGURATION = (
    "brokerPermission=4", *(3 * ["brokerPermission=6"]), "startAcceptSendRequestTimeStamp=0",
    "startAcceptSendRequestTimeStamp=1700000003000",
)  # fmt: skip


def change(path: HotPath, chance: random.Random, number: int) -> None:
    """Change something that plans are made from."""
    pick = chance.choice
    topic = pick(TOPICS)

    def update() -> None:
        kind = {f"+{QUEUE_TYPE}": "BatchCQ"} if topic == "Batches" and path.topics.get(topic) is None else {}
        kind |= pick(({}, {f"+{SHARDING_QUEUES}": "0"}, {f"+{SHARDING_QUEUES}": "4"}))
        path.topics.update(
            [TopicConfig(topic, pick((0, 2, 4)), pick((0, 2)), pick((4, 6, 6)), order=pick((True, False)),
                         topic_filter_type=pick(("SINGLE_TAG", "MULTI_TAG")), attributes=kind)]
        )  # fmt: skip

    def replace() -> None:
        left = dict(path.topics.by_name)
        left.pop(topic, None)
        path.topics.replace(TopicConfigTable(left, DataVersion(number, chance.randrange(1 << 40))))

    steps: list[Callable[[], Any]] = [
        update, update, replace, lambda: path.topics.delete(topic), lambda: path.store.delete_topic(topic),
        lambda: path.mappings.put(topic, mapping(topic, chance)), lambda: path.mappings.delete(topic),
        lambda: path.namespaces.set(NamespacePolicy(name="shop", max_message_bytes=pick((0, 100)))),
        lambda: path.config.update(pick(CONFIGURATION).encode()), lambda: path.clock.advance(1.0),
    ]  # fmt: skip
    pick(steps)()


@pytest.mark.parametrize("seed", seeds(8, quick=2))
async def test_a_kept_plan_is_the_plan_that_would_be_made_now(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with hot_path(tmp_path) as path:
        keys = [SendKey(topic, queue_id) for topic in TOPICS for queue_id in range(-1, 4)]
        numbers = count(1)

        async def step() -> None:
            if chance.random() < 0.2:
                await path.send(topic=chance.choice(TOPICS), queue_id=chance.randrange(3))
            else:
                change(path, chance, next(numbers))
            if chance.random() < 0.2:
                await path.topics.save()

        path.topics.update([TopicConfig(topic, 2, 2) for topic in ("Bills", "%RETRY%CG", "%LMQ%a")])
        path.topics.update([TopicConfig("Batches", 2, 2, attributes={f"+{QUEUE_TYPE}": "BatchCQ"})])
        path.topics.update([TopicConfig("Keyed", 2, 2, attributes={"+cleanup.policy": "COMPACTION"})])
        path.topics.update([TopicConfig("Grows", 2, 2, attributes={f"+{SHARDING_QUEUES}": "4"})])
        path.topics.update([TopicConfig("shop%Orders", 2, 2)])
        path.namespaces.set(NamespacePolicy(name="shop", max_message_bytes=100))
        path.topics.start()
        seen = await plans_seen(path.send_processor.planner, keys, step)
        assert {None, *Why} <= seen and len(seen) > 8, seen


async def test_a_form_is_made_again_when_the_version_rises(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        planner = path.send_processor.planner
        before = planner.form()
        assert planner.form() is before
        path.config.update(b"traceOn=false")
        assert planner.form().suffix == before.suffix.replace(b"true", b"false")


async def test_a_queue_is_drawn_for_each_send_that_names_none(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        planner, header = path.send_processor.planner, path.send_header(queue_id=-1)
        drawn = {planner.admit(header, ("10.0.0.1", 1)).queue_id for _ in range(100)}
        assert drawn == {0, 1, 2, 3}
        plan = planner.plan(SendKey("Orders", -1))
        assert isinstance(plan, SendPlan) and plan.needs_handler is Why.ANY_QUEUE
