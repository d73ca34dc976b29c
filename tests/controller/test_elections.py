"""Exact elections: never before the end of the lease, by the logs of enough replicas, and not by heartbeats."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.controller.site import FakeBroker, Site, group_of, site_at
from tests.waiting import until

_LEASE_MS = 1_000
# The lease with what clocks may run apart, in s.
_OVER_S = 1.03


@asynccontextmanager
async def leased(tmp_path: Path, count: int = 3, required: int = 2, **changes: Any) -> AsyncIterator[Any]:
    """A group whose master holds a lease, after the wait of a controller that has just begun to lead."""
    async with site_at(tmp_path, master_lease_millis=_LEASE_MS, **changes) as site, group_of(site, count) as brokers:
        site.clock.advance(_OVER_S)
        assert await brokers[0].ask_lease(required=required) == _LEASE_MS
        yield site, brokers


async def lose(site: Site, broker: FakeBroker) -> None:
    """Kill a broker, and wait until the controller knows."""
    count = len(site.server.live)
    await broker.die()
    await until(lambda: len(site.server.live) == count - 1)


@pytest.mark.code(RequestCode.BROKER_HEARTBEAT)
async def test_no_master_is_elected_before_the_end_of_the_lease(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        await lose(site, master)
        site.clock.advance(1.02)
        await asyncio.sleep(0.3)
        assert site.group.master_id == master.broker_id
        assert second.times_asked == third.times_asked == 0
        third.log = (1, 101)
        site.clock.advance(0.01)
        await until(lambda: site.group.master_epoch == 2)
        assert site.group.master_id == third.broker_id
        await until(lambda: second.heard)


async def test_the_logs_decide_and_not_the_heartbeats(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        await second.beat(epoch=9, max_offset=10_000)
        second.log, third.log = (1, 150), (1, 200)
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: site.group.master_id == third.broker_id)
        assert (site.group.required_acks, site.group.lease_ms) == (None, 0)


async def test_too_few_answers_elect_nobody_until_another_replica_is_back(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        third.log = None
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: second.times_asked >= 3 and not site.server.failover.electing)
        assert (site.group.master_id, site.group.master_epoch) == (master.broker_id, 1)
        await lose(site, third)
        third.log, third.connection = (1, 300), site.connection()
        back = FakeBroker(site)
        back.broker_id, back.log = third.broker_id, (1, 300)
        await back.port.start()
        await back.register()
        await back.beat()
        await until(lambda: site.group.master_id == third.broker_id)
        await back.port.stop()


@pytest.mark.parametrize(("required", "alive"), [(2, 2), (3, 1), (0, 1), (1, 1)])
async def test_as_many_answers_as_needed(tmp_path: Path, required: int, alive: int) -> None:
    """Of three replicas in sync; 0: the master waits for all of them."""
    async with leased(tmp_path, required=required) as (site, (master, *others)):
        for broker in (master, *others[alive:]):
            await lose(site, broker)
        site.clock.advance(_OVER_S)
        await until(lambda: site.group.master_epoch == 2)


async def test_an_unclean_replica_leads_only_if_no_clean_election_is_possible(tmp_path: Path) -> None:
    async with leased(tmp_path, enable_elect_unclean_master=True) as (site, (master, second, third)):
        await site.in_sync(master.broker_id, second.broker_id)
        assert await master.ask_lease()
        third.log = (1, 900)  # it is longer, and was never in sync with what was acknowledged
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: site.group.master_id == second.broker_id)
    async with leased(tmp_path / "2", enable_elect_unclean_master=True) as (site, (master, second, third)):
        await site.in_sync(master.broker_id, second.broker_id)
        assert await master.ask_lease()
        await lose(site, second)
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: site.group.master_id == third.broker_id)


async def test_a_master_that_is_back_in_time_goes_on(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, _)):
        await master.connection.close()
        await until(lambda: site.server.failover.electing)
        master.connection = site.connection()
        assert await master.ask_lease() == 0  # the election has not noticed it yet
        await until(lambda: not site.server.failover.electing)
        assert await master.ask_lease() == _LEASE_MS
        assert (site.group.master_epoch, second.times_asked) == (1, 0)


async def test_a_master_that_started_again_is_elected_again_or_replaced(tmp_path: Path) -> None:
    """It may have lost what it acknowledged, so that it does not lead in the old epoch."""
    async with leased(tmp_path) as (site, (master, second, third)):
        master.log, second.log, third.log = (1, 90), (1, 100), (1, 95)
        await master.beat(resigned_epoch=1)
        await until(lambda: site.group.master_epoch == 2)
        assert site.group.master_id == second.broker_id
        assert await master.ask_lease() == 0
    async with leased(tmp_path / "2") as (site, (master, second, third)):
        await master.beat(resigned_epoch=1)
        await until(lambda: site.group.master_epoch == 2)
        assert site.group.master_id == master.broker_id
        assert await master.ask_lease(epoch=2) == _LEASE_MS


async def test_a_planned_stop_is_replaced_without_a_wait(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        master.log = (1, 900)
        await master.beat(resigned_epoch=1, is_leaving=True)
        await until(lambda: site.group.master_epoch == 2)
        assert site.group.master_id in (second.broker_id, third.broker_id)
        assert master.times_asked == 0


async def test_who_gets_no_lease(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, _)):
        assert await master.ask_lease(epoch=0) == 0
        assert await master.ask_lease(epoch=2) == 0
        assert await second.ask_lease() == 0
        refused = await master.beat(ResponseCode.CONTROLLER_INVALID_REQUEST, lease_epoch=1, required_acks=-1)
        assert "requiredAcks is -1" in str(refused.remark)
        site.consensus.leader = "n1"
        assert await master.ask_lease() == 0
        site.consensus.leader = "n0"
        confirmed, proposed = site.consensus.confirmed, site.consensus.proposed
        assert await master.ask_lease() == _LEASE_MS
        assert (site.consensus.confirmed, site.consensus.proposed) == (confirmed + 1, proposed)


async def test_another_number_of_replicas_is_agreed_upon_before_a_lease(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, _, _)):
        site.consensus.loses_answers = True
        assert await master.ask_lease(required=1) == 0
        site.consensus.loses_answers = False
        assert await master.ask_lease(required=1) == _LEASE_MS
        assert site.group.required_acks == 1


async def test_after_an_election_without_an_answer_nobody_gets_a_lease_before_it_is_decided(tmp_path: Path) -> None:
    async with leased(tmp_path, elect_master_max_retry_count=1) as (site, (master, second, third)):
        service = site.server.service
        site.consensus.loses_answers = True
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: site.group.master_epoch == 2 and not service.electing)
        leader = next(one for one in (second, third) if one.broker_id == site.group.master_id)
        assert await leader.ask_lease(epoch=2) == 0
        site.consensus.loses_answers = False
        assert await leader.ask_lease(epoch=2) == _LEASE_MS


async def test_a_silent_master_is_replaced_soon_after_its_lease(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (_, second, third)):
        await asyncio.sleep(0.25)  # the controller has looked since the clock moved
        for _ in range(9):
            site.clock.advance(0.25)
            await second.beat()
            await third.beat()
            await asyncio.sleep(0.15)
        await until(lambda: site.group.master_epoch == 2)


async def test_a_controller_that_stood_still_replaces_nobody(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, *_)):
        site.clock.advance(5)
        await asyncio.sleep(0.3)
        assert await master.ask_lease() == _LEASE_MS
        assert site.group.master_epoch == 1


async def test_an_operator_waits_for_the_lease_and_the_chosen_replica_must_have_everything(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        master.log, second.log, third.log = (1, 100), (1, 50), (1, 100)
        asked = asyncio.create_task(
            site.elect(second.broker_id, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, designate_elect=True)
        )
        await asyncio.sleep(0.2)
        assert not asked.done()
        assert await master.ask_lease() == 0
        site.clock.advance(_OVER_S)
        assert "lacks messages of others" in str((await asked).remark)
        assert await master.ask_lease() == _LEASE_MS
        asked = asyncio.create_task(site.elect(third.broker_id, designate_elect=True))
        await asyncio.sleep(0.2)
        site.clock.advance(_OVER_S)
        await asked
        assert site.group.master_id == third.broker_id


async def test_a_broker_that_asks_for_an_election_does_not_disturb_a_living_master(tmp_path: Path) -> None:
    async with leased(tmp_path) as (site, (master, second, _)):
        await site.elect(second.broker_id, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        assert await master.ask_lease() == _LEASE_MS
        assert second.times_asked == 0


async def test_an_answer_of_another_broker_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with leased(tmp_path) as (site, (master, second, third)):
        second.name = "broker-b"
        await lose(site, master)
        site.clock.advance(_OVER_S)
        await until(lambda: third.times_asked >= 3 and not site.server.failover.electing)
        assert site.group.master_epoch == 1
        assert "answers there, not" in caplog.text
