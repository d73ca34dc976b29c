"""No change is missed: whatever happens between two pops, a kept plan is the plan that would be made now."""

import random
from pathlib import Path

import pytest

from broker.pop.planner import PopKey, Why
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from tests.broker.plan.changes import GROUPS, TOPICS, Changes, plans_seen
from tests.broker.rig import create, running_broker
from tests.tiers import seeds

_CONFIGURATION = (
    "enablePopBufferMerge=true", "enablePopBufferMerge=false", "enablePopBufferMerge=false",
    "enablePopMessageThreshold=true", "enablePopMessageThreshold=false", "enablePopMessageThreshold=false",
    "enableRetryTopicV2=true", "enableRetryTopicV2=false", "retrieveMessageFromPopRetryTopicV1=true",
    "retrieveMessageFromPopRetryTopicV1=false", "timerMaxDelaySec=10", "timerMaxDelaySec=20",
    "timerCongestNumEachSlot=5", "timerCongestNumEachSlot=2147483647", "timerCongestNumEachSlot=2147483647",
)  # fmt: skip


def key_of(chance: random.Random) -> PopKey:
    pick = chance.choice
    kind, text = pick((("TAG", "A"), ("TAG", "*"), (None, None), ("SQL92", "a > 1"), ("SQL92", "a >"), ("TAG", "||")))
    return PopKey(
        pick((*GROUPS, "g#", "g" * 250)), pick(TOPICS), chance.randrange(-1, 3), chance.random() < 0.1, text, kind
    )


@pytest.mark.parametrize("seed", seeds(8, quick=2))
async def test_a_kept_plan_is_the_plan_that_would_be_made_now(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running_broker(tmp_path, auto_create_subscription_group=True) as (broker, client):
        planner, changes = broker.pop.planner, Changes(broker, client, chance)
        keys = [key_of(chance) for _ in range(200)]
        broker.groups.find("CG")
        for topic in TOPICS:
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
            await client.send(topic=topic)

        async def change() -> None:
            if chance.random() < 0.1:
                broker.topics.update([TopicConfig(chance.choice(("%RETRY%CG_Orders", "%RETRY%CG+Orders")), 1, 1)])
            elif chance.random() < 0.4:
                broker.config.update(chance.choice(_CONFIGURATION).encode())
            else:
                await changes.one()

        seen = await plans_seen(planner, keys, change)
        assert {Why.ORDERED, Why.NO_QUEUE} <= seen and len(seen) > 6, seen
