"""A lost master is replaced, at once where its connection closed, and the brokers of its group are told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controller.state.group import Group, Replica
from sprocket.common.errors import SprocketError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.controller import (
    ApplyBrokerIdRequestHeader,
    ElectMasterResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)
from tests.controller.site import CLUSTER, GROUP, FakeBroker, Site, group_of, site_at
from tests.waiting import until


async def test_a_closed_connection_of_the_master_elects_another_at_once(site: Site) -> None:
    async with group_of(site, 3) as (master, second, third):
        await third.beat(max_offset=200)
        await master.die()
        await until(lambda: second.heard and third.heard)
        assert (site.group.master_id, site.group.master_epoch) == (third.broker_id, 2)
        (header, in_sync) = second.heard[-1]
        assert (header.master_broker_id, header.master_address) == (third.broker_id, third.address)
        assert (header.master_epoch, header.sync_state_set_epoch) == (2, 3)
        assert (in_sync.sync_state_set, in_sync.sync_state_set_epoch) == ([third.broker_id], 3)
        assert third.heard[-1][0].master_broker_id == third.broker_id


async def test_a_lost_slave_changes_nothing(site: Site) -> None:
    async with group_of(site, 2) as (_, slave):
        before = site.group
        await slave.die()
        await until(lambda: len(site.server.live) == 1)
        assert site.group == before


@pytest.mark.code(RequestCode.BROKER_HEARTBEAT)
async def test_a_silent_master_is_replaced_and_its_connection_closed(site: Site) -> None:
    async with group_of(site, 2) as (master, slave):
        site.clock.advance(9)
        await slave.beat()
        site.clock.advance(2)
        site.server.scan()
        await until(lambda: site.group.master_id == slave.broker_id)
        await until(lambda: master.connection.open_channel(site.address) is None)


async def test_a_broker_says_how_long_it_may_be_silent(site: Site) -> None:
    async with group_of(site, 2) as (master, slave):
        await master.beat(heartbeat_timeout_mills=60_000)
        site.clock.advance(50)
        await slave.beat()
        site.server.scan()
        assert site.group.master_id == master.broker_id
        await master.beat(heartbeat_timeout_mills=2**62)
        site.clock.advance(3_601)
        await slave.beat()
        site.server.scan()
        await until(lambda: site.group.master_id == slave.broker_id)


async def test_scans_run_by_themselves(tmp_path: Path) -> None:
    async with site_at(tmp_path, scan_not_active_broker_interval=1) as site, group_of(site, 2) as (_, slave):
        site.clock.advance(9)
        await slave.beat()
        site.clock.advance(2)
        await until(lambda: site.group.master_id == slave.broker_id)


async def test_a_controller_that_begins_to_lead_replaces_a_lost_master_at_once(site: Site) -> None:
    async with group_of(site, 2) as (master, slave):
        site.consensus.leader = "n1"
        await asyncio.sleep(0.3)  # it notices that it no longer leads
        await master.die()
        await until(lambda: len(site.server.live) == 1)
        assert site.group.master_id == master.broker_id
        site.consensus.leader = "n0"
        await until(lambda: site.group.master_id == slave.broker_id)
        await until(lambda: slave.heard)


async def test_a_controller_that_has_just_started_takes_no_silent_master_for_dead(tmp_path: Path) -> None:
    async with site_at(tmp_path) as site, group_of(site, 2) as (master, slave), site_at(tmp_path / "2") as again:
        again.server.machine.restore(site.server.machine.snapshot())
        follower = FakeBroker(again)
        follower.broker_id = slave.broker_id
        await follower.port.start()
        await follower.beat()
        registered = (await follower.register()).header(RegisterBrokerToControllerResponseHeader)
        assert registered.master_broker_id == master.broker_id
        answer = await again.elect(follower.broker_id, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        assert answer.header(ElectMasterResponseHeader).master_broker_id == master.broker_id
        again.clock.advance(9)
        await follower.beat()
        again.clock.advance(2)
        await until(lambda: again.group.master_id == follower.broker_id)
        await follower.port.stop()


async def test_no_replica_in_sync_means_no_master_until_one_returns(site: Site) -> None:
    async with group_of(site, 2) as (master, slave):
        await site.in_sync(master.broker_id)
        await master.die()
        await until(lambda: site.group.master_id is None)
        assert (site.group.master_epoch, site.group.sync_state_set) == (2, (master.broker_id,))
        await site.elect(slave.broker_id, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
        back = FakeBroker(site)
        back.broker_id = master.broker_id
        await back.port.start()
        await back.register()
        await back.beat()
        await site.elect(back.broker_id)
        assert site.group.master_id == back.broker_id
        await back.port.stop()


async def test_an_unclean_replica_leads_if_the_operator_allows_it(tmp_path: Path) -> None:
    async with site_at(tmp_path, enable_elect_unclean_master=True) as site, group_of(site, 2) as (master, slave):
        await site.in_sync(master.broker_id)
        await master.die()
        await until(lambda: site.group.master_id == slave.broker_id)


async def test_brokers_are_not_told_if_the_operator_says_so(tmp_path: Path) -> None:
    async with site_at(tmp_path, notify_broker_role_changed=False) as site, group_of(site, 2) as (master, slave):
        await master.die()
        await until(lambda: site.group.master_id == slave.broker_id)
        await until(lambda: not site.server.failover.electing)
        assert slave.heard == []


async def test_an_election_without_an_answer_is_tried_again(tmp_path: Path) -> None:
    async with site_at(tmp_path, elect_master_max_retry_count=2) as site, group_of(site, 2) as (master, slave):
        site.consensus.loses_answers = True
        proposed = site.consensus.proposed
        await master.die()
        # The second attempt finds the master that the first one elected.
        await until(lambda: site.consensus.proposed > proposed and not site.server.failover.electing)
        assert (site.group.master_id, site.group.master_epoch) == (slave.broker_id, 2)
        await until(lambda: slave.heard)


async def test_a_broker_that_connects_again_outlives_its_old_connection(site: Site) -> None:
    async with group_of(site, 2) as (master, _):
        old, master.connection = master.connection, site.connection()
        await master.beat()
        count = site.server.connections
        await old.close()
        await until(lambda: site.server.connections < count)
        assert site.group.master_id == master.broker_id
        assert len(site.server.live) == 2


async def test_a_second_broker_with_the_id_of_a_living_one_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with group_of(site, 2) as (master, slave):
        copy = FakeBroker(site)
        copy.broker_id = master.broker_id
        await copy.port.start()
        says = await copy.register(ResponseCode.CONTROLLER_BROKER_ID_INVALID)
        assert f"is in use by the broker at {master.address}, which is alive" in str(says.remark)
        for _ in range(3):
            says = await copy.beat(ResponseCode.CONTROLLER_BROKER_ID_INVALID)
        assert f"the broker at {copy.address} needs a directory of its own" in str(says.remark)
        assert sum("event=heartbeat_refused" in record.getMessage() for record in caplog.records) == 1
        assert site.group.address_of(master.broker_id) == master.address
        # Once the owner is gone, its id may move to another address.
        await master.die()
        await until(lambda: site.group.master_id == slave.broker_id)
        await copy.register()
        assert site.group.address_of(copy.broker_id) == copy.address
        await copy.port.stop()


async def test_a_bug_ends_the_process_and_a_stop_ends_everything(tmp_path: Path) -> None:
    failures: list[SprocketError]
    async with site_at(tmp_path) as site:
        failures = site.failures
        site.server.machine.apply(b"\x07")
    assert len(failures) == 1
    changes: dict[str, Any] = {}
    again = Site(tmp_path, changes)
    await again.server.stop()  # never started


async def test_the_id_of_an_emptied_disk_is_forgotten(tmp_path: Path) -> None:
    async with site_at(tmp_path) as site, group_of(site, 3) as (master, emptied, other):
        await emptied.connection.close()
        emptied.connection = site.connection()
        await until(lambda: not site.server.live.is_live((CLUSTER, GROUP, 2), 0))
        names = {"cluster_name": CLUSTER, "broker_name": GROUP}
        apply = ApplyBrokerIdRequestHeader(**names, applied_broker_id=4, register_check_code=f"{emptied.address};later")
        await site.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        emptied.broker_id = 4
        await emptied.register()
        await emptied.beat()
        # It may have what was acknowledged, as long as it is in sync.
        site.server.failover.scan()
        await site.in_sync(master.broker_id, other.broker_id)
        assert site.group.broker_ids == (1, 2, 3, 4)
        site.server.failover.scan()
        await until(lambda: site.group.broker_ids == (1, 3, 4))


@pytest.mark.parametrize(
    ("replicas", "live", "ghosts"),
    [
        ([(1, "m", "m"), (2, "a", "a"), (4, "a", "a")], (1, 4), (2,)),
        ([(1, "m", "m"), (2, "a", "a"), (4, "a", "a")], (1, 2), ()),
        ([(1, "m", "m"), (2, "a", "a"), (4, "a", "a")], (1,), ()),
        # A broker moved to this address: the other one moved elsewhere, or may return.
        ([(1, "m", "m"), (2, "a", "a"), (4, "a", "b")], (1, 4), ()),
        ([(1, "m", "m"), (2, "a", "b"), (4, "a", "a")], (1, 4), ()),
        ([(1, "a", "a"), (4, "a", "a")], (4,), ()),  # the master
    ],
)
def test_ghosts(replicas: list[tuple[int, str, str]], live: tuple[int, ...], ghosts: tuple[int, ...]) -> None:
    made = tuple(Replica(broker_id, address, f"{applied};1") for broker_id, address, applied in replicas)
    group = Group(cluster=CLUSTER, name=GROUP, replicas=made, master_id=1, sync_state_set=(1,), next_broker_id=5)
    assert group.ghosts(live) == ghosts
