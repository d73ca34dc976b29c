"""A name server with authenticationEnabled and authorizationEnabled serves signed requests and refuses others."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from acl.auth.model import Acl, Action, Decision, Environment, Policy, PolicyEntry, PolicyType, Resource, User
from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import ConfigError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader, UnregisterBrokerRequestHeader
from tests.broker.rig import broker_config, store_config
from tests.namesrv.reports import body, header

SUPER = Credentials("root", "secret-of-root")
INNER = Credentials("inner", "secret-of-inner")
CLIENT = Credentials("client", "secret-of-client")
KEYS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"secret-of-root"}',
    "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}
Connect = Callable[[Credentials | None], RemotingClient]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kvConfig.json", **KEYS)
    server = NameServer(config)
    await server.start()
    server.access.tables.create_user(User("client", CLIENT.secret_key))
    entry = PolicyEntry(Resource.topic("Orders"), (Action.PUB,), Environment(), Decision.ALLOW)
    acl = Acl(User("client", "").subject, (Policy(PolicyType.CUSTOM, (entry,)),))
    server.access.tables.update_acl(acl)
    yield server
    await server.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[RemotingClient] = []

    def made(credentials: Credentials | None) -> RemotingClient:
        clients.append(RemotingClient(credentials=credentials))
        return clients[-1]

    yield made
    for client in clients:
        await client.close()


async def answer(
    server: NameServer, client: RemotingClient, code: RequestCode, of: Header | None = None, content: bytes = b""
) -> int:
    return (await client.invoke(f"127.0.0.1:{server.port}", code, of, content)).code


async def test_only_a_signed_broker_is_registered(server: NameServer, connect: Connect) -> None:
    report = body(["Orders", "Other"]).encode(False)
    for stranger in (None, Credentials("inner", "secret-of-nobody"), CLIENT):
        code = await answer(server, connect(stranger), RequestCode.REGISTER_BROKER, header(), report)
        assert code == ResponseCode.NO_PERMISSION
    assert not server.table.brokers
    assert await answer(server, connect(INNER), RequestCode.REGISTER_BROKER, header(), report) == 0
    unregister = UnregisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="c", broker_id=0
    )
    assert await answer(server, connect(CLIENT), RequestCode.UNREGISTER_BROKER, unregister) == 16
    assert list(server.table.brokers) == ["broker-a"]


async def test_a_client_gets_the_routes_of_its_topics(server: NameServer, connect: Connect) -> None:
    report = body(["Orders", "Other"]).encode(False)
    assert await answer(server, connect(INNER), RequestCode.REGISTER_BROKER, header(), report) == 0
    code, wanted = RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="Orders")
    assert await answer(server, connect(CLIENT), code, wanted) == ResponseCode.SUCCESS
    assert await answer(server, connect(None), code, wanted) == ResponseCode.NO_PERMISSION
    other = GetRouteInfoRequestHeader(topic="Other")
    assert await answer(server, connect(CLIENT), code, other) == ResponseCode.NO_PERMISSION
    assert await answer(server, connect(CLIENT), RequestCode.GET_BROKER_CLUSTER_INFO) == ResponseCode.NO_PERMISSION
    assert await answer(server, connect(SUPER), RequestCode.GET_BROKER_CLUSTER_INFO) == ResponseCode.SUCCESS


async def test_a_broker_signs_its_registration(server: NameServer, tmp_path: Path) -> None:
    names = {"namesrv_addr": f"127.0.0.1:{server.port}", "bind_address": "127.0.0.1"}
    broker = Broker(broker_config(**names, **KEYS), store_config(tmp_path))
    await broker.start()
    assert await broker.registration.wait_registered(10)
    assert "broker-a" in server.table.brokers
    await broker.stop()
    assert "broker-a" not in server.table.brokers  # its unregistration was signed, too


async def test_users_outlive_the_name_server(server: NameServer, tmp_path: Path) -> None:
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kvConfig.json", **KEYS)
    again = NameServer(config)
    await again.start()
    assert [user.username for user in again.access.tables.list_users()] == ["client", "inner", "root"]
    await again.stop()


def test_without_the_keys_the_gate_is_open(tmp_path: Path) -> None:
    server = NameServer(NamesrvConfig(kv_config_path=tmp_path / "kvConfig.json"))
    assert server.routes.guard is None


def test_broken_settings_stop_the_start(tmp_path: Path) -> None:
    config = NamesrvConfig(kv_config_path=tmp_path / "kv.json", init_authentication_user="{")
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        config.check()


async def test_a_name_server_shows_no_secret_and_lets_none_be_changed(server: NameServer, connect: Connect) -> None:
    client, address = connect(SUPER), f"127.0.0.1:{server.port}"
    shown = (await client.invoke(address, RequestCode.GET_NAMESRV_CONFIG)).body
    assert b"initAuthenticationUser" in shown and b"secret-of" not in shown
    for line in (b"authenticationEnabled=false", b"authorizationEnabled=false", b"authFailuresPerSecond=0"):
        assert await answer(server, client, RequestCode.UPDATE_NAMESRV_CONFIG, None, line) != ResponseCode.SUCCESS
    assert server.settings.current.authentication_enabled
