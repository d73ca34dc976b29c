"""A broker with aclEnable on a real socket: every code, every way of not being allowed, both serializations."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from acl.plain.files import PlainFiles
from broker.server import Broker
from sprocket.common.errors import ConfigError
from sprocket.remoting.bodies.client import HeartbeatData, ProducerData
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from sprocket.remoting.routes import Action
from tests.broker.rig import TOPIC, TestClient, broker_config, create, running_broker, store_config

ADMIN = Credentials("Administrator", "secret-of-admin")
READER = Credentials("SomeReader", "secret-of-reader")
ACCOUNTS = """
accounts:
  - {accessKey: Administrator, secretKey: secret-of-admin, admin: true}
  - {accessKey: SomeReader, secretKey: secret-of-reader, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
"""
REFUSED = "org.apache.rocketmq.acl.common.AclException: "
CHECK = RequestCode.CHECK_TRANSACTION_STATE
Ask = Callable[..., "asyncio.Future[ReceivedResponse]"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    return tmp_path / "home"


@pytest.fixture
async def broker(tmp_path: Path, home: Path) -> AsyncIterator[Broker]:
    changes: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(home), "auth_failures_per_second": 0}
    async with running_broker(tmp_path, **changes) as (broker, _):
        yield broker


@pytest.fixture
async def channel(broker: Broker) -> AsyncIterator[RemotingChannel]:
    client = RemotingClient()
    yield await client.channel(broker.address)
    await client.close()


def bad_requests() -> dict[str, Mapping[str, str]]:
    """Header fields of requests that nobody has a right to."""
    signed = ADMIN.signed({"topic": TOPIC}, b"")
    return {
        "unsigned": {"topic": TOPIC},
        "unknown account": Credentials("Stranger", "secret-of-admin").signed({"topic": TOPIC}, b""),
        "wrong key": Credentials("Administrator", "secret-of-nobody").signed({"topic": TOPIC}, b""),
        "another's key": Credentials("Administrator", READER.secret_key).signed({"topic": TOPIC}, b""),
        "a name alone": {"topic": TOPIC, "AccessKey": "Administrator"},
        "truncated": signed | {"Signature": signed["Signature"][:10]},
        "empty signature": signed | {"Signature": ""},
        "one field more": signed | {"extra": "1"},
        "one field changed": signed | {"topic": "Other"},
        "name in other letters": signed | {"AccessKey": "administrator"},
        "digest of another length": signed | {"Signature": base64.b64encode(bytes(32)).decode()},
        "not ASCII": signed | {"Signature": "ü" * 28},
    }


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("kind", list(bad_requests()))
async def test_no_code_is_served_without_a_right(channel: RemotingChannel, kind: str, serialization: int) -> None:
    fields = bad_requests()[kind]
    asked = {
        code: channel.request(code, fields, timeout_s=10, serialization=serialization)
        for code in [*(int(code) for code in RequestCode), 7777]
    }
    answers = {code: await answer for code, answer in asked.items()}
    assert {code: one.remark for code, one in answers.items() if not (one.remark or "").startswith(REFUSED)} == {}


async def test_a_reader_changes_nothing(broker: Broker, channel: RemotingChannel) -> None:
    fields = READER.signed({"topic": TOPIC, "consumerGroup": "g", "b": TOPIC}, b"")
    kinds = (Action.CREATE, Action.UPDATE, Action.DELETE)
    changes = {route.code for route in broker.routes.routes if route.action in kinds}
    changes -= {RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT, RequestCode.HEART_BEAT}
    changes -= {RequestCode.CHECK_CLIENT_CONFIG}
    sends = {route.code for route in broker.routes.routes if route.action is Action.PUB}
    assert len(changes) > 15 and len(sends) > 3
    for code in changes | sends:
        answer = await channel.request(code, fields, timeout_s=10)
        assert (answer.remark or "").startswith(REFUSED), (code, answer.remark)


async def test_a_request_is_refused_as_one_of_many_in_a_read_too(channel: RemotingChannel) -> None:
    def asked(number: int) -> "asyncio.Future[ReceivedResponse]":
        account = ADMIN if number % 3 else Credentials("Administrator", "secret-of-nobody")
        return channel.request(RequestCode.GET_BROKER_RUNTIME_INFO, account.signed({}, b""), timeout_s=10)

    codes = [(await answer).code for answer in [asked(number) for number in range(60)]]
    assert codes == [ResponseCode.SUCCESS if number % 3 else ResponseCode.SYSTEM_ERROR for number in range(60)]


async def test_signed_requests_are_served(broker: Broker) -> None:
    client = TestClient(broker.address)
    client.remoting = RemotingClient(credentials=ADMIN)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.send(b"signed")
    assert (await client.pull()).code == ResponseCode.SUCCESS
    reader = RemotingClient(credentials=READER)
    header: CreateTopicRequestHeader = create("Other")
    refused = await reader.invoke(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert refused.remark == f"{REFUSED}Need admin permission for request code=17, but accessKey=SomeReader is not"
    assert "Other" not in broker.topics
    await client.remoting.close()
    await reader.close()


async def test_operators_are_told_how_many_were_refused(broker: Broker, channel: RemotingChannel) -> None:
    await channel.request(RequestCode.GET_MAX_OFFSET, {}, timeout_s=10)
    fields = ADMIN.signed({}, b"")
    answer = await channel.request(RequestCode.GET_BROKER_RUNTIME_INFO, fields, timeout_s=10)
    table = loads(answer.body, KVTable).table
    assert (table["accessRefused"], table["accessLockedOut"]) == ("1", "0")


async def test_half_messages_are_shown_to_who_may_publish_them(tmp_path: Path, home: Path) -> None:
    writer, stranger = Credentials("SomeWriter", "secret-of-writer"), READER
    (home / "conf" / "plain_acl.yml").write_text(
        f"{ACCOUNTS}\n  - {{accessKey: SomeWriter, secretKey: secret-of-writer, topicPerms: [{TOPIC}=PUB]}}\n"
    )
    changes: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(home), "transaction_time_out": 0}
    changes["transaction_check_max"] = 1_000
    async with running_broker(tmp_path, store={"file_reserved_time": 1_000_000}, **changes) as (broker, _):
        clients = [TestClient(broker.address, answers={CHECK: None}) for _ in range(2)]
        for client, account in zip(clients, (writer, stranger), strict=True):
            client.remoting.credentials = account  # of connections that it opens from now on
            beat = HeartbeatData(account.access_key, [ProducerData("PG")])
            await client.ask_well(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), dumps(beat))
        admin = TestClient(broker.address)
        admin.remoting = RemotingClient(credentials=ADMIN)
        await admin.send(b"half", TRAN_MSG="true", PGROUP="PG")
        async with asyncio.timeout(30):
            while len(clients[0].asked) < 4:  # two members would take turns
                broker.transaction_check.turn()
                await asyncio.sleep(0.01)
        assert not clients[1].asked
        for client in (*clients, admin):
            await client.remoting.close()


async def test_a_changed_file_counts_and_a_broken_one_does_not(home: Path) -> None:
    files = PlainFiles(home)
    files.load()
    assert files.policy.account_count == 2
    path = home / "conf" / "plain_acl.yml"
    path.write_text("accounts: [")
    files.reload()
    assert files.policy.account_count == 2
    (home / "conf" / "acl").mkdir()
    more = home / "conf" / "acl" / "more.yaml"
    more.write_text("accounts:\n  - {accessKey: Another1, secretKey: 12345678}\n")
    files.reload()
    assert files.policy.account_count == 2  # until all files are sound
    path.write_text(ACCOUNTS)
    files.reload()
    assert files.policy.account_count == 3
    more.unlink()
    files.reload()
    assert files.policy.account_count == 2


async def test_a_broker_does_not_start_without_the_accounts_it_asks_for(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match="set rocketmqHome"):
        Broker(broker_config(acl_enable=True, rocketmq_home=""), store_config(tmp_path))
    (home / "conf" / "plain_acl.yml").write_text("accounts: 5")
    broker = Broker(broker_config(acl_enable=True, rocketmq_home=str(home)), store_config(tmp_path))
    with pytest.raises(ConfigError, match=r"plain_acl\.yml: "):
        await broker.start()


def test_the_account_of_tools(home: Path) -> None:
    files = PlainFiles(home)
    assert files.tool_credentials() is None
    (home / "conf" / "tools.yml").write_text("# for tools\naccessKey: Administrator\nsecretKey: secret-of-admin\n")
    assert files.tool_credentials() == ADMIN
    (home / "conf" / "tools.yml").write_text("accessKey: Administrator\n")
    with pytest.raises(ConfigError, match=r"tools\.yml: .*secretKey"):
        files.tool_credentials()


def test_the_account_of_tools_may_be_a_user_of_any_name(home: Path) -> None:
    (home / "conf" / "tools.yml").write_text("accessKey: admin\nsecretKey: short\n")
    assert PlainFiles(home).tool_credentials() == Credentials("admin", "short")
    for text in ("accessKey: admin\nsecretKey: ' '\n", "secretKey: short\n"):
        (home / "conf" / "tools.yml").write_text(text)
        with pytest.raises(ConfigError, match=r"tools\.yml: (secret|access)Key is not set"):
            PlainFiles(home).tool_credentials()
