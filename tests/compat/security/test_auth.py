"""ACL 2.0 with stock clients and mqadmin of Apache RocketMQ; Apache's broker gives the same answers."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from tests.compat import wire
from tests.compat.cluster import CLUSTER_NAME, ApacheCluster, Cluster, SprocketCluster
from tests.compat.java_client import AdminShell, run_scenarios

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

ADMIN = Credentials("admin", "secret-of-admin")
_PACKAGE: Final = "org.apache.rocketmq.auth."
# As operators of RocketMQ 5.3.3 write it.
PROPERTIES: Final = {
    "authenticationEnabled": "true",
    "authenticationProvider": _PACKAGE + "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": _PACKAGE + "authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
    "authorizationEnabled": "true",
    "authorizationProvider": _PACKAGE + "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": _PACKAGE + "authorization.provider.LocalAuthorizationMetadataProvider",
}
Answer = tuple[int, str | None]


def password_of(name: str) -> str:
    return f"secret-of-{name}"


@dataclass
class Door:
    """A broker's port."""

    address: str

    def ask(
        self, who: Credentials | None, code: int, fields: Mapping[str, str] | None = None, body: object = None
    ) -> wire.Response:
        content = b"" if body is None else json.dumps(body).encode()
        signed = dict(fields or {}) if who is None else who.signed(fields or {}, content)
        return wire.invoke(self.address, code, signed, content, timeout_s=20)

    def answer(
        self, who: Credentials | None, code: int, fields: Mapping[str, str] | None = None, body: object = None
    ) -> Answer:
        response = self.ask(who, code, fields, body)
        return response.code, response.remark

    def well(self, code: int, fields: Mapping[str, str], body: object = None) -> bytes:
        response = self.ask(ADMIN, code, fields, body)
        assert response.code == 0, response
        return response.body


def user(name: str) -> Credentials:
    return Credentials(name, password_of(name))


def acl(name: str, decision: str, *resources: str, actions: str = "Pub,Sub", ip: str | None = None) -> object:
    entries = [
        {"resource": one, "actions": actions.split(","), "sourceIps": ip and [ip], "decision": decision}
        for one in resources
    ]
    return {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}


def set_up(door: Door) -> None:
    """Users and policies by requests, as mqadmin sends them."""
    topic = {
        "topic": "ShopOrders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "",
    }  # fmt: skip
    door.well(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    for name in ("producer", "consumer", "nobody", "disabled", "denied", "elsewhere", "operator"):
        door.well(RequestCode.AUTH_CREATE_USER, {"username": name}, {"username": name, "password": password_of(name)})
    status = {"username": "disabled", "userStatus": "disable"}
    door.well(RequestCode.AUTH_UPDATE_USER, {"username": "disabled"}, status)
    policies = (
        ("producer", acl("producer", "Allow", "Topic:Shop*", actions="Pub")),
        ("consumer", acl("consumer", "Allow", "Topic:ShopOrders", "Group:Bill*", actions="Sub")),
        ("denied", acl("denied", "Allow", "Topic:*")),
        ("denied", acl("denied", "Deny", "Topic:ShopOrders")),
        ("elsewhere", acl("elsewhere", "Allow", "*", ip="10.0.0.0/8")),
        ("operator", acl("operator", "Allow", f"Cluster:{CLUSTER_NAME}", actions="Get,Update")),
    )
    for name, policy in policies:
        door.well(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, policy)


SEND: Final = {
    "a": "PG", "b": "ShopOrders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL: Final = {
    "consumerGroup": "Billing", "topic": "ShopOrders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*", "subVersion": "0",
}  # fmt: skip
COMMIT: Final = {"consumerGroup": "Billing", "topic": "ShopOrders", "queueId": "0", "commitOffset": "1"}
_NEW_SUPER: Final = {"username": "more", "password": "x", "userType": "Super"}


def refusals(door: Door) -> dict[str, Answer]:
    """What is refused, by what it is: codes and texts."""
    send, pull = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
    create, update = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER
    put_acl, drop_acl = RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_DELETE_ACL
    operator = user("operator")
    tampered = ADMIN.signed(SEND, b"") | {"b": "ShopOther"}
    return {
        "unsigned": door.answer(None, send, SEND),
        "unknown user": door.answer(Credentials("stranger", "x"), send, SEND),
        "wrong key": door.answer(Credentials("admin", "x"), send, SEND),
        "a field changed": door.answer(None, send, tampered),
        "disabled": door.answer(user("disabled"), send, SEND),
        "no policy": door.answer(user("nobody"), send, SEND),
        "another topic": door.answer(user("producer"), send, SEND | {"b": "Other"}),
        "another action": door.answer(user("producer"), pull, PULL),
        "another group": door.answer(user("consumer"), pull, PULL | {"consumerGroup": "Others"}),
        "denied": door.answer(user("denied"), send, SEND),
        "from elsewhere": door.answer(user("elsewhere"), send, SEND),
        "no cluster": door.answer(user("producer"), RequestCode.AUTH_LIST_USER),
        "user is there": door.answer(ADMIN, create, {"username": "nobody"}, {"password": "x"}),
        "user without a name": door.answer(ADMIN, create, {"username": ""}, {"password": "x"}),
        "user without a password": door.answer(ADMIN, create, {"username": "more"}, {}),
        "user is not there": door.answer(ADMIN, update, {"username": "more"}, {"password": "x"}),
        "nobody asked for": door.answer(ADMIN, RequestCode.AUTH_GET_USER, {"username": ""}),
        "super by operator": door.answer(operator, create, {"username": "more"}, _NEW_SUPER),
        "raised by operator": door.answer(operator, update, {"username": "nobody"}, {"userType": "Super"}),
        "admin by operator": door.answer(operator, update, {"username": "admin"}, {"password": "x"}),
        "admin removed": door.answer(operator, RequestCode.AUTH_DELETE_USER, {"username": "admin"}),
        "acl of nobody": door.answer(ADMIN, put_acl, {"subject": "User:more"}, acl("more", "Allow", "Topic:a")),
        "acl of no resource": door.answer(ADMIN, put_acl, {}, acl("nobody", "Allow", "Tpic:a")),
        "acl of no action": door.answer(ADMIN, put_acl, {}, acl("nobody", "Allow", "Topic:a", actions="")),
        "acl of any action": door.answer(ADMIN, put_acl, {}, acl("nobody", "Allow", "Topic:a", actions="Any")),
        "acl of no decision": door.answer(ADMIN, put_acl, {}, acl("nobody", "Perhaps", "Topic:a")),
        "acl of no address": door.answer(ADMIN, put_acl, {}, acl("nobody", "Allow", "Topic:a", ip="10.0.0.300/8")),
        "no such acl": door.answer(ADMIN, drop_acl, {"subject": "User:nobody"}),
        "no such subject": door.answer(ADMIN, drop_acl, {"subject": "User:more"}),
        "whose acl": door.answer(ADMIN, RequestCode.AUTH_GET_ACL, {"subject": "User:more"}),
    }


def allowed(door: Door) -> dict[str, int]:
    """What is served, by what it is."""
    drop = {"subject": "User:denied", "resource": "Topic:ShopOrders"}
    codes = {
        "send": door.ask(user("producer"), RequestCode.SEND_MESSAGE_V2, SEND, "an order"),
        "pull": door.ask(user("consumer"), RequestCode.PULL_MESSAGE, PULL),
        "commit": door.ask(user("consumer"), RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT),
        "list": door.ask(user("operator"), RequestCode.AUTH_LIST_USER),
        "drop": door.ask(user("operator"), RequestCode.AUTH_DELETE_ACL, drop),
        "then": door.ask(user("denied"), RequestCode.SEND_MESSAGE_V2, SEND, "an order"),
        "get": door.ask(ADMIN, RequestCode.AUTH_GET_USER, {"username": "more"}),
        "gone": door.ask(ADMIN, RequestCode.AUTH_DELETE_USER, {"username": "more"}),
    }
    return {name: answer.code for name, answer in codes.items()}


async def moved(source: Door, target: Door, name_servers: str) -> None:
    """All users and acls, with our own tool."""
    async with AdminClient([name_servers], credentials=ADMIN) as client:
        assert "elsewhere" in await client.copy_users(source.address, target.address)
        assert "User:elsewhere" in await client.copy_acls(source.address, target.address)


@pytest.fixture(scope="module")
def guarded(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    soon = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
    with SprocketCluster(tmp_path_factory.mktemp("guarded") / "servers", properties=PROPERTIES | soon) as running:
        yield running


def test_answers_are_those_of_apaches_broker(guarded: Cluster, tmp_path: Path) -> None:
    ours = Door(guarded.brokers[0].address)
    set_up(ours)
    with ApacheCluster(tmp_path / "apache", properties=PROPERTIES) as apache:
        theirs = Door(apache.brokers[0].address)
        set_up(theirs)
        assert refusals(ours) == refusals(theirs)
        served = allowed(ours)
        assert served == dict.fromkeys(served, 0)
        assert served == allowed(theirs)
        for fields in ({"username": "consumer"}, {"username": "admin"}):
            code = RequestCode.AUTH_GET_USER
            assert json.loads(ours.well(code, fields)) == json.loads(theirs.well(code, fields))
        ours.well(RequestCode.AUTH_DELETE_USER, {"username": "elsewhere"})
        asyncio.run(moved(theirs, ours, apache.name_server_address))
        for code in (RequestCode.AUTH_LIST_ACL, RequestCode.AUTH_LIST_USER):
            assert json.loads(ours.well(code, {})) == json.loads(theirs.well(code, {}))


# Stock clients

Shell = Callable[..., str]


@pytest.fixture(scope="module")
def shell(guarded: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Path]]:
    """RocketMQ's own mqadmin, which signs as its tools file says."""
    home = tmp_path_factory.mktemp("tools")
    (home / "conf").mkdir()
    tools = home / "conf" / "tools.yml"
    tools.write_text("accessKey: admin\nsecretKey: secret-of-admin\n")
    made = AdminShell(home)

    def run(*arguments: str) -> str:
        return made.run(*arguments, "-n", guarded.name_server_address)

    yield run, tools
    made.close()


def _rows(output: str, first: str) -> list[str]:
    return [" ".join(line.split()) for line in output.splitlines() if line.split()[:1] == [first]]


def test_every_command_of_mqadmin(guarded: Cluster, shell: tuple[Shell, Path]) -> None:
    run, tools = shell
    at = ("-b", guarded.brokers[0].address)
    assert "create user to" in run("createUser", *at, "-u", "alice", "-p", "secret-of-alice", "-t", "Normal")
    again = run("createUser", "-c", CLUSTER_NAME, "-u", "alice", "-p", "x")
    assert "CODE: 16 DESC: The user is existed" in " ".join(again.split())
    assert _rows(run("getUser", *at, "-u", "alice"), "alice") == ["alice secret-of-alice Normal enable"]
    assert "update user to" in run("updateUser", "-c", CLUSTER_NAME, "-u", "alice", "-s", "disable")
    assert _rows(run("listUser", "-c", CLUSTER_NAME, "-f", "ali"), "alice") == ["alice secret-of-alice Normal disable"]
    assert "copy user of alice" in run("copyUser", "-f", at[1], "-t", at[1], "-u", "alice")
    run("updateUser", *at, "-u", "alice", "-s", "enable")
    rule = ("-s", "User:alice", "-r", "Topic:T-*,Group:G-*,Group:%RETRY%G-*", "-a", "Pub,Sub,Create", "-d", "Allow")
    assert "create acl to" in run("createAcl", "-c", CLUSTER_NAME, *rule)
    narrow = ("-s", "User:alice", "-r", "Topic:Other", "-a", "Get", "-i", "127.0.0.1,10.0.0.0/8", "-d", "Deny")
    assert "update acl to" in run("updateAcl", *at, *narrow)
    assert _rows(run("getAcl", *at, "-s", "User:alice"), "User:alice")[-1] == (
        "User:alice Custom Topic:Other [Get] [127.0.0.1, 10.0.0.0/8] Deny"
    )
    assert "copy acl of User:alice" in run("copyAcl", "-f", at[1], "-t", at[1], "-s", "User:alice")
    assert "delete acl to" in run("deleteAcl", *at, "-s", "User:alice", "-r", "Topic:Other")
    assert len(_rows(run("listAcl", "-c", CLUSTER_NAME, "-s", "alice"), "User:alice")) == 3
    tools.write_text("accessKey: alice\nsecretKey: secret-of-alice\n")
    refused = run("listUser", *at)
    assert "CODE: 16" in refused
    assert (
        "User:alice has no permission to access Cluster:DefaultCluster from 127.0.0.1, no matched policies." in refused
    )
    tools.write_text("accessKey: admin\nsecretKey: secret-of-admin\n")
    assert "delete user to" in run("deleteUser", *at, "-u", "bob")


_CLIENT_SCENARIOS = ("sync-send", "batch-send", "concurrent-push", "pull-consumer")


@pytest.mark.parametrize(("version", "serialization"), [("5.3.3", "JSON"), ("4.9.8", "ROCKETMQ")])
def test_a_normal_user_does_what_its_policies_allow(
    guarded: Cluster, tmp_path: Path, version: str, serialization: str
) -> None:
    door = Door(guarded.brokers[0].address)
    name = f"app{version.replace('.', '')}"
    door.well(RequestCode.AUTH_CREATE_USER, {"username": name}, {"username": name, "password": password_of(name)})
    policy = acl(name, "Allow", "Topic:T-*", "Group:G-*", actions="Pub,Sub,Create,Get")
    door.well(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, policy)
    account = (name, password_of(name))
    outcomes = run_scenarios(guarded.name_server_address, version, serialization, tmp_path, _CLIENT_SCENARIOS, account)
    assert set(outcomes) == set(_CLIENT_SCENARIOS)
    assert {name: outcome.message for name, outcome in outcomes.items() if not outcome.passed} == {}


def test_a_client_that_may_not_is_told_why(guarded: Cluster, tmp_path: Path) -> None:
    account = ("admin", "secret-of-nobody")
    outcomes = run_scenarios(guarded.name_server_address, "5.3.3", "ROCKETMQ", tmp_path, ("sync-send",), account)
    assert not outcomes["sync-send"].passed
    assert "CODE: 16 DESC: check signature failed." in outcomes["sync-send"].message


_IN_NAMESPACE: Final = (
    "sync-send", "batch-send", "concurrent-push", "consume-later", "lite-pull-subscribe", "orderly-push", "tag-filter",
    "transactions",
)  # fmt: skip


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_clients_in_a_namespace_need_a_policy_on_it_alone(guarded: Cluster, tmp_path: Path, version: str) -> None:
    door = Door(guarded.brokers[0].address)
    namespace = f"shop{version[0]}|orders"
    name = f"{namespace}%app"
    door.well(RequestCode.AUTH_CREATE_USER, {"username": name}, {"username": name, "password": password_of(name)})
    policy = acl(name, "Allow", f"Namespace:{namespace}", actions="Pub,Sub,Create,Get,Update")
    door.well(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, policy)
    outcomes = run_scenarios(
        guarded.name_server_address, version, "JSON", tmp_path, _IN_NAMESPACE, (name, password_of(name)),
        namespace=namespace,
    )  # fmt: skip
    assert {name: outcome.message for name, outcome in outcomes.items() if not outcome.passed} == {}
    assert set(outcomes) == set(_IN_NAMESPACE)
    topics = json.loads(door.well(RequestCode.GET_ALL_TOPIC_CONFIG, {}))["topicConfigTable"]
    assert f"{namespace}%T-" in " ".join(topics)
