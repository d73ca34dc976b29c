"""No change is missed: whatever happens between two pulls, a kept plan is the plan that would be made now."""

import random
from pathlib import Path
from typing import Any

import pytest

from broker.pull.planner import PullKey, PullPlan, Why
from sprocket.remoting.codes import RequestCode
from tests.broker.plan.changes import GROUPS, TOPICS, Changes, plans_seen
from tests.broker.rig import create, running_broker
from tests.tiers import seeds


def key_of(chance: random.Random) -> PullKey:
    pick, has_own = chance.choice, chance.random() < 0.5
    kind, text = pick((("TAG", "A"), ("TAG", "*"), ("SQL92", "a > 1"), ("SQL92", "a >"), ("SQL92", None)))
    return PullKey(
        pick((11, 11, 361)), pick(GROUPS), pick(TOPICS), chance.randrange(3), has_own, text if has_own else None,
        kind if has_own else None, 0 if has_own else pick((0, 1, 5)), chance.random() < 0.1,
    )  # fmt: skip


def facts(plan: Any) -> Any:
    """The parts of a plan to compare.  Each plan has a new filter by properties, so of those only the type counts."""
    if not isinstance(plan, PullPlan):
        return plan
    parts = {name: getattr(plan, name) for name in PullPlan.__slots__}
    if plan.codes is None and plan.matches is not None:
        parts["matches"] = type(plan.matches)
    return parts | {"queue": id(plan.queue)}


@pytest.mark.parametrize("seed", seeds(8, quick=2))
async def test_a_kept_plan_is_the_plan_that_would_be_made_now(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running_broker(tmp_path, auto_create_subscription_group=True) as (broker, client):
        planner, changes = broker.pulls.planner, Changes(broker, client, chance)
        keys = [key_of(chance) for _ in range(200)]
        broker.groups.find("CG")
        for topic in TOPICS:
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
            await client.send(topic=topic)
        seen = await plans_seen(planner, keys, changes.one, facts)
        assert len(seen) > 5 and seen & {None, *Why}, seen


async def test_most_pulls_find_their_plan(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=True) as (broker, client):
        await client.send()
        await client.pull()  # the first one creates the group
        await client.heartbeat("c", "Orders")
        version = broker.config.plan_version
        await client.pull(sys_flag=0)
        before = version.number
        for _ in range(3):
            # None of these changes anything.
            await client.heartbeat("c", "Orders")
            await client.pull(sys_flag=0)
            await client.send()
        assert version.number == before
