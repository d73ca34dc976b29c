"""A broker's life under controllers: ids, leases, elections, and what is refused by name."""

import asyncio
from pathlib import Path

import pytest

from broker.controller.identity import Identity, decode_identity
from sprocket.common.errors import ConfigError
from sprocket.common.figures import values
from sprocket.remoting.bodies.controller import EpochEntryCache
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from tests.broker.controller.membership_rig import LEASE_MS, FakeBroker, rig_at
from tests.controller.site import CLUSTER, GROUP
from tests.waiting import until


async def test_the_first_broker_leads_with_a_lease_and_the_next_ones_follow(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1")
        await until(lambda: first.is_held)
        assert first.switch.told == [("lead", 1)]
        figures = values(first.membership.figures())
        assert (figures["controllerBrokerId"], figures["controllerMasterEpoch"]) == ("1", "1")
        assert (figures["controllerHoldsLease"], figures["controllerSyncStateSet"]) == ("true", "1")
        second = await rig.broker("2")
        await until(lambda: second.switch.told == [("follow 1", 1)])
        assert (first.broker_id, second.broker_id) == (1, 2)
        assert not second.is_held
        assert rig.site.group.required_acks == 1
        # It is extended again and again.
        for _ in range(4):
            await asyncio.sleep(LEASE_MS / 2000)
            assert first.is_held


async def test_the_id_is_in_the_files_of_rocketmq(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        await rig.broker("1")
    path = tmp_path / "1" / "store" / "brokerIdentity"
    assert path.read_text() == f"{CLUSTER}#{GROUP}#1"
    assert not path.with_name("brokerIdentity-temp").exists()
    # An id that was applied for before a crash is applied for again.
    other = tmp_path / "2" / "store"
    other.mkdir(parents=True)
    async with rig_at(tmp_path / "again") as rig:
        await rig.broker("1")
        (rig.root / "2" / "store").mkdir(parents=True)
        temp = rig.root / "2" / "store" / "brokerIdentity-temp"
        temp.write_text(f"{CLUSTER}#{GROUP}#2#10.0.0.1:10911;1700000000000")
        second = await rig.broker("2")
        assert second.broker_id == 2
        assert rig.site.group.replica(2) is not None
        assert not temp.exists()


async def test_an_id_that_another_broker_got_is_given_up(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        await rig.broker("1")
        (rig.root / "2" / "store").mkdir(parents=True)
        (rig.root / "2" / "store" / "brokerIdentity-temp").write_text(f"{CLUSTER}#{GROUP}#1#10.0.0.1:1;5")
        assert (await rig.broker("2")).broker_id == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"other#{GROUP}#1", "belongs to broker broker-a of cluster other, not to broker-a of c"),
        (f"{CLUSTER}#broker-b#1", "belongs to broker broker-b of cluster c"),
    ],
)
def test_a_directory_of_another_broker_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "brokerIdentity").write_text(content)
    with pytest.raises(ConfigError, match=says):
        FakeBroker(tmp_path, "127.0.0.1:1", {}, {}).membership.check()


@pytest.mark.parametrize(
    ("address", "says"),
    [("", "name the controllers"), ("nowhere", "is not host:port"), ("a:1,b:2", "is not host:port")],
)
def test_wrong_addresses_are_refused(tmp_path: Path, address: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FakeBroker(tmp_path, address, {}, {}).membership.check()


def test_a_name_that_the_files_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerName = 'a#b'"):
        FakeBroker(tmp_path, "a:1", {}, {"broker_name": "a#b"}).membership.check()


@pytest.mark.parametrize("content", [b"", b"a#b", b"a#b#x", b"a#b#1#c#d", b"\xff#b#1", b"a#b#" + b"9" * 19])
def test_bytes_that_are_no_identity_are_refused(content: bytes) -> None:
    with pytest.raises(Exception, match="broker identity"):
        decode_identity(content)


def test_identities_survive_their_bytes() -> None:
    for one in (Identity("c", "a", 7), Identity("c", "a", 7, "h:1;5")):
        assert decode_identity(one.encode()) == one


async def test_a_copied_directory_is_refused_by_name_and_the_owner_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig_at(tmp_path) as rig:
        owner = await rig.broker("1")
        await until(lambda: owner.is_held)
        copy = FakeBroker(tmp_path / "1", rig.site.address, {}, {})
        rig.brokers.append(copy)
        await copy.start()
        await until(lambda: "needs a directory of its own" in caplog.text)
        assert copy.broker_id == 0
        await asyncio.sleep(LEASE_MS / 1000)
        assert owner.is_held
        assert copy.switch.told == []


async def test_a_broker_of_another_cluster_and_a_wrong_address_are_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1")
        for number, changes in enumerate(
            ({"broker_cluster_name": "d"}, {"controller_addr": f"127.0.0.1:{first.port.port}"})
        ):
            stranger = FakeBroker(tmp_path / f"s{number}", rig.site.address, {}, changes)
            rig.brokers.append(stranger)
            await stranger.start()
        await until(lambda: "belongs to cluster c, not to d" in caplog.text)
        await until(lambda: "this is no controller: correct controllerAddr" in caplog.text)


async def test_another_broker_leads_once_the_lease_of_the_killed_master_is_over(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await rig.broker("1"), await rig.broker("2")
        await until(lambda: first.is_held)
        await rig.in_sync(first, second)
        until_s = first.lease.until_s
        await first.die()
        await until(lambda: second.is_held)
        assert second.switch.told == [("follow 1", 1), ("lead", 2)]
        # The old master's clock and the new one's are the same here.
        assert second.lease.until_s - LEASE_MS / 1000 >= until_s - LEASE_MS / 1000 / 4
        assert rig.site.group.master_epoch == 2


async def test_a_master_that_starts_again_leads_in_a_new_epoch(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1")
        await until(lambda: first.is_held)
        await first.die()
        again = FakeBroker(tmp_path / "1", rig.site.address, {}, {})
        rig.brokers.append(again)
        await again.start()
        await until(lambda: again.is_held)
        assert again.switch.told[-1] == ("lead", 2)
        assert ("lead", 1) not in again.switch.told


async def test_a_master_that_starts_again_does_not_lead_in_its_old_epoch(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1", store={"in_sync_replicas": 2})
        others = [await rig.broker("2"), await rig.broker("3")]
        await until(lambda: first.is_held)
        for other in others:
            await rig.in_sync(first, other)
        for broker in (*others, first):
            await broker.die()
        again = FakeBroker(tmp_path / "1", rig.site.address, {"in_sync_replicas": 2}, {})
        rig.brokers.append(again)
        await again.start()
        # Two of three must show their logs, and it is alone.
        await until(lambda: again.switch.told)
        await asyncio.sleep(2 * LEASE_MS / 1000)
        assert again.switch.told == [("rest", -1)]
        assert not again.is_held
        back = await rig.broker("2")
        back.log.history = again.log.history = first.log.history
        await until(lambda: again.is_held or back.is_held)
        assert rig.site.group.master_epoch == 2


async def test_a_planned_stop_is_replaced_before_the_lease_would_have_ended(tmp_path: Path) -> None:
    async with rig_at(tmp_path, master_lease_millis=20_000) as rig:
        first, second = await rig.broker("1"), await rig.broker("2")
        await until(lambda: first.is_held)
        await rig.in_sync(first, second)
        await first.stop()
        assert not first.is_held
        await until(lambda: second.is_held, 10)


async def test_without_the_controllers_the_lease_runs_out(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1")
        await until(lambda: first.is_held)
        rig.site.consensus.leader = "n1"
        await until(lambda: not first.is_held)
        rig.site.consensus.leader = "n0"
        await until(lambda: first.is_held)
        assert rig.site.group.master_epoch == 1


@pytest.mark.code(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
async def test_a_notice_makes_the_broker_ask_and_is_not_believed(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1", sync_broker_metadata_period=60_000)
        await until(lambda: first.is_held)
        forged = NotifyBrokerRoleChangedRequestHeader(
            master_address="10.9.9.9:1", master_epoch=99, sync_state_set_epoch=99, master_broker_id=9
        )
        answer = await rig.site.client.invoke(
            f"127.0.0.1:{first.port.port}", RequestCode.NOTIFY_BROKER_ROLE_CHANGED, forged
        )
        assert answer.code == ResponseCode.SUCCESS
        await asyncio.sleep(LEASE_MS / 1000)
        assert first.is_held
        assert first.switch.told == [("lead", 1)]


@pytest.mark.code(RequestCode.GET_BROKER_EPOCH_CACHE)
async def test_epochs_are_shown_with_the_end_of_the_log(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first = await rig.broker("1")
        await until(lambda: first.is_held)
        first.log.end = 77
        answer = await rig.site.client.invoke(f"127.0.0.1:{first.port.port}", RequestCode.GET_BROKER_EPOCH_CACHE)
        cache = loads(answer.body, EpochEntryCache)
        assert (cache.cluster_name, cache.broker_name, cache.broker_id, cache.max_offset) == (CLUSTER, GROUP, 0, 77)
        assert [(one.epoch, one.start_offset, one.end_offset) for one in cache.epoch_list] == [(1, 0, 2**63 - 1)]
        first.log.is_closed = True
        answer = await rig.site.client.invoke(f"127.0.0.1:{first.port.port}", RequestCode.GET_BROKER_EPOCH_CACHE)
        assert answer.code != ResponseCode.SUCCESS


async def test_the_newest_decision_wins_and_changes_come_one_after_another(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await rig.broker("1"), await rig.broker("2")
        await until(lambda: first.is_held)
        await rig.in_sync(first, second)
        second.switch.pause_s = 0.3
        for wanted in (2, 1):
            await rig.site.elect(wanted, designate_elect=True)
            leader, other = (first, second) if wanted == 1 else (second, first)
            await until(lambda leader=leader: leader.is_held)  # type: ignore[misc]
            assert not other.is_held
            await rig.in_sync(leader, other)
        assert first.switch.told[-1] == ("lead", 3)
        await until(lambda: second.switch.told[-1] == ("follow 1", 3))


async def test_a_broker_that_cannot_lead_lets_another_one_lead(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await rig.broker("1"), await rig.broker("2")
        await until(lambda: first.is_held)
        await rig.in_sync(first, second)
        second.switch.fails = True
        await rig.site.elect(2, designate_elect=True)
        await until(lambda: second.switch.told[-1] == ("lead", 2))
        second.switch.fails = False
        # It alone is in sync, so it leads again, in a new epoch.
        await until(lambda: second.is_held)
        assert second.switch.told[-1] == ("lead", 3)


async def test_a_newer_epoch_makes_the_broker_find_the_leader_again_but_not_for_each_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_at(tmp_path) as rig:
        broker = await rig.broker("1")
        await until(lambda: broker.is_held)
        doubts = []
        doubt = broker.membership.controllers.doubt_leader
        monkeypatch.setattr(broker.membership.controllers, "doubt_leader", lambda: doubts.append(doubt()))
        for epoch, expected in ((rig.site.group.master_epoch, 0), (99, 1), (100, 1)):
            broker.membership.newer_epoch(epoch)
            assert len(doubts) == expected
        # It goes on to ask, and learns that there is no such epoch.
        broker.lease.given_up()
        await until(lambda: broker.is_held)


async def test_a_broker_whose_id_was_forgotten_while_it_was_away_gets_it_again(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        first, second = await rig.broker("1"), await rig.broker("2")
        await until(lambda: first.is_held)
        await second.die()
        forget = CleanControllerBrokerDataRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_controller_ids_to_clean="2", is_clean_living_broker=True
        )
        await rig.site.ask(RequestCode.CLEAN_BROKER_DATA, forget)
        assert rig.site.group.broker_ids == (1,)
        again = await rig.broker("2")
        assert again.broker_id == 2
        assert rig.site.group.broker_ids == (1, 2)
