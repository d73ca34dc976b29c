"""Clients that name a namespace reach its topics and groups, and no others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acl.auth.files import AuthFiles
from acl.auth.model import (
    Acl,
    Action,
    Decision,
    Environment,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    Subject,
    User,
)
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.proxy.rig import GrpcClient, Rig, consumer_settings, create_group, create_topic, message, running
from tests.proxy.test_access import signed

OWN, OTHER = "shop|orders", "shop|billing"


def named(namespace: str, name: str) -> wire.Resource:
    return wire.Resource(resource_namespace=namespace, name=name)


@pytest.fixture
async def group(broker: Broker) -> str:
    return (await create_group(broker, name=f"{OWN}%readers")).partition("%")[2]


@pytest.fixture
async def paid(broker: Broker) -> str:
    """A topic of each namespace, and of none, with one name; return that."""
    for whole in ("Paid", f"{OWN}%Paid", f"{OTHER}%Paid"):
        await create_topic(broker, name=whole, queues=1)
    return "Paid"


async def send(client: GrpcClient, namespace: str, topic: str, body: str) -> wire.SendMessageResponse:
    one = message(topic, body)
    one.topic.CopyFrom(named(namespace, topic))
    answer: wire.SendMessageResponse = await client.call("SendMessage", wire.SendMessageRequest(messages=[one]))
    return answer


async def receive(client: GrpcClient, namespace: str, topic: str, group: str) -> list[wire.Message]:
    request = wire.ReceiveMessageRequest(
        group=named(namespace, group), message_queue=wire.MessageQueue(topic=named(namespace, topic)), batch_size=16
    )
    request.long_polling_timeout.seconds = 5
    request.invisible_duration.seconds = 20
    parts = await client.stream("ReceiveMessage", request)
    return [part.message for part in parts if part.HasField("message")]


async def test_messages_stay_in_their_namespace(rig: Rig, paid: str, group: str) -> None:
    client = rig.client()
    assert not [one for one in await receive(client, OWN, paid, group) if one]  # the group begins at the end
    for namespace in ("", OWN, OTHER):
        assert (await send(client, namespace, paid, f"of {namespace}")).status.code == wire.OK
    received = await receive(client, OWN, paid, group)
    assert [one.body for one in received] == [f"of {OWN}".encode()]
    (only,) = received
    assert (only.topic.resource_namespace, only.topic.name) == (OWN, paid)
    acked = await client.call(
        "AckMessage",
        wire.AckMessageRequest(
            group=named(OWN, group), topic=named(OWN, paid),
            entries=[
                wire.AckMessageEntry(
                    message_id=only.system_properties.message_id, receipt_handle=only.system_properties.receipt_handle
                )
            ],
        ),
    )  # fmt: skip
    assert acked.status.code == wire.OK


async def test_a_route_is_of_the_topic_in_the_namespace(rig: Rig, broker: Broker) -> None:
    await create_topic(broker, name=f"{OWN}%Routed", queues=3)
    client = rig.client()
    route = await client.call("QueryRoute", wire.QueryRouteRequest(topic=named(OWN, "Routed")))
    assert {queue.topic.resource_namespace for queue in route.message_queues} == {OWN}
    missing = await client.call("QueryRoute", wire.QueryRouteRequest(topic=named("", "Routed")))
    assert missing.status.code == wire.TOPIC_NOT_FOUND


@pytest.mark.parametrize("namespace", ["shop|", "a%b", "a|b|c", "n" * 65, " "])
async def test_an_illegal_namespace_is_refused(rig: Rig, paid: str, namespace: str) -> None:
    refused = await send(rig.client(), namespace, paid, "x")
    assert refused.status.code == wire.BAD_REQUEST
    assert "namespace" in refused.status.message


@pytest.fixture
async def guarded(broker: Broker, tmp_path: Path) -> AsyncIterator[Rig]:
    files = AuthFiles(tmp_path)
    files.load()
    tables = AuthTables(files.save)
    tables.create_user(User(f"{OWN}%app", "secret"))
    resource = Resource.parse(f"Namespace:{OWN}")
    assert resource is not None
    entry = PolicyEntry(resource, (Action.PUB, Action.SUB), Environment(), Decision.ALLOW)
    tables.update_acl(Acl(Subject(f"{OWN}%app"), (Policy(PolicyType.CUSTOM, (entry,)),)))
    auth = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    async with running(broker, auth=auth, auth_config_path=str(tmp_path)) as rig:
        yield rig


async def test_a_user_of_a_namespace_reaches_no_other(guarded: Rig, paid: str, group: str) -> None:
    client = signed(guarded.client(), f"{OWN}%app", "secret")
    assert (await send(client, OWN, paid, "x")).status.code == wire.OK
    assert (await send(client, "", f"{OWN}%{paid}", "x")).status.code == wire.OK  # the same topic
    for namespace, topic in (("", paid), (OTHER, paid), ("shop", paid), (OTHER, f"{OWN}%{paid}")):
        refused = await send(client, namespace, topic, "x")
        assert refused.status.code == wire.UNAUTHORIZED, (namespace, topic)
    settings = consumer_settings(paid, group)
    settings.subscription.group.resource_namespace = OTHER
    _, answer = await client.report(settings)
    assert answer.status.code == wire.UNAUTHORIZED
