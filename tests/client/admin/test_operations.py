"""Methods of the administration client for configurations, groups, permissions and maintenance, on a real broker."""

from collections.abc import AsyncIterator, Iterator

import pytest

from sprocket import (
    AclChange,
    AdminClient,
    AdminError,
    ConfigRefused,
    IllegalArgument,
    PermissionDenied,
    Producer,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
    sync,
)
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import Message
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.message.topic_names import dlq_topic, retry_topic
from sprocket.testing import Broker

ADMIN = Credentials("admin", "secret-of-admin")
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "autoCreateSubscriptionGroup": "false",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("operations"), properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.namesrv, credentials=ADMIN) as client:
        yield client


async def cluster_of(admin: AdminClient) -> str:
    (cluster,) = (await admin.cluster_info()).cluster_addr_table
    return cluster


# Configurations


async def test_a_broker_config_is_read_and_changed(admin: AdminClient, broker: Broker) -> None:
    before = await admin.broker_config(broker.address)
    assert before["autoCreateSubscriptionGroup"] == "false"
    changes = {"maxTransferCountOnMessageInMemory": "17", "maxTransferBytesOnMessageInMemory": "65537"}
    await admin.update_broker_config(broker.address, changes)
    after = await admin.broker_config(broker.address)
    assert {key: after[key] for key in after if after[key] != before[key]} == changes


async def test_a_refused_change_changes_nothing(admin: AdminClient, broker: Broker) -> None:
    before = await admin.broker_config(broker.address)
    changes = {"maxTransferCountOnMessageInMemory": "18", "maxTransferBytesOnMessageInMemory": "many"}
    with pytest.raises(ConfigRefused, match="maxTransferBytesOnMessageInMemory") as refused:
        await admin.update_broker_config(broker.address, changes)
    assert not isinstance(refused.value, PermissionDenied)
    with pytest.raises(ConfigRefused, match="noSuchKey"):
        await admin.update_name_server_config(broker.namesrv, {"noSuchKey": "1"})
    assert await admin.broker_config(broker.address) == before


@pytest.mark.parametrize("changes", [{}, {"maxTransferCountOnMessageInMemory": 18}, None])
async def test_changes_that_cannot_be_sent(admin: AdminClient, broker: Broker, changes: object) -> None:
    for asked in (
        admin.update_broker_config(broker.address, changes),  # type: ignore[arg-type]
        admin.update_name_server_config(broker.namesrv, changes),  # type: ignore[arg-type]
    ):
        with pytest.raises(IllegalArgument, match="pass "):
            await asked


async def test_name_server_config(admin: AdminClient, broker: Broker) -> None:
    key = "returnOrderTopicConfigToBroker"
    assert (await admin.name_server_config(broker.namesrv))[key] == "true"
    await admin.update_name_server_config(broker.namesrv, {key: "false"})
    assert (await admin.name_server_config(broker.namesrv))[key] == "false"


# Groups


async def test_a_group_from_first_to_last(admin: AdminClient, broker: Broker) -> None:
    group, cluster = "operators", await cluster_of(admin)
    assert await admin.group_config(broker.address, group) is None
    await admin.create_group(broker.address, SubscriptionGroupConfig(group, retry_max_times=3))
    made = await admin.group_config(broker.address, group)
    assert made is not None and made.retry_max_times == 3
    await admin.create_group(broker.address, SubscriptionGroupConfig(group, consume_enable=False))
    changed = await admin.group_config(broker.address, group)
    assert changed is not None and (changed.retry_max_times, changed.consume_enable) == (16, False)
    for topic in (retry_topic(group), dlq_topic(group)):
        await admin.create_topic(broker.address, TopicConfig(topic, 1, 1))
    await admin.delete_group(broker.address, group, with_offsets=True)
    for topic in (retry_topic(group), dlq_topic(group)):
        await admin.delete_topic(topic, cluster)
    assert await admin.group_config(broker.address, group) is None
    assert group not in (await admin.consumer_groups(broker.address)).subscription_group_table
    assert await admin.topic_config(broker.address, dlq_topic(group)) is None


async def test_several_groups_are_created_together_or_not_at_all(admin: AdminClient, broker: Broker) -> None:
    with pytest.raises(AdminError):
        await admin.create_groups(broker.address, [SubscriptionGroupConfig("one"), SubscriptionGroupConfig("b c")])
    assert await admin.group_config(broker.address, "one") is None
    await admin.create_groups(broker.address, [SubscriptionGroupConfig("one"), SubscriptionGroupConfig("two")])
    assert {"one", "two"} <= (await admin.user_consumer_groups(broker.address)).subscription_group_table.keys()


# Permissions


async def test_write_permission_of_a_broker(admin: AdminClient, broker: Broker) -> None:
    await admin.create_topic(broker.address, TopicConfig("Permitted", 1, 1))
    (name,) = (await admin.cluster_info()).broker_addr_table

    async def perm() -> int:
        return (await admin.topic_route("Permitted")).queue_datas[0].perm

    wiped = (await admin.wipe_write_perm(name))[broker.namesrv]
    assert isinstance(wiped, int) and wiped > 0
    assert await perm() == 4
    assert (await admin.add_write_perm(name))[broker.namesrv] == wiped
    assert await perm() == 6
    assert (await admin.wipe_write_perm("elsewhere"))[broker.namesrv] == 0


async def test_a_user_and_its_acl_from_first_to_last(admin: AdminClient, broker: Broker) -> None:
    address = broker.address
    assert await admin.user(address, "writer") is None
    await admin.create_user(address, UserInfo("writer", "secret-of-writer", "Normal"))
    assert [user.username for user in await admin.users(address, "write")] == ["writer"]
    await admin.create_topic(address, TopicConfig("Guarded", 1, 1))
    writer = ClientSettings(namesrv=broker.namesrv, credentials=Credentials("writer", "secret-of-writer"))

    async def send() -> None:
        async with Producer("g", client=writer) as producer:
            await producer.send(Message("Guarded", b"1"))

    with pytest.raises(PermissionDenied):
        await send()
    change = AclChange("User:writer", ("Topic:Guarded",), ("Pub",), (), "Allow")
    await admin.create_acl(address, change.info)
    await send()
    await admin.update_acl(address, AclChange("User:writer", ("Topic:Guarded",), ("Pub",), (), "Deny").info)
    with pytest.raises(PermissionDenied):
        await send()
    (acl,) = await admin.acls(address, "User:writer")
    assert acl == await admin.acl(address, "User:writer")
    assert [entry.decision for policy in acl.policies or () for entry in policy.entries or ()] == ["Deny"]
    await admin.delete_acl(address, "User:writer", "Topic:Guarded")
    with pytest.raises(AdminError, match="acl is not exist") as missing:
        await admin.delete_acl(address, "User:writer")
    assert not isinstance(missing.value, PermissionDenied)
    assert await admin.acls(address, "User:writer") == []
    await admin.update_user(address, UserInfo("writer", user_status="disable"))
    user = await admin.user(address, "writer")
    assert user is not None and (user.user_status, user.user_type) == ("disable", "Normal")
    await admin.delete_user(address, "writer")
    assert await admin.users(address, "writer") == []


async def test_who_may_not_is_told_so(broker: Broker) -> None:
    async with AdminClient(broker.namesrv, credentials=Credentials("admin", "wrong")) as admin:
        for asked in (
            admin.broker_config(broker.address),
            admin.create_group(broker.address, SubscriptionGroupConfig("g")),
            admin.users(broker.address),
            admin.clean_unused_topics(broker.address),
        ):
            with pytest.raises(AdminError) as refused:
                await asked
            assert isinstance(refused.value, PermissionDenied)


# Maintenance


async def test_queues_of_deleted_topics_are_removed(admin: AdminClient, broker: Broker) -> None:
    await admin.create_topic(broker.address, TopicConfig("Unused", 1, 1))
    async with Producer("g", client=ClientSettings(namesrv=broker.namesrv, credentials=ADMIN)) as producer:
        await producer.send(Message("Unused", b"1"))
    folder = broker.store / "consumequeue" / "Unused"
    assert folder.exists()
    await admin.delete_topic("Unused", await cluster_of(admin))
    await admin.clean_unused_topics(broker.address)
    assert not folder.exists()


async def test_a_broker_cleans_when_it_is_asked(admin: AdminClient, broker: Broker) -> None:
    await admin.clean_expired_queues(broker.address)
    await admin.delete_expired_commit_log(broker.address)
    assert "success" in await admin.set_read_ahead(broker.address, on=True)
    await admin.set_cold_threshold(broker.address, "cold", 1 << 20)
    await admin.remove_cold_threshold(broker.address, "cold")
    status = await admin.ha_status(broker.address)
    assert status.master and status.ha_connection_info == []


async def test_flushed_offset_of_a_master(admin: AdminClient, broker: Broker) -> None:
    with pytest.raises(IllegalArgument, match="offset is -1"):
        await admin.reset_master_flush_offset(broker.address, -1)
    # The broker is a master itself, and remembers none.
    await admin.reset_master_flush_offset(broker.address, 0)


async def test_a_broker_that_is_not_there(admin: AdminClient) -> None:
    with pytest.raises(AdminError) as failed:
        await admin.broker_config("127.0.0.1:1")
    assert failed.value.code is None and "127.0.0.1:1" in str(failed.value)


def test_the_blocking_client_has_the_same_methods(broker: Broker) -> None:
    with sync.Admin(broker.namesrv, credentials=ADMIN) as admin:
        assert admin(lambda aio: aio.broker_config(broker.address))["brokerClusterName"]
        with pytest.raises(ConfigRefused, match="noSuchKey: unknown key"):
            admin(lambda aio: aio.update_broker_config(broker.address, {"noSuchKey": "1"}))
