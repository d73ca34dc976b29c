"""Users and policies of a broker over its life, and on the slaves that follow it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acl.auth.infos import acl_of
from acl.auth.model import Subject, User, UserType
from broker.server import Broker
from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.auth import AclRequestHeader, DeleteAclRequestHeader, UserRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls
from tests.broker.rig import TOPIC, TestClient, broker_config, create, running_broker, store_config
from tests.broker.slave.test_slave_synchronize import in_step
from tests.broker.test_sessions import SLAVE, STORE, session_of
from tests.remoting.tls_files import Files
from tests.waiting import until

INNER = Credentials("inner", "secret of inner")
ALICE = Credentials("alice", "secret of alice")
GUARDED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"secret of inner"}',
}
OTHER_INNER = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"another secret"}'}
_ENTRIES = [PolicyEntryInfo(resource, ["Sub"], None, "Allow") for resource in (f"Topic:{TOPIC}", "Group:*")]
READS = AclInfo("User:alice", [PolicyInfo(None, _ENTRIES)])


@asynccontextmanager
async def guarded(
    root: Path, store: dict[str, Any] = STORE, **changes: Any
) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A broker, and a user with all permissions."""
    async with running_broker(root, store=store, **GUARDED | changes) as (broker, client):
        client.remoting = RemotingClient(credentials=INNER)
        yield broker, client
        await client.close()


@asynccontextmanager
async def follower(
    root: Path, master: Broker, store: dict[str, Any] = STORE, **changes: Any
) -> AsyncIterator[tuple[Broker, TestClient]]:
    async with guarded(root, store, **SLAVE, **changes) as (slave, client):
        assert slave.following is not None
        slave.following.master_found(master.address, master.registration.ha_address)
        yield slave, client


async def make_alice(client: TestClient) -> None:
    user = UserInfo("alice", "secret of alice")
    await client.ask_well(RequestCode.AUTH_CREATE_USER, UserRequestHeader(username="alice"), dumps(user))
    await client.ask_well(RequestCode.AUTH_CREATE_ACL, AclRequestHeader(subject="User:alice"), dumps(READS))


async def asked_by(credentials: Credentials, broker: Broker) -> ReceivedResponse:
    client = TestClient(broker.address)
    client.remoting = RemotingClient(credentials=credentials)
    answer = await client.pull()
    await client.close()
    return answer


def knows_alice(broker: Broker) -> bool:
    tables = broker.users.tables
    user = tables.user("alice")
    return user == User("alice", "secret of alice") and tables.acl_of(user) == acl_of(READS)


async def test_users_and_policies_outlive_the_broker(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, client):
        await make_alice(client)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"one")
    for path in (tmp_path / "store" / "config").iterdir():
        assert b"secret of" not in path.read_bytes(), path
    async with guarded(tmp_path) as (broker, _):
        assert knows_alice(broker)
        assert (await asked_by(ALICE, broker)).code == ResponseCode.SUCCESS
        wrong = await asked_by(Credentials("alice", "secret of inner"), broker)
        assert (wrong.code, wrong.remark) == (ResponseCode.NO_PERMISSION, "check signature failed.")


async def test_a_broker_does_not_start_without_the_key_of_its_users(tmp_path: Path) -> None:
    async with guarded(tmp_path):
        pass
    (tmp_path / "store" / "config" / "auth.key").unlink()
    broker = Broker(broker_config(**GUARDED), store_config(tmp_path))
    with pytest.raises(StoreError, match=r"auth\.key: missing"):
        await broker.start()


async def test_slaves_follow_and_serve_when_the_master_is_gone(tmp_path: Path) -> None:
    async with guarded(tmp_path / "master") as (master, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"one")
        async with follower(tmp_path / "slave", master, slave_read_enable=True) as (slave, _):
            await until(lambda: session_of(slave) and in_step(master, slave))
            await make_alice(client)
            await until(lambda: knows_alice(slave))
            await client.ask_well(RequestCode.AUTH_CREATE_USER, UserRequestHeader(username="bob"), dumps(
                UserInfo("bob", "secret of bob")
            ))  # fmt: skip
            await client.ask_well(RequestCode.AUTH_DELETE_USER, UserRequestHeader(username="bob"))
            await until(lambda: slave.users.tables.user("bob") is None and knows_alice(slave))
            await master.stop()
            assert (await asked_by(ALICE, slave)).code == ResponseCode.SUCCESS
            refused = await asked_by(Credentials("bob", "secret of bob"), slave)
            assert refused.remark == "User:bob is not found."
            await until(lambda: (tmp_path / "slave" / "store" / "config" / "auth.json").exists())
    async with guarded(tmp_path / "slave", **SLAVE) as (slave, _):
        assert knows_alice(slave)


async def test_a_slave_that_acts_goes_by_them_and_takes_changes(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path / "master") as (master, client),
        follower(tmp_path / "slave", master) as (slave, other),
    ):
        await until(lambda: session_of(slave))
        await make_alice(client)
        await until(lambda: knows_alice(slave))
        await master.stop()
        slave.role.act(True)
        assert (await asked_by(ALICE, slave)).code != ResponseCode.NO_PERMISSION
        disable = UserInfo("alice", None, None, "disable")
        await other.ask_well(RequestCode.AUTH_UPDATE_USER, UserRequestHeader(username="alice"), dumps(disable))
        assert (await asked_by(ALICE, slave)).remark == "User:alice is disabled."


async def test_a_tool_may_make_each_change_on_master_and_slave(tmp_path: Path) -> None:
    gone: list[tuple[RequestCode, Header]] = [
        (RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject="User:alice")),
        (RequestCode.AUTH_DELETE_USER, UserRequestHeader(username="alice")),
    ]
    async with (
        guarded(tmp_path / "master") as (master, client),
        follower(tmp_path / "slave", master) as (slave, other),
    ):
        await until(lambda: session_of(slave))
        await make_alice(client)
        await until(lambda: knows_alice(slave))
        await make_alice(other)
        for code, header in gone:
            await client.ask_well(code, header)
            await until(lambda: slave.users.tables.content == master.users.tables.content)
            await other.ask_well(code, header)
        assert slave.users.tables.user("alice") is None


async def test_with_another_secret_the_log_follows_and_users_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = '{"username":"inner","password":"secret of inner"}'
    secret = tmp_path / "secret"
    secret.write_text("of both")
    store = STORE | {"ha_secret_file": str(secret)}
    async with (
        running_broker(tmp_path / "master", store=store, **GUARDED) as (master, _),
        follower(tmp_path / "slave", master, store, init_authentication_user=own, **OTHER_INNER) as (slave, _),
    ):
        # It signs as the master wants it, which no configuration of it does.
        slave.client.credentials = INNER
        await until(lambda: session_of(slave) and "event=auth_not_followed" in caplog.text)
        assert slave.users.tables.user("inner") == User("inner", "secret of inner", UserType.SUPER)


async def test_accounts_of_acl_1_become_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(
        "accounts:\n"
        "  - {accessKey: Application, secretKey: secret-of-old, topicPerms: [Orders=SUB], defaultGroupPerm: SUB}\n"
    )
    changes = {"migrate_auth_from_v1_enabled": True, "rocketmq_home": str(home)}
    async with guarded(tmp_path, **changes) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Other"))
        await client.send(b"one")
        old = Credentials("Application", "secret-of-old")
        assert (await asked_by(old, broker)).code == ResponseCode.SUCCESS
        reader = TestClient(broker.address)
        reader.remoting = RemotingClient(credentials=old)
        refused = await reader.pull("Other")
        assert refused.code == ResponseCode.NO_PERMISSION
        await reader.close()
        assert broker.users.tables.acl(Subject("Application")) is not None


async def test_a_verified_certificate_is_its_user_and_another_is_nobody(tmp_path: Path) -> None:
    files = Files(tmp_path / "keys")
    config = broker_config(certificate_as_user=True, **GUARDED)
    broker = Broker(config, store_config(tmp_path, **STORE), tls=files.server(clients="optional"))
    await broker.start()

    async def pulled(tls: TlsSettings, credentials: Credentials | None = None) -> str | None:
        client = TestClient(f"127.0.0.1:{broker.port}")
        client.remoting = RemotingClient(tls=ClientTls(tls), credentials=credentials)
        answer = await client.pull()
        await client.close()
        return answer.remark if answer.code == ResponseCode.NO_PERMISSION else None

    try:
        broker.users.tables.create_user(User("alice", "secret of alice"))
        refused = f"User:alice has no permission to access Topic:{TOPIC} from 127.0.0.1, no matched policies."
        assert await pulled(files.client("alice")) == refused
        broker.users.tables.update_acl(acl_of(READS))
        assert await pulled(files.client("alice")) is None
        assert await pulled(files.client("mallory")) == "User:mallory is not found."
        assert await pulled(files.client()) == "username cannot be null."
        assert await pulled(files.client("mallory"), ALICE) is None
        wrong = Credentials("alice", "secret of mallory")
        assert await pulled(files.client("alice"), wrong) == "check signature failed."
    finally:
        await broker.stop()
