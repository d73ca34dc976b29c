"""Access control says no: what applications see of it."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from sprocket import (
    AdminClient,
    AdminError,
    BrokerRefused,
    ClientSettings,
    ConsumeFrom,
    Consumer,
    Credentials,
    Message,
    OrderlyConsumer,
    PermissionDenied,
    Producer,
    SendFailed,
    SendSettings,
    SimpleConsumer,
    TopicNotFound,
    TopicNotWritable,
    sync,
)
from sprocket.client.admin.auth_requests import AclChange
from sprocket.client.errors import refusal
from sprocket.remoting.bodies.auth import UserInfo
from sprocket.remoting.bodies.route import ClusterInfo
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Response
from sprocket.remoting.routes import NoHeader
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeNameServer, route, topic_data


@pytest.mark.parametrize(
    ("code", "remark", "is_denied"),
    [
        (ResponseCode.NO_PERMISSION, "User:alice has no permission to access Topic:T from 10.0.0.1, no policies", True),
        (ResponseCode.NO_PERMISSION, "username cannot be null.", True),
        (ResponseCode.NO_PERMISSION, "the topic[T] sending message is forbidden", False),
        (ResponseCode.NO_PERMISSION, "subscription group no permission, g", False),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: No permission for T", True),
        (ResponseCode.SYSTEM_ERROR, "disk full", False),
        (ResponseCode.SYSTEM_ERROR, None, False),
    ],
)
def test_what_access_control_refused_is_told_from_other_refusals(
    code: int, remark: str | None, is_denied: bool
) -> None:
    error = refusal(code, remark, "127.0.0.1:10911")
    assert isinstance(error, BrokerRefused)
    assert isinstance(error, PermissionDenied) is is_denied
    assert (error.code, error.remark, error.address) == (code, remark, "127.0.0.1:10911")
    assert ("credentials" in str(error)) is is_denied


ADMIN = Credentials("admin", "secret-of-admin")
READER = Credentials("reader", "secret-of-reader")
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the topic T, and a user `reader` without any policy."""

    async def prepare(broker: Broker) -> None:
        async with AdminClient(broker.namesrv, credentials=ADMIN) as admin:
            await admin.create_topic(broker.address, TopicConfig("T", 4, 4))
            await admin.create_user(broker.address, UserInfo("reader", "secret-of-reader", "Normal"))

    with Broker(tmp_path_factory.mktemp("guarded"), properties=PROPERTIES) as broker:
        asyncio.run(prepare(broker))
        yield broker


def settings(broker: Broker, credentials: Credentials | None = READER) -> ClientSettings:
    return ClientSettings(namesrv=broker.namesrv, credentials=credentials)


async def grant(broker: Broker, *resources: str) -> None:
    """Let `reader` do anything with `resources`."""
    async with AdminClient(broker.namesrv, credentials=ADMIN) as admin:
        change = AclChange("User:reader", resources, ("Pub", "Sub"), (), "Allow")
        await admin.create_acl(broker.address, change.info)


async def withdraw(broker: Broker) -> None:
    async with AdminClient(broker.namesrv, credentials=ADMIN) as admin:
        await admin.delete_acl(broker.address, "User:reader")


@pytest.mark.parametrize("credentials", [None, READER])
async def test_send_without_permission_is_tried_once(
    guarded: Broker, credentials: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Producer("g", client=settings(guarded, credentials)) as producer:
        for work in (
            producer.send(Message("T", b"x")),
            producer.send_batch([Message("T", b"x")]),
            anext(producer.send_many([Message("T", b"x")])),
        ):
            with pytest.raises(PermissionDenied, match=r"NO_PERMISSION.*credentials.*createAcl"):
                await work
        assert not producer._sender.faults.avoided  # the broker is healthy
    assert "send_attempt_failed" not in caplog.text


async def test_admin_without_permission(guarded: Broker) -> None:
    async with AdminClient(guarded.namesrv, credentials=READER) as admin:
        with pytest.raises(PermissionDenied, match="has no permission") as denied:
            await admin.broker_runtime_info(guarded.address)
    assert isinstance(denied.value, AdminError)


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer, SimpleConsumer])
async def test_run_of_a_consumer_without_permission_ends(guarded: Broker, kind: type[Consumer]) -> None:
    async with kind("readers", "T", client=settings(guarded)) as consumer:
        for _ in range(2):  # it goes on trying, so it says so again
            with pytest.raises(PermissionDenied, match="reader has no permission"):
                await consumer.run(print, concurrency=3)


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer, SimpleConsumer])
async def test_consumer_without_credentials_is_told(guarded: Broker, kind: type[Consumer]) -> None:
    async with kind("readers", "T", client=settings(guarded, None)) as consumer:
        with pytest.raises(PermissionDenied, match="username cannot be null"):
            await consumer.run(print)
    async with kind("readers", "Missing", client=settings(guarded, None)) as consumer:
        with pytest.raises(PermissionDenied, match="username cannot be null"):
            await consumer.run(print)


@pytest.mark.parametrize("kind", [Consumer, SimpleConsumer])
async def test_iteration_of_a_consumer_without_permission_ends(guarded: Broker, kind: type[Consumer]) -> None:
    async with kind("readers", "T", client=settings(guarded)) as consumer:
        with pytest.raises(PermissionDenied, match="reader has no permission"):
            await anext(aiter(consumer))
        with pytest.raises(PermissionDenied):
            await consumer.receive(1, wait_s=30)


def test_blocking_consumer_without_permission(guarded: Broker) -> None:
    with sync.Consumer("readers", "T", client=settings(guarded)) as consumer:
        with pytest.raises(PermissionDenied):
            next(iter(consumer))
        with pytest.raises(PermissionDenied):
            consumer.run(print)
    with sync.SimpleConsumer("readers", "T", client=settings(guarded)) as simple, pytest.raises(PermissionDenied):
        next(iter(simple))


async def test_consumer_that_is_permitted_later_goes_on(guarded: Broker) -> None:
    begin = ConsumeFrom.FIRST
    async with Consumer("late", "T", client=settings(guarded), consume_from=begin) as consumer:
        with pytest.raises(PermissionDenied):
            await anext(consumer)
        await grant(guarded, "Topic:T", "Group:late")
        try:
            async with Producer("g", client=settings(guarded)) as producer:
                await producer.send(Message("T", b"permitted"))
            while True:
                try:
                    message = await anext(consumer)
                    break
                except PermissionDenied:
                    continue
            assert message.body == b"permitted"
        finally:
            await withdraw(guarded)


# A topic that cannot be sent to, for whatever other reason


async def test_topic_without_write_permission_is_not_called_missing(shared_broker: Broker) -> None:
    async with AdminClient(shared_broker.namesrv) as admin:
        await admin.create_topic(shared_broker.address, TopicConfig("ReadOnly", 4, 4, perm=4))
    async with Producer("g", shared_broker.namesrv) as producer:
        with pytest.raises(
            TopicNotWritable, match=r"exists, but .* does not permit writing \(perm 4\).*updateTopicPerm"
        ):
            await producer.send(Message("ReadOnly", b"x"))


async def test_topic_that_loses_its_write_permission(shared_broker: Broker) -> None:
    """The producer has its old route."""
    async with AdminClient(shared_broker.namesrv) as admin:
        await admin.create_topic(shared_broker.address, TopicConfig("Closing", 1, 1))
        async with Producer("g", shared_broker.namesrv) as producer:
            await producer.send(Message("Closing", b"x"))
            await admin.create_topic(shared_broker.address, TopicConfig("Closing", 1, 1, perm=4))
            with pytest.raises((SendFailed, TopicNotWritable), match="updateTopicPerm") as refused:
                await producer.send(Message("Closing", b"x"))
            assert not isinstance(refused.value, PermissionDenied)


async def test_topic_whose_master_is_down_is_not_called_missing() -> None:
    async with FakeNameServer() as names:
        data = topic_data(("a", "127.0.0.1:1"))
        data.broker_datas[0].broker_addrs = {1: "127.0.0.1:2"}
        names.topics["T"] = data
        async with Producer("g", names.address) as producer:
            with pytest.raises(TopicNotWritable, match="the master of a is down or not registered"):
                await producer.send(Message("T", b"x"))


async def test_name_server_without_brokers_is_told() -> None:
    def nobody(request: object) -> Response:
        return Response(body=dumps(ClusterInfo()))

    routes = [route(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader, nobody)]
    async with FakeNameServer(routes) as names, Producer("g", names.address) as producer:
        with pytest.raises(TopicNotFound, match="no broker is registered there at all; start one"):
            await producer.send(Message("T", b"x"))


async def test_send_to_a_broker_that_is_down_does_not_speak_of_permissions() -> None:
    async with FakeNameServer() as names:
        names.topics["T"] = topic_data(("a", "127.0.0.1:1"))
        made = SendSettings(send_msg_timeout_s=0.3)
        async with Producer("g", names.address, settings=made) as producer:
            with pytest.raises(SendFailed, match="Check that the brokers of the topic run and can be reached"):
                await producer.send(Message("T", b"x"))
