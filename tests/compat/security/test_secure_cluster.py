"""Two masters with a slave each and a name server that all require users: processes, stock clients and our own."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sprocket import (
    ClientSettings,
    ConsumeFrom,
    Message,
    MessageQueue,
    OrderlyConsumer,
    Producer,
    ReceivedMessage,
    SprocketError,
)
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from tests.compat import wire
from tests.compat.cluster import CLUSTER_NAME, Cluster, Server, SprocketCluster
from tests.compat.java_client import mqadmin, run_scenarios

pytestmark = pytest.mark.timeout(600)

TOPIC, GROUP = "Steps", "readers"
ADMIN = Credentials("admin", "secret-of-admin")
INNER = Credentials("inner", "secret-of-inner")
APP = Credentials("app", "secret-of-app")
_LIMIT_S = 100.0
_NO_PERMISSION = 16
_SECURITY = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}
_BROKER = {
    "brokerRole": "SYNC_MASTER",
    "enableSlaveActingMaster": "true",
    "brokerHeartbeatInterval": "300",
    "brokerNotActiveTimeoutMillis": "2000",
    "syncBrokerMemberGroupPeriod": "300",
    "totalReplicas": "2",
    "slaveReadEnable": "true",
}
_NAME_SERVER = {
    "supportActingMaster": "true",
    "notifyMinBrokerIdChanged": "true",
    "scanNotActiveBrokerInterval": "500",
}
_ACL = {
    "subject": "User:app",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {"resource": f"Topic:{TOPIC}", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
                {"resource": f"Group:{GROUP}", "actions": ["Sub", "Get", "Update"], "decision": "Allow"},
            ],
        }
    ],
}


def ask(
    server: Server, who: Credentials | None, code: int, fields: Mapping[str, str], body: object = None
) -> wire.Response:
    content = b"" if body is None else json.dumps(body).encode()
    signed = dict(fields) if who is None else who.signed(fields, content)
    return wire.invoke(server.address, code, signed, content, timeout_s=20)


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {_LIMIT_S:g} s: {what}"
        time.sleep(0.1)


class SecureCluster(SprocketCluster):
    """Its name servers answer who signs."""

    def await_registered(self, broker: Server) -> None:
        for server in self.name_servers:

            def is_known(server: Server = server) -> bool:
                broker.check()
                return broker.address.encode() in ask(server, ADMIN, wire.GET_BROKER_CLUSTER_INFO, {}).body

            until(is_known, f"{broker.name} is registered")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure")
    cluster = SecureCluster(directory, brokers=2, slaves=2, properties=_SECURITY | _BROKER)
    (name_server,) = cluster.name_servers
    with (name_server.directory / "namesrv.conf").open("a") as configuration:
        configuration.writelines(f"{key}={value}\n" for key, value in (_SECURITY | _NAME_SERVER).items())
    with cluster:
        cluster.start_slaves()
        for server in (*cluster.name_servers, *cluster.brokers):
            user = {"username": "app", "password": APP.secret_key}
            assert ask(server, ADMIN, RequestCode.AUTH_CREATE_USER, {"username": "app"}, user).code == 0
            assert ask(server, ADMIN, RequestCode.AUTH_CREATE_ACL, {"subject": "User:app"}, _ACL).code == 0
        for broker in cluster.brokers:
            until(lambda broker=broker: send(broker) == 0, "the slave has what its master acknowledges")
        yield cluster


def send(broker: Server, who: Credentials | None = ADMIN, topic: str = TOPIC) -> int:
    """What a send is answered; of a master that waits for its slave, 0 says that both have it."""
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "2", "e": "0", "f": "0", "g": "1750000000000", "h": "0",
        "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return ask(broker, who, wire.SEND_MESSAGE_V2, fields, "first").code


def settings(cluster: Cluster, who: Credentials | None) -> ClientSettings:
    return ClientSettings(namesrv=cluster.name_server_address, credentials=who)


def test_no_door_is_open_unsigned(cluster: Cluster) -> None:
    strangers = (None, Credentials("admin", "secret-of-nobody"), Credentials("nobody", ADMIN.secret_key))
    offset = {"topic": TOPIC, "queueId": "0"}
    for who in strangers:
        for server in (*cluster.brokers, *cluster.slaves):
            assert send(server, who) == _NO_PERMISSION
            for code, fields in ((30, offset), (21, {}), (43, {}), (25, {}), (28, {}), (906, {}), (21001, {})):
                assert ask(server, who, code, fields).code == _NO_PERMISSION, code
        for server in cluster.name_servers:
            for code in (100, 103, 104, 105, 106, 206, 318, 319, 904):
                assert ask(server, who, code, {"topic": TOPIC, "clusterName": CLUSTER_NAME}).code == _NO_PERMISSION


def test_slaves_know_the_users_of_their_masters(cluster: Cluster) -> None:
    for slave in cluster.slaves:
        fields = {"topic": TOPIC, "queueId": "0"}
        until(lambda slave=slave, fields=fields: ask(slave, APP, 30, fields).code == 0, "the slave has the user")
        assert ask(slave, APP, 30, fields | {"topic": "Other"}).code == _NO_PERMISSION


@pytest.mark.java
def test_stock_clients_sign_or_are_refused(java: None, cluster: Cluster, tmp_path: Path) -> None:
    namesrv, scenarios = cluster.name_server_address, ("concurrent-push", "orderly-push")
    account = (ADMIN.access_key, ADMIN.secret_key)
    signed = run_scenarios(namesrv, "5.3.3", "JSON", tmp_path / "signed", scenarios, account)
    assert {name: outcome.message for name, outcome in signed.items() if not outcome.passed} == {}
    assert set(signed) == set(scenarios)
    unsigned = run_scenarios(namesrv, "5.3.3", "ROCKETMQ", tmp_path / "unsigned", ("sync-send",))
    assert "username cannot be null" in unsigned["sync-send"].message


@pytest.mark.java
def test_mqadmin_signs_or_is_refused(java: None, cluster: Cluster, tmp_path: Path) -> None:
    listing = ("clusterList", "-n", cluster.name_server_address)
    refused = mqadmin(tmp_path / "without", *listing)
    assert "broker-a" not in refused.stdout
    conf = tmp_path / "with" / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    shown = mqadmin(tmp_path / "with", *listing)
    assert shown.stdout.count("broker-a") == shown.stdout.count("broker-b") == 2, shown.stdout + shown.stderr


async def test_an_application_goes_on_through_the_slave(cluster: Cluster) -> None:
    async with Producer("strangers", client=settings(cluster, None)) as stranger:
        with pytest.raises(SprocketError):
            await stranger.send(Message(TOPIC, b"unsigned"))
    master, slave = cluster.brokers[0], cluster.slaves[0]
    gate = asyncio.Event()
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"4":
            await gate.wait()
        seen.append(message.body)

    app = settings(cluster, APP)
    async with (
        Producer("writers", client=app) as producer,
        OrderlyConsumer(GROUP, [TOPIC], client=app, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        running = asyncio.create_task(consumer.run(handle))
        for number in range(10):
            await producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "broker-a", 0))
        with pytest.raises(SprocketError):
            await producer.send(Message("Other", b"not mine"))
        await asyncio.to_thread(until, lambda: b"3" in seen, "what is before the gate is seen")
        await asyncio.to_thread(until, lambda: max_offset(slave) == max_offset(master) >= 10, "the slave has all")
        master.kill()
        gate.set()
        await asyncio.to_thread(until, lambda: b"9" in seen, "the rest is seen through the slave")
        await asyncio.to_thread(master.start)
        await asyncio.to_thread(cluster.await_registered, master)
        await asyncio.to_thread(until, lambda: send(master) == 0, "the master and its slave take messages again")
    await asyncio.wait_for(running, 30)
    assert list(dict.fromkeys(body for body in seen if body != b'"first"')) == [b"%d" % number for number in range(10)]


def max_offset(server: Server) -> int:
    return int(ask(server, ADMIN, 30, {"topic": TOPIC, "queueId": "0"}).fields.get("offset", -1))
