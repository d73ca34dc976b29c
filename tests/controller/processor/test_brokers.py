"""A broker's requests over a real connection: what it is answered, and what is refused by name."""

from pathlib import Path

import pytest

from sprocket.remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from tests.controller.site import CLUSTER, GROUP, FakeBroker, Site, group_of, site_at
from tests.waiting import until

NAMES = {"cluster_name": CLUSTER, "broker_name": GROUP}


async def next_id(site: Site) -> int | None:
    answer = await site.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(**NAMES))
    return answer.header(GetNextBrokerIdResponseHeader).next_broker_id


@pytest.mark.code(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID)
async def test_two_brokers_that_ask_at_a_time_get_two_ids(site: Site) -> None:
    assert await next_id(site) == await next_id(site) == 1

    def apply(code: str) -> ApplyBrokerIdRequestHeader:
        return ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=1, register_check_code=code)

    code = RequestCode.CONTROLLER_APPLY_BROKER_ID
    answer = await site.ask(code, apply("10.0.0.1:1;5"))
    assert answer.header(ApplyBrokerIdResponseHeader) == ApplyBrokerIdResponseHeader(**NAMES)
    refused = await site.ask(code, apply("10.0.0.2:1;5"), expect=ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    assert refused.remark == "Fail to apply brokerId: 1 in broker-set: broker-a"
    await site.ask(code, apply("10.0.0.1:1;5"))
    assert await next_id(site) == 2
    for wrong, remark in (
        ("x" * 300 + ";1", "longer than 255"),
        ("a:1;" + "x" * 600, "the limit is 512"),
        ("", "empty"),
    ):
        refused = await site.ask(code, apply(wrong), expect=ResponseCode.CONTROLLER_INVALID_REQUEST)
        assert remark in str(refused.remark)


@pytest.mark.code(RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_ELECT_MASTER)
async def test_a_broker_registers_and_leads_or_follows(site: Site) -> None:
    first, second = FakeBroker(site), FakeBroker(site)
    await first.start()
    registered = await first.register()
    assert registered.header(RegisterBrokerToControllerResponseHeader).master_broker_id is None
    assert loads(registered.body, SyncStateSet) == SyncStateSet([], 0)
    elected = await site.elect(1)
    header = elected.header(ElectMasterResponseHeader)
    assert (header.master_broker_id, header.master_address) == (1, first.address)
    assert (header.master_epoch, header.sync_state_set_epoch) == (1, 1)
    body = loads(elected.body, ElectMasterResponseBody)
    assert body.sync_state_set == [1]
    assert body.broker_member_group is not None
    assert body.broker_member_group.broker_addrs == {1: first.address}
    await second.start()
    follows = (await second.register()).header(RegisterBrokerToControllerResponseHeader)
    assert (follows.master_broker_id, follows.master_address, follows.master_epoch) == (1, first.address, 1)
    still = await site.elect(2, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    assert still.header(ElectMasterResponseHeader).master_broker_id == 1
    assert loads(still.body, ElectMasterResponseBody) == ElectMasterResponseBody(None, [1])
    for broker in (first, second):
        await broker.port.stop()


@pytest.mark.code(RequestCode.CONTROLLER_ELECT_MASTER)
async def test_an_operator_names_the_new_master(site: Site) -> None:
    async with group_of(site, 2) as (first, second):
        await site.elect(second.broker_id, designate_elect=True)
        assert site.group.master_id == second.broker_id
        await until(lambda: first.heard and first.heard[-1][0].master_epoch == 2)
        assert first.heard[-1][0].master_address == second.address


@pytest.mark.code(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_GET_REPLICA_INFO)
async def test_the_sync_state_set_is_that_of_the_master(site: Site) -> None:
    async with group_of(site, 2):
        answer = await site.in_sync(1)
        assert answer.header(AlterSyncStateSetResponseHeader).new_sync_state_set_epoch == 3
        assert loads(answer.body, SyncStateSet) == SyncStateSet([1], 3)
        code, asked = RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=GROUP)
        info = await site.ask(code, asked)
        assert info.header(GetReplicaInfoResponseHeader).master_epoch == 1
        assert loads(info.body, SyncStateSet) == SyncStateSet([1], 3)
        await site.in_sync(1, 9, expect=ResponseCode.CONTROLLER_INVALID_REPLICAS)
        unknown = GetReplicaInfoRequestHeader(broker_name="nobody")
        refused = await site.ask(code, unknown, expect=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
        assert refused.remark == "Broker metadata is not existed"


async def test_a_sync_state_set_that_is_too_large_is_refused(site: Site) -> None:
    async with group_of(site, 1):
        header = AlterSyncStateSetRequestHeader(broker_name=GROUP, master_broker_id=1, master_epoch=1)
        body = dumps(SyncStateSet(list(range(65)), 1))
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        answer = await site.client.invoke(site.address, code, header, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "65 replicas, the limit is 64" in str(answer.remark)


async def test_a_heartbeat_without_an_id_is_refused(site: Site) -> None:
    broker = FakeBroker(site)
    await broker.port.start()
    refused = await broker.beat(ResponseCode.CONTROLLER_INVALID_REQUEST, broker_id=None)
    assert refused.remark == "Heart beat with empty brokerId"
    await broker.beat(ResponseCode.CONTROLLER_INVALID_REQUEST, broker_name=" ")
    await broker.port.stop()


async def test_a_broker_of_another_cluster_is_refused_by_name(site: Site) -> None:
    async with group_of(site, 1) as (broker,):
        refused = await broker.register(ResponseCode.CONTROLLER_INVALID_REQUEST, cluster_name="d")
        assert refused.remark == "Broker-set: broker-a belongs to cluster c, not to d"
        # It counts for nothing in this group.
        await broker.beat(cluster_name="d", broker_id=2, broker_addr="10.0.0.9:1")
        await site.in_sync(1, 2, expect=ResponseCode.CONTROLLER_INVALID_REPLICAS)


GROUPLESS: list[tuple[RequestCode, Header]] = [
    (RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader(broker_name=GROUP)),
    (RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=GROUP)),
    (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(**NAMES)),
    (
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=1, register_check_code="h:1;1"),
    ),
    (
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RegisterBrokerToControllerRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=1, broker_address="h:1"
        ),
    ),
    (RequestCode.CLEAN_BROKER_DATA, CleanControllerBrokerDataRequestHeader(broker_name=GROUP)),
]


@pytest.mark.parametrize(("code", "header"), GROUPLESS)
async def test_a_controller_that_does_not_lead_says_so(site: Site, code: RequestCode, header: Header) -> None:
    site.consensus.leader = "n1"
    refused = await site.ask(code, header, expect=ResponseCode.CONTROLLER_NOT_LEADER)
    assert str(refused.remark).startswith("The controller is not in leader state")
    assert site.consensus.proposed == 0


async def test_a_change_whose_outcome_is_unknown_is_not_called_a_refusal(site: Site) -> None:
    site.consensus.loses_answers = True
    header = ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=1, register_check_code="h:1;1")
    answer = await site.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header, expect=ResponseCode.SYSTEM_ERROR)
    assert str(answer.remark).endswith("ask for the state before trying again")
    assert await next_id(site) == 2


async def test_what_changes_nothing_is_confirmed_by_a_majority_and_leaves_the_log_alone(site: Site) -> None:
    async with group_of(site, 1) as (broker,):
        proposed, confirmed = site.consensus.proposed, site.consensus.confirmed
        await broker.register()
        await site.elect(1, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        await next_id(site)
        assert site.consensus.proposed == proposed
        assert site.consensus.confirmed == confirmed + 3


async def test_reads_go_through_the_log_with_process_read_event(tmp_path: Path) -> None:
    async with site_at(tmp_path, process_read_event=True) as site:
        before = site.consensus.proposed
        assert await next_id(site) == 1
        assert site.consensus.proposed == before + 1
