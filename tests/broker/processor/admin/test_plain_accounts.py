"""The accounts of aclEnable as an administrator changes them, over a real socket."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from tests.broker.rig import running_broker

ADMIN = Credentials("Administrator", "secret-of-admin")
NEW = Credentials("Newcomer", "secret-of-newcomer")
ACCOUNTS = """
accounts:
  - {accessKey: Administrator, secretKey: secret-of-admin, admin: true}
"""
ELSEWHERE = """
accounts:
  - {accessKey: Elsewhere, secretKey: secret-of-elsewhere, defaultTopicPerm: SUB}
"""
_TOPICS = {"topic": "TBW102"}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    conf = tmp_path / "home" / "conf"
    (conf / "acl").mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    (conf / "plain_acl.yml").chmod(0o600)
    (conf / "acl" / "more.yml").write_text(ELSEWHERE)
    return conf


@pytest.fixture
async def broker(tmp_path: Path, conf: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, acl_enable=True, rocketmq_home=str(conf.parent)) as (broker, _):
        yield broker


@pytest.fixture
async def channel(broker: Broker) -> AsyncIterator[RemotingChannel]:
    client = RemotingClient()
    yield await client.channel(broker.address)
    await client.close()


def modes(conf: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in conf.glob("plain_acl.yml*")}


async def ask(channel: RemotingChannel, account: Credentials, code: int, **fields: str) -> ReceivedResponse:
    return await channel.request(code, account.signed(fields, b""), timeout_s=10)


async def may_ask(channel: RemotingChannel, account: Credentials) -> bool:
    return (await ask(channel, account, RequestCode.GET_TOPIC_CONFIG, **_TOPICS)).code == ResponseCode.SUCCESS


def put(account: Credentials, **more: str) -> dict[str, str]:
    return {"accessKey": account.access_key, "secretKey": account.secret_key, "admin": "false", **more}


@pytest.mark.code(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG)
async def test_an_account_comes_changes_and_goes_at_once(channel: RemotingChannel, conf: Path) -> None:
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    assert not await may_ask(channel, NEW)
    assert (await ask(channel, ADMIN, code, **put(NEW, admin="true"))).code == ResponseCode.SUCCESS
    assert await may_ask(channel, NEW)

    other_key = Credentials(NEW.access_key, "another-secret")
    assert (await ask(channel, ADMIN, code, **put(other_key, admin="true"))).code == ResponseCode.SUCCESS
    assert await may_ask(channel, other_key) and not await may_ask(channel, NEW)

    gone = await ask(channel, ADMIN, RequestCode.DELETE_ACL_CONFIG, accessKey=NEW.access_key)
    assert gone.code == ResponseCode.SUCCESS
    assert not await may_ask(channel, other_key)
    kept = conf / "plain_acl.yml"
    assert "Newcomer" not in kept.read_text() and "Administrator" in kept.read_text()
    assert modes(conf) == {0o600}


async def test_an_account_is_changed_in_the_file_where_it_stands(channel: RemotingChannel, conf: Path) -> None:
    change = put(Credentials("Elsewhere", "another-secret"), topicPerms="A=PUB,B=SUB")
    assert (await ask(channel, ADMIN, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **change)).code == 0
    text = (conf / "acl" / "more.yml").read_text()
    assert "another-secret" in text and "A=PUB" in text and "defaultTopicPerm: SUB" in text
    assert "Elsewhere" not in (conf / "plain_acl.yml").read_text()


async def test_an_account_that_is_no_admin_neither_reads_nor_changes_accounts(
    channel: RemotingChannel, conf: Path
) -> None:
    before = (conf / "plain_acl.yml").read_bytes()
    account = Credentials("Elsewhere", "secret-of-elsewhere")
    for code, fields in (
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, put(account, admin="true")),
        (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "Administrator"}),
        (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "*.*.*.*"}),
        (RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}),
        (RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}),
    ):
        answer = await ask(channel, account, code, **fields)
        assert "Need admin permission" in (answer.remark or ""), code
    assert (conf / "plain_acl.yml").read_bytes() == before


@pytest.mark.code(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
async def test_the_white_list_lets_in_at_once(channel: RemotingChannel, conf: Path) -> None:
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    nobody = Credentials("Stranger", "secret-of-nobody")
    assert not await may_ask(channel, nobody)
    more = str(conf / "acl" / "more.yml")
    assert (await ask(channel, ADMIN, code, globalWhiteAddrs="127.0.0.*", aclFileFullPath=more)).code == 0
    assert await may_ask(channel, nobody)
    assert (await ask(channel, ADMIN, code, globalWhiteAddrs="", aclFileFullPath=more)).code == 0
    assert not await may_ask(channel, nobody)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../escape.yml", "{conf}/acl/new.yml", "{conf}/../outside.yml"])
async def test_no_other_file_is_written(channel: RemotingChannel, conf: Path, path: str) -> None:
    path = path.format(conf=conf)
    answer = await ask(
        channel, ADMIN, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="*.*.*.*", aclFileFullPath=path
    )
    assert (answer.code, "not one of the files" in (answer.remark or "")) == (211, True)
    assert not any(path.name in ("new.yml", "outside.yml", "escape.yml") for path in conf.parent.rglob("*"))


async def test_what_cannot_be_is_refused_with_the_codes_of_the_reference(channel: RemotingChannel, conf: Path) -> None:
    before = (conf / "plain_acl.yml").read_bytes()
    for code, fields, refused in (
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "Newcomer", "admin": "false"}, 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, put(Credentials("short", "secret-of-short")), 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, put(NEW, topicPerms="A=EVERYTHING"), 209),
        (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "Nobody"}, 210),
        (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.1.1.300"}, 211),
    ):
        answer = await ask(channel, ADMIN, code, **fields)
        assert answer.code == refused, answer
        assert "secret-of" not in (answer.remark or "")
    assert (conf / "plain_acl.yml").read_bytes() == before


@pytest.mark.code(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
async def test_versions_and_accounts_are_told_but_no_key(channel: RemotingChannel, broker: Broker, conf: Path) -> None:
    await ask(channel, ADMIN, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **put(NEW, groupPerms="G=SUB"))
    answer = await ask(channel, ADMIN, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    files = json.loads(answer.ext_fields["allAclFileVersion"])
    assert {path: version["counter"] for path, version in files.items()} == {
        str(conf / "plain_acl.yml"): 1,
        str(conf / "acl" / "more.yml"): 0,
    }
    assert json.loads(answer.ext_fields["version"])["counter"] == 1
    assert (answer.ext_fields["brokerName"], answer.ext_fields["brokerAddr"]) == ("broker-a", broker.address)

    body = (await ask(channel, ADMIN, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)).body
    accounts = {account["accessKey"]: account for account in json.loads(body)["plainAccessConfigs"]}
    assert set(accounts) == {"Administrator", "Newcomer", "Elsewhere"}
    assert accounts["Newcomer"]["groupPerms"] == ["G=SUB"]
    assert b"secret-of" not in bytes(body)


async def test_without_aclenable_there_is_nothing_to_change(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "open") as (broker, _):
        client = RemotingClient()
        channel = await client.channel(broker.address)
        answer = await channel.request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, put(NEW), timeout_s=10)
        assert (answer.code, answer.remark) == (209, "The broker does not enable acl.")
        await client.close()
