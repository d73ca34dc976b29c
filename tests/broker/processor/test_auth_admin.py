"""Codes 3001 to 3010 on a real socket: permissions, responses, and secrets that no response has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials, TokenCredentials
from sprocket.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    RevokeTokenRequestHeader,
    UserRequestHeader,
)
from sprocket.remoting.headers.base import Header
from tests.acl.tokens.makers import key, key_files, token
from tests.broker.rig import TOPIC, TestClient, broker_config, create, running_broker

ROOT = Credentials("admin", "secret of admin")
OPERATOR = Credentials("operator", "secret of operator")
GUARDED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"admin","password":"secret of admin"}',
}


def rule(resource: str, *actions: str, decision: str = "Allow") -> PolicyInfo:
    return PolicyInfo(None, [PolicyEntryInfo(resource, list(actions), None, decision)])


class Asker:
    """Asks one broker as one user."""

    def __init__(self, broker: Broker, credentials: Credentials | None) -> None:
        self._broker = broker
        self.remoting = RemotingClient(credentials=credentials)

    async def ask(self, code: RequestCode, header: Header | None = None, body: object = None) -> ReceivedResponse:
        content = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
        return await self.remoting.invoke(self._broker.address, code, header, content)

    async def well(self, code: RequestCode, header: Header | None = None, body: object = None) -> bytes:
        answer = await self.ask(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer.body

    async def refused(self, code: RequestCode, header: Header | None = None, body: object = None) -> tuple[int, str]:
        answer = await self.ask(code, header, body)
        return answer.code, answer.remark or ""


@asynccontextmanager
async def askers(
    root: Path, *credentials: Credentials | None, **changes: Any
) -> AsyncIterator[tuple[Broker, list[Asker]]]:
    async with running_broker(root, **changes) as (broker, _):
        made = [Asker(broker, one) for one in credentials]
        yield broker, made
        for one in made:
            await one.remoting.close()


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Asker, Asker]]:
    """A super user, and a normal user with permission to administer the cluster."""
    async with askers(tmp_path, ROOT, OPERATOR, **GUARDED) as (broker, (admin, operator)):
        await admin.well(RequestCode.AUTH_CREATE_USER, user("operator"), UserInfo(None, "secret of operator"))
        cluster = f"Cluster:{broker.config.broker.broker_cluster_name}"
        await admin.well(
            RequestCode.AUTH_CREATE_ACL, acl("operator"), AclInfo("User:operator", [rule(cluster, "Get", "Update")])
        )
        yield admin, operator


def user(name: str | None) -> UserRequestHeader:
    return UserRequestHeader(username=name)


def acl(name: str) -> AclRequestHeader:
    return AclRequestHeader(subject=f"User:{name}")


@pytest.mark.code(
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
)
async def test_users_from_first_to_last(guarded: tuple[Asker, Asker]) -> None:
    admin, _ = guarded
    await admin.well(RequestCode.AUTH_CREATE_USER, user("alice"), UserInfo("bob", "secret", "normal"))
    again = await admin.refused(RequestCode.AUTH_CREATE_USER, user("alice"), UserInfo("alice", "secret"))
    assert again == (ResponseCode.NO_PERMISSION, "The user is existed")
    found = loads(await admin.well(RequestCode.AUTH_GET_USER, user("alice")), UserInfo)
    assert found == UserInfo("alice", "secret", "Normal", "enable")
    changes = UserInfo("alice", None, None, "disable")
    await admin.well(RequestCode.AUTH_UPDATE_USER, user("alice"), changes)
    listed = loads(await admin.well(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter="ali")), list[UserInfo])
    assert listed == [UserInfo("alice", "secret", "Normal", "disable")]
    await admin.well(RequestCode.AUTH_DELETE_USER, user("alice"))
    await admin.well(RequestCode.AUTH_DELETE_USER, user("alice"))
    assert await admin.well(RequestCode.AUTH_GET_USER, user("alice")) == b""
    assert await admin.well(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter="ali")) == b""
    late = await admin.refused(RequestCode.AUTH_UPDATE_USER, user("alice"), changes)
    assert late == (ResponseCode.NO_PERMISSION, "The user is not exist")


@pytest.mark.parametrize("name", [None, ""])
async def test_a_name_is_needed(guarded: tuple[Asker, Asker], name: str | None) -> None:
    admin, _ = guarded
    for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_GET_USER):
        assert await admin.refused(code, user(name), UserInfo()) == (
            ResponseCode.INVALID_PARAMETER, "The username is blank",
        )  # fmt: skip
    gone = await admin.refused(RequestCode.AUTH_DELETE_USER, user(name))
    assert gone == (ResponseCode.NO_PERMISSION, "username can not be blank")


async def test_bodies_that_cannot_be(guarded: tuple[Asker, Asker]) -> None:
    admin, _ = guarded
    without = await admin.refused(RequestCode.AUTH_CREATE_USER, user("alice"))
    assert without == (ResponseCode.NO_PERMISSION, "password can not be blank")
    broken = await admin.refused(RequestCode.AUTH_CREATE_USER, user("alice"), b"{")
    assert broken[0] == ResponseCode.SYSTEM_ERROR
    assert broken[1].startswith("The body cannot be read: ")
    emperor = await admin.refused(RequestCode.AUTH_CREATE_USER, user("alice"), UserInfo(None, "x", "Emperor"))
    assert emperor == (ResponseCode.NO_PERMISSION, "The userType 'Emperor' is not one of Super, Normal.")
    for code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL):
        assert await admin.refused(code, acl("operator")) == (ResponseCode.SYSTEM_ERROR, "The body of acl is null")


async def test_a_normal_user_neither_makes_nor_changes_nor_removes_a_super_user(guarded: tuple[Asker, Asker]) -> None:
    _, operator = guarded
    made = await operator.refused(RequestCode.AUTH_CREATE_USER, user("more"), UserInfo(None, "x", "Super"))
    assert made == (ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
    update = (ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
    raised = await operator.refused(RequestCode.AUTH_UPDATE_USER, user("operator"), UserInfo(None, None, "Super"))
    assert raised == update
    denied = (ResponseCode.NO_PERMISSION, update[1])
    assert await operator.refused(RequestCode.AUTH_UPDATE_USER, user("admin"), UserInfo(None, "mine")) == denied
    assert await operator.refused(RequestCode.AUTH_DELETE_USER, user("admin")) == denied
    await operator.well(RequestCode.AUTH_CREATE_USER, user("more"), UserInfo(None, "x"))
    await operator.well(RequestCode.AUTH_DELETE_USER, user("more"))


async def test_passwords_are_told_to_super_users_alone(guarded: tuple[Asker, Asker]) -> None:
    admin, operator = guarded
    assert b"secret of admin" in await admin.well(RequestCode.AUTH_GET_USER, user("admin"))
    for body in (
        await operator.well(RequestCode.AUTH_GET_USER, user("admin")),
        await operator.well(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader()),
    ):
        assert b'"admin"' in body
        assert b"secret" not in body


@pytest.mark.code(
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
async def test_policies_from_first_to_last(guarded: tuple[Asker, Asker]) -> None:
    admin, operator = guarded
    await admin.well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    refused = await operator.ask(RequestCode.GET_TOPIC_CONFIG, create(TOPIC))
    assert refused.code == ResponseCode.NO_PERMISSION
    assert (refused.remark or "").startswith(f"User:operator has no permission to access Topic:{TOPIC} from 127.0.0.1")
    await admin.well(RequestCode.AUTH_UPDATE_ACL, acl("operator"), AclInfo(None, [rule("Topic:Ord*", "Get")]))
    await operator.well(RequestCode.GET_TOPIC_CONFIG, create(TOPIC))
    found = loads(await admin.well(RequestCode.AUTH_GET_ACL, acl("operator")), AclInfo)
    assert found.subject == "User:operator"
    assert found.policies is not None
    assert [entry.resource for entry in found.policies[0].entries or ()] == ["Cluster:DefaultCluster", "Topic:Ord*"]
    only = ListAclsRequestHeader(subject_filter="oper", resource_filter="Topic:")
    assert loads(await admin.well(RequestCode.AUTH_LIST_ACL, only), list[AclInfo]) == [
        AclInfo("User:operator", [PolicyInfo("Custom", [PolicyEntryInfo("Topic:Ord*", ["Get"], None, "Allow")])])
    ]
    nobody = ListAclsRequestHeader(subject_filter="nobody")
    assert await admin.well(RequestCode.AUTH_LIST_ACL, nobody) == b""
    typo = DeleteAclRequestHeader(subject="User:operator", resource="Tpic:Ord*")
    assert await admin.refused(RequestCode.AUTH_DELETE_ACL, typo) == (
        ResponseCode.NO_PERMISSION, "The resource is null.",
    )  # fmt: skip
    one = DeleteAclRequestHeader(subject="User:operator", resource="Topic:Ord*")
    await admin.well(RequestCode.AUTH_DELETE_ACL, one)
    assert (await operator.ask(RequestCode.GET_TOPIC_CONFIG, create(TOPIC))).code == ResponseCode.NO_PERMISSION
    every = DeleteAclRequestHeader(subject="User:operator")
    await operator.well(RequestCode.AUTH_DELETE_ACL, every)
    assert await admin.well(RequestCode.AUTH_GET_ACL, acl("operator")) == b""
    assert (await operator.ask(RequestCode.AUTH_GET_ACL, acl("operator"))).code == ResponseCode.NO_PERMISSION
    gone = await admin.refused(RequestCode.AUTH_DELETE_ACL, every)
    assert gone == (ResponseCode.NO_PERMISSION, "The acl is not exist.")
    stranger = await admin.refused(RequestCode.AUTH_GET_ACL, acl("nobody"))
    assert stranger == (ResponseCode.NO_PERMISSION, "The subject is not exist.")
    kind = await admin.refused(RequestCode.AUTH_GET_ACL, AclRequestHeader(subject="Team:x"))
    assert kind == (ResponseCode.NO_PERMISSION, "The subject is null.")


async def test_without_users_there_are_none_to_administer(tmp_path: Path) -> None:
    async with askers(tmp_path, None) as (_, (stranger,)):
        answer = await stranger.refused(RequestCode.AUTH_CREATE_USER, user("eve"), UserInfo(None, "x", "Super"))
        assert answer[0] == ResponseCode.SYSTEM_ERROR
        assert answer[1].startswith("The authenticationMetadataProvider is not configured")
    assert not (tmp_path / "store" / "config" / "auth.json").exists()


async def test_users_may_be_made_before_they_are_asked_for(tmp_path: Path) -> None:
    kept = {"authentication_metadata_provider": "LocalAuthenticationMetadataProvider"}
    async with askers(tmp_path, None, ROOT, **kept) as (_, (stranger, named)):
        await stranger.well(RequestCode.AUTH_CREATE_USER, user("admin"), UserInfo(None, "secret of admin", "Super"))
        assert b"secret" not in await stranger.well(RequestCode.AUTH_GET_USER, user("admin"))
        await named.well(RequestCode.AUTH_CREATE_USER, user("more"), UserInfo(None, "x", "Super"))
    async with askers(tmp_path, ROOT, authentication_enabled=True) as (_, (admin,)):
        assert b"secret of admin" in await admin.well(RequestCode.AUTH_GET_USER, user("admin"))


async def test_an_unsigned_caller_on_a_white_list_is_no_super_user(tmp_path: Path) -> None:
    listed = GUARDED | {
        "authentication_whitelist": "3001,3002,3003,3004",
        "authorization_whitelist": "3001,3002,3003,3004",
    }
    async with askers(tmp_path, None, **listed) as (_, (stranger,)):
        for name in (None, "admin"):
            header = UserRequestHeader(username="eve", access_key=name)
            made = await stranger.refused(RequestCode.AUTH_CREATE_USER, header, UserInfo(None, "x", "Super"))
            assert made[1] == "The super user can only be create by super user"
            header = UserRequestHeader(username="admin", access_key=name)
            assert b"secret" not in await stranger.well(RequestCode.AUTH_GET_USER, header)
            assert (await stranger.refused(RequestCode.AUTH_DELETE_USER, header))[0] == ResponseCode.NO_PERMISSION


async def test_the_configuration_tells_no_secret(tmp_path: Path) -> None:
    inner = '{"accessKey":"inner","secretKey":"secret of inner"}'
    config = GUARDED | {"inner_client_authentication_credentials": inner}
    async with askers(tmp_path, ROOT, **config) as (broker, (admin,)):
        body = await admin.well(RequestCode.GET_BROKER_CONFIG)
        assert b"authenticationEnabled=true" in body
        assert b"initAuthenticationUser=******" in body
        assert b"secret of" not in body
        assert "secret of" not in repr(broker.config.broker)
        for line in (b"initAuthenticationUser={}", b"authSecretKeyFile=/tmp/x", b"authenticationEnabled=false"):
            code, remark = await admin.refused(RequestCode.UPDATE_BROKER_CONFIG, None, line)
            assert code == ResponseCode.NO_PERMISSION
            assert "cannot be changed" in remark
    assert "secret of" not in repr(broker_config(**config))


async def test_a_signed_client_sends_and_an_unsigned_one_does_not(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **GUARDED) as (broker, _):
        client = TestClient(broker.address)
        client.remoting = RemotingClient(credentials=ROOT)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"signed")
        assert (await client.pull()).code == ResponseCode.SUCCESS
        await client.close()
        stranger = TestClient(broker.address)
        refused = await stranger.pull()
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
        await stranger.close()


@pytest.mark.code(RequestCode.REVOKE_TOKEN)
async def test_tokens_are_revoked_and_stay_so_after_a_restart(tmp_path: Path) -> None:
    keys = key_files(tmp_path / "keys", key("ES256"))
    revoke = RequestCode.REVOKE_TOKEN
    now_s = SystemClock().wall_ms() // 1000
    texts = [token(key("ES256"), now_s - 10, user="operator", token_id=name) for name in ("t1", "t2", "t3")]
    bearers = [Credentials(texts[0], "any"), *map(TokenCredentials, texts[1:])]
    only = ListAclsRequestHeader(subject_filter="x")
    async with askers(tmp_path, ROOT, *bearers, **GUARDED, **keys) as (_, (admin, first, second, _)):
        await admin.well(
            RequestCode.AUTH_CREATE_USER, UserRequestHeader(username="operator"), UserInfo("operator", "x" * 12)
        )
        acl = AclInfo("User:operator", [rule("Cluster:*", "Get", "List")])
        await admin.well(RequestCode.AUTH_CREATE_ACL, AclRequestHeader(subject="User:operator"), acl)
        for one in (first, second):
            await one.well(RequestCode.AUTH_LIST_ACL, only)
        assert (await first.refused(revoke, RevokeTokenRequestHeader(token_id="t2")))[0] == ResponseCode.NO_PERMISSION
        for wrong in ({}, {"token_id": "t", "username": "u"}, {"token_id": "x" * 257}):
            refused = await admin.refused(revoke, RevokeTokenRequestHeader(**wrong))
            assert refused[0] == ResponseCode.INVALID_PARAMETER
        await admin.well(revoke, RevokeTokenRequestHeader(token_id="t1", expires_at=now_s + 600))
        assert "is revoked" in (await first.refused(RequestCode.AUTH_LIST_ACL, only))[1]
        await second.well(RequestCode.AUTH_LIST_ACL, only)
    async with askers(tmp_path, ROOT, *bearers, **GUARDED, **keys) as (_, (admin, first, second, third)):
        assert "is revoked" in (await first.refused(RequestCode.AUTH_LIST_ACL, only))[1]
        await second.well(RequestCode.AUTH_LIST_ACL, only)
        await admin.well(revoke, RevokeTokenRequestHeader(username="operator"))
        for one in (second, third):
            assert "is revoked" in (await one.refused(RequestCode.AUTH_LIST_ACL, only))[1]
