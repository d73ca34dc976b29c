from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.group import (
    DeleteSubscriptionGroupListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker

Pair = tuple[Broker, TestClient]


@pytest.mark.code(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
async def test_groups(pair: Pair) -> None:
    broker, client = pair
    body = dumps(SubscriptionGroupConfig("A", retry_max_times=3))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    body = dumps(SubscriptionGroupList([SubscriptionGroupConfig("B"), SubscriptionGroupConfig("C")]))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
    response = await client.ask_well(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert {"A", "B", "C"} <= loads(response.body, SubscriptionGroupTable).subscription_group_table.keys()
    header = GetSubscriptionGroupConfigRequestHeader(group="A")
    response = await client.ask_well(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert loads(response.body, SubscriptionGroupConfig).retry_max_times == 3
    broker.offsets.commit("A", TOPIC, 0, 1)
    delete = DeleteSubscriptionGroupRequestHeader(group_name="A", clean_offset=True)
    await client.ask_well(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)
    assert broker.offsets.topics_of("A") == set()
    # It would be made when it is first used: it is described, and not made.
    response = await client.ask_well(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert loads(response.body, SubscriptionGroupConfig) == SubscriptionGroupConfig("A")
    assert "A" not in broker.groups


async def test_a_slave_copies_the_groups_in_pages(pair: Pair) -> None:
    broker, client = pair
    broker.groups.update([SubscriptionGroupConfig(f"Many{number}") for number in range(10)])
    broker.groups.forbid("Many9", TOPIC, 4)

    async def page(start: int, version: str) -> tuple[SubscriptionGroupTable, int]:
        header = GetAllSubscriptionGroupRequestHeader(group_seq=start, max_group_num=4, data_version=version)
        response = await client.ask_well(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        return loads(response.body, SubscriptionGroupTable), int(response.ext_fields["totalGroupNum"])

    copied: dict[str, SubscriptionGroupConfig] = {}
    forbidden: dict[str, dict[str, int]] = {}
    version, total = "", 1
    while len(copied) < total:
        table, total = await page(len(copied), version)
        version = dumps(table.data_version).decode()
        assert 0 < len(table.subscription_group_table) <= 4
        assert not copied.keys() & table.subscription_group_table.keys()
        copied |= table.subscription_group_table
        forbidden |= table.forbidden_table
    assert (copied, forbidden) == (broker.groups.by_name, {"Many9": {TOPIC: 4}})
    # After a change the next page is the first one, with the new version.
    broker.groups.update([SubscriptionGroupConfig("Late")])
    table, _ = await page(4, version)
    assert (list(table.subscription_group_table), table.data_version) == (list(copied)[:4], broker.groups.data_version)


@pytest.mark.code(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST)
async def test_several_groups_are_deleted(pair: Pair) -> None:
    broker, client = pair
    broker.groups.update([SubscriptionGroupConfig(name) for name in "ABC"])
    for name in "AB":
        broker.offsets.commit(name, TOPIC, 0, 1)
    code, body = RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, DeleteSubscriptionGroupListRequestBody
    for names in ([], ["A", " "]):
        response = await client.ask(code, body=dumps(body(names)))
        assert response.code == ResponseCode.INVALID_PARAMETER
    await client.ask_well(code, body=dumps(body(["A", "A", "Unknown"])))
    assert "A" not in broker.groups and "B" in broker.groups
    assert broker.offsets.topics_of("A") == {TOPIC}
    await client.ask_well(code, body=dumps(body(["B"], clean_offset=True)))
    assert "B" not in broker.groups and "C" in broker.groups
    assert broker.offsets.topics_of("B") == set()


async def test_a_long_name_is_for_groups_that_are_there(pair: Pair) -> None:
    broker, client = pair
    name = "g" * 121
    body = dumps(SubscriptionGroupConfig(name, retry_max_times=3))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    response = await client.ask(code, body=body)
    assert response.code == ResponseCode.INVALID_PARAMETER and "longer" in (response.remark or "")
    broker.groups.update([SubscriptionGroupConfig(name)])
    await client.ask_well(code, body=body)
    assert broker.groups.by_name[name].retry_max_times == 3


async def test_groups_that_are_made_on_first_use(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as (broker, client):
        header = GetSubscriptionGroupConfigRequestHeader(group="A")
        response = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert (response.code, response.remark) == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "No group in this broker",
        )
        assert broker.groups.find("A") is None
        assert broker.groups.find("CID_RMQ_SYS_x") == SubscriptionGroupConfig("CID_RMQ_SYS_x")
    async with running_broker(tmp_path, auto_create_subscription_group=False, enable_create_sys_group=False) as (
        broker,
        _,
    ):
        assert broker.groups.find("CID_RMQ_SYS_y") is None


@pytest.mark.parametrize("config", [SubscriptionGroupConfig("a b"), SubscriptionGroupConfig("A", retry_queue_nums=-1)])
async def test_refused_groups(pair: Pair, config: SubscriptionGroupConfig) -> None:
    _, client = pair
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config))
    assert response.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.code(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
async def test_group_is_forbidden_a_topic_and_allowed_it_again(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    await client.heartbeat("c1", TOPIC)

    async def ask(readable: bool | None) -> bool:
        header = UpdateGroupForbiddenRequestHeader(group=GROUP, topic=TOPIC, readable=readable)
        response = await client.ask_well(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return loads(response.body, GroupForbidden).readable

    assert await ask(None)
    assert not await ask(False)
    assert (await client.pull(sys_flag=0)).code == ResponseCode.NO_PERMISSION
    assert await ask(True)
    assert (await client.pull(sys_flag=0)).code == ResponseCode.SUCCESS
    assert broker.groups.snapshot().forbidden_table == {}


async def test_unknown_group_is_not_forbidden_anything(pair: Pair) -> None:
    _, client = pair
    header = UpdateGroupForbiddenRequestHeader(group="Nobody", topic=TOPIC, readable=False)
    response = await client.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
