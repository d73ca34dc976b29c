"""Requests of operators over a real connection: metadata, replicas, clean-up, configuration."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.state.group import Group, Replica
from sprocket.remoting.bodies.controller import BrokerGroupState, BrokerReplicasInfo, ReplicaIdentity
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ForgetControllerRequestHeader,
    GetMetaDataResponseHeader,
)
from tests.controller.site import CLUSTER, GROUP, Site, group_of, site_at
from tests.waiting import until


@pytest.mark.code(RequestCode.CONTROLLER_GET_METADATA_INFO)
async def test_every_controller_names_the_leader(tmp_path: Path) -> None:
    peers = "n0-127.0.0.1:9878;n1-ctl.example.org:9868"
    async with site_at(tmp_path, controller_dleger_peers=peers.replace("9878", "21878")) as site:
        for leader, address in (("n0", "127.0.0.1:21878"), ("n1", "ctl.example.org:9868"), (None, None)):
            site.consensus.leader = leader
            header = (await site.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).header(GetMetaDataResponseHeader)
            assert (header.group, header.controller_leader_id) == ("g", leader)
            assert (header.controller_leader_address, header.is_leader) == (address, leader == "n0")
            assert header.peers == "n0:127.0.0.1:21878;n1:ctl.example.org:9868;"


@pytest.mark.code(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
async def test_replicas_are_shown_in_sync_and_not(site: Site) -> None:
    async with group_of(site, 3) as brokers:
        await site.in_sync(1, 2)
        await brokers[2].die()
        await until(lambda: len(site.server.live) == 2)
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await site.ask(code, content=dumps([GROUP, "nobody", GROUP]))
        (info,) = loads(answer.body, BrokerReplicasInfo).replicas_info_table.values()
        assert (info.master_broker_id, info.master_address) == (1, brokers[0].address)
        assert (info.master_epoch, info.sync_state_set_epoch) == (1, 3)
        replicas = [
            ReplicaIdentity(GROUP, 1, brokers[0].address, True),
            ReplicaIdentity(GROUP, 2, brokers[1].address, True),
        ]
        assert info.in_sync_replicas == replicas
        assert [(one.broker_id, one.alive) for one in info.not_in_sync_replicas] == [(3, False)]
        for empty in (b"", b"[]"):
            await site.ask(code, content=empty, expect=ResponseCode.CONTROLLER_INVALID_REQUEST)


@pytest.mark.code(RequestCode.CLEAN_BROKER_DATA)
async def test_brokers_that_are_gone_are_forgotten(site: Site) -> None:
    async def clean(ids: str | None, expect: ResponseCode = ResponseCode.SUCCESS, living: bool = False) -> str:
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=CLUSTER,
            broker_name=GROUP,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
        )
        return str((await site.ask(RequestCode.CLEAN_BROKER_DATA, header, expect=expect)).remark)

    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    async with group_of(site, 2) as brokers:
        assert await clean(None, invalid) == "Broker broker-a is still alive, clean up failure"
        assert await clean("2", invalid) == "Broker [broker-a,  2] is still alive, clean up failure"
        for wrong in ("x", "1;-2", "1," + "9" * 30, "²"):
            assert "according to the format" in await clean(wrong, invalid)
        await brokers[1].die()
        await until(lambda: len(site.server.live) == 1)
        await clean("2")
        assert site.group.broker_ids == (1,)
        await clean(None, living=True)
        assert site.server.machine.group(GROUP) is None


@pytest.mark.code(RequestCode.GET_CONTROLLER_CONFIG, RequestCode.UPDATE_CONTROLLER_CONFIG)
async def test_mutable_keys_change_and_others_do_not(site: Site) -> None:
    update = RequestCode.UPDATE_CONTROLLER_CONFIG
    await site.ask(update, content=b"enableElectUncleanMaster=true\nelectMasterMaxRetryCount=5\n")
    text = (await site.ask(RequestCode.GET_CONTROLLER_CONFIG)).body.decode()
    assert "enableElectUncleanMaster=true" in text
    assert "electMasterMaxRetryCount=5" in text
    assert site.server.settings.current.enable_elect_unclean_master
    for key in ("controllerStorePath", "controllerDLegerPeers", "authenticationEnabled", "configStorePath", "bogus"):
        refused = await site.ask(update, content=f"{key}=x".encode(), expect=ResponseCode.NO_PERMISSION)
        assert f"Can not update {key}" in str(refused.remark)
    await site.ask(update, content=b"electMasterMaxRetryCount=0", expect=ResponseCode.INVALID_PARAMETER)


@pytest.mark.code(RequestCode.FORGET_CONTROLLER)
async def test_a_controller_that_lost_its_disk_is_forgotten(site: Site) -> None:
    async def forget(controller_id: str, expect: ResponseCode = ResponseCode.SUCCESS) -> str:
        header = ForgetControllerRequestHeader(controller_id=controller_id)
        return str((await site.ask(RequestCode.FORGET_CONTROLLER, header, expect=expect)).remark)

    await forget("n1")
    assert site.consensus.forgotten == ["n1"]
    assert "n7 is not another member" in await forget("n7", ResponseCode.CONTROLLER_INVALID_REQUEST)
    site.consensus.leader = "n1"
    await forget("n1", ResponseCode.CONTROLLER_NOT_LEADER)


STATE = BrokerGroupState(
    cluster_name=CLUSTER, broker_name=GROUP, brokers={2: "h:2", 1: "h:1"}, next_broker_id=5, master_broker_id=2,
    master_epoch=7, sync_state_set_epoch=9,
)  # fmt: skip


@pytest.mark.code(RequestCode.ADOPT_BROKER_GROUP)
async def test_a_group_is_taken_over_with_its_ids_and_its_master_alone_in_sync(site: Site) -> None:
    await site.ask(RequestCode.ADOPT_BROKER_GROUP, content=dumps(STATE))
    assert site.group == Group(
        cluster=CLUSTER, name=GROUP, next_broker_id=5, replicas=(Replica(1, "h:1", ""), Replica(2, "h:2", "")),
        master_id=2, master_epoch=7, sync_state_set=(2,), sync_state_set_epoch=9,
    )  # fmt: skip
    invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
    refused = await site.ask(RequestCode.ADOPT_BROKER_GROUP, content=dumps(STATE), expect=invalid)
    assert "is known here already" in str(refused.remark)


@pytest.mark.parametrize(
    "change",
    [
        {"master_broker_id": 3},
        {"next_broker_id": 2},
        {"brokers": {0: "h:0", 2: "h:2"}},
        {"brokers": {}},
        {"brokers": {2: ""}},
        {"brokers": {2: "h" * 256}},
        {"cluster_name": ""},
        {"master_epoch": 0},
        {"sync_state_set_epoch": -1},
        {"brokers": {number: f"h:{number}" for number in range(1, 66)}, "next_broker_id": 100},
    ],
)
async def test_a_group_that_cannot_be_is_not_taken_over(site: Site, change: dict[str, Any]) -> None:
    content = dumps(msgspec.structs.replace(STATE, **change))
    answer = await site.client.invoke(site.address, RequestCode.ADOPT_BROKER_GROUP, None, content)
    assert answer.code in (ResponseCode.CONTROLLER_INVALID_REQUEST, ResponseCode.SYSTEM_ERROR)
    assert site.server.machine.group(GROUP) is None


async def test_what_a_controller_does_not_serve_is_refused_by_name(site: Site) -> None:
    for code in (
        RequestCode.BROKER_CLOSE_CHANNEL_REQUEST,
        RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
        RequestCode.GET_SYNC_STATE_DATA_REQUEST,
        RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.SEND_MESSAGE_V2,
    ):
        refused = await site.ask(code, expect=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        assert refused.remark == f" request type {int(code)} ({code.name}) not supported"
    assert len(site.server.routes.entries) == 15
