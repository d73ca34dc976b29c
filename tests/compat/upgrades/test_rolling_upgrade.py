"""Rolling upgrade of running clusters, one server at a time, and back: controllers, proxies, TLS, accounts of ACL 1.0.

Each test starts servers of the previous version, see `tests.compat.upgrades.previous`, and sends through the cluster
after each step.  `test_upgrade` has stores, and a master with a slave.
"""

import asyncio
import datetime
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

import sprocket
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket_cli.processes.tls_folder import HOSTS, TlsFolder
from tests.compat import ports, wire
from tests.compat.cluster import CLUSTER_NAME, Server, SprocketCluster
from tests.compat.controllers.controllers import GROUP, TOPIC, ControllerCluster
from tests.compat.maven import ROOT
from tests.compat.replication.replicas import Replicas, log_end, same_logs, send, until
from tests.compat.upgrades.previous import become, previous_source, server_of

pytestmark = pytest.mark.timeout(600)

# A snapshot after a few changes instead of thousands.
_SNAPSHOTS: Final = "import ha.raft.engine; ha.raft.engine.COMPACT_ENTRIES = 10"
_APPLY_BROKER_ID: Final = 1013
_MANY: Final = 30


@pytest.fixture(scope="module")
def source() -> Path:
    """Folder with the source code of the previous version."""
    return previous_source()


@pytest.mark.slow
def test_controllers_with_snapshots_and_their_brokers(source: Path, tmp_path: Path) -> None:
    """Followers, leader, slave, master; then one controller goes back.  Groups and epochs outlive all steps."""

    def controller(folder: Path, server: Server) -> Sequence[str]:
        return server_of(folder, "mqcontroller", server.directory / "controller.conf", before=_SNAPSHOTS)

    def broker(folder: Path, server: Server) -> Sequence[str]:
        return server_of(folder, "mqbroker", server.directory / "broker.conf")

    with ControllerCluster(tmp_path, count=3) as cluster:
        for server in cluster.controllers:
            server.command = controller(source, server)
        cluster.start_controllers()
        brokers = [cluster.add_sprocket_broker(number) for number in (0, 1)]
        for count, server in enumerate(brokers, 1):
            server.command = broker(source, server)
            server.start()
            until(lambda: cluster.in_sync() == count, f"{count} replicas are in sync")  # noqa: B023
        promise = Promise(cluster, brokers)
        promise.keep("all servers run the previous version")
        for number in range(_MANY):
            apply_broker_id(cluster, f"group-{number}")
        snapshots = [server.directory / "store" / "snapshot" for server in cluster.controllers]
        until(lambda: all(list(one.parent.rglob("snapshot")) for one in snapshots), "all controllers have snapshots")

        leader = cluster.leader()
        followers = [server for server in cluster.controllers if server is not leader]
        for server in (*followers, leader):
            assert server is not None
            restart_controller(cluster, server, controller(ROOT, server))
            promise.keep(f"{server.name} runs this version")
            assert applied_ids(cluster) == _MANY
        master = cluster.master(brokers)
        assert master is not None
        (slave,) = (server for server in brokers if server is not master)
        become(slave, broker(ROOT, slave))
        promise.keep("the slave runs this version")
        master.stop()
        until(lambda: cluster.master(brokers) is slave, "the slave leads")
        master.command = broker(ROOT, master)
        master.start()
        promise.keep("all servers run this version")
        restart_controller(cluster, followers[0], controller(source, followers[0]))
        promise.keep("one controller went back")
        assert applied_ids(cluster) == _MANY
        promise.check_logs()


def restart_controller(cluster: ControllerCluster, server: Server, command: Sequence[str]) -> None:
    become(server, command)
    until(lambda: cluster.knows_leader(server), f"{server.name} knows the leader")
    until(cluster.leader, "the controllers agree on a leader")


def apply_broker_id(cluster: ControllerCluster, name: str) -> None:
    """Register the id of a broker that never starts: one change for the controllers to remember."""
    leader = cluster.leader()
    assert leader is not None
    fields = {"clusterName": CLUSTER_NAME, "brokerName": name, "appliedBrokerId": "1", "registerCheckCode": "x;1"}
    assert wire.invoke(leader.address, _APPLY_BROKER_ID, fields).code == 0


def applied_ids(cluster: ControllerCluster) -> int:
    """Return in how many of the groups the leader refuses the id that another broker has."""
    leader = cluster.leader()
    assert leader is not None
    refused = 0
    for number in range(_MANY):
        fields = {
            "clusterName": CLUSTER_NAME, "brokerName": f"group-{number}", "appliedBrokerId": "1",
            "registerCheckCode": "y;2",
        }  # fmt: skip
        refused += wire.invoke(leader.address, _APPLY_BROKER_ID, fields).code != 0
    return refused


class Promise:
    """What must hold after each step: both brokers are in sync, the epoch never falls, and sends are acknowledged."""

    def __init__(self, cluster: ControllerCluster, brokers: Sequence[Server]) -> None:
        self._cluster, self._brokers = cluster, brokers
        self._epoch = 0
        self._topic_exists = False

    def keep(self, step: str) -> None:
        """Wait until the group is complete, and send."""
        until(lambda: self._cluster.in_sync() == 2 and self._cluster.master(self._brokers), f"both in sync: {step}")
        epoch = int(self._cluster.replica_info()["masterEpoch"])
        assert epoch >= self._epoch, step
        self._epoch = epoch
        if not self._topic_exists:
            wire.create_topic(self._master.address, TOPIC, 4)
            self._topic_exists = True
        until(self._sends, f"a send is acknowledged: {step}")

    @property
    def _master(self) -> Server:
        master = self._cluster.master(self._brokers)
        assert master is not None
        return master

    def _sends(self) -> bool:
        try:
            send(self._master.address, 4, 500)
        except AssertionError:  # the master has yet to learn of its slave
            return False
        return True

    def check_logs(self) -> None:
        """Both brokers have one log."""
        end = log_end(self._master.address)
        for server in self._brokers:
            assert server.stop() == 0
        assert same_logs(self._brokers[0], self._brokers[1], end) == 0


@pytest.mark.slow
async def test_a_proxy_its_broker_and_its_name_server(source: Path, tmp_path: Path) -> None:
    """Each runs beside previous versions of the others; what was sent before a step is received after it."""
    port = ports.free_port()
    with SprocketCluster(tmp_path) as cluster:
        (name_server,), (broker,) = cluster.name_servers, cluster.brokers
        settings = tmp_path / "rmq-proxy.json"
        settings.write_text(json.dumps({
            "rocketMQClusterName": CLUSTER_NAME, "grpcServerPort": port, "remotingListenPort": ports.free_port(),
            "bindAddress": "127.0.0.1",
        }))  # fmt: skip
        proxy = Server("proxy", f"127.0.0.1:{port}", (), tmp_path, {})

        def command(folder: Path, server: Server) -> Sequence[str]:
            if server is proxy:
                return server_of(folder, "mqproxy", settings, "-n", name_server.address, flag="-pc")
            if server is broker:
                return server_of(folder, "mqbroker", broker.directory / "broker.conf")
            return server_of(folder, "mqnamesrv", name_server.directory / "namesrv.conf")

        wire.create_topic(broker.address, TOPIC, 2)
        for server in (name_server, broker):
            become(server, command(source, server))
        await_registered(cluster)
        proxy.command = command(source, proxy)
        proxy.start()
        try:
            async with sprocket.connect(f"grpc://{proxy.address}") as mq:
                await passes(mq, b"first")
                steps = [(server, ROOT) for server in (name_server, broker, proxy)]
                for number, (server, folder) in enumerate([*steps, (proxy, source), (broker, source)]):
                    body = b"sent before step %d" % number
                    await sent(mq, body)
                    become(server, command(folder, server))
                    await_registered(cluster)
                    await received(mq, {body})
                    await passes(mq, b"sent after step %d" % number)
        finally:
            proxy.stop()


def await_registered(cluster: SprocketCluster) -> None:
    until(lambda: wire.invoke(cluster.name_servers[0].address, wire.GET_BROKER_CLUSTER_INFO).code == 0, "it answers")
    cluster.await_registered(cluster.brokers[0])


async def sent(mq: sprocket.Connection, body: bytes) -> None:
    """Send, also through a proxy that has just started."""
    async with asyncio.timeout(60):
        while True:
            try:
                await mq.producer().send(sprocket.Message(TOPIC, body))
                return
            except sprocket.SprocketError:
                await asyncio.sleep(0.1)


async def received(mq: sprocket.Connection, expected: set[bytes]) -> None:
    """Receive and acknowledge until all of `expected` came."""
    missing = set(expected)
    consumer = mq.simple_consumer("upgraders", TOPIC)
    async with asyncio.timeout(60):
        while missing:
            try:
                for message in await consumer.receive(8, invisible=20.0, wait_s=1.0):
                    await consumer.ack(message)
                    missing.discard(message.body)
            except sprocket.SprocketError:
                await asyncio.sleep(0.1)


async def passes(mq: sprocket.Connection, body: bytes) -> None:
    await sent(mq, body)
    await received(mq, {body})


@pytest.fixture
def keys(tmp_path: Path) -> TlsFolder:
    folder = TlsFolder(tmp_path / "keys")
    folder.create(HOSTS, datetime.datetime.now(datetime.UTC), 10)
    return folder


@pytest.mark.slow
async def test_a_master_and_its_slave_that_demand_tls(source: Path, keys: TlsFolder, tmp_path: Path) -> None:
    """Slave, master, and back: a client sends over TLS, and each send waits for the slave."""
    security = {
        "tls.server.mode": "enforcing",
        "tls.config.file": str(keys.properties("broker")),
        "haSecretFile": str(keys.replication_secret),
        "inSyncReplicas": "2",
    }
    with Replicas(tmp_path) as replicas:
        master, slave = (
            replicas.add("sprocket", GROUP, number, "SLAVE" if number else "SYNC_MASTER", **security)
            for number in (0, 1)
        )
        # The harness asks the name server in clear; brokers and clients use TLS.
        name_server = replicas.cluster.name_servers[0]
        with (name_server.directory / "namesrv.conf").open("a") as file:
            file.write(f"tls.server.mode=permissive\ntls.config.file={keys.properties('namesrv')}\n")
        become(name_server, server_of(source, "mqnamesrv", name_server.directory / "namesrv.conf"))
        until(lambda: wire.invoke(name_server.address, wire.GET_BROKER_CLUSTER_INFO).code == 0, "it answers")
        bodies = []
        for server, folder in (
            (master, source), (slave, source), (slave, ROOT), (master, ROOT), (master, source), (slave, source),
        ):  # fmt: skip
            become(server, server_of(folder, "mqbroker", server.directory / "broker.conf"))
            replicas.await_registered(server)
            if slave.process is None:
                continue
            async with sprocket.connect(name_server.address, tls=keys.client_settings()) as mq:
                bodies.append(b"%d" % len(bodies))
                await sent(mq, bodies[-1])
        with pytest.raises((OSError, wire.WireError)):
            wire.invoke(master.address, wire.GET_BROKER_CLUSTER_INFO)
        async with (
            sprocket.connect(name_server.address, tls=keys.client_settings()) as mq,
            asyncio.timeout(60),
            mq.consumer("readers", TOPIC, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            got = set()
            while got != set(bodies):
                message = await anext(consumer)
                got.add(message.body)
                await consumer.ack(message)


_ACCOUNTS: Final = """
globalWhiteRemoteAddresses: []
accounts:
  - {accessKey: Administrator, secretKey: secret-of-admin, admin: true}
  - {accessKey: ReaderOne, secretKey: secret-of-reader, defaultTopicPerm: DENY, topicPerms: [Orders=SUB]}
"""
_ADMIN: Final = Credentials("Administrator", "secret-of-admin")
_READER: Final = Credentials("ReaderOne", "secret-of-reader")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SprocketCluster]:
    """A broker with accounts of ACL 1.0, not started yet."""
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
    cluster = SprocketCluster(
        tmp_path / "servers", properties={"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}
    )
    yield cluster
    cluster.stop()


def test_accounts_of_acl_1_judge_as_before(source: Path, guarded: SprocketCluster) -> None:
    """Accounts that either version wrote to plain_acl.yml hold in the other one."""
    (broker,) = guarded.brokers
    configuration = broker.directory / "broker.conf"
    broker.command = server_of(source, "mqbroker", configuration)
    guarded.start()

    def code(who: Credentials | None, request: int, body: bytes = b"", **fields: str) -> int:
        return wire.invoke(broker.address, request, fields if who is None else who.signed(fields, body), body).code

    def verdicts() -> dict[str, int]:
        people: dict[str, Credentials | None] = {
            "admin": _ADMIN, "reader": _READER, "nobody": None,
            "wrong key": Credentials("ReaderOne", "secret-of-nobody"),
            "first": Credentials("FirstOne", "secret-of-firstone"),
            "second": Credentials("SecondOne", "secret-of-secondone"),
        }  # fmt: skip
        asked: dict[str, Callable[[Credentials | None], int]] = {
            "pull": lambda who: code(who, RequestCode.GET_MAX_OFFSET, topic="Orders", queueId="0"),
            "send": lambda who: code(who, RequestCode.SEND_MESSAGE_V2, b"body", **_SEND),
            "change": lambda who: code(who, RequestCode.UPDATE_BROKER_CONFIG),
        }
        return {f"{name} {what}": ask(who) for name, who in people.items() for what, ask in asked.items()}

    def put(name: str) -> None:
        fields = {"accessKey": name, "secretKey": f"secret-of-{name.lower()}", "admin": "false"}
        fields |= {"defaultTopicPerm": "PUB", "defaultGroupPerm": "SUB"}
        assert code(_ADMIN, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **fields) == 0

    put("FirstOne")
    before = verdicts()
    assert before["first send"] == before["admin send"] == ResponseCode.SUCCESS
    assert before["reader send"] == before["nobody send"] == before["second send"] != ResponseCode.SUCCESS
    for folder, name in ((ROOT, "SecondOne"), (source, "ThirdOne")):
        become(broker, server_of(folder, "mqbroker", configuration))
        guarded.await_registered(broker)
        assert verdicts() == before
        put(name)
        before = verdicts()
    assert before["second send"] == ResponseCode.SUCCESS


_SEND: Final = {
    "a": "PG", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1750000000000", "h": "0", "i": "",
    "j": "0", "k": "false", "m": "false",
}  # fmt: skip
