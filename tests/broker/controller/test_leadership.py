"""A master's sync-state set and its number of acknowledgements, with a real controller."""

import asyncio
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerRole
from tests.broker.controller.membership_rig import FakeBroker, Rig, rig_at
from tests.waiting import until


async def leading(rig: Rig, **store: object) -> tuple[FakeBroker, FakeBroker]:
    """A master with a lease, and another broker that is not in sync."""
    first = await rig.broker("1", store=dict(store), check_sync_state_set_period=200)
    second = await rig.broker("2")
    await until(lambda: first.is_held)
    return first, second


async def test_a_slave_joins_at_once_and_leaves_when_the_master_looks(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await leading(rig)
        assert first.slaves.counted[0] == (frozenset(), frozenset())
        await rig.in_sync(first, second)
        await until(lambda: first.slaves.counted[-1] == (frozenset({2}), frozenset({2})))
        # While that was not decided, nobody more counted, and the joining slave might lead.
        assert (frozenset(), frozenset({2})) in first.slaves.counted
        first.slaves.now = frozenset()
        await until(lambda: rig.site.group.sync_state_set == (1,))
        await until(lambda: first.slaves.counted[-1] == (frozenset(), frozenset()))


async def test_a_change_waits_until_enough_members_have_what_may_be_acknowledged(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await leading(rig, in_sync_replicas=2)
        first.log.end = 500
        first.slaves.now, first.slaves.has = frozenset({2}), {2: 499}
        await until(lambda: first.slaves.counted[-1] == (frozenset(), frozenset({2})))
        await asyncio.sleep(0.3)
        assert rig.site.group.sync_state_set == (1,)
        first.slaves.has = {2: 500}
        await until(lambda: rig.site.group.sync_state_set == (1, 2))
        assert second.broker_id == 2


async def test_a_set_without_an_answer_stays_open_until_it_is_known(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await leading(rig)
        rig.site.consensus.loses_answers = True
        second.log.history = first.log.history
        first.slaves.now, first.slaves.has = frozenset({2}), {2: 0}
        await until(lambda: rig.site.group.sync_state_set == (1, 2))
        # The controllers carried it out; the master finds that out by reading.
        await until(lambda: first.slaves.counted[-1] == (frozenset({2}), frozenset({2})))
        rig.site.consensus.loses_answers = False


async def test_a_master_without_a_lease_proposes_nothing(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, _ = await leading(rig)
        rig.site.consensus.leader = "n1"
        await until(lambda: not first.is_held)
        proposed = rig.site.consensus.proposed
        first.slaves.now, first.slaves.has = frozenset({2}), {2: 0}
        await asyncio.sleep(0.5)
        assert rig.site.consensus.proposed == proposed
        assert first.slaves.counted[-1] == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("store", "broker", "acks"),
    [
        ({}, {}, 1),
        ({"in_sync_replicas": 3}, {}, 3),
        ({"all_ack_in_sync_state_set": True}, {}, 0),
        ({}, {"broker_role": BrokerRole.SYNC_MASTER}, 2),
        ({"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2}, {}, 2),
    ],
)
async def test_the_controllers_know_in_how_many_replicas_a_message_is(
    tmp_path: Path, store: dict[str, object], broker: dict[str, object], acks: int
) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1", store=store, **broker)
        await until(lambda: first.is_held)
        assert rig.site.group.required_acks == acks
        assert first.slaves.required == [acks]


async def test_fewer_acknowledgements_count_once_the_controllers_know(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await leading(rig, in_sync_replicas=3)
        await rig.in_sync(first, second)
        rig.site.consensus.leader = "n1"
        first.config.update(b"inSyncReplicas=2")
        await asyncio.sleep(0.3)
        assert first.slaves.required == [3]
        rig.site.consensus.leader = "n0"
        await until(lambda: first.slaves.required == [3, 2])
        assert rig.site.group.required_acks == 2


async def test_more_acknowledgements_are_told_once_older_messages_have_them(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await leading(rig, in_sync_replicas=2)
        await rig.in_sync(first, second)
        first.log.end = 900
        first.config.update(b"allAckInSyncStateSet=true")
        await asyncio.sleep(0.5)
        assert rig.site.group.required_acks == 2
        first.slaves.has = {2: 900}
        await until(lambda: rig.site.group.required_acks == 0)
        await until(lambda: first.slaves.required == [2, 0])
