"""No change is missed: whatever happens between two acknowledgements, a kept plan is the one that would be made now."""

import random
from pathlib import Path

import pytest

from broker.ack.planner import AckKey, Why
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from tests.broker.plan.changes import GROUPS, TOPICS, Changes, plans_seen
from tests.broker.rig import create, running_broker
from tests.tiers import seeds

_CONFIGURATION = (
    "timerMaxDelaySec=10", "timerMaxDelaySec=20",
    "timerCongestNumEachSlot=5", "timerCongestNumEachSlot=2147483647",
)  # fmt: skip


def key_of(chance: random.Random) -> AckKey:
    pick = chance.choice
    return AckKey(
        pick(TOPICS), pick((*GROUPS, "g#")), chance.randrange(-1, 3), pick((0, 1, 7, 8, 11, 12, 999)),
        pick(("broker-a", "b\x02c")),
    )  # fmt: skip


@pytest.mark.parametrize("seed", seeds(8, quick=2))
async def test_a_kept_plan_is_the_plan_that_would_be_made_now(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running_broker(tmp_path) as (broker, client):
        planner, changes = broker.pop.ack_planner, Changes(broker, client, chance)
        keys = [key_of(chance) for _ in range(200)]
        for topic in TOPICS:
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))

        async def change() -> None:
            if chance.random() < 0.2:
                queues = chance.choice((8, 12))
                broker.topics.update([TopicConfig(broker.pop.log.topic, queues, queues)])
            elif chance.random() < 0.4:
                broker.config.update(chance.choice(_CONFIGURATION).encode())
            else:
                await changes.one()

        seen = await plans_seen(planner, keys, change)
        assert {None, Why.ORDERED, Why.NAME} <= seen and len(seen) > 4, seen
