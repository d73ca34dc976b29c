"""No change is missed: whatever happens between two ends, a kept plan is the one that would be made now."""

import random
from pathlib import Path

import pytest

from broker.transaction.planner import UNKNOWN, EndKey, EndPlanner, Why
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from tests.broker.insides import core_of
from tests.broker.plan.changes import TOPICS, Changes, plans_seen
from tests.broker.rig import create, running_broker
from tests.fuzz.twins.end_targets import COMMIT, ROLLBACK
from tests.tiers import seeds


def key_of(chance: random.Random) -> EndKey:
    topic = chance.choice((*TOPICS, TRANS_HALF_TOPIC, None))
    return EndKey(chance.choice((COMMIT, COMMIT, ROLLBACK, UNKNOWN, 4)), topic, chance.randrange(4))


@pytest.mark.parametrize("seed", seeds(8, quick=2))
async def test_a_kept_plan_is_the_plan_that_would_be_made_now(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running_broker(tmp_path) as (broker, client):
        planner = EndPlanner(core_of(broker))
        changes = Changes(broker, client, chance)
        for topic in TOPICS:
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
        seen = await plans_seen(planner, [key_of(chance) for _ in range(100)], changes.one)
        assert seen == {None, *Why, ResponseCode.SYSTEM_ERROR}, seen
