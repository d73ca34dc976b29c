"""A controller with access control serves signed requests alone, and its users are its own or the name server's."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from acl.auth.model import Acl, Action, Decision, Environment, Policy, PolicyEntry, PolicyType, Resource, User
from acl.peer_identity import BROKER, CONTROLLER, PeerKind, demand_proof, is_dialed
from controller.config import ControllerConfig
from controller.server import Controller
from ha.shared_secret import secret_of
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import ConfigError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import ConnectFailed, RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetReplicaInfoRequestHeader,
)
from tests.broker.test_guarded_replication import relay_to
from tests.compat.ports import free_port
from tests.controller.lone_consensus import LoneConsensus
from tests.controller.site import CLUSTER, GROUP, Site, site_at

INNER = Credentials("inner", "secret-of-inner")
OPERATOR = Credentials("operator", "secret-of-operator")
STRANGER = Credentials("stranger", "secret-of-stranger")
KEYS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}
APPLY = ApplyBrokerIdRequestHeader(
    cluster_name=CLUSTER, broker_name=GROUP, applied_broker_id=1, register_check_code="h:1;1"
)
Connect = Callable[[Credentials | None], RemotingClient]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(tmp_path, **KEYS) as opened:
        tables = opened.server.access.tables
        for account in (OPERATOR, STRANGER):
            tables.create_user(User(account.access_key, account.secret_key))
        entry = PolicyEntry(Resource.cluster(CLUSTER), (Action.ALL,), Environment(), Decision.ALLOW)
        tables.update_acl(Acl(User("operator", "").subject, (Policy(PolicyType.CUSTOM, (entry,)),)))
        yield opened


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[RemotingClient] = []

    def made(credentials: Credentials | None) -> RemotingClient:
        clients.append(RemotingClient(credentials=credentials))
        return clients[-1]

    yield made
    for client in clients:
        await client.close()


async def answer(address: str, client: RemotingClient, code: RequestCode, of: Header | None = None) -> int:
    return (await client.invoke(address, code, of)).code


async def test_nobody_without_a_right_elects_a_master_or_gets_an_id(site: Site, connect: Connect) -> None:
    elect = ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=GROUP, broker_id=1, designate_elect=True)
    for stranger in (None, Credentials("inner", "wrong"), STRANGER):
        client = connect(stranger)
        for code, header in (
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, APPLY),
            (RequestCode.CONTROLLER_ELECT_MASTER, elect),
            (RequestCode.CONTROLLER_GET_METADATA_INFO, None),
            (RequestCode.UPDATE_CONTROLLER_CONFIG, None),
        ):
            assert await answer(site.address, client, code, header) == ResponseCode.NO_PERMISSION
    assert site.consensus.proposed == 0
    assert await answer(site.address, connect(INNER), RequestCode.CONTROLLER_APPLY_BROKER_ID, APPLY) == 0
    assert await answer(site.address, connect(OPERATOR), RequestCode.CONTROLLER_ELECT_MASTER, elect) == 0


async def test_a_right_on_one_cluster_is_none_on_another(site: Site, connect: Connect) -> None:
    assert await answer(site.address, connect(INNER), RequestCode.CONTROLLER_APPLY_BROKER_ID, APPLY) == 0
    client, code = connect(OPERATOR), RequestCode.CONTROLLER_ELECT_MASTER
    for cluster in ("", "other"):
        other = ElectMasterRequestHeader(cluster_name=cluster, broker_name=GROUP, broker_id=1, designate_elect=True)
        assert await answer(site.address, client, code, other) == ResponseCode.NO_PERMISSION
    # A request that names no cluster needs all of them.
    asked = GetReplicaInfoRequestHeader(broker_name=GROUP)
    code = RequestCode.CONTROLLER_GET_REPLICA_INFO
    assert await answer(site.address, client, code, asked) == ResponseCode.NO_PERMISSION


async def test_a_controller_in_a_name_server_has_its_users(tmp_path: Path, connect: Connect) -> None:
    name_server = NameServer(
        NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kv.json", **KEYS)
    )
    config = ControllerConfig(
        bind_address="127.0.0.1", controller_dleger_group="g", controller_dleger_self_id="n0",
        controller_dleger_peers=f"n0-127.0.0.1:{free_port()}", controller_store_path=tmp_path / "c", **KEYS,
    )  # fmt: skip
    controller = Controller(
        config,
        on_fatal=lambda error: None,
        access=name_server.access,
        make_consensus=lambda config, machine, _: LoneConsensus(config, machine),
    )
    await name_server.start()
    await controller.start()
    address = f"127.0.0.1:{controller.port}"
    name_server.access.tables.create_user(User("stranger", STRANGER.secret_key))
    code = RequestCode.CONTROLLER_GET_METADATA_INFO
    assert await answer(address, connect(None), code) == ResponseCode.NO_PERMISSION
    assert await answer(address, connect(STRANGER), code) == ResponseCode.NO_PERMISSION
    assert await answer(address, connect(INNER), code) == ResponseCode.SUCCESS
    # Its users are managed at the name server.
    assert not any(entry.code == RequestCode.AUTH_CREATE_USER for entry in controller.routes.entries.values())
    await controller.stop()
    await name_server.stop()


def dialing(account: Credentials, kind: PeerKind) -> RemotingClient:
    """A client that demands a proof, and that knows `account`."""

    async def demand(channel: RemotingChannel, address: str) -> None:
        await demand_proof(kind, secret_of(account), "0f", channel, address)

    return RemotingClient(credentials=account, prover=demand)


@pytest.mark.code(RequestCode.PROVE_BROKER_IDENTITY)
async def test_a_controller_proves_itself_to_brokers_of_its_account(site: Site) -> None:
    code = RequestCode.CONTROLLER_GET_METADATA_INFO
    # `controllerAddr` may name it otherwise than controllerDLegerPeers.
    for address in (site.address, f"localhost:{site.server.port}"):
        client = dialing(INNER, CONTROLLER)
        assert await answer(address, client, code) == ResponseCode.SUCCESS
        await client.close()
    stranger = dialing(STRANGER, CONTROLLER)
    with pytest.raises(ConnectFailed, match="sign with the same account"):
        await answer(site.address, stranger, code)
    await stranger.close()
    assert site.server.access.gate.refused == 1


async def test_a_stranger_cannot_pass_the_question_on_to_a_controller(site: Site) -> None:
    relay = await relay_to(site.server.port)
    port = relay.sockets[0].getsockname()[1]
    # One that a name server calls a broker, and one at a wrong address of a controller.
    for kind, host, reason in (
        (BROKER, "localhost", "the proof is wrong"),
        (CONTROLLER, "127.0.0.1", "not the address of this controller"),
        (CONTROLLER, "localhost", "not the address of this controller"),
    ):
        client = dialing(INNER, kind)
        with pytest.raises(ConnectFailed, match=reason):
            await answer(f"{host}:{port}", client, RequestCode.CONTROLLER_GET_METADATA_INFO)
        await client.close()
    relay.close()


async def test_a_controller_without_an_account_says_so(tmp_path: Path) -> None:
    async with site_at(tmp_path) as site:
        client = dialing(INNER, CONTROLLER)
        with pytest.raises(ConnectFailed, match="no account with which it signs"):
            await answer(site.address, client, RequestCode.CONTROLLER_GET_METADATA_INFO)
        await client.close()


@pytest.mark.parametrize(
    ("address", "local", "is_own"),
    [
        ("10.0.0.1:9878", "10.0.0.7", True),  # as in controllerDLegerPeers, behind a translated address
        ("10.0.0.7:9878", "10.0.0.7", True),
        ("controllers.example:9878", "10.0.0.7", True),
        ("10.0.0.2:9878", "10.0.0.7", False),
        ("[fe80::1]:9878", "fe80::1", True),
        ("10.0.0.7:9879", "10.0.0.7", False),
        ("controllers.example:9879", "10.0.0.7", False),
        ("9878", "10.0.0.7", False),
    ],
)
def test_addresses_at_which_a_controller_proves_itself(address: str, local: str, is_own: bool) -> None:
    assert is_dialed("10.0.0.1:9878", address, local) is is_own


def test_controllers_that_cannot_know_each_other_do_not_start_with_access_control(tmp_path: Path) -> None:
    changes = KEYS | {"inner_client_authentication_credentials": ""}
    with pytest.raises(ConfigError, match="the other controllers must prove who they are"):
        Site(tmp_path, changes)
    secret = tmp_path / "secret"
    secret.write_text("long enough")
    Site(tmp_path, changes | {"ha_secret_file": str(secret)})
