"""Signatures of gRPC calls, and what their users may do: the rules of ACL 2.0 in a broker's own file."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
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
    UserType,
)
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from sprocket.common.errors import ConfigError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.proxy.rig import GrpcClient, Rig, consumer_settings, handle_of, running

_DATE = "20261122T230000Z"


def signed(client: GrpcClient, user: str, password: str, *, signature: str | None = None) -> GrpcClient:
    """Sign all calls of `client`."""
    made = hmac.new(password.encode(), _DATE.encode(), hashlib.sha1).hexdigest().upper()
    text = f"MQv2-HMAC-SHA1 Credential={user}/region/service, SignedHeaders=x-mq-date-time, "
    client.metadata += [("x-mq-date-time", _DATE), ("authorization", f"{text}Signature={signature or made}")]
    return client


def user_folder(folder: Path) -> Path:
    """Make `folder` that of a broker's users: root may do everything, and reader may only consume."""
    files = AuthFiles(folder)
    files.load()
    tables = AuthTables(files.save)
    tables.create_user(User("root", "secret", UserType.SUPER))
    tables.create_user(User("reader", "readers", UserType.NORMAL))
    tables.create_user(User("nobody", "nothing", UserType.NORMAL))
    entries = tuple(
        PolicyEntry(resource, (Action.SUB,), Environment(), Decision.ALLOW)
        for resource in map(Resource.parse, ("Topic:Proxy*", "Group:group*"))
        if resource is not None
    )
    tables.update_acl(Acl(Subject("reader"), (Policy(PolicyType.CUSTOM, entries),)))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return user_folder(tmp_path)


@pytest.fixture
async def guarded(broker: Broker, folder: Path) -> AsyncIterator[Rig]:
    auth = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    async with running(broker, auth=auth, auth_config_path=str(folder)) as rig:
        yield rig


async def test_super_user_may_do_everything(guarded: Rig, topic: str) -> None:
    client = signed(guarded.client(), "root", "secret")
    await client.receive(topic, "group-root", wait_s=0)
    assert (await client.send(topic, "x")).status.code == wire.OK
    (received,) = await client.messages(topic, "group-root", 1)
    assert (await client.ack(topic, "group-root", handle_of(received))).status.code == wire.OK


async def test_user_may_do_what_its_policies_say(guarded: Rig, topic: str) -> None:
    client = signed(guarded.client(), "reader", "readers")
    assert (await client.receive(topic, "group-r", wait_s=0))[0].status.code == wire.MESSAGE_NOT_FOUND
    refused = await client.send(topic, "x")
    assert refused.status.code == wire.UNAUTHORIZED and topic in refused.status.message
    parts = await client.receive(topic, "other", wait_s=0)
    assert parts[0].status.code == wire.UNAUTHORIZED


async def test_user_without_policies_may_do_nothing(guarded: Rig, topic: str) -> None:
    client = signed(guarded.client(), "nobody", "nothing")
    route = await client.call("QueryRoute", wire.QueryRouteRequest(topic=wire.Resource(name=topic)))
    assert route.status.code == wire.UNAUTHORIZED
    assert (await client.ack(topic, "group", ("id", "handle"))).status.code == wire.UNAUTHORIZED


@pytest.mark.parametrize(
    "sign",
    [
        lambda client: client,
        lambda client: signed(client, "root", "wrong"),
        lambda client: signed(client, "unknown", "secret"),
        lambda client: signed(client, "root", "secret", signature="00"),
        lambda client: client.metadata.append(("authorization", "MQv2-HMAC-SHA1 Credential=root")) or client,
        lambda client: client.metadata.extend([("x-mq-date-time", _DATE), ("authorization", "x")]) or client,
        lambda client: client.metadata.extend([("x-mq-date-time", _DATE), ("authorization", "x y")]) or client,
    ],
)
async def test_wrong_signatures(guarded: Rig, topic: str, sign: Any) -> None:
    answer = await sign(guarded.client()).send(topic, "x")
    assert answer.status.code == wire.UNAUTHORIZED


async def test_telemetry_tells_the_refusal_and_ends(guarded: Rig, topic: str) -> None:
    client = signed(guarded.client(), "reader", "readers")
    stream, answer = await client.report(consumer_settings(topic, "other"))
    assert answer.status.code == wire.UNAUTHORIZED
    assert await stream.read() is grpc.aio.EOF
    stream, answer = await client.report(consumer_settings(topic, "group-t"))
    assert answer.status.code == wire.OK
    stream.cancel()


async def test_address_with_many_wrong_signatures_is_locked_out(guarded: Rig, topic: str) -> None:
    right = signed(guarded.client(), "root", "secret")
    assert (await right.send(topic, "x")).status.code == wire.OK
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{guarded.port}", options=options)
    wrong = signed(guarded.client(channel=channel), "root", "wrong")
    async with asyncio.timeout(60):  # attempts come back with time
        while "too many" not in (await wrong.send(topic, "x")).status.message:
            pass
    assert (await right.send(topic, "x")).status.code == wire.OK  # on its connection it has signed before


async def test_new_user_may_call_after_the_file_changes(broker: Broker, folder: Path, topic: str) -> None:
    auth = AuthSettings(authentication_enabled=True)
    async with running(broker, auth=auth, auth_config_path=str(folder)) as rig:
        client = signed(rig.client(), "late", "latest")
        assert (await client.send(topic, "x")).status.code == wire.UNAUTHORIZED
        files = AuthFiles(folder)
        tables = AuthTables(files.save)
        tables.take(files.load())
        tables.create_user(User("late", "latest", UserType.NORMAL))
        async with asyncio.timeout(20):  # the proxy looks at the file every 5 s
            while (await client.send(topic, "x")).status.code != wire.OK:
                await asyncio.sleep(0.2)


async def test_proxy_without_users_does_not_start(broker: Broker, tmp_path: Path) -> None:
    auth = AuthSettings(authentication_enabled=True)
    with pytest.raises(ConfigError, match="authConfigPath"):
        async with running(broker, auth=auth):
            pass
    with pytest.raises(ConfigError, match="authConfigPath"):
        async with running(broker, auth=auth, auth_config_path=str(tmp_path)):
            pass
